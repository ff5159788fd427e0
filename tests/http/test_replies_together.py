"""Short replies of one turn of the event loop are written together: in order, whole, and before any close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.front.arriving import ConnectionLimits
from proxy.front.connection import WRITTEN_SOON, Connection
from proxy.front.listener import Listener
from tests.inside import read_answer, request_bytes, semel
from tests.origin import READ_ALL, Origin, answer


class Line(asyncio.Transport):
    """A transport that only takes notes."""

    def __init__(self, notes: list[object]) -> None:
        super().__init__({"socket": None})
        self.notes = notes
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.notes.append(bytes(data))

    def close(self) -> None:
        self.closing = True
        self.notes.append("closed")

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return None if name == "socket" else default


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async def never(request: object) -> None:
        await asyncio.get_running_loop().create_future()

    listener = Listener(never, limits=ConnectionLimits(), refused=lambda refusal: None)
    yield listener
    await listener.shutdown(0.1)


def connected(listener: Listener, notes: list[object]) -> Connection:
    connection = listener()
    connection.connection_made(Line(notes))
    return connection


async def a_turn() -> None:
    """Whatever was arranged for the end of this turn has been done."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_replies_of_one_turn_go_out_when_it_is_over(listener: Listener) -> None:
    """None before, then all of them, in the order in which they were made."""
    notes: list[object] = []
    first, second = connected(listener, notes), connected(listener, notes)
    first.write_soon(b"one")
    second.write_soon(b"two")
    assert notes == []
    await a_turn()
    assert notes == [b"one", b"two"]


async def test_on_one_connection_nothing_overtakes_a_waiting_reply(listener: Listener) -> None:
    """Neither what is written at once, nor a second short one."""
    notes: list[object] = []
    connection = connected(listener, notes)
    connection.write_soon(b"one, ")
    connection.write(b"two, ")
    connection.write_soon(b"three, ")
    connection.write_soon(b"four")
    await a_turn()
    assert b"".join(note for note in notes if isinstance(note, bytes)) == b"one, two, three, four"


async def test_a_waiting_reply_goes_out_before_the_connection_is_closed(listener: Listener) -> None:
    """A shutdown, or a timer, may close it in the very same turn."""
    notes: list[object] = []
    connection = connected(listener, notes)
    connection.write_soon(b"the reply")
    connection.force_close()
    assert notes == [b"the reply", "closed"]
    await a_turn()
    assert notes == [b"the reply", "closed"]


async def test_a_refusal_of_what_comes_next_does_not_overtake_it(listener: Listener) -> None:
    """A head that is too large, or malformed, may come in the very turn in which the reply is made."""
    notes: list[object] = []
    connection = connected(listener, notes)
    connection.write_soon(b"the reply")
    connection.data_received(b"GET / HTTP/1.1\r\nX: " + b"x" * ConnectionLimits().headers + b"\r\n\r\n")
    assert notes[0] == b"the reply"
    assert isinstance(notes[1], bytes)
    assert notes[1].startswith(b"HTTP/1.1 431 ")


async def test_on_a_connection_about_to_close_nothing_waits(listener: Listener) -> None:
    """aiohttp closes it as soon as the handler returns, without asking us."""
    notes: list[object] = []
    connection = connected(listener, notes)
    connection.close()
    connection.write_soon(b"the reply")
    assert notes == [b"the reply"]


async def test_a_long_reply_does_not_wait(listener: Listener) -> None:
    """What waits is memory."""
    notes: list[object] = []
    connection = connected(listener, notes)
    connection.write_soon(b"x" * (WRITTEN_SOON + 1))
    assert notes == [b"x" * (WRITTEN_SOON + 1)]


async def test_for_a_client_that_has_left_nothing_is_promised(listener: Listener) -> None:
    """Said at once, so that the reply does not count as given; and one that leaves meanwhile harms nobody."""
    notes: list[object] = []
    gone, leaving, there = (connected(listener, notes) for _ in range(3))
    assert isinstance(gone.transport, Line)
    gone.transport.closing = True
    with pytest.raises(ConnectionResetError):
        gone.write_soon(b"lost")
    leaving.write_soon(b"lost")
    there.write_soon(b"kept")
    assert isinstance(leaving.transport, Line)
    leaving.transport.closing = True
    await a_turn()
    assert notes == [b"kept"]


async def test_pipelined_replays_come_back_in_order_and_whole(tmp_path: Path) -> None:
    """Forty requests in one segment, of two recorded calls by turns."""
    async with Origin((*READ_ALL, answer(200, b"one")), (*READ_ALL, answer(200, b"two"))) as origin:
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy) as app:
            reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
            try:
                requests = [request_bytes("POST", f"/pay/{name}", {}, b"{}") for name in ("a", "b")]
                given = []
                for request in requests:
                    writer.write(request)
                    given.append((await read_answer(reader)).body)
                writer.write(b"".join(requests * 20))
                async with asyncio.timeout(20):
                    again = [await read_answer(reader) for _ in range(40)]
            finally:
                writer.close()
            assert {one.semel for one in again} == {"replayed"}
            assert [one.body for one in again] == given * 20
            assert origin.started == 2
