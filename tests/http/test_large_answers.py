"""Answers too large for a row, for memory, for the record; and records that are lost or damaged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.front import status_headers
from tests import ambient
from tests.http.streaming import (
    CHUNKED,
    JSON,
    LAST,
    assert_in_progress,
    calling,
    chunk,
    unchunked,
    world,
)
from tests.inside import call
from tests.mishaps import Damage, damage_blob
from tests.origin import READ_ALL, Wait, answer

pytestmark = pytest.mark.usefixtures("any_store")

# ---- large answers ----


@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1, 1024 * 1024 + 1, 9 * 1024 * 1024])
@pytest.mark.parametrize("path", ["hold", "shared"])
async def test_large_answers_are_replayed_byte_for_byte(
    tmp_path: Path, path: str, size: int, length: bool
) -> None:
    """Inline, as a file, through a temporary file, and streamed from the record."""
    body = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    whole = answer(200, body) if length else CHUNKED + chunk(body) + LAST
    async with world(tmp_path, (*READ_ALL, whole)) as (origin, port):
        first = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        second = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        assert (first.semel, second.semel) == ("executed", "replayed")
        assert first.complete
        assert second.complete
        assert first.body == body
        assert second.body == body
        assert first.get("Content-Length") == second.get("Content-Length") == (str(size) if length else None)
        assert origin.started == 1


@pytest.mark.parametrize("path", ["hold", "read"])
async def test_an_answer_over_the_limit_passes_whole_and_is_not_kept(tmp_path: Path, path: str) -> None:
    """With effects later asks get answer-unavailable, never a second send; a safe call is made again."""
    body = bytes(range(256)) * 12_000  # 3 MB
    async with world(
        tmp_path, (*READ_ALL, answer(200, body)), settings={"limits.response_body": "64KiB"}
    ) as (
        origin,
        port,
    ):
        first = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        assert first.complete
        assert first.body == body
        second = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        if path == "read":
            assert (second.semel, second.body, origin.started) == ("executed", body, 2)
        else:
            assert (second.status, json.loads(second.body)["type"]) == (410, "urn:semel:answer-unavailable")
            assert origin.started == 1


@pytest.mark.parametrize(("size", "stored"), [(64 * 1024, True), (64 * 1024 + 1, False), (300_000, False)])
@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
async def test_an_answer_that_is_too_long_to_keep_does_not_say_that_it_is_stored(
    tmp_path: Path, length: bool, size: int, stored: bool
) -> None:
    """Where that is known when the head goes out: by its length, or because that much has come by then."""
    body = b"z" * size
    whole = answer(200, body) if length else CHUNKED + chunk(body) + LAST
    settings = {"limits.response_body": "64KiB"}
    async with world(tmp_path, (*READ_ALL, whole), settings=settings) as (_, port):
        got = await call(port, "POST", "/up/hold", JSON, b"{}")
        assert got.body == body
        if length or stored:
            assert got.get("Cache-Status") == ("semel; fwd=miss; stored" if stored else "semel; fwd=miss")


async def test_a_shared_answer_too_long_for_the_cache_does_not_say_that_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has a limit of its own."""
    monkeypatch.setattr(status_headers, "MAX_CACHED", 1000)
    async with world(tmp_path, (*READ_ALL, answer(200, b"z" * 1001))) as (_, port):
        got = await call(port, "POST", "/up/shared", JSON, b"{}")
        assert got.get("Cache-Status") == "semel; fwd=miss"


async def test_joining_an_answer_that_is_no_longer_kept_is_in_progress(tmp_path: Path) -> None:
    """Its first bytes are gone: a late joiner cannot have it from the first byte, and must not be sent."""
    gate = asyncio.Event()
    half = b"a" * 200_000
    script = (*READ_ALL, CHUNKED + chunk(half), Wait(gate), chunk(half) + LAST)
    async with (
        world(tmp_path, script, settings={"limits.response_body": "64KiB"}) as (origin, port),
        calling(port, "hold") as first,
    ):
        await first.until(b"a" * 60_000)
        assert_in_progress(await call(port, "POST", "/up/hold", JSON, b"{}"))
        gate.set()
        await first.to_the_end()
        assert unchunked(first.body) == half + half
        assert origin.started == 1


@pytest.mark.parametrize(
    ("damage", "size"),
    # A large record of the right size is found damaged while it is handed on: see the next test.
    [
        (Damage.REMOVED, 100_000),
        (Damage.SHORTENED, 100_000),
        (Damage.FLIPPED, 100_000),
        (Damage.REMOVED, 9_000_000),
        (Damage.SHORTENED, 9_000_000),
    ],
)
@pytest.mark.parametrize("path", ["hold", "read"])
async def test_a_lost_answer_is_never_a_second_send(
    tmp_path: Path, path: str, size: int, damage: Damage
) -> None:
    """410 for a call with effects; a safe one is made again, and its new answer is kept."""
    body = b"z" * size
    async with world(tmp_path, (*READ_ALL, answer(200, body))) as (origin, port):
        assert (await call(port, "POST", f"/up/{path}", JSON, b"{}")).body == body
        damage_blob(ambient.store(), tmp_path / "state", damage)
        second = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        if path == "hold":
            assert (second.status, json.loads(second.body)["type"]) == (410, "urn:semel:answer-unavailable")
            assert origin.started == 1
            return
        assert (second.semel, second.body == body, origin.started) == ("executed", True, 2)
        third = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        assert (third.semel, third.body == body, origin.started) == ("replayed", True, 2)


@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [9 * 1024 * 1024, 8 * 1024 * 1024 + 100])
async def test_damage_found_while_a_record_is_handed_on_aborts_the_caller(
    tmp_path: Path, size: int, length: bool
) -> None:
    """The last bytes are missing and nothing stands in their place: semel's words must not fill the gap."""
    body = b"z" * size
    whole = answer(200, body) if length else CHUNKED + chunk(body) + LAST
    async with world(tmp_path, (*READ_ALL, whole)) as (origin, port):
        assert (await call(port, "POST", "/up/hold", JSON, b"{}")).body == body
        damage_blob(ambient.store(), tmp_path / "state", Damage.FLIPPED)
        async with calling(port, "hold") as caller:
            await caller.to_the_end()
        got = caller.body if length else unchunked(caller.body)
        assert len(got) < size
        assert set(got) <= {ord("z")}
        assert not caller.got.endswith(LAST)
        assert origin.started == 1
        told = await call(port, "POST", "/up/hold", JSON, b"{}")
        assert (told.status, told.semel) == (410, "refused")  # once found, it is said
        assert origin.started == 1


async def test_a_body_that_was_damaged_is_good_again_when_another_call_has_put_it(tmp_path: Path) -> None:
    """What was found out about one row's body is not held against a later row of the same content."""
    body = b"z" * (9 * 1024 * 1024)
    again = {**JSON, "Semel-Occurrence": "2"}
    async with world(tmp_path, (*READ_ALL, answer(200, body))) as (origin, port):
        assert (await call(port, "POST", "/up/hold", JSON, b"{}")).body == body
        damage_blob(ambient.store(), tmp_path / "state", Damage.FLIPPED)
        assert not (await call(port, "POST", "/up/hold", JSON, b"{}")).complete
        assert (await call(port, "POST", "/up/hold", again, b"{}")).semel == "executed"
        replayed = await call(port, "POST", "/up/hold", again, b"{}")
        assert (replayed.semel, replayed.body == body, origin.started) == ("replayed", True, 2)
