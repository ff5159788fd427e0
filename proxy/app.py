"""The composition root: the only file that names concrete classes and puts them together."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from proxy.admin.api import Api
from proxy.admin.desk import LocalDesk
from proxy.admin.probing import probes_in
from proxy.admin.rules import lifetimes_in, segments_in, ways_in
from proxy.admin.sessions import Sessions
from proxy.clock import SystemClock
from proxy.collecting import collect_forever
from proxy.core.redaction import Veiling
from proxy.flying import Flights
from proxy.front.arriving import ConnectionLimits
from proxy.front.aside import Aside, price_aside
from proxy.front.door import Door
from proxy.front.figures import FiguresPage
from proxy.front.forward import ForwardProxy
from proxy.front.forwarded import OwnPlaces, unlisted
from proxy.front.handler import Handler
from proxy.front.incoming import RequestLimits
from proxy.front.listener import Listener
from proxy.front.own import OwnPages
from proxy.front.recall import Recall
from proxy.front.sign_in import SignIn
from proxy.front.tools import ToolDesk
from proxy.keeping import first_sweep, open_store, place_of
from proxy.log import LogObserver
from proxy.metrics import MetricsObserver
from proxy.notifying.hook import Hook
from proxy.notifying.making import make_hook
from proxy.observe import Everyone, Observer
from proxy.recovery import sweep_forever
from proxy.reload import PolicyWatch, Reloads
from proxy.settings import Address, Settings
from proxy.settings_values import Private
from proxy.shadow.counting import ShadowObserver
from proxy.shadow.judging import Shadow
from proxy.shadow.making import shadow_of
from proxy.siblings import Place, Siblings
from proxy.store import opening
from proxy.store.base import Store
from proxy.store.codec import Codec
from proxy.stream import CaptureLimits
from proxy.tools.reports import Reports
from proxy.tools.workshop import Lease, Workshop
from proxy.tracing import make_spans
from proxy.upstream.client import HttpUpstream
from proxy.upstream.reaching import Ways
from proxy.upstream.rpc import RpcUpstream
from proxy.wiring import wire

if TYPE_CHECKING:
    from proxy.spans import Spans

# How long a shutdown lets calls finish before it stops and marks them.
DRAIN_PATIENCE = 30.0
BACKLOG = 1024


@dataclass(slots=True)
class App:
    """A running semel. `start`, then `stop` in any case."""

    address: Address
    store: Store
    flights: Flights
    watch: PolicyWatch
    observer: Observer
    recovered: int
    shadow: Shadow
    _server: asyncio.Server
    _listener: Listener
    _upstream: HttpUpstream
    _reports: Reports
    _aside: Aside
    _log: LogObserver
    _reloads: Reloads
    _sweeper: asyncio.Task[None]
    _collector: asyncio.Task[None]
    _siblings: Siblings | None
    _hook: Hook | None
    _spans: Spans | None

    @classmethod
    async def start(
        cls, settings: Settings, *, log: LogObserver | None = None, place: Place | None = None
    ) -> App:
        """Raises ConfigurationError for what a person must mend, OSError if the address is taken. `place`:
        among several workers that share the address."""
        log, metrics = log or LogObserver(), MetricsObserver()
        try:
            store = await open_store(settings, note=log.noted, batched=metrics.batched)
        except BaseException:
            log.close()
            raise
        try:
            return await cls._start_on(store, settings, log, metrics, place)
        except BaseException:
            await store.close()
            log.close()
            raise

    @classmethod
    async def _start_on(
        cls,
        store: Store,
        settings: Settings,
        log: LogObserver,
        metrics: MetricsObserver,
        place: Place | None,
    ) -> App:
        clock, limits, codec = SystemClock(), settings.limits, Codec()
        # Working space belongs beside the ledger: the same disk, the same user's alone.
        spool = settings.state if settings.store == "embedded" else None
        metrics.read_evictions(store.evictions)
        siblings = None if place is None else Siblings(place, metrics.figures)
        inherited = {} if siblings is None else siblings.inherited()
        metrics.take_over(inherited)
        own = OwnPlaces()
        private = settings.forward.private is Private.ALLOW
        ways = Ways(leads_back=own.lie_at, private=private, tell=log.noted)
        upstream = HttpUpstream(max_header_bytes=limits.headers, ways=ways)
        metrics.notifies(() if settings.notify is None else settings.notify.events)
        hook = make_hook(
            settings.notify,
            store=store,
            client=HttpUpstream(ways=ways),  # no receiver takes a connection from a call
            clock=clock,
            tell=log.noted,
            count=metrics.notified,
            worker=0 if place is None else place.number,
            follows_another=bool(inherited),
        )
        spans = make_spans(settings.traces, log.noted)
        observer = Everyone(metrics, log, *(one for one in (hook, spans) if one is not None))
        reloads = Reloads(store, observer, clock)
        watch = PolicyWatch(
            settings.policies,
            tell=reloads,
            operators=settings.has_operators,
            encrypted=settings.is_encrypted,
        )
        observer.governed(watch.current)
        metrics.governed(unlisted(settings.forward.unknown))
        aside = Aside()
        captures = CaptureLimits(kept=limits.response_body, memory=limits.spool, directory=spool)
        put_together = partial(
            wire,
            codec=codec,
            clock=clock,
            inline_body=limits.inline_body,
            price=partial(price_aside, aside),
            runs=settings.runs,
        )
        lease = Lease(heartbeat=settings.owners.heartbeat, lasts=settings.owners.dead_after)
        network = RpcUpstream(network=upstream, clock=clock)
        workshop = Workshop(network=network, store=store, clock=clock, lease=lease)
        works = put_together(
            store,
            limits=captures,
            observer=observer,
            upstream=workshop,
            soon=upstream.send_soon if spans is None else None,  # a span is its task's
            asked=upstream,
        )
        ledger, books = works.ledger, works.books
        unreadable: set[str] = set()  # rows that were told of
        recovered = await first_sweep(store, ledger, observer, unreadable, settings)
        looking_on = ShadowObserver(metrics.shadowed, log.noted)
        shadow = shadow_of(
            partial(opening.open_store, place_of(settings, note=looking_on.noted).beside()),
            put_together,
            limits=captures,
            observer=looking_on,
            clock=clock,
            collect_every=settings.gc.every,
            retention=settings.runs.retention,
        )
        request_limits = RequestLimits(limits.request_body, limits.spool, spool)
        desk = LocalDesk(
            store=store,
            codec=codec,
            clock=clock,
            lifetimes=lifetimes_in(lambda: watch.current),
            segments=segments_in(lambda: watch.current),
            retention=settings.runs.retention,
            decided=books.changed_beside,
            probe=probes_in(lambda: watch.current, works.doubts),
            ways=ways_in(lambda: watch.current),
        )
        reports = Reports(
            workshop=workshop,
            ledger=ledger,
            store=store,
            clock=clock,
            tools=lambda: watch.current.tools,
            limits=captures,
        )
        tokens = None if settings.auth is None else settings.auth.tokens
        door = Door(tokens)
        recall = Recall(works, policies=lambda: watch.current, clock=clock, observer=observer)
        recalls = recall if settings.recall and spans is None else None  # a span begins with the request
        handler = Handler(
            exchange=works.exchange,
            runs=works.runs,
            books=books,
            shadow=shadow,
            tools=ToolDesk(workshop, reports),
            flights=works.flights,
            recall=recalls,
            policies=lambda: watch.current,
            veiling=Veiling(store.secret, settings.is_encrypted),
            observer=observer,
            limits=request_limits,
            own_pages=OwnPages(
                store=store,
                figures=FiguresPage(store=store, metrics=metrics, siblings=siblings, clock=clock),
                api=Api(desk, settings.listen),
                limits=request_limits,
                sign_in=SignIn(
                    door=door, tokens=tokens, sessions=Sessions(store.secret, clock), listen=settings.listen
                ),
            ),
            aside=aside,
            door=door,
            forward=ForwardProxy(
                state=settings.state,
                unknown=settings.forward.unknown,
                policies=lambda: watch.current,
                door=door,
                books=books,
                own=own,
                dialer=upstream,
                aside=aside,
                observer=observer,
                max_header_bytes=limits.headers,
            ),
        )
        listener = Listener(
            handler if spans is None else spans.around(handler),
            limits=ConnectionLimits(
                connections=limits.connections, header_timeout=limits.header_timeout, headers=limits.headers
            ),
            refused=handler.refused_before_request,
            recall=recalls,
            express=handler.express,
        )
        listen = settings.listen
        server = await asyncio.get_running_loop().create_server(
            listener, listen.host, listen.port, backlog=BACKLOG, reuse_port=place is not None
        )
        if siblings is not None:
            await siblings.start()
        port = server.sockets[0].getsockname()[1]
        own.listen_at([socket.getsockname()[:2] for socket in server.sockets])
        if settings.reload:
            watch.start()
        if hook is not None:
            hook.start("" if own.are_everywhere() else f"http://{Address(listen.host, port)}")
        sweeper = asyncio.create_task(sweep_forever(store, ledger, observer, clock, unreadable))
        collector = asyncio.create_task(
            collect_forever(
                store,
                observer,
                clock,
                every=settings.gc.every,
                retention=settings.runs.retention,
                after=books.changed_beside,
            )
        )
        return cls(
            address=Address(listen.host, port),
            store=store,
            flights=works.flights,
            watch=watch,
            observer=observer,
            recovered=recovered,
            _server=server,
            _listener=listener,
            _upstream=upstream,
            _reports=reports,
            shadow=shadow,
            _aside=aside,
            _log=log,
            _reloads=reloads,
            _sweeper=sweeper,
            _collector=collector,
            _siblings=siblings,
            _hook=hook,
            _spans=spans,
        )

    async def stop(self, patience: float = DRAIN_PATIENCE, hurry: asyncio.Event | None = None) -> int:
        """Accept nothing new, let calls finish (unless in a hurry), stop and mark the rest: how many. Each
        step is done whatever becomes of the others; what failed is raised after the last."""
        stopped = 0

        async def drain() -> None:
            nonlocal stopped
            self._listener.pre_shutdown()
            self._reports.let_go()
            stopped = await self._drain(patience, hurry or asyncio.Event())

        steps = (
            partial(_end, self._sweeper),
            partial(_end, self._collector),
            self.watch.stop,
            self._reloads.stop,
            drain,
            partial(self._listener.shutdown, timeout=1.0),
            self._reports.close,
            *(() if self._hook is None else (self._hook.stop,)),
            *(() if self._siblings is None else (self._siblings.stop,)),
            *(() if self._spans is None else (self._spans.stop,)),
            self.shadow.stop,
            self._upstream.close,
            self.store.close,
        )
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._log.close)
            stack.callback(self._aside.close)
            for step in reversed(steps):
                stack.push_async_callback(step)
            self._server.close()
        return stopped

    async def _drain(self, patience: float, hurry: asyncio.Event) -> int:
        draining = asyncio.create_task(self.flights.drain(patience))
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not draining.done():
            draining.cancel()
            return await self.flights.drain(0.0)
        return draining.result()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
