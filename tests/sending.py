"""One request through the upstream client, and what came of it: what the tests of the client share."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.core.policy import Timeouts
from proxy.core.reachable import Said
from proxy.spool import Spool
from proxy.upstream.base import Headers, Outgoing, Result
from proxy.upstream.client import HttpUpstream
from tests.origin import CERTIFICATE, LOOPS, Origin, Script

both_loops = pytest.mark.parametrize("loop", LOOPS)

QUICK = Timeouts(connect=5.0, idle=5.0, total=20.0)


class Collecting:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.parts: list[bytes] = []

    def head(self, status: int, headers: Headers) -> None:
        assert not self.status, "the head is given once"
        self.status, self.headers = status, headers

    async def data(self, chunk: bytes) -> None:
        assert self.status, "the head comes before the body"
        assert chunk, "no empty parts"
        self.parts.append(chunk)

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


def request(
    port: int,
    method: str = "POST",
    *,
    target: bytes = b"/path",
    headers: Headers = (),
    body: bytes | Spool | None = b"",
    timeouts: Timeouts = QUICK,
    max_idle: float = 10.0,
    scheme: str = "http",
    host: str = "127.0.0.1",
    said: Said = Said.NAMED,
) -> Outgoing:
    spool = Spool.of(body) if isinstance(body, bytes) else body
    length = ((b"Content-Length", b"%d" % spool.size),) if spool is not None else ()
    return Outgoing(
        scheme=scheme,
        host=host,
        port=port,
        method=method,
        target=target,
        headers=((b"Host", b"upstream.example"), *headers, *length),
        body=spool,
        timeouts=timeouts,
        max_idle=max_idle,
        said=said,
    )


def yes() -> bool:
    return True


@contextlib.asynccontextmanager
async def client(
    *, clock: Callable[[], float] = time.monotonic, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[HttpUpstream]:
    upstream = HttpUpstream(clock=clock, ssl_context=ssl_context)
    try:
        yield upstream
    finally:
        await upstream.close()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


async def ask(script: Script, method: str = "POST", **options: object) -> tuple[Result, Collecting]:
    """One request to an origin with this script."""
    sink = Collecting()
    async with Origin(script) as origin, client() as upstream:
        result = await upstream.send(request(origin.port, method, **options), sink, yes)  # type: ignore[arg-type]
    return result, sink
