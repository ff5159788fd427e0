"""From the settings to the end of a session.

When the client leaves, or says that it ends, calls that are under way are finished and recorded: with effects
nothing is stopped, unless it takes longer than `timeout.total` of its upstream, or signals say so. When the
server ends by itself, what it had not answered is in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial

from proxy.bridge.calls import Calls, Client
from proxy.bridge.pipes import standard_pipes
from proxy.bridge.server import ServerProcess
from proxy.bridge.session import Limits, Session
from proxy.clock import SystemClock
from proxy.core.redaction import Veiling
from proxy.front.aside import Aside, price_aside
from proxy.front.naming import Namer
from proxy.keeping import open_store
from proxy.log import LogObserver
from proxy.observe import Deaf, Observer
from proxy.recovery import sweep_forever, sweep_once
from proxy.settings import Settings
from proxy.store.codec import Codec
from proxy.stream import CaptureLimits
from proxy.wiring import Works, wire

# How long a signal lets calls finish; the second does not wait.
DRAIN_PATIENCE = 30.0
# And how long callers are told what became of their calls, once the server has ended.
ANSWERED_WITHIN = 5.0
EXPLICIT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Quiet(LogObserver):
    """Without a line for every call."""

    served = Deaf.served


class _Signals:
    """How often this process was told to end."""

    def __init__(self) -> None:
        self.once, self.twice = asyncio.Event(), asyncio.Event()
        for number in EXPLICIT:
            asyncio.get_running_loop().add_signal_handler(number, self._heard)

    def _heard(self) -> None:
        (self.twice if self.once.is_set() else self.once).set()


async def run(
    command: Sequence[str], settings: Settings, client: Client, *, quiet: bool, umask: int = -1
) -> int:
    """The exit status: the server's, if it ended by itself. `umask`: the server's."""
    log = _Quiet() if quiet else LogObserver()
    try:
        reader, out = await standard_pipes()
        server = await ServerProcess.start(command, umask)
        signals = _Signals()
        try:
            async with _record(settings, server, log) as (works, namer):
                calls = Calls(works=works, namer=namer, observer=log, client=client)
                limits = Limits(settings.limits.request_body, settings.limits.response_body)
                session = Session(
                    client=reader, out=out, server=server, calls=calls, whose=client.session, limits=limits
                )
                serving = _Serving(session, server, works, signals, client.upstream.timeouts.total)
                return await serving.until_the_end()
        finally:
            await server.stop(signals.once)
            server.forget()
    finally:
        log.close()


class _Serving:
    """`patience`: how long the calls of a client that has left may take, in seconds."""

    def __init__(
        self, session: Session, server: ServerProcess, works: Works, signals: _Signals, patience: float
    ) -> None:
        self._session = session
        self._server = server
        self._works = works
        self._signals = signals
        self._patience = patience

    async def until_the_end(self) -> int:
        hearing = asyncio.create_task(self._session.hear_client())
        speaking = asyncio.create_task(self._speak())
        told = asyncio.create_task(self._signals.once.wait())
        try:
            first, _ = await asyncio.wait({hearing, speaking, told}, return_when=asyncio.FIRST_COMPLETED)
            if speaking in first:
                await speaking
                await self._session.all_answered(ANSWERED_WITHIN)
                await self._works.flights.drain(DRAIN_PATIENCE)
                return await self._server.stop(self._signals.once)
            self._session.client_left()
            if hearing in first:
                await hearing
                await _within(self._finish(), self._signals.once)
            await _within(self._works.flights.drain(DRAIN_PATIENCE), self._signals.twice)
            await self._works.flights.drain(0.0)
            await self._session.all_answered(ANSWERED_WITHIN)
            await self._server.stop(self._signals.once)
            await asyncio.wait({speaking}, timeout=ANSWERED_WITHIN)  # its last words
            return 0
        finally:
            for task in (hearing, speaking, told):
                task.cancel()
            await asyncio.gather(hearing, speaking, told, return_exceptions=True)

    async def _speak(self) -> None:
        """Until the server has ended: it says nothing more, or only its own children could."""
        speaking = asyncio.create_task(self._session.hear_server())
        ended = asyncio.create_task(self._server.ended())
        try:
            await asyncio.wait({speaking, ended}, return_when=asyncio.FIRST_COMPLETED)
            while not speaking.done():  # what it had said by then, as fast as the client takes it
                heard, _ = await asyncio.wait({speaking}, timeout=ANSWERED_WITHIN)
                if not heard and not self._session.is_writing:
                    return
            await speaking
        finally:
            self._server.over("the server ended before it answered")
            speaking.cancel()
            ended.cancel()

    async def _finish(self) -> None:
        """What the client has asked for is asked, whatever its hurry to leave; then it takes its time."""
        await self._session.all_answered(ANSWERED_WITHIN)
        await self._works.flights.drain(self._patience)


async def _within(work: Coroutine[None, None, object], interrupted: asyncio.Event) -> None:
    """Until it is done, or interrupted."""
    tasks = (asyncio.create_task(work), asyncio.create_task(interrupted.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _record(
    settings: Settings, server: ServerProcess, observer: Observer
) -> AsyncIterator[tuple[Works, Namer]]:
    """As one more process on it: what others have done is given, what this one does is theirs to see."""
    clock, limits, aside = SystemClock(), settings.limits, Aside()
    store = await open_store(settings, note=observer.noted)
    spool = settings.state if settings.store == "embedded" else None
    try:
        works = wire(
            store,
            codec=Codec(),
            clock=clock,
            observer=observer,
            upstream=server,
            asked=server,
            limits=CaptureLimits(kept=limits.response_body, memory=limits.spool, directory=spool),
            inline_body=limits.inline_body,
            price=partial(price_aside, aside),
            runs=settings.runs,
        )
        await sweep_once(store, works.ledger, observer)
        sweeper = asyncio.create_task(sweep_forever(store, works.ledger, observer, clock))
        veiling = Veiling(store.secret, settings.is_encrypted)
        try:
            yield works, Namer(veiling=veiling, body_limit=limits.request_body, aside=aside)
        finally:
            sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeper
    finally:
        aside.close()
        await store.close()
