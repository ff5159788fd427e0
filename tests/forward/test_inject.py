"""`inject` in the forward proxy: for the upstream's own hosts, over TLS, and for nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forward.scene import client, scene, through
from tests.http.numbered import problem
from tests.inside import raw_call, request_bytes
from tests.origin import READ_ALL, Origin, Seen, answer

SECRET = "Bearer wohl-verwahrt-4711"
INJECT = "inject: {header: Authorization, value_env: MAIL_KEY}\n"
DUMMY = {"Authorization": "Bearer dummy"}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_KEY", SECRET)


def sent(seen: Seen) -> list[str]:
    return [value.decode() for name, value in seen.headers if name.lower() == b"authorization"]


async def test_through_connect_the_credential_is_added_inside_tls(tmp_path: Path) -> None:
    """With a call that is recorded and one that passes, on one connection of the client."""
    async with scene(tmp_path, more=INJECT) as there, through(there) as inside:
        for method in ("POST", "GET"):
            got = await inside.ask(request_bytes(method, "/v1/x", DUMMY, host=there.authority))
            assert got.status == 200
        assert [sent(seen) for seen in there.origin.requests] == [[SECRET], [SECRET]]


async def test_in_absolute_form_too(tmp_path: Path) -> None:
    """Over http, where the upstream itself is http."""
    async with scene(tmp_path, tls=False, more=INJECT) as there:
        raw = request_bytes("POST", f"http://{there.authority}/v1/x", DUMMY, host=there.authority)
        assert (await raw_call(there.port, raw)).semel == "executed"
        assert sent(there.origin.requests[0]) == [SECRET]


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_an_upstream_of_https_never_gets_it_in_the_clear(tmp_path: Path, method: str) -> None:
    """`http://` with the port of https names the same host: the agent must not spill it that way."""
    async with scene(tmp_path, more=INJECT) as there:
        raw = request_bytes(method, f"http://{there.authority}/v1/x", DUMMY, host=there.authority)
        got = await raw_call(there.port, raw)
        assert (got.status, problem(got)) == (403, "denied")
        assert there.origin.received == 0


@pytest.mark.parametrize("unknown", ["record", "tunnel"])
async def test_a_host_that_no_upstream_names_never_gets_it(tmp_path: Path, unknown: str) -> None:
    """The agent's own goes there, as it would without semel."""
    settings = {"forward.unknown": unknown, "forward.private": "allow"}
    async with Origin((*READ_ALL, answer(200, b"other"))) as other:
        async with scene(tmp_path, more=INJECT, settings=settings) as there:
            raw = request_bytes("POST", f"http://localhost:{other.port}/v1/x", DUMMY, host="localhost")
            assert (await raw_call(there.port, raw)).body == b"other"
        assert [sent(seen) for seen in other.requests] == [["Bearer dummy"]]


async def test_a_blind_tunnel_carries_only_what_the_agent_sends(tmp_path: Path) -> None:
    """CONNECT to a host that no upstream names, with `forward: {unknown: tunnel}`."""
    settings = {"forward.unknown": "tunnel", "forward.private": "allow"}
    async with Origin((*READ_ALL, answer(200, b"other"))) as other:
        async with scene(tmp_path, more=INJECT, settings=settings) as there, client(there.port) as inside:
            assert (await inside.connect(f"localhost:{other.port}")).status == 200
            got = await inside.ask(request_bytes("POST", "/v1/x", DUMMY, host="localhost"))
            assert got.body == b"other"
        assert [sent(seen) for seen in other.requests] == [["Bearer dummy"]]


async def test_a_request_inside_a_connect_cannot_name_another_host(tmp_path: Path) -> None:
    """Neither by its target nor by its Host header: the credential stays with the host of the CONNECT."""
    async with Origin() as other, scene(tmp_path, more=INJECT) as there, through(there) as inside:
        got = await inside.ask(request_bytes("POST", "/v1/x", DUMMY, host=f"localhost:{other.port}"))
        assert got.status == 200
        assert (other.connections, sent(there.origin.requests[0])) == (0, [SECRET])
        got = await inside.ask(request_bytes("POST", f"https://localhost:{other.port}/v1/x", DUMMY))
        assert got.status == 400
        assert other.connections == 0
