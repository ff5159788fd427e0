"""Semels that go by plans, and one beside that takes every head for new: what the tests of plans share.

Both have the same secret and stand before the same origin, so what they make of one request can be compared
to the last byte. No semel here answers from memory: every request is decided.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from proxy.app import App
from proxy.core.intent import Call
from proxy.front.plans import NoPlan, Plan
from proxy.settings import Token
from proxy.store.base import BlobRef
from proxy.store.codec import Codec, StoredRequest
from tests.inside import Answer, raw_call, request_bytes, semel
from tests.origin import ECHO, Origin, Script

JSON = {"Content-Type": "application/json"}
RULE = "[{{name: r, match: {{path: '/x/{{who}}'}}, tool: hammer{more}}}]"
ENDING = b"\r\n\r\n"


def rule(more: str = "") -> str:
    """The one rule of a policy. `more`: what it says beside its name and path."""
    return RULE.format(more=f", {more}" if more else "")


def policy(port: int, rules: str, more: str = "") -> str:
    return f"upstream: up\nbase_url: http://127.0.0.1:{port}/base\n{more}rules: {rules}\n"


def post(body: bytes, headers: Mapping[str, str] = JSON, target: str = "/up/x/ann") -> bytes:
    return request_bytes("POST", target, headers, body, host="127.0.0.1")


class Told(NamedTuple):
    """All that one request has left behind, but for the times."""

    answer: tuple[int, list[tuple[bytes, bytes]], bytes]
    sent: list[tuple[bytes, bytes]]  # heads and bodies, as they reached the origin
    row: Call | None
    request: StoredRequest | None
    long_body: bytes  # where that is no part of the row
    history: Sequence[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Side:
    """`forgets`: every head is taken for new, and so every request takes the long way."""

    app: App
    origin: Origin
    log: io.StringIO
    forgets: bool = False

    @property
    def port(self) -> int:
        return self.app.address.port

    def plan_of(self, request: bytes) -> Plan | NoPlan | None:
        """What is kept for requests with this head; None: nothing."""
        head = self.app._listener.whole._known.get(request.partition(ENDING)[0] + ENDING)
        plan = None if head is None else head.plan
        assert isinstance(plan, Plan | NoPlan | None)
        return plan

    async def ask(self, request: bytes) -> Answer:
        if self.forgets:
            self.app._listener.whole._known.clear()
        return await raw_call(self.port, request)

    async def told(self, request: bytes) -> Told:
        before = self.origin.requests
        got = await self.ask(request)
        sent = [(bytes(seen.head), bytes(seen.body)) for seen in self.origin.requests if seen not in before]
        call_id, store = got.get("Semel-Call"), self.app.store
        row = await store.get(bytes.fromhex(call_id)) if call_id else None
        if row is None:
            return Told(_timeless_answer(got), sent, None, None, b"", [])
        size = len(request.partition(ENDING)[2])
        parts = store.read_blob(BlobRef(row.request_blob, size)) if row.request_blob else None
        long_body = b"" if parts is None else b"".join([part async for part in parts])
        history = [entry[2:] for entry in await store.history(row.key)]  # without when and who
        kept = Codec().open_request(row.request)
        return Told(_timeless_answer(got), sent, _timeless(row), kept, long_body, history)

    async def recorded(self) -> int:
        """How many calls there are."""
        return sum((await self.app.store.census()).by_state.values())

    async def counters(self) -> dict[str, str]:
        """As /metrics has them, but for what is measured in seconds or bytes."""
        page = (await raw_call(self.port, request_bytes("GET", "/metrics", host="127.0.0.1"))).body.decode()
        lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
        measured = re.compile(r"_seconds(_sum|_bucket|$)|store_(seconds|batch)|_bytes|_created")
        return {name: value for name, _, value in lines if not measured.search(name.partition("{")[0])}

    def lines(self) -> list[dict[str, Any]]:
        """What the log says of calls, whole only when semel has ended; without times."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        calls = [line for line in lines if line["event"] == "call"]
        return [{name: value for name, value in line.items() if name not in ("at", "ms")} for line in calls]


def _timeless_answer(got: Answer) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """A problem says since when; a replay how old it is."""
    headers = [
        (name, re.sub(rb"\d+$", b"N", value) if name in (b"Age", b"Cache-Status") else value)
        for name, value in got.headers
    ]
    return got.status, headers, re.sub(rb'"since": ?"[^"]+"', b'"since": "then"', got.body)


def _timeless(row: Call) -> Call:
    lasts = None if row.expires_at is None or row.settled_at is None else row.expires_at - row.settled_at
    return replace(
        row,
        born=0.0,
        owner="whoever",
        created_at=0.0,
        sent_at=None if row.sent_at is None else 0.0,
        settled_at=None if row.settled_at is None else 0.0,
        expires_at=None if lasts is None else round(lasts, 3),
        answer=None if row.answer is None else replace(row.answer, recorded_at=0.0),
        doubt=None if row.doubt is None else replace(row.doubt, since=0.0),
    )


@asynccontextmanager
async def planning(
    tmp_path: Path,
    *scripts: Script,
    rules: str = rule(),
    more: str = "",
    settings: Mapping[str, object] | None = None,
    tokens: Sequence[Token] = (),
) -> AsyncIterator[Side]:
    """One semel. `more`: further lines of the policy."""
    log = io.StringIO()
    async with Origin(*(scripts or (ECHO,))) as origin:
        text, flags = policy(origin.port, rules, more), {"recall": False, **(settings or {})}
        async with semel(tmp_path, text, settings=flags, tokens=tokens, log=log) as app:
            yield Side(app, origin, log)


class Pair(NamedTuple):
    planned: Side
    long: Side


@asynccontextmanager
async def pair(
    tmp_path: Path,
    *scripts: Script,
    rules: str = rule(),
    more: str = "",
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Pair]:
    """The same calls are the same to the last bit: the secret that names them is in the state."""
    flags = {"recall": False, **(settings or {})}
    first, second = tmp_path / "planned", tmp_path / "long"
    first.mkdir()
    logs = io.StringIO(), io.StringIO()
    async with Origin(*(scripts or (ECHO,))) as origin:
        text = policy(origin.port, rules, more)
        async with semel(first, text, settings=flags, store="embedded"):
            pass
        shutil.copytree(first, second)
        async with (
            semel(first, text, settings=flags, store="embedded", log=logs[0]) as planned,
            semel(second, text, settings=flags, store="embedded", log=logs[1]) as long,
        ):
            yield Pair(Side(planned, origin, logs[0]), Side(long, origin, logs[1], forgets=True))


async def compared(both: Pair, *requests: bytes) -> list[Told]:
    """Each of them on both sides, one after the other; what one has told, where they told the same."""
    told = []
    for request in requests:
        one, other = [await side.told(request) for side in both]
        assert one == other
        told.append(one)
    return told


async def ended_alike(both: Pair) -> dict[str, str]:
    one, other = [await side.counters() for side in both]
    assert one == other
    return one
