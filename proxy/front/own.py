"""semel's own addresses: /metrics, /healthz (the process lives), /readyz (the store answers)."""

from __future__ import annotations

import time

from aiohttp.web import BaseRequest

from proxy.core.headers import Headers
from proxy.errors import BadRequest, StoreUnavailable, UnknownUpstream
from proxy.metrics import CONTENT_TYPE, MetricsObserver
from proxy.store.base import Store


class OwnPages:
    def __init__(self, *, store: Store, metrics: MetricsObserver) -> None:
        self._store = store
        self._metrics = metrics

    async def __call__(self, request: BaseRequest, path: str) -> tuple[int, Headers, bytes]:
        if request.method not in ("GET", "HEAD"):
            raise BadRequest(f"{path} is read with GET.")
        if path == "/metrics":
            return _plain(200, await self._render(), CONTENT_TYPE)
        if path == "/healthz":
            return _plain(200, b"ok\n")
        if path == "/readyz":
            return await self._ready()
        raise UnknownUpstream(f"There is nothing at {path[:100]}.")

    async def _render(self) -> bytes:
        try:
            census = await self._store.census()
        except StoreUnavailable:
            census = None
        return self._metrics.render(census, time.time())

    async def _ready(self) -> tuple[int, Headers, bytes]:
        await self._store.ping()  # raises StoreUnavailable: the problem says so
        return _plain(200, b"ready\n")


def _plain(
    status: int, body: bytes, content_type: bytes = b"text/plain; charset=utf-8"
) -> tuple[int, Headers, bytes]:
    return status, ((b"Content-Type", content_type), (b"Content-Length", b"%d" % len(body))), body
