"""An agent that calls with a client people use: `python -m tests.sdk.http_agent BASE CLIENT`.

On stdin, as JSON, the calls, and after how many of them it is killed. It prints a line for each answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import TypeAlias

Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
JSON = {"Content-Type": "application/json"}
NODE = """
const [method, url, body] = process.argv.slice(1);
const asked = {method, headers: {'Content-Type': 'application/json'}, body: body || undefined};
fetch(url, asked).then(async got => process.stdout.write(JSON.stringify(
  [got.status, [...got.headers], Buffer.from(await got.arrayBuffer()).toString('base64')])));
"""


def with_requests(method: str, url: str, body: bytes) -> Answer:
    import requests

    got = requests.request(method, url, data=body or None, headers=JSON, timeout=30)
    return got.status_code, list(got.headers.items()), got.content


def with_httpx(method: str, url: str, body: bytes) -> Answer:
    import httpx

    got = httpx.request(method, url, content=body or None, headers=JSON)
    return got.status_code, list(got.headers.items()), got.content


def with_aiohttp(method: str, url: str, body: bytes) -> Answer:
    import aiohttp

    async def ask() -> Answer:
        async with (
            aiohttp.ClientSession(trust_env=True) as session,
            session.request(method, url, data=body or None, headers=JSON) as got,
        ):
            return got.status, list(got.headers.items()), await got.read()

    return asyncio.run(ask())


def with_urllib(method: str, url: str, body: bytes) -> Answer:
    asked = urllib.request.Request(url, body or None, JSON, method=method)
    with urllib.request.urlopen(asked, timeout=30) as got:
        return got.status, list(got.headers.items()), got.read()


def with_curl(method: str, url: str, body: bytes) -> Answer:
    data = ["--data-binary", "@-"] if body else []
    words = ["curl", "-sS", "-m", "30", "-i", "--suppress-connect-headers", "-X", method, "-H",
             "Content-Type: application/json", *data, url]  # fmt: skip
    whole = subprocess.run(words, input=body, stdout=subprocess.PIPE, check=True).stdout
    head, _, content = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return int(first.split(" ")[1]), headers, content


def with_node(method: str, url: str, body: bytes) -> Answer:
    words = ["node", "-e", NODE, method, url, body.decode()]
    status, headers, content = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    return status, [(name, value) for name, value in headers], base64.b64decode(content)


CLIENTS: dict[str, Callable[[str, str, bytes], Answer]] = {
    "requests": with_requests,
    "httpx": with_httpx,
    "aiohttp": with_aiohttp,
    "urllib": with_urllib,
    "curl": with_curl,
    "node": with_node,
}


def main() -> None:
    base, client = sys.argv[1:]
    told = json.load(sys.stdin)
    for number, (method, path, body) in enumerate(told["calls"], start=1):
        status, headers, content = CLIENTS[client](method, base + path, body.encode())
        shown = {"status": status, "headers": headers, "body": base64.b64encode(content).decode()}
        print(json.dumps(shown), flush=True)
        if number == told["killed_after"]:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
