"""The exchange on a stage: stores that share a world, an upstream that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from proxy.asking import Ask, Live, Replayed, Unrecorded
from proxy.core.identity import Identity
from proxy.core.intent import Call, Entry, State
from proxy.core.policy import Mode, Rule, Timeouts
from proxy.core.reachable import Said
from proxy.doubts import Doubts
from proxy.exchange import Exchange
from proxy.flying import Flights
from proxy.intended import Intent
from proxy.ledger import Ledger
from proxy.observe import Deaf, Sent
from proxy.spool import Spool
from proxy.store.codec import Codec
from proxy.stream import CaptureLimits, CutOff
from proxy.upstream.base import (
    Answered,
    Headers,
    Hears,
    Lost,
    NotSent,
    Outgoing,
    Result,
    Sink,
    UnderWay,
    UpstreamClient,
    WholeSink,
)
from tests.exchange.soon import Manner, send_soon
from tests.exchange.staged_store import StagedStore, World
from tests.exchange.virtual_time import VirtualClock

Step: TypeAlias = Callable[[Outgoing, Sink, Callable[[], bool]], Awaitable[Result]]


class Notebook(Deaf):
    """An observer that remembers."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, dict[str, object]]] = []
        self.sends: list[Sent] = []
        self.entries: list[Call] = []

    def sent(self, told: Sent) -> None:
        self.sends.append(told)

    def entered(self, call: Call) -> None:
        self.entries.append(call)

    def noted(self, event: str, **fields: object) -> None:
        self.notes.append((event, fields))

    def told_of(self, event: str) -> bool:
        return any(event == name for name, _ in self.notes)


@dataclass
class Script:
    """The upstream: each send plays the next step. `went_out` counts those of which a byte may have left."""

    steps: list[Step] = field(default_factory=list)
    started: int = 0
    went_out: int = 0

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        self.started += 1
        step = self.steps.pop(0)

        def counted() -> bool:
            allowed = may_send()
            self.went_out += allowed
            return allowed

        return await step(out, sink, counted)

    async def close(self) -> None: ...


def answers(status: int = 200, body: bytes = b"the answer", *, after: float = 0.0) -> Step:
    """A complete answer in one part with Content-Length, after so many seconds."""

    async def step(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if not may_send():
            return NotSent("not the owner any more")
        await asyncio.sleep(after)
        return await answered(sink, status, body)

    return step


# Whether answers that are here at once are given in one piece to whoever wants them so.
IN_ONE_PIECE = False
# Whether plain calls fly without a task.
NONSTOP = False


async def answered(sink: Sink, status: int, body: bytes) -> Answered:
    headers = ((b"Content-Length", b"%d" % len(body)),)
    if IN_ONE_PIECE and isinstance(sink, WholeSink) and sink.wants(headers, len(body)):
        sink.take(status, headers, body)
    else:
        sink.head(status, headers)
        if body:
            await sink.data(body)
    return Answered(status)


def not_sent(reason: str = "connection refused") -> Step:
    async def step(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        return NotSent(reason)

    return step


def lost(*parts: bytes, status: int | None = None, timed_out: bool = False, after: float = 0.0) -> Step:
    """Sent; then perhaps a head and some parts; then a break."""

    async def step(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if not may_send():
            return NotSent("not the owner any more")
        if status is not None:
            sink.head(status, ((b"Content-Length", b"1000"),))
        for part in parts:
            await sink.data(part)
            await asyncio.sleep(0.01)  # the readers get it
        await asyncio.sleep(after)
        return Lost("the connection broke", status, timed_out)

    return step


class AllOfIt(NamedTuple):
    """A head and all of its body."""

    status: int
    body: bytes


class Talk:
    """A step under the test's control: it waits to be told each part and the result."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.cancelled = False
        self._said: asyncio.Queue[Result | AllOfIt | tuple[int, Headers] | bytes] = asyncio.Queue()

    async def __call__(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if not may_send():
            return NotSent("not the owner any more")
        self.sent.set()
        try:
            while True:
                match await self._said.get():
                    case bytes() as part:
                        await sink.data(part)
                    case AllOfIt(status, body):
                        return await answered(sink, status, body)
                    case (int() as status, headers):
                        sink.head(status, headers)
                    case result:
                        assert isinstance(result, Answered | Lost | NotSent)
                        return result
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def head(self, status: int = 200, headers: Headers = ()) -> None:
        self._said.put_nowait((status, headers))

    def part(self, data: bytes) -> None:
        self._said.put_nowait(data)

    def end(self, result: Result) -> None:
        self._said.put_nowait(result)

    def answer(self, status: int = 200, body: bytes = b"the answer") -> None:
        self._said.put_nowait(AllOfIt(status, body))


@dataclass(frozen=True)
class Got:
    """What a caller got. `whole` is False where the connection would have been aborted."""

    kind: str  # executed | joined | replayed | unrecorded
    status: int = 0
    body: bytes = b""
    whole: bool = True


class Process:
    """One semel: a store of its own on a shared world, an exchange, an upstream."""

    def __init__(self, world: World | None = None, *steps: Step, limits: CaptureLimits | None = None) -> None:
        self.clock = VirtualClock()
        self.world = world or World()
        self.store = self.on_stage()
        self.world.clock = self.clock.now
        self.notebook = Notebook()
        self.upstream = Script(list(steps))
        self.codec = Codec()
        self._callers: set[asyncio.Task[object]] = set()
        self._sends: dict[asyncio.Task[Result], None] = {}
        self.ledger = Ledger(
            store=self.store, codec=self.codec, clock=self.clock, observer=self.notebook, inline_body=1024
        )
        self.flights = Flights(
            store=self.store,
            ledger=self.ledger,
            upstream=self.upstream,
            clock=self.clock,
            observer=self.notebook,
            limits=limits or CaptureLimits(),
            codec=self.codec,
            soon=self._soon if self.nonstop else None,
        )
        self.doubts = Doubts(
            store=self.store,
            ledger=self.ledger,
            codec=self.codec,
            upstream=self.upstream,
            clock=self.clock,
            observer=self.notebook,
        )
        self.exchange = Exchange(
            store=self.store,
            ledger=self.ledger,
            flights=self.flights,
            doubts=self.doubts,
            clock=self.clock,
        )

    @property
    def nonstop(self) -> bool:
        return NONSTOP

    def _soon(
        self, out: Outgoing, sink: WholeSink, may_send: Callable[[], bool], hears: Hears
    ) -> UnderWay | NotSent | None:
        return send_soon(self.flights.carrier.upstream, self.manner, out, sink, may_send, hears, self._sends)

    def manner(self) -> Manner:
        """How it is told of a send that nobody awaits."""
        return Manner.TOLD

    def on_stage(self) -> StagedStore:
        """Its hand on the record."""
        return StagedStore(self.world)

    def send_to(self, upstream: UpstreamClient) -> None:
        """Instead of the script."""
        self.flights.carrier.upstream = self.doubts.upstream = upstream

    async def call(self, ask: Ask) -> Got:
        """Ask and read to the end, as the front does. Refusals come out as they are."""
        caller = asyncio.current_task()
        assert caller is not None
        self._callers.add(caller)
        try:
            return await self._call(ask)
        finally:
            self._callers.discard(caller)

    async def _call(self, ask: Ask) -> Got:
        try:
            reply = await self.exchange.ask(ask)
        except CutOff:
            return Got("executed", whole=False)
        match reply:
            case Unrecorded():
                return Got("unrecorded")
            case Replayed(_, answer):
                body = answer.body
                if not isinstance(body, bytes):
                    body = b"".join([part async for part in body])
                return Got("replayed", answer.status, body)
            case Live():
                return await read(reply, self.saw)

    def saw(self, live: Live, body: bytes) -> None:
        """A caller has so much of an answer by now."""

    def start(self, ask: Ask) -> asyncio.Task[Got]:
        return asyncio.get_running_loop().create_task(self.call(ask))

    async def die(self) -> None:
        """As by SIGKILL: nothing more is written; what was under way ends where it is, callers too."""
        self.store.kill()
        tasks: list[asyncio.Task[Any]] = [*self.flying(), *self._callers, *self.unawaited()]
        self.flights.give_up()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def flying(self) -> list[asyncio.Task[None]]:
        """Those of the flights that have a task."""
        return [flight.task for flight in self.flights._aloft if flight.task is not None]

    def unawaited(self) -> list[asyncio.Task[Any]]:
        """What nobody awaits and only the store and the network know of. Left alone, it would stand still
        until the collector finds it, whenever that is."""
        return [*self.store.__dict__.get("_telling", ()), *self._sends]

    def row(self, ask: Ask) -> Call:
        return self.world.calls[ask.identity.key]

    def events(self, ask: Ask) -> list[Entry]:
        return self.world.ground.events(ask.identity.key)

    def state(self, ask: Ask) -> State | None:
        call = self.world.calls.get(ask.identity.key)
        return None if call is None else call.state


async def read(live: Live, saw: Callable[[Live, bytes], None] = lambda live, body: None) -> Got:
    kind, body = "joined" if live.joined else "executed", b""
    if live.whole is not None:
        saw(live, live.whole.body)
        live.leave()
        return Got(kind, live.whole.status, live.whole.body)
    capture = live.flight.capture
    try:
        async for part in live.reader.parts():
            body += part
            saw(live, body)
    except CutOff:
        return Got(kind, capture.status, body, whole=False)
    finally:
        live.leave()
    return Got(kind, capture.status, body)


EFFECT = Rule(name="send", safe=False, ttl=3600.0, wait=60.0)
SAFE = Rule(name="look", safe=True, ttl=3600.0, wait=60.0)
CACHE = Rule(name="cached", mode=Mode.CACHE, ttl=3600.0, wait=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the front would build from a request, built beforehand."""

    rule: Rule
    safe: bool
    body: bytes
    total: float
    target: bytes = b"/send"
    headers: Headers = ()
    secrets: Headers = ()
    bound_to: bytes = b""
    base_path: str = ""
    occurrence: int = 1

    def outgoing(self) -> Outgoing:
        return Outgoing(
            scheme="http",
            host="upstream",
            port=80,
            method="POST",
            target=self.target,
            headers=(*self.headers, *self.secrets),
            body=Spool.of(self.body),
            timeouts=Timeouts(total=self.total),
            max_idle=1.0,
            said=Said.NAMED,
        )

    def intent(self, identity: Identity, outgoing: Outgoing) -> Intent:
        return Intent(
            identity=identity,
            rule=self.rule,
            safe=self.safe,
            tenant="default",
            upstream="mail",
            tool="send",
            occurrence=self.occurrence,
            method="POST",
            target=self.target,
            headers=self.headers,
            body=outgoing.body,
            key=self.rule.upstream_key,
            bound_to=self.bound_to,
        )


def ask(
    rule: Rule = EFFECT,
    *,
    n: int = 1,
    body: bytes = b"{}",
    total: float = 600.0,
    refresh: bool = False,
    arguments: bytes = b"[]",
    named_by: bytes = b"",
) -> Ask:
    """The n-th of different calls; equal arguments make identical calls."""
    key = n.to_bytes(16, "big")
    safe = bool(rule.safe) or rule.mode is Mode.CACHE
    return Ask(
        identity=Identity(key=key, fingerprint=key + arguments, named_by=named_by, arguments=arguments),
        rule=rule,
        safe=safe,
        refresh=refresh,
        sending=Prepared(rule=rule, safe=safe, body=body, total=total),
    )


OUTGOING = Prepared(rule=EFFECT, safe=False, body=b"{}", total=600.0).outgoing()


async def until(condition: Callable[[], bool], within: float = 1000.0) -> None:
    """Wait (virtually) for something to become true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, "it did not happen"
        await asyncio.sleep(0.001)


async def quietly(task: asyncio.Task[Got]) -> None:
    """A caller leaves, or its process is gone: what it would have got does not matter."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
