"""The forward proxy, as the handler sees it: whose a request is, what a CONNECT becomes, another protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proxy.core.policy import PolicySet, Upstream
from proxy.front.address import Address, UpstreamAddress
from proxy.front.aside import Aside
from proxy.front.connection import Connection
from proxy.front.door import Door
from proxy.front.forwarded import OwnPlaces, forward_address, reach
from proxy.front.incoming import Incoming
from proxy.front.interception import Dialer, Interception
from proxy.front.reply import ReplyWriter, Written
from proxy.front.turns import HttpRequest
from proxy.front.upgrade import switch
from proxy.observe import Observer
from proxy.runs.books import RunBooks
from proxy.settings_values import Unknown


class ForwardProxy:
    def __init__(
        self,
        *,
        state: Path,
        unknown: Unknown,
        policies: Callable[[], PolicySet],
        door: Door,
        books: RunBooks,
        own: OwnPlaces,
        dialer: Dialer,
        aside: Aside,
        observer: Observer,
        max_header_bytes: int,
    ) -> None:
        self._unknown = unknown
        self._own = own
        self._dialer = dialer
        self._max_header_bytes = max_header_bytes
        self._interception = Interception(
            state=state,
            unknown=unknown,
            policies=policies,
            door=door,
            books=books,
            own=own,
            dialer=dialer,
            aside=aside,
            observer=observer,
        )
        self.connect = self._interception.connect

    def address(self, request: HttpRequest, connection: Connection) -> Address:
        """Of a request that is not in origin form, or that came through a CONNECT."""
        return forward_address(
            request.raw_path, request.raw_headers, connection.inside, self._own, connection.reached_at()
        )

    def reach(self, policies: PolicySet, address: UpstreamAddress) -> tuple[UpstreamAddress, Upstream]:
        return reach(policies, self._unknown, address)

    async def switch(
        self, protocol: str, incoming: Incoming, connection: Connection, writer: ReplyWriter
    ) -> tuple[int, Written]:
        return await switch(protocol, incoming, connection, writer, self._dialer, self._max_header_bytes)
