"""Replays from memory: what is given is what the long way gives; what hangs on more takes the long way."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from proxy.clock import SystemClock
from proxy.front import recall
from proxy.front.recall import Recall
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.forward.scene import client
from tests.http.recalled import BODY, JSON, NUMBERED, ONCE, forget, place, warmed
from tests.inside import Answer, call, raw_call, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, Wait, answer
from tests.tools.workers import Worker


def _later(seconds: float) -> float:
    return time.time() + seconds


def plain(got: Answer) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Without what changes from second to second."""
    headers = [
        (name, re.sub(rb"\d+$", b"N", value) if name in AGEING else value) for name, value in got.headers
    ]
    return got.status, headers, got.body


AGEING = (b"Age", b"Cache-Status")


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


async def test_a_tool_of_the_agents_own_takes_the_long_way(tmp_path: Path) -> None:
    """Whether it is handed out or has a result is for the workshop to say, each time."""
    async with place(tmp_path) as there:
        worker = Worker(there.port)
        await worker.complete(await worker.begin(), "paid")
        assert [(await worker.begin()).document for _ in range(4)] == [{"result": "paid"}] * 4
        assert there.given == 0


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


async def test_where_nothing_comes_again_hardly_anything_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But what then does is known in the end, and from there on every request is looked for again."""
    monkeypatch.setattr(recall, "IN_VAIN", 4)
    monkeypatch.setattr(recall, "SELDOM", 3)
    async with place(tmp_path) as there:
        assert there.recall is not None
        looked_for: list[bytes] = []
        real = there.recall._ticket

        def ticket(data: bytes) -> bytes:
            looked_for.append(data)
            return real(data)

        monkeypatch.setattr(there.recall, "_ticket", ticket)
        for number in range(19):
            await there.post(body=b'{"a": %d}' % number)
        assert len(looked_for) == 4 + 5  # the 6th, 9th, 12th, 15th and 18th
        for _ in range(12):
            await there.post(body=b'{"a": 1}')
        assert there.given > 0
        looked_for.clear()
        assert {(await there.post(body=body)).semel for body in (b'{"a": 2}', b'{"a": 3}')} == {"replayed"}
        assert len(looked_for) >= 2
