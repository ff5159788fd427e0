"""The relay closes whatever it was given, whenever its door is shut: no socket is left to the collector."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.inside import until
from tests.proof.kills.wire import Wire


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("ends", ["refuse", "leave"])
async def test_a_door_that_is_shut_while_somebody_comes_in(turns: int, ends: str) -> None:
    """After so many turns of the loop: nobody has seen the caller yet, or it is accepted, or being led on."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server, Wire() as wire:
        wire.lead_to(server.sockets[0].getsockname()[1])
        with socket.create_connection(("127.0.0.1", wire.port)) as caller:
            caller.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            if ends == "leave":
                await wire.__aexit__(None, None, None)
            wire.refuse()
            await until(lambda: ended(caller), within=30)
        await until(lambda: not wire.busy, within=30)


def ended(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
