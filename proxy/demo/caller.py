"""How the demo's agents call: through semel, in turn, and no more often in all than was asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import aiohttp

from proxy.demo.tools import MISHAP

# Seconds for one call.
PATIENCE = 30.0
_PROBLEM = "urn:semel:"
_NOT_LET_IN = frozenset({"unauthorized", "forbidden"})


class Enough(Exception):
    """As many calls were made as should be."""


class NotLetIn(Exception):
    """semel does not know the token, or not as an agent's: no call will ever go through."""


class Heard(NamedTuple):
    status: int
    semel: str  # Semel-Status
    problem: str = ""  # the name of semel's own answer


class Pace:
    """`rate` calls a second over all agents; `most`: then Enough."""

    def __init__(self, rate: float, most: int | None = None) -> None:
        self._gap = 1 / rate
        self._left = most
        self._next = 0.0

    async def turn(self, calls: int = 1) -> None:
        """For so many at the same time."""
        if self._left is not None:
            if self._left < calls:
                raise Enough
            self._left -= calls
        now = asyncio.get_running_loop().time()
        begins = max(self._next, now)
        self._next = begins + calls * self._gap
        await asyncio.sleep(begins - now)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `mishap` is what the toy is to do wrong (tools.py), and no part of the call."""

    method: str
    path: str  # of the upstream, with its name: /payments/charges
    body: object = None
    run: str = ""
    attempt: str = ""
    mishap: str = ""
    key: str = ""  # Idempotency-Key

    def headers(self, token: str) -> dict[str, str]:
        told = {
            "Semel-Token": token,
            "Semel-Run": self.run,
            "Semel-Attempt": self.attempt,
            "Idempotency-Key": self.key,
            MISHAP: self.mishap,
        }
        return {name: value for name, value in told.items() if value}


@dataclass(slots=True)
class Caller:
    session: aiohttp.ClientSession
    proxy: str
    token: str
    pace: Pace
    counted: Counter[str] = field(default_factory=Counter)

    async def call(self, ask: Ask) -> Heard:
        await self.pace.turn()
        return await self._send(ask)

    async def twice_at_once(self, ask: Ask) -> tuple[Heard, Heard]:
        """As a client does that has lost its patience, and asks while the first is under way."""
        await self.pace.turn(2)
        return await asyncio.gather(self._send(ask), self._send(ask))

    async def _send(self, ask: Ask) -> Heard:
        async with self.session.request(
            ask.method,
            self.proxy + ask.path,
            json=ask.body,
            headers=ask.headers(self.token),
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
        ) as answer:
            body = await answer.read()
            semel = answer.headers.get("Semel-Status", "")
            kind = str((await answer.json(content_type=None)).get("type", "")) if semel == "refused" else ""
        problem = kind.removeprefix(_PROBLEM)
        if problem in _NOT_LET_IN:
            raise NotLetIn(body.decode(errors="replace"))
        self.counted[semel or "not semel"] += 1
        return Heard(answer.status, semel, problem)
