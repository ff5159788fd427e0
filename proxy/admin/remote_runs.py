"""Runs, asked of a running proxy over its HTTP API: the same documents, the same errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol
from urllib.parse import urlencode

from proxy.admin.run_desk import Fork
from proxy.admin.views import Json
from proxy.front.run_ref import check_run
from proxy.store.base import RunQuery


class Asking(Protocol):
    """Asks for the component of the schema that is `wanted`; `said` is the body of a decision."""

    def __call__(
        self, wanted: str, method: str, path: str, said: dict[str, object] | None = None
    ) -> Awaitable[Json]: ...


class Streaming(Protocol):
    def __call__(self, path: str) -> Awaitable[AsyncIterator[bytes]]: ...


class RemoteRunDesk:
    """`by` is not sent: the proxy says for itself who asks."""

    def __init__(self, ask: Asking, lines: Streaming) -> None:
        self._ask = ask
        self._lines = lines

    async def page(self, query: RunQuery) -> Json:
        given = {"state": query.state, "limit": query.limit, "after": query.after}
        said = urlencode({name: value for name, value in given.items() if value is not None})
        return await self._ask("RunPage", "GET", f"runs?{said}")

    async def show(self, name: str) -> Json:
        return await self._ask("RunDetail", "GET", f"runs/{check_run(name)}")

    async def fork(self, name: str, fork: Fork) -> Json:
        said: dict[str, object] = {
            "at": fork.at,
            "as": check_run(fork.name),
            "resend": fork.resend,
            "reason": fork.reason,
        }
        return await self._ask("Run", "POST", f"runs/{check_run(name)}/fork", said)

    async def allow(self, name: str, *, by: str, reason: str) -> Json:
        del by
        return await self._ask("Allowed", "POST", f"runs/{check_run(name)}/allow", {"reason": reason})

    async def complete(self, name: str, *, by: str, attempt: str) -> Json:
        del by
        said: dict[str, object] = {"attempt": attempt} if attempt else {}
        return await self._ask("Run", "POST", f"runs/{check_run(name)}/complete", said)

    async def export(self, name: str) -> AsyncIterator[bytes]:
        return await self._lines(f"runs/{check_run(name)}/export")
