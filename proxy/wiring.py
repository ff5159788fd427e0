"""All that works on one record, put together: once for the real one, once for the shadow's."""

from __future__ import annotations

from typing import NamedTuple

from proxy.clock import Clock
from proxy.doubts import Doubts
from proxy.exchange import Exchange
from proxy.flying import Flights
from proxy.ledger import Ledger
from proxy.observe import Observer
from proxy.pricing import Price
from proxy.runs.asking import RunAsking
from proxy.runs.books import RunBooks
from proxy.settings_values import Runs
from proxy.store.base import Store
from proxy.store.codec import Codec
from proxy.stream import CaptureLimits
from proxy.upstream.base import SendSoon, UpstreamClient


class Works(NamedTuple):
    store: Store
    ledger: Ledger
    flights: Flights
    doubts: Doubts
    exchange: Exchange
    books: RunBooks
    runs: RunAsking


def wire(
    store: Store,
    *,
    codec: Codec,
    clock: Clock,
    observer: Observer,
    upstream: UpstreamClient,
    soon: SendSoon | None = None,
    asked: UpstreamClient,
    limits: CaptureLimits,
    inline_body: int,
    price: Price,
    runs: Runs,
) -> Works:
    """`soon`: the network, for what need not be awaited; `asked`: whom probes ask."""
    ledger = Ledger(store=store, codec=codec, clock=clock, observer=observer, inline_body=inline_body)
    flights = Flights(
        store=store,
        ledger=ledger,
        upstream=upstream,
        clock=clock,
        observer=observer,
        limits=limits,
        codec=codec,
        price=price,
        soon=soon,
    )
    doubts = Doubts(store=store, ledger=ledger, codec=codec, upstream=asked, clock=clock, observer=observer)
    exchange = Exchange(store=store, ledger=ledger, flights=flights, doubts=doubts, clock=clock)
    books = RunBooks(store=store, clock=clock, observer=observer, retention=runs.retention)
    asking = RunAsking(
        store=store,
        ledger=ledger,
        flights=flights,
        exchange=exchange,
        books=books,
        clock=clock,
        observer=observer,
        on_divergence=runs.on_divergence,
    )
    return Works(store, ledger, flights, doubts, exchange, books, asking)
