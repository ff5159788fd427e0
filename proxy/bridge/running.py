"""From the settings to the end of a session.

When the client leaves, or says that it ends, calls that are under way are finished and recorded: with effects
nothing is stopped. When the server ends by itself, what it had not answered is in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
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


async def run(command: Sequence[str], settings: Settings, client: Client, *, quiet: bool) -> int:
    """The exit status: the server's, if it ended by itself."""
    log = LogObserver()
    observer: Observer = Deaf() if quiet else log
    try:
        reader, out = await standard_pipes()
        server = await ServerProcess.start(command)
        try:
            async with _record(settings, server, observer) as (works, namer):
                calls = Calls(works=works, namer=namer, observer=observer, client=client)
                limits = Limits(settings.limits.request_body, settings.limits.response_body)
                session = Session(
                    client=reader, out=out, server=server, calls=calls, whose=client.session, limits=limits
                )
                return await _serve(session, server, works)
        finally:
            await server.stop()
    finally:
        log.close()


async def _serve(session: Session, server: ServerProcess, works: Works) -> int:
    asked_to_end = _signals()
    from_client = asyncio.create_task(session.hear_client())
    from_server = asyncio.create_task(session.hear_server())
    first_signal = asyncio.create_task(asked_to_end.get())
    try:
        done, _ = await asyncio.wait(
            {from_client, from_server, first_signal}, return_when=asyncio.FIRST_COMPLETED
        )
        if from_server in done:
            await from_server
            await session.all_answered(ANSWERED_WITHIN)
            await works.flights.drain(DRAIN_PATIENCE)
            return await server.stop()
        if from_client in done:
            await from_client
        session.client_left()
        await _drain(works, asked_to_end, None if from_client in done else DRAIN_PATIENCE)
        return 0
    finally:
        for task in (from_client, from_server, first_signal):
            task.cancel()
        await asyncio.gather(from_client, from_server, first_signal, return_exceptions=True)


async def _drain(works: Works, signals: asyncio.Queue[None], patience: float | None) -> None:
    """`patience` None: as long as it takes, or until a signal says otherwise."""
    draining = asyncio.create_task(works.flights.drain(_FOR_EVER if patience is None else patience))
    hurry = asyncio.create_task(signals.get())
    try:
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            draining.cancel()
            await works.flights.drain(DRAIN_PATIENCE if patience is None else 0.0)
        else:
            await draining
    finally:
        hurry.cancel()


_FOR_EVER = 86400.0 * 365


def _signals() -> asyncio.Queue[None]:
    queue: asyncio.Queue[None] = asyncio.Queue()
    for number in EXPLICIT:
        asyncio.get_running_loop().add_signal_handler(number, queue.put_nowait, None)
    return queue


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
