"""An upstream that knows what it did, and the laws of sending, checked at every byte that leaves a proxy.

A request that went out may have been executed until it is *proven* that it was not: the upstream refused it,
or said so when it was asked. The laws: of one row nothing is sent while an earlier request of it is unproven,
but under the same upstream key; of one call no more rows have unproven requests than agents meant effects.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink, WholeSink
from tests.proof.simulation.asking import RETENTION, SETTLE, TOTAL, Kind, Tag, kind_of
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.links import Link

FINAL, REFUSED, ERROR, CONFLICT = 201, 429, 500, 409
# How a send goes, and how often.
WAYS_TO_GO = (*["final"] * 5, "refused", "error", "lost", "lost", "breaks", "not_sent")
CONNECTING = (0.0, 0.0, 0.1, 2.0)
ANSWERING = (0.0, 0.0, 0.5, 5.0, 28.0, 100.0)
# When a request whose answer is lost takes effect, if it does: also after everybody has given up on it.
ACTING = (0.0, 0.0, 1.0, 20.0, TOTAL + SETTLE - 3.0)


@dataclass(slots=True)
class Out:
    """A request of which a byte has left."""

    name: str
    row: bytes
    key: str
    executes: bool  # sooner or later; nobody but the upstream knows
    at: float
    refused: bool = False  # it said no, and somebody heard it
    absent: bool = False  # it said so when it was asked
    resolved: bool = False  # a person did

    @property
    def proven(self) -> bool:
        """It is known that nothing came of it, and nothing will."""
        return self.refused or self.absent or self.resolved


@dataclass(slots=True)
class Known:
    """What the upstream remembers of a key."""

    since: float
    answer: bytes | None = None


@dataclass
class Upstream:
    """`meant`: how many effects those who ask have meant by a call so far."""

    fate: Fate
    meant: Callable[[str], int]
    outs: dict[str, list[Out]] = field(default_factory=lambda: defaultdict(list))
    effects: Counter[str] = field(default_factory=Counter)
    answers: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    said: dict[str, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))  # whole
    healthy: bool = False  # no more faults
    _keys: dict[str, Known] = field(default_factory=dict)
    _number: int = 0

    async def send(self, link: Link, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if out.target.startswith(b"/probe"):
            return await self._probed(link, out, sink, may_send)
        assert out.body is not None
        name = json.loads(out.body.whole())["name"]
        fair = self.healthy
        way = "final" if fair else self.fate.one_of(WAYS_TO_GO)
        if name.startswith("healthy"):  # an upstream that answers, not one that always says yes
            way = self.fate.one_of(("final", "final", "refused"))
        await link.awake()
        await asyncio.sleep(self.fate.one_of(CONNECTING))
        await link.awake()
        if way == "not_sent" or not may_send():
            return NotSent("connection refused")
        sent = self._goes_out(name, out, way)
        known = self._keys.get(sent.key)
        if known is not None and self._age(known) < RETENTION:
            sent.executes = False
            if way not in ("refused", "error"):
                return await self._again(known, way, sink)
        body = self._begin(sent)
        answering = 0.0 if fair else self.fate.one_of(ANSWERING)
        if name.startswith("healthy"):
            answering = min(answering, TOTAL / 2)
        if way in ("lost", "error") or answering > TOTAL:
            self._acts_later(sent, body)
        elif sent.executes:
            self._acts(sent, body)
        return await self._answers(way, min(answering, TOTAL), body, sent, link, sink, answering > TOTAL)

    async def _answers(
        self, way: str, seconds: float, body: bytes, sent: Out, link: Link, sink: Sink, late: bool
    ) -> Result:
        await asyncio.sleep(seconds)
        await link.awake()
        if way == "lost" or late:
            return Lost("no answer", timed_out=late)
        status = {"refused": REFUSED, "error": ERROR}.get(way, FINAL)
        headers = ((b"Content-Length", b"%d" % len(body)),)
        at_once = way != "breaks" and self.fate.happens(0.5)
        if at_once and isinstance(sink, WholeSink) and sink.wants(headers, len(body)):
            sent.refused = way == "refused"
            self.said[sent.name].append((status, body))
            self.fate.reached["answered in one piece"] += 1
            sink.take(status, headers, body)
            return Answered(status)
        sink.head(status, headers)
        await sink.data(body[:3])
        await asyncio.sleep(self.fate.one_of(CONNECTING))
        await link.awake()
        if way == "breaks":
            return Lost("broke off", status)
        sent.refused = way == "refused"
        self.said[sent.name].append((status, body))
        await sink.data(body[3:])
        return Answered(status)

    async def close(self) -> None: ...

    # ---- what it does ----

    def _goes_out(self, name: str, out: Outgoing, way: str) -> Out:
        assert isinstance(out.aloft, Tag)
        key, now = _key_in(out), asyncio.get_running_loop().time()
        executes = way in ("final", "breaks") or (way in ("error", "lost") and self.fate.happens(0.5))
        sent = Out(name, out.aloft.row, key, executes, now)
        before = self.unproven(name)
        self._count(sent)
        self.outs[name].append(sent)
        self.fate.tell(f"{name} goes out, {way}{', executes' if executes else ''}")
        if kind_of(name) is Kind.SAFE:
            return sent
        if any(earlier.row == sent.row and not (key and earlier.key == key) for earlier in before):
            self.fate.broken(f"{name} was sent again after a send that may have executed")
        mine = sum(earlier.row == sent.row for earlier in (*before, sent))
        if kind_of(name) is Kind.PERMITTED and mine > self.fate.permits[sent.row]:
            self.fate.broken(f"{name} was sent, and nobody has permitted it")
        if len({earlier.row for earlier in (*before, sent)}) > self.meant(name):
            self.fate.broken(f"{name} was sent more often than it was meant")
        return sent

    def _count(self, sent: Out) -> None:
        """What a resend is proven by."""
        earlier = [out for out in self.outs[sent.name] if out.row == sent.row]
        reached = self.fate.reached
        reached["sent again under its key"] += bool(sent.key) and any(out.key == sent.key for out in earlier)
        reached["sent again after a refusal"] += any(out.refused for out in earlier)
        reached["sent again after a probe"] += any(out.absent for out in earlier)
        reached["sent again after a person's word"] += any(out.resolved for out in earlier)
        reached["sent with a permission"] += kind_of(sent.name) is Kind.PERMITTED

    def unproven(self, name: str) -> list[Out]:
        """Those of which there may be an effect."""
        return [out for out in self.outs[name] if not out.proven]

    def _begin(self, sent: Out) -> bytes:
        self._number += 1
        body = b"answer %d" % self._number
        if sent.key and sent.executes:
            self._keys[sent.key] = Known(sent.at)
        return body

    def _age(self, known: Known) -> float:
        return asyncio.get_running_loop().time() - known.since

    def _acts_later(self, sent: Out, body: bytes) -> None:
        if sent.executes:
            asyncio.get_running_loop().call_later(self.fate.one_of(ACTING), self._acts, sent, body)

    def _acts(self, sent: Out, body: bytes) -> None:
        name = sent.name
        if sent.key:
            self._keys[sent.key].answer = body
        self.effects[name] += 1
        self.answers[name].append(body)
        self.fate.tell(f"{name} takes effect")
        if kind_of(name) is not Kind.SAFE and self.effects[name] > self.meant(name):
            self.fate.broken(f"{name} took effect {self.effects[name]} times")

    async def _again(self, known: Known, way: str, sink: Sink) -> Result:
        """A key that it knows: what it did, said again, or that it is still at it. Nothing more happens."""
        if way in ("lost", "breaks"):
            return Lost("no answer")
        status, body = (FINAL, known.answer) if known.answer is not None else (CONFLICT, b"at it")
        sink.head(status, ((b"Content-Length", b"%d" % len(body)),))
        await sink.data(body)
        return Answered(status)

    # ---- what it says when it is asked ----

    async def _probed(self, link: Link, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        await link.cross()
        if not self.healthy and self.fate.happens(0.2):
            return Lost("no answer")
        if not may_send():
            return NotSent("not allowed")
        name = out.target.rpartition(b"=")[2].decode()
        answers = self.answers[name]
        said: dict[str, object] = {"executed": bool(answers)}
        if answers:
            said["answer"] = answers[-1].decode()
        else:
            self.says_absent(name)
        await link.cross()
        body = json.dumps(said).encode()
        sink.head(200, ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))))
        await sink.data(body)
        return Answered(200)

    def says_absent(self, name: str) -> None:
        """It counts when what was sent has had its time, whatever whoever hears it makes of it."""
        now = asyncio.get_running_loop().time()
        for out in self.outs[name]:
            out.absent = out.absent or (not out.executes and now - out.at >= TOTAL + SETTLE)


@dataclass
class Way:
    """One process's way to the upstream."""

    upstream: Upstream
    link: Link

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        return await self.upstream.send(self.link, out, sink, may_send)

    async def close(self) -> None: ...


def _key_in(out: Outgoing) -> str:
    return next((value.decode() for name, value in out.headers if name.lower() == b"idempotency-key"), "")
