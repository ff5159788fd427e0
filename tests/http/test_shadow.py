"""Shadow: traffic as if nobody stood between, whatever happens and whatever is wrong with the shadow."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.app import App
from proxy.errors import StoreUnavailable
from proxy.metrics import MetricsObserver
from proxy.observe import Served
from proxy.runs.books import RunBooks
from proxy.shadow import judging
from proxy.shadow.tape import Tape
from proxy.store import opening
from proxy.store.memory import MemoryStore
from tests.http.shadowing import figures
from tests.inside import Answer, call, raw_call, read_answer, request_bytes, semel, until
from tests.origin import READ_ALL, Close, HalfClose, Origin, ReadHead, Reset, Script, Step, Wait, answer

HOP_BY_HOP = (b"connection", b"keep-alive", b"transfer-encoding", b"host", b"expect")
GZIPPED = gzip.compress(b"packed " * 100)
HIDDEN = "with a secret"
EVENTS = b"data: one\n\ndata: two\n\ndata: [DONE]\n\n"


def policy(port: int, more: str = "") -> str:
    rule = f"{{name: all, match: {{path: /**}}, shadow: true{more}}}"
    return f"upstream: up\nbase_url: http://127.0.0.1:{port}\nrules: [{rule}]\n"


def would(found: dict[str, object]) -> dict[str, float]:
    counted = found.get("semel_shadow_calls_total", {})
    assert isinstance(counted, dict)
    return {what: n for (_, _, what), n in counted.items()}


async def judged(app: App) -> dict[str, float]:
    await until(lambda: not app.shadow.under_way)
    return would(dict(await figures(app)))


# ---- the same bytes as without semel ----


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


class Exchange(NamedTuple):
    """Requests on one connection, and what the upstream does with each."""

    requests: Sequence[bytes]
    scripts: Sequence[Sequence[Step]]


def one(request: bytes, *steps: Step) -> Exchange:
    return Exchange([request], [(*READ_ALL, *steps)])


POST = request_bytes("POST", "{up}/x", {"Content-Type": "application/json"}, b'{"a": 1}')
LARGE = bytes(range(256)) * 12_000
EXCHANGES = {
    "post": one(POST, answer(200, b"done", (b"X-Odd", b"\xff"), (b"x-odd", b""))),
    "get": one(request_bytes("GET", "{up}/a%2Fb?x=1&x=2&&", {"X": "1", "x": "2"}), answer(200, b"here")),
    "put with a large body": one(request_bytes("PUT", "{up}/x", {}, LARGE), answer(201, LARGE)),
    "chunked request": one(
        b"POST {up}/x HTTP/1.1\r\nHost: semel\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunked(b"one", b"two"),
        answer(200),
    ),
    "expect": one(
        b"POST {up}/x HTTP/1.1\r\nHost: semel\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
        answer(200, b"ok"),
    ),
    "delete, 204": one(request_bytes("DELETE", "{up}/x"), b"HTTP/1.1 204 No\r\nX: y\r\n\r\n"),
    "head": one(request_bytes("HEAD", "{up}/x"), b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
    "304": one(
        request_bytes("GET", "{up}/x", {"If-None-Match": '"1"'}), b"HTTP/1.1 304 Not\r\nETag: 1\r\n\r\n"
    ),
    "redirect": one(request_bytes("GET", "{up}/x"), answer(302, b"", (b"Location", b"/elsewhere"))),
    "compressed": one(
        request_bytes("GET", "{up}/x", {"Accept-Encoding": "gzip"}),
        answer(200, GZIPPED, (b"Content-Encoding", b"gzip"), (b"Set-Cookie", b"a=b"), (b"Age", b"7")),
    ),
    "chunked answer": one(
        POST, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunked(b"first", b"second")
    ),
    "until the end": one(POST, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it", Close()),
    "events": one(
        POST, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 36\r\n\r\n", EVENTS
    ),
    "early hints": one(POST, b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n", answer(200, b"late")),
    **{f"{status}": one(POST, answer(status, b"no")) for status in (400, 401, 404, 408, 409, 429, 500, 503)},
    "cache status": one(POST, answer(200, b"x", (b"Cache-Status", b"edge; hit"))),
    "broken off": one(POST, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", Close()),
    "reset after the head": one(POST, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", Reset()),
    "no answer": one(POST, Close()),
    "no answer to a read": one(request_bytes("GET", "{up}/x"), Close()),
    "reset": one(POST, Reset()),
    "reset of a read": one(request_bytes("GET", "{up}/x"), Reset()),
    "half closed": one(POST, b"HTTP/1.1 200 OK\r\n\r\nto the end", HalfClose()),
    "on one connection": Exchange(
        [POST, request_bytes("GET", "{up}/y"), POST],
        [(*READ_ALL, answer(200, b"%d" % n)) for n in range(3)],
    ),
}


class Seen(NamedTuple):
    answers: list[tuple[int, list[tuple[bytes, bytes]], bytes, bool]]
    arrived: list[tuple[bytes, list[tuple[bytes, bytes]], bytes]]


def end_to_end(headers: Sequence[tuple[bytes, bytes]], *also: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in (*HOP_BY_HOP, *also) and not name.lower().startswith(b"semel-")
    ]


async def talk(port: int, prefix: bytes, exchange: Exchange, origin: Origin) -> Seen:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    answers: list[Answer] = []
    try:
        async with asyncio.timeout(10):
            for request in exchange.requests:
                writer.write(request.replace(b"{up}", prefix))
                answers.append(await _final(reader, is_head=request.startswith(b"HEAD")))
    finally:
        writer.close()
    await until(lambda: len(origin.requests) >= len(exchange.requests))
    return Seen(
        [(one.status, end_to_end(one.headers), one.body, one.complete) for one in answers],
        # A body that came in chunks goes on with its length, as the contract has it.
        [
            (
                bytes(seen.head).split(b"\r\n")[0],
                end_to_end(seen.headers, b"content-length"),
                bytes(seen.body),
            )
            for seen in origin.requests
        ],
    )


async def _final(reader: asyncio.StreamReader, *, is_head: bool) -> Answer:
    while True:
        got = await read_answer(reader, is_head=is_head)
        if not 100 <= got.status < 200:
            return got


@pytest.mark.parametrize("run", ["", "@task+1/"])
async def test_each_exchange_is_as_without_semel(tmp_path: Path, run: str) -> None:
    """Requests arrive, and answers, as directly: whole, streamed, refused, broken off. Each goes out once,
    and what fails is not mended."""
    for name, exchange in EXCHANGES.items():
        print(name)
        async with Origin(*exchange.scripts) as origin:
            directly = await talk(origin.port, b"", _readable(exchange), origin)
        async with Origin(*exchange.scripts) as origin:
            where = tmp_path / name.replace(" ", "-")
            where.mkdir()
            async with semel(where, policy(origin.port), store="memory") as app:
                prefix = f"/{run}up".encode()
                through = await talk(app.address.port, prefix, exchange, origin)
                assert origin.started == len(exchange.requests), name
                assert "unjudged" not in await judged(app), name
        assert _told(through) == _told(directly), name


def _readable(exchange: Exchange) -> Exchange:
    """Straight to the origin of the tests, which reads no chunks: as their bytes with a length."""
    plain = b"Content-Length: 6\r\n\r\nonetwo"
    return exchange._replace(
        requests=[
            request.replace(b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"one", b"two"), plain)
            for request in exchange.requests
        ]
    )


def _told(seen: Seen) -> Seen:
    """The head of an answer that broke off may have been on its way with it or not."""
    return seen._replace(answers=[one if one[3] else (0, [], b"", False) for one in seen.answers])


# ---- nothing is held back ----


async def test_parts_are_handed_on_as_they_come_and_no_store_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first part arrives before the upstream sends the rest, the end although the shadow's record stands
    still; and so does the next call."""
    standing_still = asyncio.Event()
    swap = MemoryStore.swap

    async def stuck(self: MemoryStore, *given: object, **more: object) -> object:
        await standing_still.wait()
        return await swap(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "swap", stuck)
    rest = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
    scripts: list[Script] = [
        (*READ_ALL, head + b"first", Wait(rest), b" last"),
        (*READ_ALL, answer(200, b"2")),
    ]
    async with Origin(*scripts) as origin, semel(tmp_path, policy(origin.port), store="memory") as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", "/up/x", {}, b"{}"))
        async with asyncio.timeout(10):
            assert (await reader.readuntil(b"first")).endswith(b"first")
            rest.set()
            assert await reader.readexactly(5) == b" last"
            writer.write(request_bytes("POST", "/up/x", {}, b"{}"))
            assert (await read_answer(reader)).body == b"2"
        writer.close()
        assert app.shadow.under_way == 2
        standing_still.set()
        assert await judged(app) == {"executed": 1, "replayed": 1}


async def test_a_caller_that_leaves_ends_the_call_as_without_semel(tmp_path: Path) -> None:
    """The upstream sees its connection end, and the judgement says that nobody can know what came of it."""
    async with (
        Origin((*READ_ALL, Wait(asyncio.Event()))) as origin,
        semel(tmp_path, policy(origin.port)) as app,
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", "/up/x", {}, b"{}"))
        await until(lambda: origin.requests and origin.requests[0].complete)
        writer.close()
        await until(origin.visitors[0].gone.is_set)
        assert await judged(app) == {"held": 1}


# ---- what the rule says otherwise ----


async def test_what_a_rule_denies_goes_out(tmp_path: Path) -> None:
    """Forwarded, and counted as it would have been; the real figures know of no refusal."""
    log = io.StringIO()
    async with (
        Origin((*READ_ALL, answer(200, b"ok"))) as origin,
        semel(tmp_path, policy(origin.port, ", mode: deny"), log=log) as app,
    ):
        got = await call(app.address.port, "POST", "/up/x", {}, b"secret")
        assert (got.status, got.semel, got.get("Cache-Status")) == (200, "passed", None)
        assert await judged(app) == {"refused": 1}
        found = await figures(app)
        assert found["semel_shadow_problems_total"] == {("denied",): 1}
        assert found["semel_calls_total"] == {("deny", "all", "passed", "up"): 1}
        assert "semel_problems_total" not in found
    (line,) = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "shadow"]
    assert (line["would"], line["problem"], line["rule"]) == ("refused", "denied", "all")


@pytest.mark.parametrize("size", [10, 500_000])
async def test_a_rule_that_looks_at_the_body_is_shadowed_by_what_it_finds(tmp_path: Path, size: int) -> None:
    """Also in a long one; what it is not for is recorded in earnest."""
    rules = """
rules:
  - {name: looked, match: {when: "kind == 'a'"}, shadow: true}
  - {name: earnest}
"""
    script = (*READ_ALL, answer(200, b"ok"))
    async with (
        Origin(script, script) as origin,
        semel(tmp_path, f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}{rules}") as app,
    ):
        headers = {"Content-Type": "application/json"}
        for kind, status in (("a", "passed"), ("b", "executed")):
            body = json.dumps({"kind": kind, "padding": "x" * size}).encode()
            assert (await call(app.address.port, "POST", "/up/x", headers, body)).semel == status
        assert await judged(app) == {"executed": 1}


async def test_an_upstream_is_asked_nothing_for_it(tmp_path: Path) -> None:
    """What a probe would have said only the upstream knows: the call stays in doubt."""
    probed = ', probe: {request: {path: "/was-it/{body.ref}"}, found: "yes"}'
    scripts = [(*READ_ALL, answer(500))] * 3
    async with Origin(*scripts) as origin, semel(tmp_path, policy(origin.port, probed)) as app:
        for _ in range(2):
            told = {"Content-Type": "application/json"}
            assert (await call(app.address.port, "POST", "/up/x", told, b'{"ref": 7}')).status == 500
            assert "unjudged" not in await judged(app)
        assert await judged(app) == {"held": 2}
        assert origin.started == 2


@pytest.mark.parametrize("shadow", [False, True])
async def test_an_answer_too_long_to_keep_is_judged_as_one(tmp_path: Path, shadow: bool) -> None:
    """It is handed on whole, and asked again it would have been refused: it happened, and is not there."""
    long = LARGE[: 700 * 1024]
    scripts = [(*READ_ALL, answer(200, long))] * 2
    async with Origin(*scripts) as origin:
        rules = policy(origin.port) if shadow else policy(origin.port).replace(", shadow: true", "")
        async with semel(tmp_path, rules, settings={"limits.response_body": "512KiB"}) as app:
            first = await call(app.address.port, "POST", "/up/x", {}, b"{}")
            second = await call(app.address.port, "POST", "/up/x", {}, b"{}")
            assert first.body == long
            if shadow:
                assert second.body == long
                assert await judged(app) == {"executed": 1, "refused": 1}
            found = (await figures(app))[f"semel{'_shadow' if shadow else ''}_problems_total"]
            assert found == {("answer-unavailable",): 1}


async def test_the_credential_that_semel_holds_is_still_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has none."""
    monkeypatch.setenv("MAIL_KEY", "Bearer held")
    async with Origin((*READ_ALL, answer(200))) as origin:
        rules = policy(origin.port) + "inject: {header: Authorization, value_env: MAIL_KEY}\n"
        async with semel(tmp_path, rules) as app:
            raw = request_bytes("POST", "/up/x", {}, b"{}", host="127.0.0.1")
            assert (await raw_call(app.address.port, raw)).semel == "passed"
        assert (b"Authorization", b"Bearer held") in origin.requests[0].headers


def test_workers_are_summed_and_taken_over() -> None:
    """As all figures are: whoever is asked tells the sum, and who follows a dead worker goes on counting."""
    one, other = MetricsObserver(), MetricsObserver()
    for observer in (one, other):
        told = Served(upstream="up", rule="all", status="replayed", safe=False, cost_usd=0.5)
        observer.shadowed(told, "replayed")
    other.take_over(one.figures())
    shown = one.render("memory", None, 0.0, [other.figures()]).decode()
    assert 'semel_shadow_calls_total{rule="all",upstream="up",would="replayed"} 3.0' in shown
    assert 'semel_shadow_duplicates_prevented_total{rule="all",upstream="up"} 3.0' in shown
    assert 'semel_shadow_saved_usd_total{rule="all",upstream="up"} 1.5' in shown


# ---- a broken shadow ----


async def _no_store(*_: object, **__: object) -> object:
    raise StoreUnavailable("no store today")


async def _defect(*_: object, **__: object) -> object:
    raise RuntimeError(HIDDEN)


def _full(*_: object) -> None:
    raise OSError(28, "no space left")


Break = Callable[[pytest.MonkeyPatch], None]
BROKEN: dict[str, Break] = {
    "a store that cannot be opened": lambda patch: patch.setattr(
        opening, "_OPENERS", {**opening._OPENERS, "memory": _first_only()}
    ),
    "a store that is down": lambda patch: patch.setattr(MemoryStore, "run_changes", _no_store),
    "a store that takes nothing": lambda patch: patch.setattr(MemoryStore, "swap", _no_store),
    "a defect in judging": lambda patch: patch.setattr(judging, "_asked", _defect),
    "a defect in runs": lambda patch: patch.setattr(RunBooks, "open", _defect),
    "a full disk": lambda patch: patch.setattr(Tape, "_keep", _full),
    "no room": lambda patch: patch.setattr(judging, "MOST", 0),
}


def _first_only() -> Callable[[object], Awaitable[object]]:
    """The real one opens; the shadow's does not."""
    opened: list[MemoryStore] = []

    async def open_memory(_: object) -> object:
        if opened:
            raise StoreUnavailable("no store today")
        opened.append(MemoryStore())
        return opened[0]

    return open_memory


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_shadow_leaves_traffic_alone_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Whatever is wrong with it: the answers are the upstream's, and the calls are unjudged."""
    BROKEN[broken](monkeypatch)
    log = io.StringIO()
    scripts = [(*READ_ALL, answer(200, b"%d" % n)) for n in range(4)]
    async with (
        Origin(*scripts) as origin,
        semel(tmp_path, policy(origin.port), store="memory", log=log) as app,
    ):
        for n in range(4):
            got = await call(app.address.port, "POST", "/@task+1/up/x", {}, b"hush")
            assert (got.status, got.body, got.semel) == (200, b"%d" % n, "passed")
        assert await judged(app) == {"unjudged": 4}
    said = log.getvalue()
    assert said.count('"event":"shadow-trouble"') == 1, said
    assert "hush" not in said
    assert HIDDEN not in said


async def test_it_holds_no_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that wait to be judged count against a bound; beyond it calls are only counted."""
    monkeypatch.setattr(judging, "MOST_BYTES", 3 * 2 * judging.MEMORY)
    gate = asyncio.Event()
    scripts: list[Script] = [(ReadHead(), Wait(gate), answer(200))] * 5
    async with Origin(*scripts) as origin, semel(tmp_path, policy(origin.port)) as app:
        raw = [request_bytes("POST", f"/up/{n}", {}, b"x") for n in range(5)]
        asks = [asyncio.create_task(raw_call(app.address.port, each)) for each in raw]
        await until(lambda: origin.started == 5)
        assert app.shadow.under_way == 2
        gate.set()
        assert [got.status for got in await asyncio.gather(*asks)] == [200] * 5
        assert await judged(app) == {"executed": 2, "unjudged": 3}
