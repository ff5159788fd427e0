"""Answers while they arrive: parts at once, the end only when it is durable, nothing spliced on a break."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy import faults
from proxy.faults import Point
from tests.inside import Answer, call, request_bytes, semel, until
from tests.origin import READ_ALL, Close, Origin, Reset, Script, Stall, Wait, answer

JSON = {"Content-Type": "application/json"}
RULES = """
rules:
  - {name: read, match: {path: /read}, safe: true, repeat: same}
  - {name: drop, match: {path: /drop}, safe: true, repeat: same, on_disconnect: cancel}
  - {name: shared, match: {path: /shared}, mode: cache}
  - {name: plain, match: {path: /plain}, mode: pass}
  - {name: hasty, match: {path: /hasty}, wait: 300ms}
  - {name: hold, match: {path: /hold}}
"""
RECORDED = ["hold", "read", "shared"]


def policy_of(origin: Origin) -> str:
    return f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{RULES}"


@asynccontextmanager
async def world(
    tmp_path: Path, *scripts: Script, settings: Mapping[str, object] | None = None
) -> AsyncIterator[tuple[Origin, int]]:
    async with Origin(*scripts) as origin, semel(tmp_path, policy_of(origin), settings=settings) as app:
        yield origin, app.address.port


@dataclass
class Caller:
    """One who reads as little as asked for, so that a test sees what has arrived and what has not."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    got: bytearray = field(default_factory=bytearray)

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(10):
            while text not in self.got:
                data = await self.reader.read(65536)
                assert data, f"the connection ended after {bytes(self.got)!r}"
                self.got += data

    async def nothing_more(self) -> None:
        """What could come has had time to come."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                self.got += await self.reader.read(65536)

    async def to_the_end(self) -> bytes:
        """Everything until the connection closes, or breaks."""
        async with asyncio.timeout(20):
            try:
                while data := await self.reader.read(65536):
                    self.got += data
            except ConnectionError:
                pass
        return bytes(self.got)

    @property
    def body(self) -> bytes:
        return bytes(self.got).partition(b"\r\n\r\n")[2]


@asynccontextmanager
async def calling(
    port: int, path: str, *, method: str = "POST", body: bytes = b"{}"
) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request_bytes(method, f"/up/{path}", {**JSON, "Connection": "close"}, body))
        yield Caller(reader, writer)
    finally:
        writer.close()


class HeldCommit:
    """The writer's thread stands before COMMIT until `let_go`."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._go_on = threading.Event()

    def stand(self) -> None:
        self._reached.set()
        assert self._go_on.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 10)

    def let_go(self) -> None:
        self._go_on.set()


@contextmanager
def next_commit_held() -> Iterator[HeldCommit]:
    held = HeldCommit()
    faults.arm(Point.COMMIT_BEGUN, held.stand, times=1)
    try:
        yield held
    finally:
        held.let_go()
        faults.disarm_all()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"


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


FIRST = b'event: delta\ndata: {"text": "hello"}\n\n'
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


async def seen_by(origin: Origin, number: int) -> None:
    await until(lambda: sum(seen.complete for seen in origin.requests) >= number)


def unchunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        out += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return out


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


def assert_in_progress(got: Answer) -> None:
    assert (got.status, json.loads(got.body)["type"]) == (409, "urn:semel:in-progress")
    assert got.get("Retry-After") == "1"
    assert got.semel == "refused"


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
        assert b"internal-error" not in metrics


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


def blob(tmp_path: Path) -> Path:
    """The one answer that is kept as a file."""
    (found,) = [path for path in (tmp_path / "state" / "blobs").rglob("*") if path.is_file()]
    return found


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "size"),
    # A large record of the right size is found damaged while it is handed on: see the next test.
    [(remove, 100_000), (truncate, 100_000), (flip, 100_000), (remove, 9_000_000), (truncate, 9_000_000)],
)
@pytest.mark.parametrize("path", ["hold", "read"])
async def test_a_lost_answer_is_never_a_second_send(
    tmp_path: Path, path: str, size: int, damage: Callable[[Path], None]
) -> None:
    """410 for a call with effects; a safe one is made again, and its new answer is kept."""
    body = b"z" * size
    async with world(tmp_path, (*READ_ALL, answer(200, body))) as (origin, port):
        assert (await call(port, "POST", f"/up/{path}", JSON, b"{}")).body == body
        damage(blob(tmp_path))
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
        flip(blob(tmp_path))
        async with calling(port, "hold") as caller:
            await caller.to_the_end()
        got = caller.body if length else unchunked(caller.body)
        assert len(got) < size
        assert set(got) <= {ord("z")}
        assert not caller.got.endswith(LAST)
        assert origin.started == 1
