"""Hosts that no upstream names: denied, let through unread, or recorded without a rule."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path
from typing import cast

import pytest

from proxy.front import tunnel
from tests.forward.scene import client, scene
from tests.inside import call, raw_call, request_bytes, until
from tests.origin import CERTIFICATE, OK, READ_ALL, Close, Origin, Stall, answer, run_on
from tests.sending import both_loops

pytestmark = pytest.mark.usefixtures("forward_store")


async def test_denied_by_default(tmp_path: Path) -> None:
    """403 is the answer to the CONNECT itself, and to absolute form."""
    async with scene(tmp_path) as there, Origin(OK) as other:
        for raw in (
            request_bytes("CONNECT", f"localhost:{other.port}"),
            request_bytes("GET", f"http://localhost:{other.port}/x"),
        ):
            got = await raw_call(there.port, raw)
            assert (got.status, got.semel) == (403, "refused")
            assert b"urn:semel:unknown-upstream" in got.body
            assert f"localhost:{other.port}".encode() in got.body
        assert (await call(there.port, "GET", "/nobody/x")).status == 404, "in reverse mode as ever"
        assert other.connections == 0


@both_loops
def test_let_through_unread(tmp_path: Path, loop: str) -> None:
    """TLS from end to end with the host itself; counted and told when it is over."""

    async def scenario() -> None:
        settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
        async with scene(tmp_path, settings=settings) as there, Origin(OK, tls=True) as other:
            async with client(there.port) as outside:
                assert (await outside.connect(f"localhost:{other.port}")).status == 200
                await outside.secure(ssl.create_default_context(cafile=str(CERTIFICATE)))
                got = await outside.ask(request_bytes("POST", "/x", body=b"x"))
                assert (got.body, got.semel) == (b"ok", None)
                again = await outside.ask(request_bytes("POST", "/x", body=b"x"))
                assert again.body == b"ok"
            assert other.started == 2, "not recorded, not replayed"
            await until(lambda: there.told("call"))
            (told,) = there.told("call")
            assert (told["upstream"], told["status"], told["method"]) == ("unlisted", "passed", "CONNECT")
            assert int(str(told["bytes"])) > 100
            metrics = await call(there.port, "GET", "/metrics")
            assert (
                b'semel_calls_total{mode="pass",rule="unlisted",status="passed",upstream="unlisted"} 1.0'
                in (metrics.body)
            )
            assert not there.told("tls-not-agreed")

    run_on(loop, scenario())


async def test_bytes_behind_the_connect_go_through_the_tunnel(tmp_path: Path) -> None:
    """And those that the host says first."""
    settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
    async with (
        scene(tmp_path, settings=settings) as there,
        Origin((b"220 hello\r\n", Stall())) as other,
        client(there.port) as outside,
    ):
        outside.writer.write(request_bytes("CONNECT", f"localhost:{other.port}") + b"EHLO me\r\n\r\n")
        head = await outside.reader.readuntil(b"\r\n\r\n")
        assert head == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await outside.reader.readline() == b"220 hello\r\n"
        await until(lambda: other.received == len(b"EHLO me\r\n\r\n"))


async def test_a_tunnel_ends_with_either_end(tmp_path: Path) -> None:
    """What was said before the end still arrives; nothing is left open."""
    settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
    large = b"x" * 3_000_000
    async with scene(tmp_path, settings=settings) as there:
        async with (
            Origin((*READ_ALL, answer(200, large), Close())) as other,
            client(there.port) as outside,
        ):
            assert (await outside.connect(f"localhost:{other.port}")).status == 200
            got = await outside.ask(request_bytes("GET", "/x"))
            assert got.body == large
            assert await outside.ended() == b""
        async with Origin((Stall(),)) as other:
            async with client(there.port) as outside:
                assert (await outside.connect(f"localhost:{other.port}")).status == 200
                outside.writer.write(b"last words")
            await until(lambda: other.visitors and other.visitors[0].gone.is_set())
        await until(lambda: not there.app._listener.connections)


@both_loops
def test_a_tunnel_ends_with_semel(tmp_path: Path, loop: str) -> None:
    """At once: nobody can say when it would end by itself."""

    async def scenario() -> None:
        settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
        async with (
            scene(tmp_path, settings=settings) as there,
            Origin((Stall(),)) as other,
            client(there.port) as outside,
        ):
            assert (await outside.connect(f"localhost:{other.port}")).status == 200
            async with asyncio.timeout(10):
                there.app._listener.pre_shutdown()
                assert await outside.ended() == b""
                assert await there.app.stop(60.0) == 0
            await until(lambda: other.visitors[0].gone.is_set())

    run_on(loop, scenario())


async def test_a_tunnel_to_nowhere_is_refused(tmp_path: Path) -> None:
    """502 is the answer to the CONNECT."""
    async with Origin(OK) as other:
        gone = other.port
    async with scene(tmp_path, settings={"forward.unknown": "tunnel", "forward.private": "allow"}) as there:
        got = await raw_call(there.port, request_bytes("CONNECT", f"127.0.0.1:{gone}"))
        assert (got.status, b"urn:semel:upstream-unreachable" in got.body) == (502, True)


async def test_plain_http_is_handed_on_unrecorded_where_tunnels_are_let_through(tmp_path: Path) -> None:
    """Absolute form has no tunnel: it passes, with the label of one."""
    settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
    async with scene(tmp_path, settings=settings) as there, Origin(OK) as other:
        for _ in range(2):
            raw = request_bytes("POST", f"http://localhost:{other.port}/x", body=b"x")
            assert (await raw_call(there.port, raw)).semel == "passed"
        assert other.started == 2
        await until(lambda: len(there.told("call")) == 2)
        assert {told["upstream"] for told in there.told("call")} == {"unlisted"}


async def test_recorded_by_the_table_without_a_rule(tmp_path: Path) -> None:
    """Inside TLS and in absolute form; two hosts never share a record."""
    settings = {"forward.unknown": "record", "forward.private": "allow"}
    async with scene(tmp_path, settings=settings) as there, Origin(OK) as one, Origin(OK, tls=True) as two:
        raw = request_bytes("POST", f"http://localhost:{one.port}/x", body=b"x")
        first = await raw_call(there.port, raw)
        again = await raw_call(there.port, raw)
        assert (first.semel, again.semel) == ("executed", "replayed")
        context = there.context()
        async with client(there.port) as outside:
            assert (await outside.connect(f"localhost:{two.port}")).status == 200
            await outside.secure(context)
            other = await outside.ask(request_bytes("POST", "/x", body=b"x"))
        assert other.semel == "executed"
        assert other.get("Semel-Call") != first.get("Semel-Call")
        assert (one.started, two.started) == (1, 1)
        assert dict(one.requests[0].headers)[b"Host"] == f"localhost:{one.port}".encode()
        read = request_bytes("GET", f"http://localhost:{one.port}/x")
        assert (await raw_call(there.port, read)).semel == "passed"
        await until(lambda: len(there.told("call")) == 4)
        assert {told["upstream"] for told in there.told("call")} == {"unlisted"}


async def test_a_run_says_that_it_had_a_tunnel(tmp_path: Path) -> None:
    """What goes through unread is part of what a run tells of itself."""
    settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
    user = {"Proxy-Authorization": "Basic " + b64encode(b"task+a:").decode()}
    async with (
        scene(tmp_path, settings=settings) as there,
        Origin((Stall(),)) as other,
        client(there.port) as outside,
    ):
        assert (await outside.connect(f"localhost:{other.port}", user)).status == 200
        record = await there.app.store.get_run("default", "task")
        assert record is not None
        assert "tunnel" in record.passed


@both_loops
def test_who_does_not_take_what_is_there_for_it_is_let_go(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops reading: the host's connection ends too, and no connection is left."""
    monkeypatch.setattr(tunnel, "STALLED", 0.3)
    much = b"x" * 40_000_000

    async def scenario() -> None:
        settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
        async with (
            scene(tmp_path, settings=settings) as there,
            Origin((*READ_ALL, much, Stall())) as other,
            client(there.port) as outside,
        ):
            assert (await outside.connect(f"localhost:{other.port}")).status == 200
            outside.writer.write(request_bytes("GET", "/x"))
            await until(lambda: other.started)
            cast("asyncio.Transport", outside.writer.transport).pause_reading()
            await until(lambda: other.visitors[0].gone.is_set())
            await until(lambda: not there.app._listener.connections)

    run_on(loop, scenario())


async def test_in_a_run_each_host_has_its_own_past(tmp_path: Path) -> None:
    """The same request to two hosts: two calls, and a second attempt is given each one's own answer."""
    settings = {"forward.unknown": "record", "forward.private": "allow"}
    one_says, two_says = (*READ_ALL, answer(200, b"one")), (*READ_ALL, answer(200, b"two"))
    async with (
        scene(tmp_path, settings=settings) as there,
        Origin(one_says) as one,
        Origin(two_says) as two,
    ):
        given: dict[str, list[tuple[str | None, bytes]]] = {"first": [], "second": []}
        for attempt, got in given.items():
            user = {"Proxy-Authorization": "Basic " + b64encode(f"task+{attempt}:".encode()).decode()}
            for origin in (one, two):
                raw = request_bytes("POST", f"http://localhost:{origin.port}/x", user, b"x")
                reply = await raw_call(there.port, raw)
                got.append((reply.semel, reply.body))
        assert given["first"] == [("executed", b"one"), ("executed", b"two")]
        assert given["second"] == [("replayed", b"one"), ("replayed", b"two")]
        assert (one.started, two.started) == (1, 1)
