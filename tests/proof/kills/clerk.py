"""The operator of a campaign: settles some of what is in doubt, by what the upstream's books say.

Truthfully: what stands in the books happened, and was answered so. What does not stand there is said not to
have happened only when it cannot happen any more, that is when the call's time and what it takes to come to
light have passed since it was put in doubt. What the clerk does not attend to stays listed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

from tests.inside import Answer, raw_call, request_bytes
from tests.proof.kills.books import Books, answer_to
from tests.proof.kills.draw import CERTAIN

ATTENDED = 0.6  # of the calls, by their id
MARGIN = 1.0
EVERY = 0.4
JSON = {"Content-Type": "application/json"}


class Listing(NamedTuple):
    """All that was listed in doubt, and the times between which it was asked for and had come."""

    begin: float
    end: float
    ids: frozenset[str]


class Clerk:
    """`port`: of a semel that is up, or None. `shown`: every list that came whole."""

    def __init__(self, books: Books, port: Callable[[], int | None]) -> None:
        self._books, self._port = books, port
        self.said: Counter[str] = Counter()
        self.shown: list[Listing] = []

    async def work(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            port = self._port()
            if port is None:
                continue
            try:
                await self._round(port)
            except (ConnectionError, TimeoutError, ValueError):
                continue  # it was killed, or it stands still

    async def _round(self, port: int) -> None:
        begin = time.time()
        doubtful = await listed(port, "in_doubt")
        self.shown.append(Listing(begin, time.time(), frozenset(found["id"] for found in doubtful)))
        for found in doubtful:
            if crc32(found["id"].encode()) % 100 < 100 * ATTENDED:
                await self._attend(port, found["id"])

    async def _attend(self, port: int, call_id: str) -> None:
        answer = await at_the_desk(port, "GET", f"calls/{call_id}")
        if answer.status != 200 or not answer.complete:
            return
        shown = json.loads(answer.body)
        decision = self._decision(shown)
        if decision is None:
            return
        body = {**decision, "reason": "looked into the books", "version": shown["call"]["version"]}
        answer = await at_the_desk(port, "POST", f"calls/{call_id}/resolve", json.dumps(body).encode())
        if answer.complete and answer.status == 200:
            self.said[decision["as"]] += 1

    def _decision(self, shown: dict[str, Any]) -> dict[str, Any] | None:
        # Asked before the books are opened: what happens afterwards must be too late to happen.
        lost = [event["at"] for event in shown["events"] if event["event"] == "lost"]
        since = time.time() - datetime.fromisoformat(lost[-1]).timestamp()
        acts = self._books.look().acts.get(step_of(shown["request"]["target"]), [])
        if acts:
            return {"as": "executed", "status": 200, "body": answer_to(acts[0]).decode()}
        return {"as": "not_executed"} if since > CERTAIN + MARGIN else None


def step_of(target: str) -> str:
    return parse_qs(urlsplit(target).query)["ref"][0]


async def at_the_desk(port: int, method: str, path: str, body: bytes = b"") -> Answer:
    """Of semel itself, past the wire."""
    request = request_bytes(method, f"/_semel/{path}", JSON, body, host=f"127.0.0.1:{port}")
    return await raw_call(port, request, within=10)


async def listed(port: int, state: str) -> list[dict[str, Any]]:
    """All of them, page by page."""
    calls: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = await at_the_desk(port, "GET", f"calls?state={state}&limit=100{after}")
        if not answer.complete or answer.status != 200:
            raise ConnectionError(f"no list: {answer.status}")
        page = json.loads(answer.body)
        calls += page["calls"]
        if page["next"] is None:
            return calls
        after = f"&after={page['next']}"
