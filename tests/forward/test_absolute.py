"""Absolute form: `GET http://host/path`, as clients send it to HTTP_PROXY."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest

from tests.forward.scene import client, scene
from tests.inside import call, raw_call, request_bytes, semel
from tests.origin import OK, Origin

pytestmark = pytest.mark.usefixtures("forward_store")


@pytest.mark.parametrize("path", ["", "/api/v2"])
async def test_the_same_call_has_the_same_name_on_both_ways(tmp_path: Path, path: str) -> None:
    """With a base_url that has a path, and one without."""
    async with scene(tmp_path, tls=False, path=path) as there:
        target = f"http://{there.authority}{path}/send?x=1"
        first = await raw_call(there.port, request_bytes("POST", target, body=b"x"))
        assert first.semel == "executed"
        direct = await call(there.port, "POST", "/up/send?x=1", body=b"x")
        assert (direct.semel, direct.get("Semel-Call")) == ("replayed", first.get("Semel-Call"))
        (seen,) = there.origin.requests
        assert seen.head.startswith(f"POST {path}/send?x=1 HTTP/1.1\r\n".encode())


async def test_beside_the_base_path_it_is_another_call(tmp_path: Path) -> None:
    """/other at the host is not /api/other, though both are `/other` to a rule."""
    rules = "rules: [{name: seen, match: {path: /other}, mode: once, safe: false}]\n"
    async with scene(tmp_path, tls=False, path="/api", more=rules) as there:
        beside = await raw_call(there.port, request_bytes("POST", f"http://{there.authority}/other"))
        below = await call(there.port, "POST", "/up/other")
        assert beside.semel == below.semel == "executed"
        assert beside.get("Semel-Call") != below.get("Semel-Call")
        assert [seen.head.split()[1] for seen in there.origin.requests] == [b"/other", b"/api/other"]


async def test_the_target_wins_over_a_host_header_that_differs(tmp_path: Path) -> None:
    """One host is looked up, called and told to it; what the header said goes nowhere."""
    async with scene(tmp_path, tls=False) as there:
        raw = request_bytes("POST", f"http://{there.authority}/x", body=b"x", host="evil.example")
        assert (await raw_call(there.port, raw)).semel == "executed"
        (seen,) = there.origin.requests
        assert [value for name, value in seen.headers if name.lower() == b"host"] == [
            there.authority.encode()
        ]
        assert b"evil" not in seen.head


async def test_what_is_said_to_the_proxy_stays_here(tmp_path: Path) -> None:
    """Proxy-Authorization, Proxy-Connection, Semel-*."""
    said = {
        "Proxy-Authorization": "Basic " + b64encode(b"task:").decode(),
        "Proxy-Connection": "keep-alive",
        "Semel-Tool": "mail",
        "X-Kept": "yes",
    }
    async with scene(tmp_path, tls=False) as there:
        got = await raw_call(there.port, request_bytes("POST", f"http://{there.authority}/x", said))
        assert got.semel == "executed"
        (seen,) = there.origin.requests
        assert {name.lower() for name, _ in seen.headers} == {b"host", b"content-length", b"x-kept"}


async def test_a_proxy_may_be_asked_for_https_without_a_connect(tmp_path: Path) -> None:
    """Some clients send `GET https://…` as it is: semel speaks TLS to the upstream."""
    async with scene(tmp_path) as there:
        got = await raw_call(there.port, request_bytes("POST", f"https://{there.authority}/x"))
        assert (got.semel, got.body) == ("executed", b"ok")
        direct = await call(there.port, "POST", "/up/x")
        assert direct.get("Semel-Call") == got.get("Semel-Call")


async def test_http_to_an_https_upstream_is_another_host(tmp_path: Path) -> None:
    """Port 80 of a host that is known on 443: not listed, not sent in the clear."""
    async with scene(tmp_path, more="hosts: [api.example]\n") as there:
        got = await raw_call(there.port, request_bytes("GET", "http://api.example/x"))
        assert (got.status, b"unknown-upstream" in got.body) == (403, True)


BAD = {
    "a user": "http://me:secret@localhost:{port}/x",
    "another scheme": "ftp://localhost:{port}/x",
    "a websocket's scheme": "ws://localhost:{port}/x",
    "no host": "http:///x",
    "a port too large": "http://localhost:70000/x",
    "a dot segment": "http://localhost:{port}/a/../x",
    "an escaped one": "http://localhost:{port}/a/%2e%2e/x",
    "a fragment": "http://localhost:{port}/x#y",
    "a backslash": "http://localhost:{port}\\@evil.example/x",
    "no slash": "localhost/x",
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_address_is_refused_and_nothing_is_sent(tmp_path: Path, name: str) -> None:
    """400 with a problem that does not repeat a secret."""
    async with scene(tmp_path, tls=False) as there:
        target = BAD[name].format(port=there.origin.port)
        got = await raw_call(there.port, request_bytes("POST", target))
        assert (got.status, got.semel) == (400, "refused"), got
        assert b"secret" not in got.body
        assert there.origin.connections == 0


# ---- semel itself ----


async def test_an_address_of_semel_itself_came_directly(tmp_path: Path) -> None:
    """HTTP_PROXY is set and the agent calls semel by its base URL all the same."""
    async with scene(tmp_path, tls=False) as there:
        for host in ("127.0.0.1", "localhost"):
            own = f"http://{host}:{there.port}"
            health = await raw_call(there.port, request_bytes("GET", f"{own}/healthz"))
            assert (health.status, health.body) == (200, b"ok\n")
            user = {"Proxy-Authorization": "Basic " + b64encode(b"task:").decode()}
            got = await raw_call(there.port, request_bytes("POST", f"{own}/up/x", user, b"x"))
            assert got.semel in ("executed", "replayed")
            other = await raw_call(there.port, request_bytes("POST", f"{own}/@else/up/x", user, b"x"))
            assert other.status == 400, "two runs that differ"
        assert there.origin.started == 1, "one run, no attempt: the second is the same call"


async def test_a_connect_to_semel_itself_is_refused(tmp_path: Path) -> None:
    """By every name it has: 403, and no loop."""
    async with scene(tmp_path, settings={"forward.unknown": "tunnel"}) as there:
        for host in ("127.0.0.1", "localhost", "LOCALHOST.", "[::1]", "0.0.0.0"):
            async with client(there.port) as outside:
                got = await outside.ask(request_bytes("CONNECT", f"{host}:{there.port}"))
                assert (got.status, b"NO_PROXY" in got.body) == (403, True), host
        assert there.origin.connections == 0


async def test_an_upstream_that_is_semel_itself_does_not_go_round(tmp_path: Path) -> None:
    """A base_url that leads back: refused before a byte is sent."""
    async with Origin(OK) as free:
        port = free.port
    policy = f"upstream: up\nbase_url: http://localhost:{port}/up\n"
    settings = {"listen": f"127.0.0.1:{port}"}
    async with asyncio.timeout(20), semel(tmp_path, policy, settings=settings):
        got = await call(port, "POST", "/up/x", body=b"x")
        assert (got.status, got.semel) == (502, "refused")
        assert b"semel itself" in got.body
