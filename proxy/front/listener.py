"""Every client gets a connection, up to a limit; their short replies go out together."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import http_parser
from aiohttp.web import Server

from proxy.front.arriving import ConnectionLimits, Express, Recalls
from proxy.front.connection import Connection
from proxy.front.forwarded import Inside
from proxy.front.whole import WholeReader


def require_c_parser() -> None:
    """Smuggling defects of the past sat in the pure-Python parser: do not run on it."""
    if getattr(http_parser, "HttpRequestParserC", None) is not http_parser.HttpRequestParser:
        raise RuntimeError("aiohttp's C extension is missing: install a wheel of aiohttp with extensions")


class Listener(Server):
    """Makes a Connection for every client and counts them."""

    def __init__(
        self,
        handler: Any,  # noqa: ANN401
        *,
        limits: ConnectionLimits,
        refused: Any,  # noqa: ANN401
        recall: Recalls | None = None,
        express: Express | None = None,
    ) -> None:
        require_c_parser()
        super().__init__(handler, handler_cancellation=True)
        self.handler = handler
        self.limits = limits
        self.refused = refused  # told of every refusal that never became a request
        self.whole = WholeReader()
        self.recall = recall
        self.express = express
        self._to_flush: list[Connection] = []

    @property
    def is_alone(self) -> bool:
        """An agent that has the proxy to itself."""
        return len(self._connections) == 1

    def flush_soon(self, connection: Connection) -> None:
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_flush.append(connection)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def __call__(self) -> Connection:
        return self.connection(None)

    def connection(self, inside: Inside | None) -> Connection:
        return Connection(
            self,
            inside,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=75.0,
            lingering_time=2.0,
            # Ours is the bound that counts; aiohttp's must not come first with words of its own.
            max_line_size=self.limits.headers,
            max_field_size=self.limits.headers,
            max_headers=1000,
        )
