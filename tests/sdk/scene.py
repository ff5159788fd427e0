"""What the tests with real clients share: one semel process, APIs behind it with TLS and without, three ways.

`base`: the address of semel with the run in it. `https` and `http`: the API's own address, with semel as the
proxy that the environment names and the run as its user.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from aiohttp import web

from proxy.ca import load_or_make
from proxy.demo.model import Fault, ModelApi, Script, echo
from tests.origin import CERTIFICATE
from tests.process import ROOT, SemelProcess

WAYS = ("base", "https", "http")
# What people set for the clients of these tests, and what must not come in from outside.
TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


async def open_tls(runner: web.AppRunner) -> int:
    """One more door for an API that already has a plain one; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return int(runner.addresses[-1][1])


class Api(Protocol):
    """An API as a policy names it."""

    @property
    def plain(self) -> int: ...
    @property
    def tls(self) -> int: ...


class Model(ModelApi):
    """The scripted model, with TLS too. It keeps the bytes of every body, and can wait in the middle."""

    def __init__(self, script: Script = echo) -> None:
        super().__init__(script)
        self.bodies: list[bytes] = []
        self.pause: asyncio.Event | None = None  # answers wait for it after their third part
        self.tls = 0

    @property
    def plain(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    async def __aenter__(self) -> Model:
        await super().__aenter__()
        self.tls = await open_tls(self._runner)
        return self

    async def _send(
        self, request: web.Request, head: dict[str, str], parts: Iterable[bytes], fault: Fault | None
    ) -> web.StreamResponse:
        parts = list(parts)
        self.bodies.append(b"".join(parts))
        if self.pause is None:
            return await super()._send(request, head, parts, fault)
        response = web.StreamResponse(headers=head)
        await response.prepare(request)
        for number, part in enumerate(parts):
            if number == 3:
                await self.pause.wait()
                if fault is not None and request.transport is not None:
                    request.transport.close()  # in mid-stream, as somebody heard
                    return response
            await response.write(part)
        await response.write_eof()
        return response


class Served:
    """An API of ours, while `async with` holds: one door plain, one with TLS."""

    def __init__(self) -> None:
        self.plain = self.tls = 0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.plain = int(self._runner.addresses[0][1])
        self.tls = await open_tls(self._runner)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raise NotImplementedError


class Tools(Served):
    """An API with effects. Every answer bears its number: a second call never looks like the first."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []  # "METHOD /path body"
        self.faults: deque[int] = deque()

    def count(self, what: str = "") -> int:
        return sum(what in asked for asked in self.asked)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs} {(await request.read()).decode()}")
        number = len(self.asked)
        if self.faults:
            return web.json_response({"failed": number}, status=self.faults.popleft())
        if not request.path.startswith("/events"):
            return web.json_response({"answer": number}, headers={"X-Answer": str(number)})
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Answer": str(number)})
        await reply.prepare(request)
        for word in ("one", "two", "three"):
            await reply.write(f'data: {{"answer": {number}, "word": "{word}"}}\n\n'.encode())
        await reply.write(b"data: [DONE]\n\n")
        await reply.write_eof()
        return reply


class Route(NamedTuple):
    """How one attempt reaches an API: the address it calls, and its environment."""

    url: str
    env: dict[str, str]


@dataclass(slots=True)
class Scene:
    semel: SemelProcess
    apis: Mapping[str, Api]

    @property
    def ca(self) -> str:
        return str(load_or_make(self.semel.state).path)

    def way(self, way: str, api: str, run: str, attempt: str) -> Route:
        unset = {name: "" for proxy in PROXIES for name in (proxy, proxy.lower())}
        if way == "base":
            return Route(f"{self.semel.url}/@{run}+{attempt}/{api}", unset)
        at = f"http://{run}+{attempt}:-@127.0.0.1:{self.semel.port}"
        env = unset | dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), at)
        env |= dict.fromkeys(TRUST, self.ca) | {"NODE_USE_ENV_PROXY": "1"}
        if way == "https":
            return Route(f"https://localhost:{self.apis[api].tls}", env)
        return Route(f"http://localhost:{self.apis[api].plain}", env)


@asynccontextmanager
async def scene(at: Path, apis: Mapping[str, Api], policies: Mapping[str, str]) -> AsyncIterator[Scene]:
    """`policies`: what stands behind the base URL and the hosts of each."""
    directory = at / "policies"
    directory.mkdir()
    for name, api in apis.items():
        hosts = f"hosts: [localhost:{api.tls}, localhost:{api.plain}]"
        text = f"upstream: {name}\nbase_url: https://localhost:{api.tls}\n{hosts}\n{policies.get(name, '')}\n"
        (directory / f"{name}.yaml").write_text(text)
    env = {name: "" for proxy in PROXIES for name in (proxy, proxy.lower())}
    async with SemelProcess(at / "state", directory, env=env | {"SSL_CERT_FILE": str(CERTIFICATE)}) as semel:
        yield Scene(semel, apis)


async def agent(module: str, path: Route, *words: str, told: object = None) -> tuple[int, list[Any], str]:
    """A process `python -m tests.sdk.MODULE`: its exit status, its lines of JSON, what it complained of."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-m", f"tests.sdk.{module}", path.url, *words, cwd=ROOT,
        env={**os.environ, **path.env}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate(json.dumps(told).encode())
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


KILLED = -signal.SIGKILL
