"""Whether what is counted is what happened: whoever leaves early, whatever way a call is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.app import App
from proxy.core.intent import Call, State
from proxy.errors import StoreUnavailable
from proxy.store.base import Swap
from tests.http.test_own_pages import scrape, value
from tests.inside import Answer, call, raw_call, request_bytes, semel, until
from tests.mcp.bank import Bank
from tests.mcp.scene import Behind, policy
from tests.mcp.test_batches import DENIES, PING, pays, post, post_one
from tests.origin import READ_ALL, Origin, Reset, Script, Step, Wait, answer
from tests.tools.workers import HASTY, JSON, PATIENT, Worker

LOCAL = "upstream: local-tools\nprotocol: tools\n"
RULES = """
rules:
  - {name: pay, match: {method: POST, path: /pay}, cost: {usd: 0.5}}
  - {name: look, match: {method: GET, path: /look}, mode: cache, cost: {usd: 0.25}}
  - name: asked
    match: {method: POST, path: /asked}
    cost: {usd: 0.5}
    probe: {request: {path: "/found/{body.ref}"}, found: "there"}
"""
BEGUN = b"HTTP/1.1 200 Fine\r\nContent-Length: 10\r\n\r\nfirst,"
FINE: Script = (*READ_ALL, answer(200, b'{"there": true}', (b"Content-Type", b"application/json")))


class There(NamedTuple):
    origin: Origin
    app: App

    @property
    def port(self) -> int:
        return self.app.address.port

    async def landed(self) -> None:
        await until(lambda: not self.app.flights.in_flight)

    async def counted(self, name: str, **labels: str) -> float:
        return value(await scrape(self.app), f"semel_{name}_total", **labels)

    async def statuses(self) -> dict[str, float]:
        """What became of how many calls; each of them has a rule."""
        samples = [one for one in await scrape(self.app) if one.name == "semel_calls_total" and one.value]
        assert all(one.labels["rule"] for one in samples), samples
        return {status: value(samples, "semel_calls_total", status=status)
                for status in sorted({one.labels["status"] for one in samples})}  # fmt: skip

    async def money(self) -> tuple[float, float]:
        """Spent, saved."""
        return await self.counted("spent_usd"), await self.counted("saved_usd")


def up(origin: Origin, rules: str = RULES) -> str:
    return f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{rules}"


@asynccontextmanager
async def place(tmp_path: Path, *scripts: Script, rules: str = RULES) -> AsyncIterator[There]:
    async with Origin(*scripts) as origin, semel(tmp_path, up(origin, rules)) as app:
        yield There(origin, app)


async def leave(there: There, request: bytes, *, after: bytes = b"", requests: int = 1) -> None:
    """Ask, see no more than `after` of the answer, and go."""
    reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
    writer.write(request)
    await until(lambda: len(there.origin.requests) == requests and there.origin.requests[-1].complete)
    if after:
        await reader.readuntil(after)
    writer.transport.abort()


async def told(there: There, calls: int) -> None:
    """Until so many calls are counted."""
    async with asyncio.timeout(15):
        while sum((await there.statuses()).values()) < calls:
            await asyncio.sleep(0.01)


def slow(go_on: asyncio.Event, *first: Step) -> Script:
    return (*READ_ALL, *first, Wait(go_on), *((b"last",) if first else (answer(200, b"whole"),)))


# ---- who leaves ----


@pytest.mark.parametrize("run", [{}, {"Semel-Run": "r", "Semel-Attempt": "a"}], ids=["alone", "in a run"])
@pytest.mark.parametrize("seen", [b"", b"first,"], ids=["nothing", "a part"])
async def test_what_nobody_waited_for_is_executed_and_paid(
    tmp_path: Path, run: dict[str, str], seen: bytes
) -> None:
    """The caller leaves before the head or in the middle; the call goes on, and so does what it costs."""
    go_on = asyncio.Event()
    async with place(tmp_path, slow(go_on, *((BEGUN,) if seen else ()))) as there:
        await leave(there, request_bytes("POST", "/up/pay", run, b"{}"), after=seen)
        await told(there, 1)
        assert await there.statuses() == {"executed": 1}
        assert await there.money() == (0, 0)
        go_on.set()
        await there.landed()
        assert await there.money() == (0.5, 0)


async def test_a_retry_joins_what_the_first_one_left(tmp_path: Path) -> None:
    """One execution, paid once; the retry did not pay for a second."""
    go_on = asyncio.Event()
    async with place(tmp_path, slow(go_on)) as there:
        await leave(there, request_bytes("POST", "/up/pay", {}, b"{}"))
        await told(there, 1)
        await leave(there, request_bytes("POST", "/up/pay", {}, b"{}"))
        await told(there, 2)
        retried = asyncio.create_task(call(there.port, "POST", "/up/pay", {}, b"{}"))
        await asyncio.sleep(0)
        go_on.set()
        assert (await retried).semel in ("joined", "replayed")
        found = await there.statuses()
        assert (found["executed"], sum(found.values()), found.get("refused")) == (1, 3, None)
        assert await there.counted("duplicates_prevented", rule="pay") == 2
        assert await there.money() == (0.5, 0.5)  # what the second would have paid was not known when it left


async def test_what_passes_is_passed_also_if_nobody_waits(tmp_path: Path) -> None:
    """A call that was handed on was not refused."""
    async with place(tmp_path, (*READ_ALL, Wait(asyncio.Event()))) as there:
        await leave(there, request_bytes("GET", "/up/other"))
        await told(there, 1)
        assert await there.statuses() == {"passed": 1}


# ---- what a call cost, by whatever way it is settled ----


async def test_what_a_probe_finds_was_paid_for(tmp_path: Path) -> None:
    """The answer was lost and the money was not; whoever asks again is given what the probe found."""
    async with place(tmp_path, (*READ_ALL, Reset()), FINE) as there:
        assert (await call(there.port, "POST", "/up/asked", JSON, b'{"ref": 7}')).status == 409
        assert await there.money() == (0, 0)
        found = await call(there.port, "POST", "/up/asked", JSON, b'{"ref": 7}')
        assert (found.status, found.semel) == (200, "replayed")
        assert await there.money() == (0.5, 0.5)
        codes = [
            await there.counted("upstream_responses", rule="asked", code=code) for code in ("lost", "200")
        ]
        assert codes == [1, 1]


async def test_a_probe_that_did_not_go_out_is_not_lost(tmp_path: Path) -> None:
    """Nothing was lost: nobody was reached."""
    async with place(tmp_path, (*READ_ALL, Reset())) as there:
        await call(there.port, "POST", "/up/asked", JSON, b'{"ref": 7}')
        await there.origin.__aexit__(None, None, None)
        assert (await call(there.port, "POST", "/up/asked", JSON, b'{"ref": 7}')).status == 409
        assert await there.counted("upstream_responses", rule="asked", code="lost") == 1
        assert await there.counted("upstream_responses", rule="asked", code="not_sent") == 1


async def test_a_shared_answer_is_paid_for_once(tmp_path: Path) -> None:
    """Two rows are written, of the run and of the tenant, and one call was made."""
    async with place(tmp_path, FINE) as there:
        asked: list[Answer] = []
        for run in ("a", "b", "b"):
            headers = {"Semel-Run": run, "Semel-Attempt": str(len(asked))}
            asked.append(await call(there.port, "GET", "/up/look", headers))
        assert [one.semel for one in asked] == ["executed", "replayed", "replayed"]
        assert await there.money() == (0.25, 0.5)
        added = value(await scrape(there.app), "semel_added_seconds_count", upstream="up")
        assert added == 1


async def test_a_tool_of_the_agents_own_costs_when_it_is_done(tmp_path: Path) -> None:
    """Executed when it is handed out, paid for when it is reported, saved when it is given again."""
    rules = "rules: [{name: pay, match: {tool: pay}, cost: {usd: 0.5}}]"
    async with Origin() as origin, semel(tmp_path, f"{LOCAL}{rules}", settings=PATIENT) as app:
        there, worker = There(origin, app), Worker(app.address.port)
        handed = await worker.begin()
        assert await there.money() == (0, 0)
        await worker.complete(handed, 1)
        assert await there.money() == (0.5, 0)
        assert (await worker.begin()).semel == "replayed"
        assert await there.money() == (0.5, 0.5)
        assert await there.statuses() == {"executed": 1, "replayed": 1}


async def test_a_tool_that_is_reported_late_was_paid_for_too(tmp_path: Path) -> None:
    """Nobody waits for the report any more; the record takes it, with its price."""
    rules = "rules: [{name: pay, match: {tool: pay}, cost: {usd: 0.5}}]"
    async with Origin() as origin, semel(tmp_path, f"{LOCAL}{rules}", settings=HASTY) as app:
        there, worker = There(origin, app), Worker(app.address.port)
        handed = await worker.begin()
        await there.landed()
        assert value(await scrape(app), "semel_calls_in_state", state="in_doubt") == 1
        assert (await worker.complete(handed, 1)).document == {"state": "done"}
        assert await there.money() == (0.5, 0)


async def test_what_was_written_after_all_is_paid_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that it failed, and had written the settlement."""
    async with place(tmp_path, FINE) as there:
        swap, failed = there.app.store.swap, asyncio.Event()

        async def landed_unheard(row: Call, *args: Any, **more: Any) -> Swap:
            done = await swap(row, *args, **more)
            if row.state is State.DONE and not failed.is_set():
                failed.set()
                raise StoreUnavailable("the answer of the store was lost")
            return done

        monkeypatch.setattr(there.app.store, "swap", landed_unheard)
        assert (await call(there.port, "POST", "/up/pay", {}, b"{}")).semel == "executed"
        assert failed.is_set()
        assert await there.money() == (0.5, 0)


async def test_a_fixed_price_does_not_depend_on_the_answers_length(tmp_path: Path) -> None:
    """An expression reads an answer, up to a length; what costs the same whatever comes is always known."""
    long = b"x" * (9 * 1024 * 1024)
    async with place(tmp_path, (*READ_ALL, answer(200, long))) as there:
        assert (await call(there.port, "POST", "/up/pay", {}, b"{}")).body == long
        assert await there.money() == (0.5, 0)


# ---- once each ----


async def test_a_defect_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told with its rule, and as what it is."""
    async with place(tmp_path) as there:

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr("proxy.front.handler.Handler._refuse", fail)
        monkeypatch.setattr("proxy.exchange.Exchange.ask", fail)
        assert (await call(there.port, "POST", "/up/pay", {}, b"{}")).status == 500
        assert await there.statuses() == {"refused": 1}
        assert await there.counted("problems") == await there.counted("problems", type="internal-error") == 1


@pytest.mark.parametrize("run", [{}, {"Semel-Run": "r", "Semel-Attempt": "a"}], ids=["alone", "in a run"])
async def test_what_another_process_sends_is_prevented_once(tmp_path: Path, run: dict[str, str]) -> None:
    """Each process tells what it did itself: one has executed and paid, the other has saved."""
    go_on = asyncio.Event()
    async with place(tmp_path, slow(go_on)) as one, semel(tmp_path, up(one.origin)) as beside:
        other = There(one.origin, beside)
        first = asyncio.create_task(call(one.port, "POST", "/up/pay", run, b"{}"))
        await until(lambda: one.origin.started)
        second = asyncio.create_task(call(other.port, "POST", "/up/pay", run, b"{}"))
        while not (await gotten(beside)):
            await asyncio.sleep(0.01)
        go_on.set()
        assert [(await first).semel, (await second).semel] == ["executed", "replayed"]
        assert (await one.statuses(), await other.statuses()) == ({"executed": 1}, {"replayed": 1})
        assert (await one.money(), await other.money()) == ((0.5, 0), (0, 0.5))
        prevented = [await each.counted("duplicates_prevented") for each in (one, other)]
        assert prevented == [0, 1]


async def gotten(app: App) -> float:
    """How often a row was read."""
    return value(await scrape(app), "semel_store_seconds_count", op="get")


async def test_a_refusal_is_counted_by_what_was_known(tmp_path: Path) -> None:
    """The upstream is known before the rule: a run's record has to be read first, and cannot be."""
    async with place(tmp_path) as there:
        before = await series(there.app)
        await there.app.store.close()
        refused = await call(there.port, "POST", "/up/pay", {"Semel-Run": "r", "Semel-Attempt": "a"}, b"{}")
        assert refused.status == 503
        long = {"Content-Length": str(2**40)}
        assert (await raw_call(there.port, request_bytes("GET", "/up/pay", long))).status == 413
        assert await there.counted("calls", upstream="up", rule="", mode="", status="refused") == 2
        assert await series(there.app) == before


@pytest.mark.parametrize("events", [False, True], ids=["json", "sse"])
async def test_each_call_of_a_batch_is_one_call(tmp_path: Path, events: bool) -> None:
    """Executed, replayed and denied, each by its own rule; the batch itself is none."""
    rules = f"{DENIES}  - {{name: buy, match: {{tool: pay}}, cost: {{usd: 0.5}}}}\n"
    async with Bank(events=events) as bank, semel(tmp_path, policy(bank.port, rules)) as app:
        behind, there = Behind(app.address.port), There(Origin(), app)
        await post(behind, [pays(1, "a"), pays(2, "b"), pays(3, "second"), PING])
        await post(behind, [pays(4, "a")])
        await post_one(behind, pays(5, "b"), "")
        assert await there.statuses() == {"executed": 2, "passed": 1, "refused": 1, "replayed": 2}
        assert await there.counted("calls", rule="no", mode="deny", status="refused") == 1
        assert await there.counted("duplicates_prevented", rule="buy") == 2
        assert await there.money() == (1.0, 1.0)
        assert value(await scrape(app), "semel_added_seconds_count") == 3


# ---- from zero ----


@pytest.mark.parametrize("unknown", ["record", "tunnel"])
async def test_what_no_policy_names_begins_at_zero_too(tmp_path: Path, unknown: str) -> None:
    """Tools without a file, and hosts that are not listed, where those are let through."""
    async with Origin(FINE, FINE, FINE) as origin, Origin() as listed:
        settings = {**PATIENT, "forward.unknown": unknown, "forward.private": "allow"}
        async with semel(tmp_path, up(listed), settings=settings) as app:
            before = await series(app)
            host, worker = f"127.0.0.1:{origin.port}", Worker(app.address.port)
            for method in ("POST", "POST", "GET"):
                request = request_bytes(method, f"http://{host}/x", {}, host=host)
                assert (await raw_call(app.address.port, request)).status == 200
            await worker.complete(await worker.begin())
            assert (await worker.begin()).semel == "replayed"
            assert await series(app) - before == set()


async def series(app: App) -> set[tuple[str, ...]]:
    """What is counted, but for the status codes of upstreams."""
    samples = [one for one in await scrape(app) if one.name.endswith("_total")]
    return {(one.name, *one.labels.values()) for one in samples if not one.labels.get("code", "").isdigit()}
