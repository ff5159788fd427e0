"""Upgrades: put to the upstream, tunnelled if it agrees, never recorded, never a way around the record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.forward.scene import client, scene, through
from tests.inside import call, read_answer, request_bytes, until
from tests.origin import OK, READ_ALL, Close, ReadHead, Script, Stall, Wait, answer, run_on
from tests.sending import both_loops

pytestmark = pytest.mark.usefixtures("forward_store")

WISH = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
SWITCHES: Script = (ReadHead(), AGREED + b"first frame", Stall())


@both_loops
@pytest.mark.parametrize("way", ["reverse", "absolute", "connect"])
def test_a_websocket_is_tunnelled(tmp_path: Path, loop: str, way: str) -> None:
    """On every way to semel: the wish and the agreement as they are, then bytes both ways until one ends."""

    async def scenario() -> None:
        async with scene(tmp_path, SWITCHES) as there:
            target = {"reverse": "/up/ws?x=1", "absolute": f"https://{there.authority}/ws?x=1"}
            come = through(there) if way == "connect" else client(there.port)
            async with come as inside:
                raw = request_bytes("GET", target.get(way, "/ws?x=1"), WISH, host="localhost")
                inside.writer.write(raw + b"early frame")
                head = await inside.reader.readuntil(b"\r\n\r\n")
                assert head.startswith(AGREED[:-2])
                assert b"\r\nSemel-Status: passed\r\n" in head
                assert await inside.reader.readexactly(11) == b"first frame"
                inside.writer.write(b"and more" * 1000)
                (visitor,) = there.origin.visitors
                sent = len(b"early frame") + 8000
                await until(lambda: visitor.received == len(visitor.requests[0].head) + sent)
                visitor.transport.write(b"answered")
                assert await inside.reader.readexactly(8) == b"answered"
            await until(visitor.gone.is_set)
            seen = visitor.requests[0]
            assert seen.head.startswith(b"GET /ws?x=1 HTTP/1.1\r\n")
            sent_headers = {name.lower(): value for name, value in seen.headers}
            assert sent_headers[b"upgrade"] == b"websocket"
            assert sent_headers[b"connection"] == b"Upgrade"
            assert sent_headers[b"sec-websocket-key"] == WISH["Sec-WebSocket-Key"].encode()
            await until(lambda: there.told("call"))
            (told,) = there.told("call")
            assert (told["status"], told["code"], told["upstream"]) == ("passed", 101, "up")
            assert len(there.told("upgrade")) == 1

    run_on(loop, scenario())


async def test_the_upstream_may_end_it(tmp_path: Path) -> None:
    """What it said before arrives."""
    async with scene(tmp_path, (ReadHead(), AGREED + b"bye", Close())) as there, through(there) as inside:
        inside.writer.write(request_bytes("GET", "/ws", WISH, host="localhost"))
        await inside.reader.readuntil(b"\r\n\r\n")
        assert await inside.ended() == b"bye"


async def test_an_upstream_that_declines_gives_an_ordinary_answer(tmp_path: Path) -> None:
    """And the requests after it are looked at as ever: declining opens no tunnel."""
    declined = answer(426, b"no websockets here", (b"X-Why", b"because"))
    large = answer(403, b"x" * 1_000_000)
    async with (
        scene(tmp_path, (*READ_ALL, declined), (*READ_ALL, large), OK) as there,
        client(there.port) as outside,
    ):
        behind = request_bytes("POST", "/up/send", body=b"x")
        outside.writer.write(request_bytes("GET", "/up/ws", WISH) + behind)
        got = await read_answer(outside.reader)
        assert (got.status, got.body, got.semel) == (426, b"no websockets here", "passed")
        assert got.get("X-Why") == "because"
        refused = await outside.ask(b"")
        assert refused.status == 403
        assert len(refused.body) == 1_000_000
        executed = await outside.ask(behind)
        assert executed.semel == "executed", "a released 403, then recorded"


async def test_interim_answers_come_before_the_agreement(tmp_path: Path) -> None:
    """100 and 103 are dropped."""
    script: Script = (ReadHead(), b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + AGREED, Stall())
    async with scene(tmp_path, script) as there, client(there.port) as outside:
        outside.writer.write(request_bytes("GET", "/up/ws", WISH))
        assert (await outside.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    "wish",
    [
        {**WISH, "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk", "Connection": "Upgrade, HTTP2-Settings"},
        {"Upgrade": "websocket"},
    ],
    ids=["h2c", "no word in Connection"],
)
async def test_what_is_no_wish_is_dropped(tmp_path: Path, wish: dict[str, str]) -> None:
    """h2c would hide calls from semel; without Connection the header means nothing."""
    async with scene(tmp_path) as there:
        got = await call(there.port, "GET", "/up/x", wish)
        assert (got.status, got.semel) == (200, "passed")
        (seen,) = there.origin.requests
        names = {name.lower() for name, _ in seen.headers}
        assert not names & {b"upgrade", b"connection", b"http2-settings"}


async def test_a_call_with_effects_is_recorded_whatever_it_wishes(tmp_path: Path) -> None:
    """A POST with an Upgrade is a POST."""
    async with scene(tmp_path) as there:
        wish = {"Connection": "Upgrade", "Upgrade": "tcp"}
        first = await call(there.port, "POST", "/up/x", wish, b"x")
        again = await call(there.port, "POST", "/up/x", wish, b"x")
        assert (first.semel, again.semel) == ("executed", "replayed")
        for status in ("executed", "replayed"):
            bare = await call(there.port, "POST", "/up/x", {**WISH, "Accept": "*/*"})
            assert bare.semel == status, "without a body too"
        assert there.origin.started == 2


async def test_a_rule_that_denies_denies_an_upgrade(tmp_path: Path) -> None:
    """The rules come first."""
    more = "rules: [{name: no, match: {path: /ws}, mode: deny}]\n"
    async with scene(tmp_path, more=more) as there:
        got = await call(there.port, "GET", "/up/ws", WISH)
        assert (got.status, b"urn:semel:denied" in got.body) == (403, True)
        assert there.origin.connections == 0


async def test_an_upstream_that_breaks_off_or_keeps_silent(tmp_path: Path) -> None:
    """A problem, while nothing was said."""
    async with scene(tmp_path, (ReadHead(), Close()), more="timeout: {idle: 200ms}\n") as there:
        got = await call(there.port, "GET", "/up/ws", WISH)
        assert (got.status, got.semel) == (502, "refused")
    async with scene(tmp_path, (ReadHead(), Stall()), more="timeout: {idle: 200ms}\n") as there:
        got = await call(there.port, "GET", "/up/ws", WISH)
        assert (got.status, got.semel) == (504, "refused")
    async with scene(tmp_path, (ReadHead(), b"HTTP/1.1 101" + b"x" * 100_000)) as there:
        got = await call(there.port, "GET", "/up/ws", WISH)
        assert (got.status, got.semel) == (502, "refused")


@both_loops
def test_an_upgraded_connection_ends_with_semel(tmp_path: Path, loop: str) -> None:
    """At once, inside TLS too."""

    async def scenario() -> None:
        async with scene(tmp_path, SWITCHES) as there, through(there) as inside:
            inside.writer.write(request_bytes("GET", "/ws", WISH, host="localhost"))
            await inside.reader.readuntil(b"first frame")
            there.app._listener.pre_shutdown()
            assert await inside.ended() == b""
            async with asyncio.timeout(10):
                await there.app.stop(60.0)

    run_on(loop, scenario())


async def test_a_run_says_that_it_had_one(tmp_path: Path) -> None:
    """What passed without a record is part of what a run tells of itself."""
    async with scene(tmp_path, SWITCHES) as there, client(there.port) as outside:
        outside.writer.write(request_bytes("GET", "/@task+a/up/ws", WISH))
        await outside.reader.readuntil(b"first frame")
        record = await there.app.store.get_run("default", "task")
        assert record is not None
        assert "upgrade" in record.passed


@both_loops
def test_protocols_other_than_websockets_are_tunnelled_too(tmp_path: Path, loop: str) -> None:
    """What comes behind the agreement goes through; what comes before it is refused, for it is lost."""
    wish = {"Connection": "Upgrade", "Upgrade": "foo/2"}
    agreed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo/2\r\nConnection: Upgrade\r\n\r\n"

    async def scenario() -> None:
        go_on = asyncio.Event()
        script: Script = (ReadHead(), Wait(go_on), agreed + b"hello", Stall())
        async with scene(tmp_path, script) as there:
            async with client(there.port) as outside:
                outside.writer.write(request_bytes("GET", "/up/foo", wish))
                go_on.set()
                await outside.reader.readuntil(b"hello")
                outside.writer.write(b"foo")
                (visitor,) = there.origin.visitors
                await until(lambda: visitor.received == len(visitor.requests[0].head) + 3)
            go_on.clear()
            async with client(there.port) as hasty:
                hasty.writer.write(request_bytes("GET", "/up/foo", wish))
                await until(lambda: len(there.origin.requests) == 3)
                hasty.writer.write(b"GET /foo")
                (connection,) = there.app._listener.connections
                await until(lambda: connection._behind_head)  # type: ignore[attr-defined]
                go_on.set()
                assert (await hasty.ask(b"")).status == 400

    run_on(loop, scenario())


@pytest.mark.parametrize("protocol", ["h2c", "foo/2"])
async def test_a_request_behind_an_unknown_wish_is_not_left_waiting(tmp_path: Path, protocol: str) -> None:
    """It was lost in the parser: the reply before it says that this is the end, so the client asks again."""
    wish = {"Connection": "Upgrade", "Upgrade": protocol}
    async with scene(tmp_path) as there, client(there.port) as outside:
        behind = request_bytes("POST", "/up/b", body=b"b")
        outside.writer.write(request_bytes("GET", "/up/a", wish) + behind)
        got = await read_answer(outside.reader)
        assert (got.status, got.get("Connection")) == (200, "close")
        assert await outside.ended() == b""
        assert there.origin.started == 1
