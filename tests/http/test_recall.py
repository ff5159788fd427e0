"""Replays from memory: what is given is what the long way gives, and only while that is certain."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from proxy.admin.decision import Decision
from proxy.admin.desk import LocalDesk
from proxy.answers import Produced
from proxy.app import App
from proxy.asking import Delivery
from proxy.clock import SystemClock
from proxy.core.intent import Answer as Recorded
from proxy.core.intent import Call
from proxy.front import recall as recalling
from proxy.front.connection import Connection
from proxy.front.recall import Recall
from proxy.settings import Role, Token
from proxy.store.base import Store
from proxy.store.codec import Codec
from proxy.tokens import digest
from tests import ambient
from tests.counts import count
from tests.forward.scene import client
from tests.inside import Answer, call, raw_call, read_answer, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, Script, Wait, answer

JSON = {"Content-Type": "application/json"}
BODY = b'{"a": 1}'
ONCE = "[{name: r, match: {path: /x}}]"
NUMBERED: tuple[Script, ...] = tuple((*READ_ALL, answer(200, b"answer %d" % n)) for n in range(1, 50))


@dataclass(frozen=True, slots=True)
class Place:
    origin: Origin
    app: App
    recall: Recall | None

    @property
    def port(self) -> int:
        return self.app.address.port

    @property
    def given(self) -> int:
        assert self.recall is not None
        return self.recall.given

    async def post(self, headers: Mapping[str, str] | None = None, body: bytes = BODY) -> Answer:
        return await call(self.port, "POST", "/up/x", {**JSON, **(headers or {})}, body)


@asynccontextmanager
async def place(
    tmp_path: Path,
    *scripts: Script,
    rules: str = ONCE,
    recall: bool = True,
    log: io.StringIO | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Place]:
    tmp_path.mkdir(exist_ok=True)
    async with Origin(*(scripts or NUMBERED)) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\nrules: {rules}\n"
        flags = {"recall": recall, **(settings or {})}
        async with semel(tmp_path, policy, settings=flags, log=log) as app:
            there = app._listener.recall
            assert there is None or isinstance(there, Recall)
            yield Place(origin, app, there)


async def warmed(there: Place) -> Answer:
    """A request that is known by now: executed, then read from the record, then recalled."""
    assert [(await there.post()).semel for _ in range(2)] == ["executed", "replayed"]
    before, got = there.given, await there.post()
    assert (there.given, got.semel) == (before + 1, "replayed")
    return got


def _later(seconds: float) -> float:
    return time.time() + seconds


def plain(got: Answer) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Without what changes from second to second."""
    headers = [
        (name, re.sub(rb"\d+$", b"N", value) if name in AGEING else value) for name, value in got.headers
    ]
    return got.status, headers, got.body


AGEING = (b"Age", b"Cache-Status")


# ---- the same as the long way ----


@pytest.mark.parametrize(
    "given",
    [
        answer(200, b"ok"),
        answer(200, b""),
        answer(201, b"made", (b"X-Two", b"1"), (b"x-two", b"2"), (b"Set-Cookie", b"a=b")),
        answer(404, b'{"error": "none"}', (b"Content-Type", b"application/json")),
        answer(302, b"", (b"Location", b"/elsewhere")),
        answer(299, b"odd"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_given_is_what_the_long_way_gives(tmp_path: Path, given: bytes) -> None:
    """Status, every header in order, the body; with recall and without."""
    got = {}
    for on in (True, False):
        async with place(tmp_path / str(on), (*READ_ALL, given), recall=on) as there:
            for _ in range(3):
                last = await there.post()
            assert there.recall is None or there.given == 1
            got[on] = plain(last)
            assert there.origin.started == 1
    with_call = {
        on: [pair for pair in headers if pair[0] != b"Semel-Call"] for on, (_, headers, _) in got.items()
    }
    assert with_call[True] == with_call[False]
    assert (got[True][0], got[True][2]) == (got[False][0], got[False][2])


async def test_an_age_is_the_present_one(tmp_path: Path) -> None:
    """Both figures move with the clock, also where it is set back."""
    async with place(tmp_path) as there:
        first = await warmed(there)
        assert there.recall is not None
        ttl = int(str(first.get("Cache-Status")).rpartition("=")[2])
        for later in (7, 5000, 3):
            there.recall._now = partial(_later, later)
            got = await there.post()
            assert abs(int(str(got.get("Age"))) - later) <= 2
            assert abs(int(str(got.get("Cache-Status")).rpartition("=")[2]) - (ttl - later)) <= 2
        assert there.given == 4


async def test_what_is_told_is_the_same(tmp_path: Path) -> None:
    """Every line of the log but for its times, every counter, and the number of replays in the record."""
    told, counted = {}, {}
    rules = "[{name: r, match: {path: /x}, cost: {usd: 0.25}}]"
    for on in (True, False):
        log = io.StringIO()
        async with place(tmp_path / str(on), rules=rules, recall=on, log=log) as there:
            headers = {"Semel-Tool": "hammer", "traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
            got = [await there.post(headers) for _ in range(6)]
            assert there.recall is None or there.given == 4
            metrics = await raw_call(there.port, request_bytes("GET", "/metrics", host="127.0.0.1"))
            counted[on] = _counters(metrics.body.decode())
            call_id = str(got[0].get("Semel-Call"))
            assert await there.app.store.replays(bytes.fromhex(call_id)) == 5
        told[on] = [_without_times(json.loads(line)) for line in log.getvalue().splitlines()]
    assert [line for line in told[True] if line["event"] == "call"]
    assert told[True] == told[False]
    assert counted[True] == counted[False]
    assert counted[True]['semel_calls_total{mode="once",rule="r",status="replayed",upstream="up"}'] == "5.0"
    assert counted[True]['semel_saved_usd_total{rule="r",upstream="up"}'] == "1.25"
    assert counted[True]['semel_call_seconds_count{status="replayed",upstream="up"}'] == "5.0"


def _counters(page: str) -> dict[str, str]:
    """But for what is measured in seconds or bytes: a look at the store is none where none was needed."""
    lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
    measured = re.compile(r"_seconds_(sum|bucket)|store_(seconds|batch)|_bytes|_created")
    return {name: value for name, _, value in lines if not measured.search(name)}


def _without_times(line: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in line.items() if name not in ("at", "ms", "call")}


# ---- only what is certain ----


@pytest.mark.parametrize(
    ("method", "target", "headers", "rules"),
    [
        ("POST", "/@run+one/up/x", {}, ONCE),
        ("POST", "/up/x", {"Semel-Run": "run", "Semel-Attempt": "one"}, ONCE),
        ("POST", "/@run/up/x", {}, ONCE),
        ("POST", "/@run+one/up/x", {}, "[{name: r, match: {path: /x}, repeat: same}]"),
        ("POST", "/@run+one/up/x", {}, "[{name: r, match: {path: /x}, scope: tenant}]"),
        ("HEAD", "/up/x", {}, "[{name: r, match: {path: /x}, repeat: same}]"),
        ("GET", "/up/x", {}, "[]"),
        ("GET", "/up/x", {"Semel-Refresh": "1"}, "[{name: r, match: {path: /x}, mode: cache}]"),
        ("POST", "/up/x", {}, "[{name: r, match: {path: /x}, mode: pass}]"),
        ("POST", "/up/x", {}, "[{name: r, match: {path: /x}, shadow: true}]"),
    ],
)
async def test_what_hangs_on_more_than_its_bytes_takes_the_long_way(
    tmp_path: Path, method: str, target: str, headers: Mapping[str, str], rules: str
) -> None:
    async with place(tmp_path, rules=rules) as there:
        for _ in range(5):
            got = await call(there.port, method, target, headers, BODY if method == "POST" else b"")
            assert got.status == 200
        assert there.given == 0


async def test_a_coded_answer_takes_the_long_way(tmp_path: Path) -> None:
    """Who does not accept its coding is given another form."""
    packed = answer(200, gzip.compress(b"said" * 30), (b"Content-Encoding", b"gzip"))
    async with place(tmp_path, (*READ_ALL, packed)) as there:
        assert (await there.post({"Accept-Encoding": "gzip"})).semel == "executed"
        for _ in range(3):
            assert (await there.post({"Accept-Encoding": "identity"})).body == b"said" * 30
            assert (await there.post({"Accept-Encoding": "gzip"})).get("Content-Encoding") == "gzip"
        assert there.given == 0


async def test_the_same_bytes_inside_a_connect_are_another_request(tmp_path: Path) -> None:
    """There the host is another, and the path is that host's. Nothing is learned there."""
    request = request_bytes("POST", "/up/x", JSON, BODY)
    async with place(tmp_path) as there:
        await warmed(there)
        async with client(there.port) as outside:
            assert (await outside.connect(f"127.0.0.1:{there.origin.port}")).status == 200
            got = [await outside.ask(request) for _ in range(3)]
        assert [one.semel for one in got] == ["executed", "replayed", "replayed"]
        assert {one.body for one in got} == {b"answer 2"}
        assert [seen.head.split()[1] for seen in there.origin.requests] == [b"/x", b"/up/x"]
        assert there.given == 1
        assert (await there.post()).body == b"answer 1"


async def test_without_a_body_the_long_way_says_how(tmp_path: Path) -> None:
    """A 204 has neither a length nor chunks."""
    async with place(tmp_path, (*READ_ALL, b"HTTP/1.1 204 No Content\r\n\r\n")) as there:
        got = [await there.post() for _ in range(4)]
        assert {one.status for one in got} == {204}
        assert not any(one.get("Transfer-Encoding") or one.get("Content-Length") for one in got)
        assert there.given == 0


async def test_what_comes_once_is_not_learned(tmp_path: Path) -> None:
    """A trace is another each time: nothing is kept of requests that never come again."""
    async with place(tmp_path) as there:
        for number in range(20):
            await there.post({"traceparent": f"00-{number:032x}-{'cd' * 8}-01"})
        assert there.recall is not None
        assert (there.given, there.recall._known, there.origin.started) == (0, {}, 1)


@pytest.mark.parametrize(
    "other",
    [
        request_bytes("POST", "/up/x", JSON, b'{"a": 2}'),
        request_bytes("POST", "/up/x", {**JSON, "Authorization": "Bearer other"}, BODY),
        request_bytes("POST", "/up/x?b", JSON, BODY),
        request_bytes("PUT", "/up/x", JSON, BODY),
        request_bytes("POST", "/up/x", {**JSON, "Semel-Occurrence": "2"}, BODY),
        request_bytes("POST", "/up/x", {**JSON, "Idempotency-Key": "k"}, BODY),
    ],
)
async def test_another_request_is_another(tmp_path: Path, other: bytes) -> None:
    async with place(tmp_path) as there:
        await warmed(there)
        got = await raw_call(there.port, other)
        assert (got.semel, got.body) == ("executed", b"answer 2")
        assert (await there.post()).body == b"answer 1"


async def test_a_reload_is_honoured(tmp_path: Path) -> None:
    """What was decided by other policies is decided anew."""
    async with place(tmp_path) as there:
        await warmed(there)
        file = tmp_path / "policies" / "test.yaml"
        file.write_text(file.read_text().replace("path: /x}", "path: /x}, mode: deny"))
        assert await there.app.watch.check_now()
        assert (await there.post()).status == 403
        assert there.given == 1


async def test_a_token_that_is_wrong_is_never_known(tmp_path: Path) -> None:
    """The bytes with it are other bytes."""
    tokens = [Token(sha256=digest("right"), tenant="acme", role=Role.AGENT)]
    async with Origin(*NUMBERED) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\nrules: {ONCE}\n"
        async with semel(tmp_path, policy, tokens=tokens, settings={"recall": True}) as app:
            for token, status in (("right", 200), ("right", 200), ("right", 200), ("wrong", 401), ("", 401)):
                headers = JSON | ({"Semel-Token": token} if token else {})
                assert (await call(app.address.port, "POST", "/up/x", headers, BODY)).status == status
            assert isinstance(app._listener.recall, Recall)
            assert app._listener.recall.given == 1


@pytest.mark.parametrize(
    ("rules", "then"),
    [
        ("[{name: r, match: {path: /x}, ttl: 10s}]", "executed"),
        ("[{name: r, match: {path: /x}, safe: true, repeat: same, max_age: 10s, stale: refuse}]", "refused"),
        (
            "[{name: r, match: {path: /x}, safe: true, repeat: same, max_age: 10s, stale: revalidate}]",
            "executed",
        ),
        ("[{name: r, match: {path: /x}, safe: true, repeat: same, max_age: 10s, stale: serve}]", "replayed"),
    ],
)
async def test_what_is_past_its_time_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str, then: str
) -> None:
    """As the long way has it, whatever the rule says of old answers."""
    ahead = [0.0]
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: time.time() + ahead[0]))
    async with place(tmp_path, rules=rules) as there:
        await warmed(there)
        ahead[0] = 9.0
        assert (await there.post()).body == b"answer 1"
        assert there.given == 2
        ahead[0] = 11.0
        assert (await there.post()).semel == then
        assert there.given == (3 if then == "replayed" else 2)


async def test_nobody_is_given_what_is_being_fetched_anew(tmp_path: Path) -> None:
    """Who asks meanwhile waits for it, as on the long way."""
    go_on = asyncio.Event()
    rules = "[{name: r, match: {path: /x}, mode: once, safe: true, repeat: same}]"
    scripts = ((*READ_ALL, answer(200, b"old")), (*READ_ALL, Wait(go_on), answer(200, b"new")))
    async with place(tmp_path, *scripts, rules=rules) as there:
        got = await warmed(there)
        await forget(there, str(got.get("Semel-Call")))
        asking = [asyncio.create_task(there.post()) for _ in range(2)]
        await until(lambda: there.origin.started == 2)
        late = asyncio.create_task(there.post())
        await asyncio.sleep(0)
        go_on.set()
        assert {(await task).body for task in (*asking, late)} == {b"new"}
        assert there.given == 1


# ---- changes, by whomever ----


def desk_on(store: Store) -> LocalDesk:
    return LocalDesk(store=store, codec=Codec(), clock=SystemClock(), lifetimes=lambda upstream, rule: None)


async def forget(there: Place, call_id: str) -> None:
    await desk_on(there.app.store).forget(call_id, Decision(by="me", reason="a test"))


@pytest.mark.parametrize("whose", ["this process", "another process"])
async def test_what_was_forgotten_is_never_given_again(tmp_path: Path, whose: str) -> None:
    """Callers ask without a pause while a person forgets the call, again and again. Whoever begins to ask
    after the word is durable gets a newer answer; nobody is given two answers in the wrong order."""
    rounds, seed = count(30, 1_000), random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    scripts = tuple((*READ_ALL, answer(200, b"%d" % n)) for n in range(1, rounds + 3))
    async with place(tmp_path, *scripts) as there:
        other = await ambient.opened(tmp_path / "state")
        desk = desk_on(there.app.store if whose == "this process" else other)
        request, least, over = request_bytes("POST", "/up/x", JSON, BODY), 1, False

        async def caller() -> int:
            asked, latest = 0, 0
            reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
            while not over:
                at_least = least  # durable before this request begins
                writer.write(request)
                got = await read_answer(reader)
                number = int(got.body)
                assert number >= max(at_least, latest), (
                    f"{number} was given, {at_least} was known, seed {seed}"
                )
                latest, asked = number, asked + 1
            writer.close()
            return asked

        call_id = str((await there.post()).get("Semel-Call"))
        callers = [asyncio.create_task(caller()) for _ in range(4)]
        try:
            for _ in range(rounds):
                wanted = there.given + 1 + chance.randrange(20)
                await until(partial(_reached, there, wanted, callers))
                await desk.forget(call_id, Decision(by="me", reason="a test"))
                least += 1
        finally:
            over = True
            asked = await asyncio.gather(*callers)
            await other.close()
        assert there.origin.started >= rounds
        assert there.given > rounds
        print(f"{sum(asked)} asked, {there.given} recalled, {rounds} forgotten")


def _reached(there: Place, wanted: int, callers: Sequence[asyncio.Task[int]]) -> bool:
    """Or somebody has failed."""
    return there.given >= wanted or any(task.done() for task in callers)


async def test_what_was_collected_is_never_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, whose clock is ahead."""
    async with place(tmp_path) as there:
        await warmed(there)
        other = await ambient.opened(tmp_path / "state")
        removed = await other.collect(time.time() + 10 * 86400)
        await other.close()
        assert removed.calls == 1
        assert (await there.post()).body == b"answer 2"
        assert there.given == 1


async def test_a_change_between_reading_and_learning_is_noticed(tmp_path: Path) -> None:
    """It is learned under the stamp that stood before its row was read, not under a later one."""
    async with place(tmp_path) as there:
        other = await ambient.opened(tmp_path / "state")
        assert there.recall is not None
        assert (await there.post()).body == b"answer 1"
        answers = there.recall._stands_while.__self__  # type: ignore[attr-defined]
        produce = answers.produce

        async def slowly(row: Call, answer: Recorded) -> Produced | None:
            answers.produce = produce
            produced: Produced | None = await produce(row, answer)
            await desk_on(other).forget(row.id, Decision(by="me", reason="a test"))
            return produced

        answers.produce = slowly
        assert [(await there.post()).body for _ in range(3)] == [b"answer 1", b"answer 2", b"answer 2"]
        await other.close()


async def test_a_change_while_the_row_is_read_is_noticed(tmp_path: Path) -> None:
    """The stamp is asked for before the row: what changes after that has another."""
    async with place(tmp_path) as there:
        other = await ambient.opened(tmp_path / "state")
        await there.post()
        store = there.app.store
        get = store.get

        async def slowly(key: bytes, known: Call | None = None) -> Call | None:
            store.get = get  # type: ignore[method-assign]
            row = await get(key, known)
            assert row is not None
            await desk_on(other).forget(row.id, Decision(by="me", reason="a test"))
            return row

        store.get = slowly  # type: ignore[method-assign]
        assert [(await there.post()).body for _ in range(3)] == [b"answer 1", b"answer 2", b"answer 2"]
        await other.close()


async def test_a_reload_between_deciding_and_learning_is_noticed(tmp_path: Path) -> None:
    """What was decided by the old policies is not learned under the new ones."""
    async with place(tmp_path) as there:
        assert there.recall is not None
        await there.post()
        answers = there.recall._stands_while.__self__  # type: ignore[attr-defined]
        produce, file = answers.produce, tmp_path / "policies" / "test.yaml"

        async def slowly(row: Call, answer: Recorded) -> Produced | None:
            answers.produce = produce
            file.write_text(file.read_text().replace("path: /x}", "path: /x}, mode: deny"))
            assert await there.app.watch.check_now()
            produced: Produced | None = await produce(row, answer)
            return produced

        answers.produce = slowly
        assert [(await there.post()).status for _ in range(2)] == [200, 403]
        assert there.given == 0


async def test_what_no_longer_holds_is_let_go(tmp_path: Path) -> None:
    """Neither a forgotten answer nor old policies stay in memory; what was known is known again at once."""
    async with place(tmp_path) as there:
        got = await warmed(there)
        assert there.recall is not None
        (known,) = there.recall._known.values()
        assert (known._call.request, known._call.answer.body) == (b"", b"")  # type: ignore[union-attr]
        await forget(there, str(got.get("Semel-Call")))
        assert (await there.post()).body == b"answer 2"
        assert (there.recall._known, there.recall._bytes) == ({}, 0)
        assert (await there.post()).body == b"answer 2"
        given = there.given
        assert ((await there.post()).body, there.given) == (b"answer 2", given + 1)


async def test_a_store_that_is_closed_gives_nothing(tmp_path: Path) -> None:
    """Whether the row stands cannot be known."""
    async with place(tmp_path) as there:
        await warmed(there)
        assert there.app.store.settled_stamp() is not None
        await there.app.store.close()
        assert there.app.store.settled_stamp() is None
        assert (await there.post()).status == 503
        assert there.given == 1


# ---- on the wire ----


async def test_however_it_is_cut_up_it_is_the_same_request(tmp_path: Path) -> None:
    """Whole, in two parts, or two in one: each is answered once, in order."""
    async with place(tmp_path) as there:
        await warmed(there)
        request = request_bytes("POST", "/up/x", JSON, BODY)
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        for cut in range(1, len(request)):
            writer.write(request[:cut])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(request[cut:])
            assert (await read_answer(reader)).body == b"answer 1"
        writer.write(request * 3 + request[:20])
        for _ in range(3):
            assert (await read_answer(reader)).body == b"answer 1"
        writer.write(request[20:])
        assert (await read_answer(reader)).body == b"answer 1"
        for _ in range(20):
            writer.write(request)
            assert (await read_answer(reader)).semel == "replayed"
        writer.close()
        assert there.origin.started == 1
        assert there.given > 20


async def test_who_reads_nothing_is_not_written_to_without_end(tmp_path: Path) -> None:
    """A caller that only asks is served until its replies stand still, and no further."""
    async with place(tmp_path, (*READ_ALL, answer(200, b"x" * 6000))) as there:
        await warmed(there)
        request = request_bytes("POST", "/up/x", JSON, BODY)
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked = 0

        async def ask() -> None:
            nonlocal asked
            writer.write(request)
            asked += 1
            await asyncio.sleep(0)

        def stands_still() -> bool:
            return any(one._paused for one in there.app._listener.connections)

        while not stands_still():
            known = there.given
            await ask()
            await until(lambda known=known: there.given > known or stands_still())  # type: ignore[misc]
        given = there.given
        assert given > 10
        await ask()
        for _ in range(20):  # alone: it is read by itself
            await asyncio.sleep(0)
        for _ in range(500):
            await ask()
        assert there.given == given
        waiting = [_unread(one.transport) for one in there.app._listener.connections]
        assert 0 < max(waiting) < 2 * 64 * 1024
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            for _ in range(asked):
                assert (await read_answer(reader)).body == b"x" * 6000
        writer.close()


def _unread(transport: asyncio.Transport | None) -> int:
    return 0 if transport is None else transport.get_write_buffer_size()


async def test_so_many_are_known_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; a body that is long is not kept at all."""
    monkeypatch.setattr(recalling, "KNOWN", 3)
    rules = "[{name: r, match: {path: /x}, key: {include: [a]}}]"
    async with place(tmp_path, rules=rules) as there:
        assert there.recall is not None
        for n in range(6):
            for _ in range(3):
                await there.post(body=b'{"a": 1, "n": %d}' % n)
        assert there.given == 6
        assert (len(there.recall._known), len(there.recall._came)) == (3, 0)
        assert there.recall._bytes == sum(one.size for one in there.recall._known.values())
        await there.post(body=b'{"a": 1, "n": 0}')
        assert there.given == 6
        for n in range(10, 20):
            await there.post(body=b'{"a": 1, "n": %d}' % n)
        assert len(there.recall._came) == 3
        monkeypatch.setattr(recalling, "KNOWN_BYTES", 1)
        for _ in range(2):
            await there.post(body=b'{"a": 1, "n": 9}')
        assert (len(there.recall._known), there.recall._bytes) == (0, 0)


async def test_a_recalled_reply_is_a_whole_turn(tmp_path: Path) -> None:
    """What was begun before it is over: the wait for the rest of a request, the question whether the answer
    before was taken; and the connection may be idle anew."""
    async with place(tmp_path) as there:
        await warmed(there)
        request = request_bytes("POST", "/up/x", JSON, BODY)
        async with client(there.port) as outside:
            await outside.ask(request_bytes("POST", "/@run+one/up/x", JSON, BODY))
            await until(lambda: len(there.app._listener.connections) == 1)
            (connection,) = there.app._listener.connections
            assert isinstance(connection, Connection)
            handed_over: list[Delivery | None] = [connection.handed_over]
            assert (await outside.ask(request)).body == b"answer 1"
            handed_over.append(connection.handed_over)
            assert [one is None for one in handed_over] == [False, True]
            outside.writer.write(request[:-3])
            await until(lambda: connection._head_timer is not None)
            closes, given = connection._next_keepalive_close_time, there.given
            assert (await outside.ask(request[-3:])).body == b"answer 1"
            assert there.given == given + 1
            assert connection._head_timer is None
            assert connection._next_keepalive_close_time > closes
