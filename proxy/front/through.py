"""A client's connection becomes one end of a tunnel."""

from __future__ import annotations

from proxy.front.connection import Connection
from proxy.front.tunnel import End, Tunnel


def tunnel_from(connection: Connection, upstream: End) -> Tunnel:
    client = End()
    if connection.transport is not None:
        client.stand_at(connection.transport)
    return Tunnel(client, upstream, connection.connection_lost)


async def through(tunnel: Tunnel, connection: Connection, first: bytes) -> None:
    """Write `first` to the client, then let all bytes through until one side ends it."""
    try:
        connection.write(first)  # raises if the client has left
        behind = connection.hand_over(tunnel.client)
        connection.tunnel = tunnel
        if behind:
            tunnel.client.data_received(behind)
        tunnel.open()
        await tunnel.over
    finally:
        tunnel.end()
