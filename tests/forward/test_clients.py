"""Clients that people use, with the variables that people set: nothing of semel in their code."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.forward.scene import Scene, scene
from tests.inside import until

pytestmark = pytest.mark.usefixtures("forward_store")

# Each posts the same body to two addresses, one after the other, and prints Semel-Status and Semel-Call.
REQUESTS = """
import requests, sys
for url in sys.argv[1:]:
    got = requests.post(url, data=b'{"to": "a"}', headers={"Content-Type": "application/json"})
    print(got.headers["Semel-Status"], got.headers["Semel-Call"], got.text)
"""
HTTPX = """
import httpx, sys
with httpx.Client() as client:
    for url in sys.argv[1:]:
        got = client.post(url, json={"to": "a"})
        print(got.headers["Semel-Status"], got.headers["Semel-Call"], got.text)
"""
AIOHTTP = """
import aiohttp, asyncio, sys
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        for url in sys.argv[1:]:
            async with session.post(url, json={"to": "a"}) as got:
                print(got.headers["Semel-Status"], got.headers["Semel-Call"], await got.text())
asyncio.run(main())
"""
URLLIB = """
import sys, urllib.request
for url in sys.argv[1:]:
    asked = urllib.request.Request(url, b'{"to": "a"}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as got:
        print(got.headers["Semel-Status"], got.headers["Semel-Call"], got.read().decode())
"""
CURL = """
for url in "$@"; do
  curl -sS -m 20 -d '{"to": "a"}' -H 'Content-Type: application/json' -D /dev/stderr -o - "$url" 2>&1 \\
    | tr -d '\\r' | awk '/^Semel-Status:/{s=$2} /^Semel-Call:/{c=$2} END{print s, c, $0}'
done
"""
PYTHON = {"requests": REQUESTS, "httpx": HTTPX, "aiohttp": AIOHTTP, "urllib": URLLIB}


def command(client: str) -> list[str]:
    if client == "curl":
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        return ["sh", "-c", CURL, "sh"]
    return [sys.executable, "-W", "ignore", "-c", PYTHON[client]]


async def run(
    there: Scene, client: str, *urls: str, trusting: bool = True, user: str = ""
) -> list[list[str]]:
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    at = f"http://{user}127.0.0.1:{there.port}"
    env |= {"https_proxy": at, "http_proxy": at, "HTTPS_PROXY": at, "no_proxy": ""}
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        env.pop(name, None)
        if trusting:
            env[name] = str(there.ca)
    process = await asyncio.create_subprocess_exec(
        *command(client), *urls, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    if trusting:
        assert process.returncode == 0, err.decode()
    return [line.split() for line in out.decode().splitlines()]


@pytest.mark.parametrize("client", [*PYTHON, "curl"])
async def test_the_same_post_through_the_proxy_and_through_the_base_url_is_one_call(
    tmp_path: Path, client: str
) -> None:
    """HTTPS_PROXY with semel's CA, then the base URL: executed, replayed, one id, one request upstream."""
    async with scene(tmp_path, path="/v1") as there:
        through_proxy = f"https://{there.authority}/v1/send"
        through_base = f"http://127.0.0.1:{there.port}/up/send"
        first, second = await run(there, client, through_proxy, through_base)
        assert [first[0], second[0]] == ["executed", "replayed"]
        assert first[1] == second[1]
        assert first[2] == second[2] == "ok"
        assert there.origin.started == 1


@pytest.mark.parametrize("client", [*PYTHON, "curl"])
async def test_plain_http_goes_through_the_proxy_too(tmp_path: Path, client: str) -> None:
    """HTTP_PROXY, with a run and an attempt as its user."""
    async with scene(tmp_path, tls=False) as there:
        url = f"http://{there.authority}/send"
        # urllib says nothing of a user without a password; without auth any will do.
        (first,) = await run(there, client, url, user="task+one:any@")
        (second,) = await run(there, client, url, user="task+two:any@")
        assert (first[0], second[0]) == ("executed", "replayed")
        assert first[1] == second[1]
        record = await there.app.store.get_run("default", "task")
        assert record is not None


@pytest.mark.parametrize("client", [*PYTHON, "curl"])
async def test_a_client_without_the_ca_fails_and_the_log_says_what_to_set(
    tmp_path: Path, client: str
) -> None:
    """Nothing is sent; one line."""
    async with scene(tmp_path) as there:
        got = await run(there, client, f"https://{there.authority}/send", trusting=False)
        assert not [line for line in got if "executed" in line]
        await until(lambda: there.told("tls-not-agreed"))
        (told,) = there.told("tls-not-agreed")
        assert json.dumps(told).count(str(there.ca)) >= 1
        assert there.origin.connections == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
async def test_node_accepts_the_certificate(tmp_path: Path) -> None:
    """Older versions know no proxy of their own: a CONNECT by hand, then TLS with NODE_EXTRA_CA_CERTS."""
    script = """
    const http = require('http'), https = require('https');
    const [proxy, authority] = process.argv.slice(1);
    const port = Number(authority.split(':')[1]);
    http.request({host: '127.0.0.1', port: Number(proxy), method: 'CONNECT', path: authority})
      .on('connect', (_, socket) => https.request(
        {socket, agent: false, host: 'localhost', servername: 'localhost', port, path: '/x', method: 'POST'},
        got => { console.log(got.headers['semel-status']); got.resume().on('end', () => process.exit()); }
      ).end('x')).end();
    """
    async with scene(tmp_path) as there:
        process = await asyncio.create_subprocess_exec(
            "node",
            "-e",
            script,
            str(there.port),
            there.authority,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(there.ca)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert out == b"executed\n", err.decode()
