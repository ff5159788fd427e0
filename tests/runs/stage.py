"""Runs on a stage: agents with names for their attempts, an upstream that follows a script by call."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.asking import Ask, Live, Replayed, Unrecorded
from proxy.core.divergence import OnDivergence, group_of
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.core.occurrence import repeat_in_run
from proxy.core.policy import Mode, Repeat, Rule, Scope
from proxy.core.retry_evidence import Evidence
from proxy.runs.asking import RunAsking
from proxy.runs.books import RunBooks
from proxy.runs.claiming import RunAsk
from proxy.runs.shared import SharedCall
from proxy.stream import CutOff
from proxy.upstream.base import Outgoing, Result, Sink
from tests.exchange.stage import Got, Prepared, Process, Step, answers
from tests.exchange.staged_store import World

MONTH = 30 * 86400.0
TENANT = "default"


def identity_of(name: str) -> Identity:
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return Identity(key=digest, fingerprint=digest * 2, named_by=b"", arguments=b"[]")


@dataclass
class ByCall:
    """The upstream: for each call its steps in order, then answers that tell how often it was sent."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)  # of which a byte may have left

    def plays(self, name: str, *steps: Step) -> None:
        self.steps.setdefault(name, []).extend(steps)

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        name = out.target.decode().lstrip("/")

        def counted() -> bool:
            allowed = may_send()
            self.sent[name] += allowed
            return allowed

        waiting = self.steps.get(name)
        step = waiting.pop(0) if waiting else answers(200, f"{name} #{self.sent[name] + 1}".encode())
        return await step(out, sink, counted)

    async def close(self) -> None: ...


class RunProcess(Process):
    """One semel that knows runs."""

    def __init__(
        self,
        world: World | None = None,
        upstream: ByCall | None = None,
        *,
        on_divergence: OnDivergence = OnDivergence.HOLD,
        retention: float = MONTH,
    ) -> None:
        super().__init__(world)
        self.origin = upstream or ByCall()
        self.send_to(self.origin)
        self.books = RunBooks(store=self.store, clock=self.clock, observer=self.notebook, retention=retention)
        self.runs = RunAsking(
            store=self.store,
            ledger=self.ledger,
            flights=self.flights,
            exchange=self.exchange,
            books=self.books,
            clock=self.clock,
            observer=self.notebook,
            on_divergence=on_divergence,
        )

    def rows(self) -> list[Call]:
        return list(self.world.calls.values())


@dataclass(frozen=True)
class Agent:
    """One attempt of a run, asking one process. `read` and `write` give what the agent would see."""

    semel: RunProcess
    attempt: str = "a1"
    run: str = "r"

    def on(self, semel: RunProcess) -> Agent:
        return replace(self, semel=semel)

    def next(self, attempt: str) -> Agent:
        return replace(self, attempt=attempt)

    async def read(self, name: str, **how: Any) -> Got:
        return await self.ask(name, safe=True, **how)

    async def write(self, name: str, **how: Any) -> Got:
        return await self.ask(name, safe=False, **how)

    def start(self, name: str, *, safe: bool, **how: Any) -> asyncio.Task[Got]:
        return asyncio.get_running_loop().create_task(self.ask(name, safe=safe, **how))

    async def ask(
        self,
        name: str,
        *,
        safe: bool,
        rule: Rule | None = None,
        tokens: frozenset[str] = frozenset(),
        retry_count: int = 0,
        credentials: bytes = b"",
        wording: str = "",
        occurrence: int | None = None,
        taken: bool = True,
    ) -> Got:
        ask = await self.asked(
            name, safe=safe, rule=rule, tokens=tokens, retry_count=retry_count, credentials=credentials,
            wording=wording, occurrence=occurrence,
        )  # fmt: skip
        return await self.given(ask, taken=taken)

    async def given(self, ask: RunAsk, *, taken: bool = True, noticed: bool = True) -> Got:
        """`taken`: the caller reads it to the end; otherwise it leaves when the end is written. `noticed`:
        the proxy hears of that; otherwise it is lost on the way, and the proxy takes it for delivered."""
        try:
            reply = await self.semel.runs.ask(ask)
        except CutOff:
            return Got("executed", whole=False)
        assert not isinstance(reply, Unrecorded), "in a run nothing goes by without a record"
        assert reply.delivery is not None
        try:
            got = await _taken(reply, self.semel.saw)
        except BaseException:
            reply.delivery.abandoned()
            raise
        reply.delivery.complete()
        if not got.whole or not (taken or not noticed):
            reply.delivery.abandoned()
        return got

    async def asked(
        self,
        name: str,
        *,
        safe: bool,
        rule: Rule | None = None,
        tokens: frozenset[str] = frozenset(),
        retry_count: int = 0,
        credentials: bytes = b"",
        wording: str = "",
        occurrence: int | None = None,
    ) -> RunAsk:
        rule = rule or Rule(name="rule-of-" + name.split("?")[0], safe=safe)
        book = await self.semel.books.open(TENANT, self.run, self.attempt)
        family = identity_of(f"{book.run.origin or self.run} {name}")
        sending = Prepared(
            rule=rule,
            safe=safe,
            body=b"{}",
            total=600.0,
            target=f"/{name}".encode(),
            bound_to=name.encode() if rule.approval is not None else b"",
        )
        shared = None
        if rule.mode is Mode.CACHE or rule.scope is Scope.TENANT:
            asked = Ask(identity_of(f"tenant {name}"), rule, safe, False, sending, payer=self.run)
            shared = SharedCall(asked)
        return RunAsk(
            book=book,
            family=family,
            rule=rule,
            safe=safe,
            sending=sending,
            group=group_of(upstream="mail", rule=rule.name, method="POST", host="", path=f"/{name}"),
            evidence=Evidence(tokens, retry_count, credentials, wording),
            occurrence=occurrence,
            repeat=repeat_in_run(rule.mode, rule.scope, rule.repeat),
            shared=shared,
        )


async def _taken(reply: Replayed | Live, saw: Callable[[Live, bytes], None]) -> Got:
    if isinstance(reply, Replayed):
        body = reply.answer.body
        if not isinstance(body, bytes):
            body = b"".join([part async for part in body])
        return Got("replayed", reply.answer.status, body)
    body = b""
    try:
        async for part in reply.reader.parts():
            body += part
            saw(reply, body)
    except CutOff:
        return Got("executed", whole=False)
    finally:
        reply.leave()
    kind = "joined" if reply.joined else "replayed" if reply.flight.from_record else "executed"
    return Got(kind, reply.flight.capture.status, body)


SAME = Repeat.SAME
__all__ = ["SAME", "Agent", "ByCall", "Identity", "RunProcess"]
