"""From a host to a connected socket: resolved once, every address looked at, connected to by number.

Between the look and the connection nobody is asked for the name a second time, so no second answer can lead
elsewhere. Addresses that the host may not have are left out; where none is left, nothing is connected to.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from proxy.core.reachable import Said, advice, may_be

Sockaddr: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


# A name may have thousands of addresses, and the log's line is for people.
MOST_TOLD = 8


class Found(NamedTuple):
    """One address of a host, as the kernel takes it."""

    family: int
    sockaddr: Sockaddr


class OffLimits(Exception):
    """The host has no address that may be connected to. The message says what to do, without the address."""


def _nobody(_event: str, **_fields: object) -> None:
    """Nobody is told."""


class Ways:
    """`leads_back`: whether a connection between these two socket addresses ends at semel itself. `private`:
    names may lead to private addresses without a policy that says so. `tell`: the operator."""

    def __init__(
        self,
        *,
        leads_back: Callable[[object, object], bool] = lambda _peer, _local: False,
        private: bool = False,
        tell: Callable[..., None] = _nobody,
    ) -> None:
        self._leads_back = leads_back
        self._private = private
        self._tell = tell

    async def connected(self, host: str, port: int, said: Said) -> socket.socket:
        """To the first address that answers. Raises OSError, or OffLimits."""
        found = await self.resolve(host, port)
        allowed = [each for each in found if self._may(host, each, said)]
        if found and not allowed:
            do = advice(host, said)
            addresses = sorted({each.sockaddr[0] for each in found})[:MOST_TOLD]
            self._tell("address-refused", host=host, port=port, addresses=addresses, advice=do)
            raise OffLimits(do)
        failed: OSError | None = None
        for each in allowed:
            try:
                return self._looked_at(await self.connect(each))
            except OSError as error:
                failed = failed or error
        raise failed or OSError(errno.EADDRNOTAVAIL, "the name has no address")

    def _may(self, host: str, found: Found, said: Said) -> bool:
        return may_be(host, found.sockaddr[0], said, private=self._private)

    def _looked_at(self, connection: socket.socket) -> socket.socket:
        try:
            # Raises where the other side is gone by now.
            back = self._leads_back(connection.getpeername(), connection.getsockname())
            if back:
                raise OSError(errno.ELOOP, "that is semel itself, and the call would go round for ever")
        except BaseException:
            connection.close()
            raise
        return connection

    # The two things that reach out. Tests put others in their place.

    async def resolve(self, host: str, port: int) -> Sequence[Found]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [Found(family, address) for family, _, _, _, address in found]  # type: ignore[arg-type]

    async def connect(self, found: Found) -> socket.socket:
        connection = socket.socket(found.family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(connection, found.sockaddr)
        except BaseException:
            connection.close()
            raise
        return connection
