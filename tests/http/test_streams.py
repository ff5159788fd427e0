"""Answers while they arrive: parts at once, the end only when it is durable, the same for all who join."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path

import pytest

from tests.http.streaming import (
    CHUNKED,
    EVENTS,
    FIRST,
    JSON,
    LAST,
    RECORDED,
    assert_in_progress,
    calling,
    chunk,
    next_commit_held,
    policy_of,
    seen_by,
    unchunked,
    world,
)
from tests.inside import call, semel
from tests.origin import READ_ALL, Close, Origin, Script, Wait, answer

pytestmark = pytest.mark.usefixtures("any_store")

# ---- parts come at once ----


@pytest.mark.parametrize("path", [*RECORDED, "plain"])
async def test_parts_reach_the_caller_before_the_answer_ends(tmp_path: Path, path: str) -> None:
    """The upstream waits for the caller to have the part before it sends the next one."""
    gate = asyncio.Event()
    script = (*READ_ALL, CHUNKED + chunk(b"one"), Wait(gate), chunk(b"two") + LAST)
    async with world(tmp_path, script) as (_, port), calling(port, path) as caller:
        await caller.until(chunk(b"one"))
        gate.set()
        assert (await caller.to_the_end()).endswith(chunk(b"one") + chunk(b"two") + LAST)


async def test_the_head_of_an_unrecorded_stream_does_not_wait_for_its_first_part(tmp_path: Path) -> None:
    """A stream may be silent for long; the caller sees that it has begun, as it would without semel."""
    gate = asyncio.Event()
    script = (*READ_ALL, CHUNKED, Wait(gate), chunk(b"one") + LAST)
    async with world(tmp_path, script) as (_, port), calling(port, "plain") as caller:
        await caller.until(b"\r\n\r\n")
        gate.set()
        assert (await caller.to_the_end()).endswith(chunk(b"one") + LAST)


# ---- the end is held back ----


@pytest.mark.parametrize("path", RECORDED)
async def test_the_last_byte_under_content_length_waits_for_the_commit(tmp_path: Path, path: str) -> None:
    """All but one byte are handed on."""
    gate = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
    async with (
        world(tmp_path, (*READ_ALL, head + b"01234", Wait(gate), b"56789")) as (_, port),
        calling(port, path) as caller,
    ):
        await caller.until(b"\r\n\r\n01234")
        with next_commit_held() as held:
            gate.set()
            await held.reached()
            await caller.until(b"\r\n\r\n012345678")
            await caller.nothing_more()
            assert caller.body == b"012345678"
            held.let_go()
            await caller.to_the_end()
        assert caller.body == b"0123456789"


@pytest.mark.parametrize("path", RECORDED)
@pytest.mark.parametrize("framing", ["chunked", "until close"])
async def test_the_terminating_chunk_waits_for_the_commit(tmp_path: Path, path: str, framing: str) -> None:
    """Without a length every byte is handed on, but not the word that this was all."""
    gate = asyncio.Event()
    if framing == "chunked":
        script: Script = (*READ_ALL, CHUNKED + chunk(b"one"), Wait(gate), chunk(b"two") + LAST)
    else:
        script = (*READ_ALL, b"HTTP/1.1 200 OK\r\n\r\none", Wait(gate), b"two", Close())
    async with world(tmp_path, script) as (_, port), calling(port, path) as caller:
        await caller.until(chunk(b"one"))
        with next_commit_held() as held:
            gate.set()
            await held.reached()
            await caller.until(chunk(b"two"))
            await caller.nothing_more()
            assert caller.body == chunk(b"one") + chunk(b"two")
            held.let_go()
            await caller.to_the_end()
        assert caller.body == chunk(b"one") + chunk(b"two") + LAST


TERMINAL = {
    "[DONE]": b"data: [DONE]\n\n",
    "message_stop": b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
    "message_stop without an event line": b'data: {"type":"message_stop"}\n\n',
    "response.completed": b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    "response.failed": b'event: response.failed\ndata: {"type":"response.failed"}\n\n',
    "response.incomplete": b'data: {"type": "response.incomplete", "response": {}}\n\n',
    "JSON-RPC result": b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{"ok":true}}\n\n',
    "JSON-RPC error": b'data: {"jsonrpc":"2.0","id":1,"error":{"code":-32000}}\n\n',
    "CRLF": b"data: [DONE]\r\n\r\n",
}


@pytest.mark.parametrize("kind", TERMINAL)
@pytest.mark.parametrize("sliced", [False, True], ids=["whole", "byte by byte"])
async def test_the_terminal_event_and_all_after_it_wait_for_the_commit(
    tmp_path: Path, kind: str, sliced: bool
) -> None:
    """Clients act on it as if the answer were over, and so do we."""
    gate = asyncio.Event()
    tail = TERMINAL[kind] + b": goodbye\n\nevent: late\ndata: {}\n\n"
    rest = b"".join(chunk(bytes([byte])) for byte in tail) if sliced else chunk(tail)
    script = (*READ_ALL, EVENTS + chunk(FIRST), Wait(gate), rest + LAST)
    async with world(tmp_path, script) as (_, port), calling(port, "hold") as caller:
        await caller.until(FIRST)
        with next_commit_held() as held:
            gate.set()
            await held.reached()
            await caller.nothing_more()
            assert caller.body == chunk(FIRST)
            held.let_go()
            await caller.to_the_end()
        assert unchunked(caller.body) == FIRST + tail


@pytest.mark.parametrize("kind", ["response.completed", "JSON-RPC result"])
async def test_a_terminal_event_of_megabytes_waits_for_the_commit(tmp_path: Path, kind: str) -> None:
    """A finished answer may carry images: its size does not let it pass."""
    gate = asyncio.Event()
    tail = TERMINAL[kind].replace(b"}\n\n", b', "image": "' + b"A" * 2_000_000 + b'"}\n\n')
    script = (*READ_ALL, EVENTS + chunk(FIRST), Wait(gate), chunk(tail) + LAST)
    async with world(tmp_path, script) as (_, port), calling(port, "hold") as caller:
        await caller.until(FIRST)
        with next_commit_held() as held:
            gate.set()
            await held.reached()
            await caller.nothing_more()
            assert caller.body == chunk(FIRST)
            held.let_go()
            await caller.to_the_end()
        assert unchunked(caller.body) == FIRST + tail


async def test_the_terminal_event_of_a_compressed_stream_waits_for_the_commit(tmp_path: Path) -> None:
    """It is handed on as it came, and looked into on the way."""
    gate = asyncio.Event()
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(FIRST) + packer.flush(zlib.Z_SYNC_FLUSH)
    tail = packer.compress(TERMINAL["message_stop"]) + packer.flush()
    head = EVENTS.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    script = (*READ_ALL, head + chunk(first), Wait(gate), chunk(tail) + LAST)
    async with world(tmp_path, script) as (_, port), calling(port, "hold") as caller:
        await caller.until(first)
        with next_commit_held() as held:
            gate.set()
            await held.reached()
            await caller.nothing_more()
            assert caller.body == chunk(first)
            held.let_go()
            await caller.to_the_end()
        assert unchunked(caller.body) == first + tail


async def test_the_terminal_event_waits_although_the_upstream_keeps_the_stream_open(tmp_path: Path) -> None:
    """Until the upstream ends its answer there is nothing to commit: neither event nor end are handed on."""
    gate = asyncio.Event()
    script = (*READ_ALL, EVENTS + chunk(FIRST) + chunk(TERMINAL["[DONE]"]), Wait(gate), LAST)
    async with world(tmp_path, script) as (_, port), calling(port, "hold") as caller:
        await caller.until(FIRST)
        await caller.nothing_more()
        assert b"[DONE]" not in caller.got
        gate.set()
        assert (await caller.to_the_end()).endswith(LAST)
        assert b"[DONE]" in caller.got


BODILESS = {
    "204": ("POST", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    "empty": ("POST", answer(200, b"", (b"X-A", b"1"))),
    "at once": ("POST", answer(201, b"short", (b"X-A", b"1"))),
    "HEAD": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nX-A: 1\r\n\r\n"),
}


@pytest.mark.parametrize(
    ("path", "kind"),
    # A HEAD that no rule keeps is not recorded: there is no commit to wait for.
    [(path, kind) for path in RECORDED for kind in BODILESS if (path, kind) != ("hold", "HEAD")],
)
async def test_the_head_waits_for_the_commit_where_there_is_nothing_else(
    tmp_path: Path, path: str, kind: str
) -> None:
    """Without a body, or with all of it at once: not even the status is handed on before it is durable."""
    gate = asyncio.Event()
    method, whole = BODILESS[kind]
    async with (
        world(tmp_path, (*READ_ALL, Wait(gate), whole)) as (origin, port),
        calling(port, path, method=method, body=b"{}" if method == "POST" else b"") as caller,
    ):
        await seen_by(origin, 1)
        with next_commit_held() as held:
            gate.set()
            await held.reached()
            await caller.nothing_more()
            assert caller.got == b""
            held.let_go()
            got = await caller.to_the_end()
        assert got.startswith(b"HTTP/1.1 2")
        assert b"X-A: 1\r\n" in got


# ---- those who join ----


@pytest.mark.parametrize("path", RECORDED)
async def test_late_joiners_get_everything_from_the_first_byte(tmp_path: Path, path: str) -> None:
    """The first caller has half of it already; the second one gets all of it, from one send."""
    gate = asyncio.Event()
    half, rest = b"a" * 100_000, b"b" * 100_000
    script = (*READ_ALL, CHUNKED + chunk(half), Wait(gate), chunk(rest) + LAST)
    async with world(tmp_path, script) as (origin, port), calling(port, path) as first:
        await first.until(half[-50_000:])
        joining = asyncio.create_task(call(port, "POST", f"/up/{path}", JSON, b"{}"))
        async with calling(port, path) as third:
            await third.until(b"a" * 1000)
            gate.set()
            joined = await joining
            assert unchunked((await third.to_the_end()).partition(b"\r\n\r\n")[2]) == half + rest
        assert (joined.semel, joined.body) == ("joined", half + rest)
        assert b"Semel-Status: joined" in third.got
        await first.to_the_end()
        assert unchunked(first.body) == half + rest
        assert origin.started == 1


async def test_joined_callers_of_a_429_get_the_same_429(tmp_path: Path) -> None:
    """They never claim: one send, one refusal for all of them. Whoever asks afterwards is sent anew."""
    gate = asyncio.Event()
    refusal = answer(429, b'{"error": "slow down"}', (b"Retry-After", b"7"))
    async with world(tmp_path, (*READ_ALL, Wait(gate), refusal), (*READ_ALL, answer(200, b"ok"))) as (
        origin,
        port,
    ):
        asking = [asyncio.create_task(call(port, "POST", "/up/hold", JSON, b"{}")) for _ in range(10)]
        await seen_by(origin, 1)
        await asyncio.sleep(0.05)
        gate.set()
        answers = await asyncio.gather(*asking)
        assert {(one.status, one.body, one.get("Retry-After")) for one in answers} == {
            (429, b'{"error": "slow down"}', "7")
        }
        assert sorted(str(one.semel) for one in answers) == ["executed", *["joined"] * 9]
        assert origin.started == 1
        again = await call(port, "POST", "/up/hold", JSON, b"{}")
        assert (again.status, again.semel) == (200, "executed")


async def test_joined_callers_of_a_doubt_get_the_same_doubt(tmp_path: Path) -> None:
    """500 of a call with effects: in-doubt for all, and for whoever comes later; one send."""
    gate = asyncio.Event()
    async with world(tmp_path, (*READ_ALL, Wait(gate), answer(500, b"oops"))) as (origin, port):
        asking = [asyncio.create_task(call(port, "POST", "/up/hold", JSON, b"{}")) for _ in range(5)]
        await seen_by(origin, 1)
        gate.set()
        answers = [*await asyncio.gather(*asking), await call(port, "POST", "/up/hold", JSON, b"{}")]
        for one in answers:
            problem = json.loads(one.body)
            assert (one.status, problem["type"]) == (409, "urn:semel:in-doubt")
            assert (problem["upstream_status"], problem["excerpt"]) == (500, "oops")
        assert origin.started == 1


async def test_a_waiter_beyond_wait_is_told_in_progress_and_nothing_is_sent(tmp_path: Path) -> None:
    """409 with Retry-After after `wait`; the first caller gets the answer, the waiter's next try too."""
    gate = asyncio.Event()
    async with world(tmp_path, (*READ_ALL, Wait(gate), answer(200, b"done"))) as (origin, port):
        first = asyncio.create_task(call(port, "POST", "/up/hasty", JSON, b"{}"))
        await seen_by(origin, 1)
        waiter = await call(port, "POST", "/up/hasty", JSON, b"{}", within=5)
        assert_in_progress(waiter)
        assert origin.started == 1
        gate.set()
        assert (await first).body == b"done"
        again = await call(port, "POST", "/up/hasty", JSON, b"{}")
        assert (again.semel, again.body) == ("replayed", b"done")
        assert origin.started == 1


async def test_a_waiter_at_another_proxy_of_the_store_waits_no_longer(tmp_path: Path) -> None:
    """The same with two proxies on one state directory."""
    gate = asyncio.Event()
    async with (
        Origin((*READ_ALL, Wait(gate), answer(200, b"done"))) as origin,
        semel(tmp_path, policy_of(origin)) as one,
        semel(tmp_path, policy_of(origin)) as other,
    ):
        first = asyncio.create_task(call(one.address.port, "POST", "/up/hasty", JSON, b"{}"))
        await seen_by(origin, 1)
        assert_in_progress(await call(other.address.port, "POST", "/up/hasty", JSON, b"{}", within=5))
        gate.set()
        assert (await first).body == b"done"
        again = await call(other.address.port, "POST", "/up/hasty", JSON, b"{}")
        assert (again.semel, again.body) == ("replayed", b"done")
        assert origin.started == 1
