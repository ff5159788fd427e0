"""The relay closes whatever it was given, whenever its door is shut: no socket is left to the collector."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.inside import until
from tests.proof.kills.draw import SLICED, Harm, Whom
from tests.proof.kills.wire import Wire
from tests.relay import Act


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


@pytest.mark.parametrize(
    ("what", "at", "sent", "struck"),
    [
        (Act.CUT, None, 10, 1),  # now: whoever is there
        (Act.CUT, 5, 10, 1),
        (Act.CUT, 50, 10, 0),  # never came so far
        (SLICED, 0, 10, 1),
        (SLICED, 0, 1, 0),  # nothing to slice
        (SLICED, None, 10, 1),
    ],
)
async def test_harm_is_counted_where_it_came_to_a_connection(
    what: str, at: int | None, sent: int, struck: int
) -> None:
    """Not where it was only drawn."""
    harm = Harm(Whom.AGENT_WIRE, what, which=0, pause=0, seconds=0, down=False, at=at, piece=1)
    got = asyncio.Queue[bytes]()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"!")
        got.put_nowait(await reader.read())
        writer.close()

    server = await asyncio.start_server(taken, "127.0.0.1", 0)
    async with server, Wire() as wire:
        wire.lead_to(server.sockets[0].getsockname()[1])
        if at is not None:
            wire.harm(harm)
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        await reader.readexactly(1)  # it is there
        if at is None:
            wire.harm(harm)
        writer.write(b"." * sent)
        writer.write_eof()
        await asyncio.wait_for(got.get(), 30)
        assert [strike.harm for strike in wire.struck] == [harm] * struck
        writer.close()


def ended(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
