"""A client that vanishes: while asking, while waiting, at any byte of the answer, politely or not.

Before the request is complete nothing has happened. After that the call goes on without its caller, is
recorded every time, and the retry joins it or gets the record: the upstream is called once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.crash.scene import JSON, KINDS, Kind, ask, policy, states, told, until, until_states
from tests.inside import request_bytes, semel
from tests.origin import READ_ALL, Origin, Script, Wait, answer, reset_on_close

pytestmark = pytest.mark.usefixtures("any_store")

BODY = b'{"n": 1}'
REQUEST = request_bytes("POST", Kind.D.target, JSON, BODY)
WORDS = bytes(range(97, 123)) * 40  # 1,040 bytes
HALF = len(WORDS) // 2

CLOSINGS = ("fin", "rst")
# How many bytes of the request are not sent: all, a half head, an end of the head, the body, its last byte.
ASKING = (1000, len(REQUEST) // 2, len(BODY) + 1, len(BODY), len(BODY) - 1, 2, 1)
# Bytes of the body that are read before the client goes; the first half is there while the upstream waits.
WHILE_WAITING = (0, 1, 2, 26, HALF // 2, HALF - 1)
WHILE_ENDING = (HALF, HALF + 1, HALF + 100, len(WORDS) - 100, len(WORDS) - 2, len(WORDS) - 1, len(WORDS))


def scripts(framing: str, go_on: asyncio.Event) -> Script:
    if framing == "length":
        whole = answer(200, WORDS)
        return (*READ_ALL, whole[:-HALF], Wait(go_on), whole[-HALF:])
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, second = (b"%x\r\n%b\r\n" % (len(part), part) for part in (WORDS[:HALF], WORDS[HALF:]))
    return (*READ_ALL, head + first, Wait(go_on), second + b"0\r\n\r\n")


@asynccontextmanager
async def client(port: int, closing: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """One that is gone at the end of the block, with FIN or with RST."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        if closing == "rst":
            reset_on_close(writer.get_extra_info("socket"))
            writer.transport.abort()
        else:
            writer.close()


async def read_some_of_the_body(reader: asyncio.StreamReader, count: int, framing: str) -> None:
    """The head, then this many bytes of the body, whatever the chunks."""
    await reader.readuntil(b"\r\n\r\n")
    size = 0
    while count > 0:
        if framing == "chunked":
            size = int(await reader.readuntil(b"\r\n"), 16)
        part = min(count, size or count)
        got = await reader.readexactly(part)
        assert WORDS.find(got[:26]) >= 0
        count -= part
        if framing == "chunked" and part == size:
            await reader.readexactly(2)


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("unsent", ASKING)
@pytest.mark.parametrize("kind", KINDS)
async def test_gone_before_the_request_is_complete(
    kind: Kind, unsent: int, closing: str, tmp_path: Path
) -> None:
    """Nothing happened: no byte upstream, no row; the whole request is then executed."""
    async with Origin((*READ_ALL, answer(200, WORDS))) as origin, semel(tmp_path, policy(origin.port)) as app:
        async with client(app.address.port, closing) as (_, writer):
            writer.write(request_bytes("POST", kind.target, JSON, BODY)[:-unsent])
            await writer.drain()
            await until(lambda: app._listener.connections)
        await until(lambda: not app._listener.connections)
        assert (origin.connections, await states(app)) == (0, [])
        assert told(await ask(app.address.port, kind)) == "executed 200"
        assert origin.started == 1


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("retry", ["joins", "replays"])
@pytest.mark.parametrize("kind", KINDS)
async def test_gone_right_after_the_request(kind: Kind, retry: str, closing: str, tmp_path: Path) -> None:
    """The answer has not begun. It is finished, kept, and given to whoever asks again."""
    go_on = asyncio.Event()
    async with (
        Origin((*READ_ALL, Wait(go_on), answer(200, WORDS))) as origin,
        semel(tmp_path, policy(origin.port)) as app,
    ):
        async with client(app.address.port, closing) as (_, writer):
            writer.write(request_bytes("POST", kind.target, JSON, BODY))
            await until(lambda: origin.started)
        await until(lambda: not app._listener.connections)
        await retry_and_check(app.address.port, kind, retry, go_on)
        assert (origin.started, await states(app)) == (1, ["done"])


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("retry", ["joins", "replays"])
@pytest.mark.parametrize("read", WHILE_WAITING)
async def test_gone_while_the_answer_arrives(
    read: int, retry: str, closing: str, framing: str, tmp_path: Path
) -> None:
    """Half of it is there, the upstream has not said the rest."""
    go_on = asyncio.Event()
    async with Origin(scripts(framing, go_on)) as origin, semel(tmp_path, policy(origin.port)) as app:
        async with client(app.address.port, closing) as (reader, writer):
            writer.write(REQUEST)
            await read_some_of_the_body(reader, read, framing)
        await until(lambda: not app._listener.connections)
        assert await states(app) == ["pending"]
        await retry_and_check(app.address.port, Kind.D, retry, go_on)
        assert (origin.started, await states(app)) == (1, ["done"])


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("read", WHILE_ENDING)
async def test_gone_while_or_after_the_end_arrives(
    read: int, closing: str, framing: str, tmp_path: Path
) -> None:
    """The upstream has said everything; the client leaves before, at or after the last byte."""
    go_on = asyncio.Event()
    go_on.set()
    async with Origin(scripts(framing, go_on)) as origin, semel(tmp_path, policy(origin.port)) as app:
        async with client(app.address.port, closing) as (reader, writer):
            writer.write(REQUEST)
            await read_some_of_the_body(reader, read, framing)
        await until_states(app, ["done"])
        await retry_and_check(app.address.port, Kind.D, "replays", go_on)
        assert (origin.started, await states(app)) == (1, ["done"])


@pytest.mark.parametrize("closing", CLOSINGS)
async def test_gone_and_cancelled(closing: str, tmp_path: Path) -> None:
    """`on_disconnect: cancel`, for safe calls: the send is stopped, the call released, the retry executed."""
    go_on = asyncio.Event()
    ok: Script = (*READ_ALL, answer(200, WORDS))
    async with (
        Origin((*READ_ALL, Wait(go_on)), ok) as origin,
        semel(tmp_path, policy(origin.port)) as app,
    ):
        async with client(app.address.port, closing) as (_, writer):
            writer.write(request_bytes("POST", Kind.A_CANCEL.target, JSON, BODY))
            await until(lambda: origin.started)
        await until_states(app, ["released"])
        assert told(await ask(app.address.port, Kind.A_CANCEL)) == "executed 200"
        assert (origin.started, await states(app)) == (2, ["done"])


async def retry_and_check(port: int, kind: Kind, retry: str, go_on: asyncio.Event) -> None:
    """Ask again while the call is under way, or when it is over."""
    if retry == "joins":
        asking = asyncio.create_task(ask(port, kind, BODY))
        await asyncio.sleep(0.05)  # time to do harm in; whether it has joined by then does not matter
        assert not asking.done()
        go_on.set()
        again = await asking
        assert told(again) == "joined 200"
    else:
        go_on.set()
        again = await ask(port, kind, BODY)
        assert told(again) in ("joined 200", "replayed 200")
    assert again.body == WORDS
    last = await ask(port, kind, BODY)
    assert (told(last), last.body) == ("replayed 200", WORDS)
