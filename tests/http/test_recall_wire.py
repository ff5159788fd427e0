"""Replays from memory on the wire: however a request is cut up, whoever does not read, how many are known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.asking import Delivery
from proxy.front import recall as recalling
from proxy.front.connection import Connection
from tests.forward.scene import client
from tests.http.recalled import BODY, JSON, place, warmed
from tests.inside import read_answer, request_bytes, until
from tests.origin import READ_ALL, answer


async def test_however_it_is_cut_up_it_is_the_same_request(tmp_path: Path) -> None:
    """Whole, in two parts, or two in one: each is answered once, in order."""
    async with place(tmp_path) as there:
        await warmed(there)
        request = request_bytes("POST", "/up/x", JSON, BODY)
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        for cut in range(1, len(request)):
            writer.write(request[:cut])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(request[cut:])
            assert (await read_answer(reader)).body == b"answer 1"
        writer.write(request * 3 + request[:20])
        for _ in range(3):
            assert (await read_answer(reader)).body == b"answer 1"
        writer.write(request[20:])
        assert (await read_answer(reader)).body == b"answer 1"
        for _ in range(20):
            writer.write(request)
            assert (await read_answer(reader)).semel == "replayed"
        writer.close()
        assert there.origin.started == 1
        assert there.given > 20


async def test_who_reads_nothing_is_not_written_to_without_end(tmp_path: Path) -> None:
    """A caller that only asks is served until its replies stand still, and no further."""
    async with place(tmp_path, (*READ_ALL, answer(200, b"x" * 6000))) as there:
        await warmed(there)
        request = request_bytes("POST", "/up/x", JSON, BODY)
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked = 0

        async def ask() -> None:
            nonlocal asked
            writer.write(request)
            asked += 1
            await asyncio.sleep(0)

        def stands_still() -> bool:
            return any(one._paused for one in there.app._listener.connections)

        while not stands_still():
            known = there.given
            await ask()
            await until(lambda known=known: there.given > known or stands_still())  # type: ignore[misc]
        given = there.given
        assert given > 10
        await ask()
        for _ in range(20):  # alone: it is read by itself
            await asyncio.sleep(0)
        for _ in range(500):
            await ask()
        assert there.given == given
        waiting = [_unread(one.transport) for one in there.app._listener.connections]
        assert 0 < max(waiting) < 2 * 64 * 1024
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            for _ in range(asked):
                assert (await read_answer(reader)).body == b"x" * 6000
        writer.close()


def _unread(transport: asyncio.Transport | None) -> int:
    return 0 if transport is None else transport.get_write_buffer_size()


async def test_so_many_are_known_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; a body that is long is not kept at all."""
    monkeypatch.setattr(recalling, "KNOWN", 3)
    rules = "[{name: r, match: {path: /x}, key: {include: [a]}}]"
    async with place(tmp_path, rules=rules) as there:
        assert there.recall is not None
        for n in range(6):
            for _ in range(3):
                await there.post(body=b'{"a": 1, "n": %d}' % n)
        assert there.given == 6
        assert (len(there.recall._known), len(there.recall._came)) == (3, 0)
        assert there.recall._bytes == sum(one.size for one in there.recall._known.values())
        await there.post(body=b'{"a": 1, "n": 0}')
        assert there.given == 6
        for n in range(10, 20):
            await there.post(body=b'{"a": 1, "n": %d}' % n)
        assert len(there.recall._came) == 3
        monkeypatch.setattr(recalling, "KNOWN_BYTES", 1)
        for _ in range(2):
            await there.post(body=b'{"a": 1, "n": 9}')
        assert (len(there.recall._known), there.recall._bytes) == (0, 0)


async def test_a_recalled_reply_is_a_whole_turn(tmp_path: Path) -> None:
    """What was begun before it is over: the wait for the rest of a request, the question whether the answer
    before was taken; and the connection may be idle anew."""
    async with place(tmp_path) as there:
        await warmed(there)
        request = request_bytes("POST", "/up/x", JSON, BODY)
        async with client(there.port) as outside:
            await outside.ask(request_bytes("POST", "/@run+one/up/x", JSON, BODY))
            await until(lambda: len(there.app._listener.connections) == 1)
            (connection,) = there.app._listener.connections
            assert isinstance(connection, Connection)
            handed_over: list[Delivery | None] = [connection.handed_over]
            assert (await outside.ask(request)).body == b"answer 1"
            handed_over.append(connection.handed_over)
            assert [one is None for one in handed_over] == [False, True]
            outside.writer.write(request[:-3])
            await until(lambda: connection._head_timer is not None)
            closes, given = connection._next_keepalive_close_time, there.given
            assert (await outside.ask(request[-3:])).body == b"answer 1"
            assert there.given == given + 1
            assert connection._head_timer is None
            assert connection._next_keepalive_close_time > closes
