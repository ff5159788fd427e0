"""A running proxy asked over HTTP: problems become the errors they were, and strangers are told apart."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import jsonschema
import pytest

from proxy.admin.decision import Decision, Resolution
from proxy.admin.fits import fits
from proxy.admin.remote import RemoteDesk
from proxy.admin.schemas import COMPONENTS, document
from proxy.core.intent import State
from proxy.errors import (
    AnswerUnavailable,
    BadRequest,
    ConfigurationError,
    Forbidden,
    NotFound,
    NotInDoubt,
    StaleVersion,
    StoreUnavailable,
    Unauthorized,
)
from proxy.operator import Verdict
from proxy.settings import Role, Token
from proxy.store.base import Query
from proxy.tokens import digest
from tests.admin.scene import FINE, LOST, scene
from tests.origin import READ_ALL, Close, Origin, Reset, Script, Stall, Wait, answer

EXECUTED = Resolution(by="me", verdict=Verdict.EXECUTED, reason="seen")


async def test_the_errors_of_a_proxy_come_through(tmp_path: Path) -> None:
    """By their kind, with the present state."""
    async with scene(tmp_path, LOST, FINE) as world:
        desk = RemoteDesk(world.url)
        doubtful, done = await world.charged(1), await world.charged(2)
        for call_id in ("0" * 32, "abc", "../stats"):
            with pytest.raises(NotFound):
                await desk.call(call_id)
        with pytest.raises(NotInDoubt):
            await desk.resolve(done, EXECUTED)
        with pytest.raises(StaleVersion, match="in_doubt now, version 2") as refused:
            await desk.forget(doubtful, Decision(by="me", reason="r", version=1))
        assert (refused.value.members["state"], refused.value.members["version"]) == ("in_doubt", 2)
        with pytest.raises(BadRequest, match="reason"):
            await desk.forget(done, Decision(by="me", reason=" "))
        await desk.resolve(doubtful, EXECUTED)
        with pytest.raises(AnswerUnavailable, match="seen"):
            await desk.body(doubtful)


async def test_a_query_and_a_body_arrive_as_they_are(tmp_path: Path) -> None:
    """Every filter is passed on; a long body comes whole."""
    large = b"y" * 300_000
    async with scene(tmp_path, FINE, (*READ_ALL, answer(200, large))) as world:
        desk = RemoteDesk(world.url + "/")
        first, second = await world.charged(1), await world.charged(2, "/other")
        page = await desk.calls(Query(tool="charge_card", upstream="pay", limit=1))
        assert [one["id"] for one in page["calls"]] == [first]
        newest = await desk.calls(Query(limit=1))
        rest = await desk.calls(Query(limit=1, after=newest["next"]))
        assert [one["id"] for one in newest["calls"] + rest["calls"]] == [second, first]
        body = await desk.body(second)
        assert not isinstance(body.content, bytes)
        assert b"".join([part async for part in body.content]) == large


async def test_a_token_is_passed_and_its_absence_explained(tmp_path: Path) -> None:
    """401 says how to give one, 403 which role is needed."""
    tokens = [Token(sha256=digest(role), tenant="acme", role=role) for role in (Role.OPERATOR, Role.AGENT)]
    async with scene(tmp_path, tokens=tokens) as world:
        assert (await RemoteDesk(world.url, "operator").stats())["calls"]["done"] == 0
        for token in ("", "wrong"):
            with pytest.raises(Unauthorized, match="--token"):
                await RemoteDesk(world.url, token).stats()
        with pytest.raises(Forbidden, match="operator"):
            await RemoteDesk(world.url, "agent").stats()


STRANGER = "is not a semel, or another version of it"


def page(status: int, body: bytes, kind: bytes, *more: tuple[bytes, bytes]) -> Script:
    return (*READ_ALL, answer(status, body, (b"Content-Type", kind), *more), Close())


STRANGERS: dict[str, Script] = {
    "a web page": page(200, b"<html>", b"text/html"),
    "another API": page(404, b'{"error": 1}', b"application/json"),
    "a redirect": page(302, b"", b"text/html", (b"Location", b"http://127.0.0.1:1/")),
    "a list": page(200, b"[]", b"application/json"),
    "an empty object": page(200, b"{}", b"application/json"),
    "a deep document": page(200, b"[" * 100_000, b"application/json"),
    "a problem without its members": page(
        404, b'{"type": "urn:semel:not-found", "detail": 5}', b"application/problem+json"
    ),
    "somebody else's problem": page(500, b'{"type": "about:blank"}', b"application/problem+json"),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_what_is_not_a_semel_is_told_apart(name: str) -> None:
    """Refused, with what to check; nothing is followed."""
    async with Origin(STRANGERS[name]) as origin:
        desk = RemoteDesk(f"http://127.0.0.1:{origin.port}")
        with pytest.raises(StoreUnavailable, match=STRANGER):
            await desk.stats()
        with pytest.raises(StoreUnavailable, match=STRANGER):
            await desk.body("0" * 32)
        assert origin.started == 2
        with pytest.raises(StoreUnavailable, match=STRANGER) as refused:
            await desk.forget("0" * 32, Decision(by="me", reason="r"))
        assert "Whether the decision arrived is not known" in str(refused.value)


FORGOTTEN = {"type": "urn:semel:not-found", "title": "t", "status": 404, "detail": "no such call"}


@pytest.mark.parametrize("name", ["self", "present", "members", "args"])
async def test_members_that_are_not_known_are_left_out(name: str) -> None:
    """Of a newer semel, or of somebody who plays one: no refusal takes them."""
    body = json.dumps(FORGOTTEN | {name: {"x": 1}, "call": "0" * 32}).encode()
    async with Origin(page(404, body, b"application/problem+json")) as origin:
        with pytest.raises(NotFound, match="no such call") as refused:
            await RemoteDesk(f"http://127.0.0.1:{origin.port}").call("0" * 32)
    assert refused.value.members == {"call": "0" * 32}


MOMENT = "2026-01-02T03:04:05.678Z"
STATS = {
    "store": "embedded",
    "calls": {state.value: 0 for state in State},
    "oldest_in_doubt_at": MOMENT,
    "oldest_in_doubt_seconds": 1.5,
    "store_bytes": 7,
    "cache_evictions": None,
}
UNFIT = {
    "a member is missing": {name: value for name, value in STATS.items() if name != "store"},
    "a member is not known": STATS | {"more": 1},
    "a text for a number": STATS | {"store_bytes": "7"},
    "true for a number": STATS | {"store_bytes": True},
    "less than nothing": STATS | {"store_bytes": -1},
    "no moment": STATS | {"oldest_in_doubt_at": "yesterday"},
    "a moment without a zone": STATS | {"oldest_in_doubt_at": "2026-01-02T03:04:05"},
    "an endless number": STATS | {"oldest_in_doubt_seconds": float("inf")},
    "a state that is not known": STATS | {"calls": {"lost": 0}},
    "a list": [STATS],
}


def test_a_document_that_fits_is_taken() -> None:
    assert fits(COMPONENTS["Stats"], STATS)


@pytest.mark.parametrize("name", UNFIT)
async def test_a_document_that_does_not_fit_is_not_taken(name: str) -> None:
    """By the schema that the API publishes."""
    assert not jsonschema.Draft202012Validator(document("Stats")).is_valid(UNFIT[name]) or name in (
        "no moment", "a moment without a zone", "an endless number",  # which it does not look at
    )  # fmt: skip
    async with Origin(page(200, json.dumps(UNFIT[name]).encode(), b"application/json")) as origin:
        with pytest.raises(StoreUnavailable, match=STRANGER):
            await RemoteDesk(f"http://127.0.0.1:{origin.port}").stats()


async def test_nobody_there_is_told_with_what_to_do() -> None:
    """Refused; silent until patience ends; gone without an answer."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable, match=r"No semel answers.*refused.*semel serve"):
            await RemoteDesk(f"http://127.0.0.1:{reserved.getsockname()[1]}").stats()
    async with Origin((*READ_ALL, Stall())) as origin:
        desk = RemoteDesk(f"http://127.0.0.1:{origin.port}", patience=0.1)
        with pytest.raises(StoreUnavailable, match="timed out"):
            await desk.stats()
        with pytest.raises(StoreUnavailable, match="Whether the decision arrived is not known"):
            await desk.resolve("0" * 32, EXECUTED)
    async with Origin((*READ_ALL, Close())) as origin:
        with pytest.raises(StoreUnavailable, match="No semel answers"):
            await RemoteDesk(f"http://127.0.0.1:{origin.port}").stats()


async def test_a_body_that_breaks_off_is_not_taken_for_whole() -> None:
    """Bytes that were promised and did not come."""
    cut = (
        *READ_ALL,
        b"HTTP/1.1 200 OK\r\nContent-Disposition: attachment\r\nContent-Length: 9\r\n\r\nabc",
        Close(),
    )
    async with Origin(cut) as origin:
        body = await RemoteDesk(f"http://127.0.0.1:{origin.port}").body("0" * 32)
        assert not isinstance(body.content, bytes)
        with pytest.raises(StoreUnavailable, match="broke off"):
            _ = [part async for part in body.content]


@pytest.mark.parametrize("asked", ["a document", "a body", "a decision"])
async def test_a_connection_that_breaks_inside_an_answer_is_told(asked: str) -> None:
    """With what to do; after a decision also that nobody knows whether it was written."""
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    read = asyncio.Event()  # by then the client, in its thread, has the head and waits for the rest
    asyncio.get_running_loop().call_later(0.2, read.set)
    async with Origin((*READ_ALL, begun, Wait(read), Reset())) as origin:
        desk = RemoteDesk(f"http://127.0.0.1:{origin.port}")
        with pytest.raises(StoreUnavailable) as told:
            if asked == "a document":
                await desk.call("0" * 32)
            elif asked == "a body":
                body = await desk.body("0" * 32)
                assert not isinstance(body.content, bytes)
                async for _ in body.content:
                    pass
            else:
                await desk.resolve("0" * 32, EXECUTED)
        assert ("not known" in told.value.detail) == (asked == "a decision")


async def test_the_environment_s_proxy_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """semel itself may be HTTP_PROXY: it would be asked to call itself."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with scene(tmp_path) as world:
        async with asyncio.timeout(10):
            assert (await RemoteDesk(world.url).stats())["store"] == "embedded"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://run:token@x",
        "http://x/?a=1",
        "",
        "http://a..b:80",
        "http://h/\u00e4",
        "http://a b",
        "http://h/a b",
        "http://h/\x7f",
        "http://\udcff",
    ],
)
def test_a_wrong_address_is_refused_at_once(url: str) -> None:
    """With how it is written."""
    with pytest.raises(ConfigurationError):
        RemoteDesk(url)


def test_a_token_that_no_header_can_carry_is_refused() -> None:
    """And is not repeated in the message."""
    with pytest.raises(ConfigurationError) as refused:
        RemoteDesk("http://127.0.0.1:1", "a\r\nb")
    assert "a\r\nb" not in str(refused.value)
