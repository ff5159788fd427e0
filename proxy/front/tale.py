"""What will be told of a request, filled in as it becomes known."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.asking import Delivery, Live
from proxy.core.jsonrpc import Id
from proxy.front.incoming import Incoming, Labels
from proxy.observe import Served


@dataclass(slots=True)
class Tale:
    upstream: str = ""  # known before the rest
    incoming: Incoming | None = None
    labels: Labels | None = None  # what is told of it first, where that is known beforehand
    status: str = ""  # nothing of it is written yet
    code: int = 0
    call: str = ""
    problem: str = ""
    own: bool = False  # semel's own page: not told
    cost_usd: float | None = None
    upstream_seconds: float = 0.0
    forward: bool = False  # asked of the forward proxy
    delivered: bool = False
    waits_for: Live | None = None  # and goes on without it, if it leaves
    handed: Delivery | None = None  # in a run: what says whether the caller took it
    rpc: Id | None = None  # who asks speaks JSON-RPC: the request that is answered

    def boards(self, live: Live) -> None:
        self.waits_for = live
        if live.flight.identity is not None:
            self.call = live.flight.identity.id

    def served(self, method: str, size: int, seconds: float) -> Served:
        return Served(
            *(self.labels or self._labels(method)),
            self.status or ("refused" if self.waits_for is None else self.waits_for.how),
            self.code,
            self.call,
            self.problem,
            seconds,
            self.upstream_seconds,
            size,
            self.delivered,
            self.cost_usd or 0.0,
        )

    def _labels(self, method: str) -> Labels:
        if self.incoming is None:
            return self.upstream, "", "", "", True, method, ""
        return self.incoming.labels()
