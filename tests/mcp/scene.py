"""An MCP server behind semel: where its clients find it, and what semel has on record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.settings import Token
from tests.inside import Answer, raw_call, request_bytes, semel
from tests.mcp.clients import LEGACY
from tests.mcp.wire import Wire
from tests.process import SemelProcess


def policy(port: int, more: str = "") -> str:
    """`more`: further lines of the file."""
    return f"upstream: shop\nprotocol: mcp\nbase_url: http://127.0.0.1:{port}\n{more}\n"


@dataclass(frozen=True, slots=True)
class Behind:
    """`port`: semel's. `run`: as an address has it, RUN+ATTEMPT; empty outside of one."""

    port: int

    def path(self, run: str = "") -> str:
        return f"/@{run}/shop/mcp" if run else "/shop/mcp"

    def url(self, run: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{self.path(run)}"

    async def wire(self, era: str = LEGACY, run: str = "", headers: Mapping[str, str] | None = None) -> Wire:
        return await Wire(self.port, self.path(run), era, dict(headers or {})).opened()

    async def own(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """semel's own API."""
        text = b"" if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **(headers or {})}
        return await raw_call(
            self.port, request_bytes(method, f"/_semel/{path}", given, text, host="127.0.0.1")
        )

    async def calls(self, headers: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """On record, the latest first."""
        answer = await self.own("GET", "calls", headers=headers)
        assert answer.status == 200, answer
        found: list[dict[str, Any]] = json.loads(answer.body)["calls"]
        return found

    async def states(self) -> list[str]:
        return sorted(call["state"] for call in await self.calls())


@asynccontextmanager
async def behind(at: Path, port: int, more: str = "") -> AsyncIterator[Behind]:
    """A semel process."""
    file = at / "shop.yaml"
    file.write_text(policy(port, more))
    async with SemelProcess(at / "state", file) as process:
        yield Behind(process.port)


@asynccontextmanager
async def inside(
    at: Path,
    port: int,
    more: str = "",
    *,
    settings: Mapping[str, object] | None = None,
    tokens: Sequence[Token] = (),
) -> AsyncIterator[Behind]:
    """A semel in the test's own process, for what needs no other."""
    async with semel(at, policy(port, more), settings=settings, tokens=tokens) as app:
        yield Behind(app.address.port)
