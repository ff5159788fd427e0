"""Upstreams that break off and callers who leave: a break is seen as a break, and effects are finished."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.http.streaming import (
    CHUNKED,
    EVENTS,
    FIRST,
    JSON,
    LAST,
    RECORDED,
    calling,
    chunk,
    seen_by,
    world,
)
from tests.inside import call
from tests.origin import READ_ALL, Close, Origin, Reset, Stall, Wait, answer

pytestmark = pytest.mark.usefixtures("any_store")

# ---- breaks ----


@pytest.mark.parametrize("ending", [Reset(), Close()], ids=["reset", "close"])
@pytest.mark.parametrize(
    "start",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart", CHUNKED + chunk(b"part"), EVENTS + chunk(FIRST)],
    ids=["length", "chunked", "events"],
)
@pytest.mark.parametrize("path", [*RECORDED, "plain"])
async def test_a_break_after_the_first_byte_aborts_the_caller(
    tmp_path: Path, path: str, start: bytes, ending: Reset | Close
) -> None:
    """The caller sees a broken connection, never an end, never words of semel's in the body."""
    gate = asyncio.Event()
    async with world(tmp_path, (*READ_ALL, start, Wait(gate), ending), (*READ_ALL, answer(200, b"new"))) as (
        origin,
        port,
    ):
        part = FIRST if start.startswith(EVENTS) else b"part"
        async with calling(port, path) as caller:
            await caller.until(part)
            gate.set()
            got = await caller.to_the_end()
        assert got.startswith(b"HTTP/1.1 200 ")
        assert caller.body == (part if b"Content-Length" in start else chunk(part))
        again = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        if path == "hold":
            assert json.loads(again.body)["type"] == "urn:semel:in-doubt"
            assert "took effect, answer incomplete" in json.loads(again.body)["detail"]
            assert origin.started == 1
        else:
            assert (again.status, again.body) == (200, b"new")
        metrics = (await call(port, "GET", "/metrics")).body
        assert b'semel_problems_total{type="internal-error"} 0.0' in metrics


async def test_parts_of_an_answer_that_is_doubt_are_not_handed_on(tmp_path: Path) -> None:
    """A 500 of a call with effects says nothing: the caller gets semel's word, not half of the upstream's."""
    gate = asyncio.Event()
    head = b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n"
    script = (*READ_ALL, head + chunk(b"it "), Wait(gate), chunk(b"broke") + LAST)
    async with world(tmp_path, script) as (origin, port), calling(port, "hold") as caller:
        await seen_by(origin, 1)
        await caller.nothing_more()
        gate.set()
        got = await caller.to_the_end()
        assert got.startswith(b"HTTP/1.1 409 ")
        assert json.loads(caller.body)["excerpt"] == "it broke"
        assert origin.started == 1


async def test_a_safe_call_that_broke_before_the_first_byte_is_made_once_more(tmp_path: Path) -> None:
    """Nobody has seen anything of it: one retry. With effects: none, in doubt."""
    broken = (*READ_ALL, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Reset())
    async with world(tmp_path, broken, (*READ_ALL, answer(200, b"fresh"))) as (origin, port):
        assert (await call(port, "POST", "/up/read", JSON, b"{}")).body == b"fresh"
        assert origin.started == 2
    (tmp_path / "effects").mkdir()
    async with world(tmp_path / "effects", broken, (*READ_ALL, answer(200, b"fresh"))) as (origin, port):
        assert (await call(port, "POST", "/up/hold", JSON, b"{}")).status == 409
        assert origin.started == 1


# ---- callers who leave ----


async def gone(origin: Origin) -> None:
    async with asyncio.timeout(10):
        await origin.visitors[0].gone.wait()


async def test_cancel_stops_a_safe_call_when_the_last_caller_has_left(tmp_path: Path) -> None:
    """One of two leaves: it goes on. Both leave: the upstream's connection ends, the next ask is sent."""
    gate = asyncio.Event()
    stalled = (*READ_ALL, CHUNKED + chunk(b"part"), Wait(gate), LAST)
    async with world(tmp_path, stalled, (*READ_ALL, answer(200, b"fresh"))) as (origin, port):
        async with calling(port, "drop") as second:
            async with calling(port, "drop") as first:
                await first.until(b"part")
                await second.until(b"part")
            await second.nothing_more()
            assert not origin.visitors[0].gone.is_set()
        await gone(origin)
        again = await call(port, "POST", "/up/drop", JSON, b"{}")
        assert (again.semel, again.body) == ("executed", b"fresh")
        assert origin.started == 2


async def test_cancel_before_anything_was_answered(tmp_path: Path) -> None:
    """The only caller leaves while the upstream thinks."""
    async with world(tmp_path, (*READ_ALL, Stall())) as (origin, port):
        async with calling(port, "drop"):
            await seen_by(origin, 1)
        await gone(origin)


@pytest.mark.parametrize("path", ["hold", "read", "shared"])
async def test_a_call_is_finished_and_kept_when_its_caller_leaves(tmp_path: Path, path: str) -> None:
    """Effects are never cancelled, and `finish` is the default for the rest: the next ask is a replay."""
    gate = asyncio.Event()
    script = (*READ_ALL, CHUNKED + chunk(b"one"), Wait(gate), chunk(b"two") + LAST)
    async with world(tmp_path, script) as (origin, port):
        async with calling(port, path) as caller:
            await caller.until(b"one")
        await asyncio.sleep(0.1)  # time to notice that nobody is there any more
        assert not origin.visitors[0].gone.is_set()
        gate.set()
        again = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        assert again.semel in ("joined", "replayed")
        assert again.body == b"onetwo"
        assert origin.started == 1


async def test_a_passed_call_ends_with_its_caller(tmp_path: Path) -> None:
    """Nothing is recorded, so nobody is left to wait for it."""
    async with world(tmp_path, (*READ_ALL, Stall())) as (origin, port):
        async with calling(port, "plain"):
            await seen_by(origin, 1)
        await gone(origin)
