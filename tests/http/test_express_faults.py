"""Calls by express in trouble: a store that fails, an upstream that is gone, another process, a shutdown.

Wherever it happens nothing is sent twice, and what became of the call is on record.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy import faults, flying
from proxy.front.connection import Connection
from tests.crash.scene import store_failing
from tests.forward.scene import client
from tests.http.expressed import (
    Trips,
    ask,
    asked,
    body,
    echo,
    ends_once,
    express,
    in_the_air,
    landed,
    slow,
    talking,
    warm,
)
from tests.http.planned import Side, policy, rule
from tests.http.streaming import next_commit_held
from tests.inside import read_answer, semel, until
from tests.origin import READ_ALL, Echo, Origin, Stall

on_some_store = pytest.mark.usefixtures("some_store")


async def states(there: Side) -> dict[str, int]:
    """Of all calls, how many stand where."""
    return {str(state): many for state, many in (await there.app.store.census()).by_state.items() if many}


# ---- the upstream is gone, or somebody was there before ----


async def test_an_upstream_that_is_gone_releases_the_call(tmp_path: Path, trips: Trips) -> None:
    """502 and nothing sent; when it is back the same call is sent, once."""
    async with express(tmp_path, trips) as there:
        origin = there.origin
        async with talking(there, trips) as outside:
            before = origin.started
            origin._server.close()
            for visitor in origin.visitors:
                visitor.transport.abort()
            await until(lambda: all(visitor.gone.is_set() for visitor in origin.visitors))
            got = await asked(outside, 0)
            assert (got.status, json.loads(got.body)["type"]) == (502, "urn:semel:upstream-unreachable")
            assert (trips.out, origin.started) == ([body(0)], before)
            assert (await states(there))["released"] == 1
            async with Origin((*READ_ALL, Echo()), port=origin.port) as back:
                got = await asked(outside, 0)
                assert (got.semel, got.body, back.started) == ("executed", echo(0), 1)


@on_some_store
async def test_what_an_earlier_process_did_is_replayed(tmp_path: Path, trips: Trips) -> None:
    """A call that sets out as if it were new loses its claim: what is on record is given, nothing is sent."""
    async with Origin((*READ_ALL, Echo())) as origin:
        text, flags = policy(origin.port, rule()), {"recall": False}
        async with semel(tmp_path, text, settings=flags) as app:
            first = Side(app, origin, None)  # type: ignore[arg-type]
            assert (await first.ask(ask(0))).semel == "executed"
        async with semel(tmp_path, text, settings=flags) as app:
            second = Side(app, origin, None)  # type: ignore[arg-type]
            await warm(second)
            trips.forget()
            before = origin.started
            got = await second.ask(ask(0))
            assert (trips.out, trips.handed) == ([body(0)], [body(0)])
            assert (got.semel, got.body, origin.started) == ("replayed", echo(0), before)
            await landed(second)


@on_some_store
async def test_of_two_processes_one_sends(tmp_path: Path, trips: Trips) -> None:
    """Both set out with the same call at once: one claim wins, the other waits, and both are answered."""
    go_on = asyncio.Event()
    async with Origin((*READ_ALL, Echo())) as origin:
        text, flags = policy(origin.port, rule()), {"recall": False}
        async with (
            semel(tmp_path, text, settings=flags) as here,
            semel(tmp_path, text, settings=flags) as there,
        ):
            sides = [Side(app, origin, None) for app in (here, there)]  # type: ignore[arg-type]
            for n, side in enumerate(sides):
                for k in range(10):
                    assert (await side.ask(ask(100 * (n + 1) + k))).semel == "executed"
            trips.forget()
            origin.then(slow(go_on))
            before = origin.started
            asking = [asyncio.create_task(side.ask(ask(0))) for side in sides]
            await until(lambda: trips.out == [body(0)] * 2 and origin.started == before + 1)
            await until(lambda: trips.handed)
            go_on.set()
            got = [await task for task in asking]
            assert {one.body for one in got} == {echo(0)}
            assert sorted(str(one.semel) for one in got) == ["executed", "replayed"]
            assert origin.started == before + 1


@pytest.mark.parametrize("more", ["timeout: {idle: 200ms}\n", "timeout: {total: 200ms}\n"])
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"], ids=["nothing", "half a head"])
async def test_an_upstream_that_stays_silent_leaves_a_doubt(
    tmp_path: Path, trips: Trips, more: str, said: bytes
) -> None:
    """Nobody awaits it, and still its time is up: in doubt, and sent once."""
    async with (
        express(tmp_path, trips, more=more) as there,
        talking(there, trips, (*READ_ALL, said, Stall())) as outside,
    ):
        before = there.origin.started
        got = await asked(outside, 0)
        assert (got.status, json.loads(got.body)["type"]) == (409, "urn:semel:in-doubt")
        assert (trips.out, trips.handed, there.origin.started) == ([body(0)], [body(0)], before + 1)
        assert (await states(there))["in_doubt"] == 1


# ---- the store fails ----


async def test_with_the_store_down_at_the_claim_nothing_is_sent(tmp_path: Path, trips: Trips) -> None:
    """503, and when it is back the same call goes through, once."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        received = there.origin.received
        async with store_failing():
            got = await asked(outside, 0)
            assert (got.status, json.loads(got.body)["type"]) == (503, "urn:semel:store-unavailable")
            assert (trips.out, trips.handed, there.origin.received) == ([body(0)], [body(0)], received)
        await until(lambda: not there.app.flights.in_flight)
        before = there.origin.started
        got = await asked(outside, 0)
        assert (got.semel, got.body, there.origin.started) == ("executed", echo(0), before + 1)


async def test_a_claim_that_landed_unheard_is_taken_back(tmp_path: Path, trips: Trips) -> None:
    """The commit was made and nobody was told so: nothing is sent, the row does not stay pending."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        received = there.origin.received
        async with store_failing(faults.Point.COMMITTED):
            assert (await asked(outside, 0)).status == 503
            assert (trips.out, there.origin.received) == ([body(0)], received)
        await until(lambda: not there.app.flights.in_flight)
        assert "pending" not in await states(there)
        assert (await asked(outside, 0)).semel == "executed"


async def test_with_the_store_down_at_the_settlement_the_end_is_withheld(
    tmp_path: Path, trips: Trips
) -> None:
    """Not a byte of the reply until it is recorded; when the store is back it is given. It was sent once."""
    go_on, failed = asyncio.Event(), asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        async with store_failing(failed=failed):
            go_on.set()
            await failed.wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asking), 0.2)
        got = await asking
        assert (got.status, got.semel, got.body) == (200, "executed", echo(0))
        assert trips.out == [body(0)]
        await ends_once(there, before, (200, "replayed"))
        assert "pending" not in await states(there)


@on_some_store
async def test_an_answer_that_others_have_given_up_settles_the_call(tmp_path: Path, trips: Trips) -> None:
    """Recovery took its owner for dead and left it in doubt; the answer comes and is recorded before it is
    given."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        (key,) = there.app.flights.by_key
        row = await there.app.store.get(key)
        assert row is not None
        assert await there.app.flights.ledger.recover(row) is not None
        assert (await states(there))["in_doubt"] == 1
        go_on.set()
        assert (await asking).body == echo(0)
        assert trips.out == [body(0)]
        assert "in_doubt" not in await states(there)
        await ends_once(there, before, (200, "replayed"))


async def test_with_the_store_down_for_good_the_connection_is_cut_off(tmp_path: Path, trips: Trips) -> None:
    """Past the deadline the caller sees a break, never an answer that is not recorded. When the store is back
    it is recorded."""
    go_on = asyncio.Event()
    more = "timeout: {total: 500ms}\n"
    async with express(tmp_path, trips, more=more) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        async with store_failing():
            go_on.set()
            assert (await asking).status == 0
        await ends_once(there, before, (200, "replayed"))


# ---- a shutdown, a reload ----


async def test_a_trip_under_way_may_end_when_semel_stops(tmp_path: Path, trips: Trips) -> None:
    """With patience the reply is given, and then the connection ends."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        stopping = asyncio.create_task(there.app.stop(20.0))
        await until(lambda: there.app.flights.stopping)
        assert not asking.done()
        go_on.set()
        assert (await asking).body == echo(0)
        async with asyncio.timeout(15):
            assert await outside.ended() == b""
            assert await stopping == 0
        assert trips.out == trips.back == [body(0)]


async def test_a_connection_ends_with_its_own_trip_when_semel_stops(tmp_path: Path, trips: Trips) -> None:
    """It does not wait for the calls of others."""
    first, second = asyncio.Event(), asyncio.Event()
    async with (
        express(tmp_path, trips) as there,
        talking(there, trips, slow(first), slow(second)) as other,
        client(there.port) as one,
    ):
        before = there.origin.started
        asking = []
        for n, outside in enumerate((one, other)):
            asking.append(asyncio.create_task(asked(outside, n)))
            await until(lambda: there.origin.started == before + 1 + n)  # noqa: B023 (awaited at once)
        stopping = asyncio.create_task(there.app.stop(20.0))
        await until(lambda: there.app.flights.stopping)
        first.set()
        assert (await asking[0]).body == echo(0)
        async with asyncio.timeout(5):
            assert await one.ended() == b""
        assert not asking[1].done()
        second.set()
        assert (await asking[1]).body == echo(1)
        assert await stopping == 0
        assert trips.back == [body(0), body(1)]


@pytest.mark.parametrize("rest", ["nothing", "half a request", "a request"])
async def test_what_came_behind_a_trip_is_not_begun_when_semel_stops(
    tmp_path: Path, trips: Trips, rest: str
) -> None:
    """The reply under way is given whole, nothing of what came behind it is sent, and the connection ends."""
    go_on, behind = (
        asyncio.Event(),
        {"nothing": b"", "half a request": ask(1)[:30], "a request": ask(1)}[rest],
    )
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        outside.writer.write(ask(0))
        await until(lambda: there.origin.started == before + 1)
        (connection,) = there.app._listener.connections
        assert isinstance(connection, Connection)
        whole = connection._behind_head
        outside.writer.write(behind)
        await until(lambda: connection._behind_head == whole + len(behind))
        stopping = asyncio.create_task(there.app.stop(20.0))
        await until(lambda: there.app.flights.stopping)
        go_on.set()
        async with asyncio.timeout(15):
            assert (await read_answer(outside.reader)).body == echo(0)
            await outside.ended()
            assert await stopping == 0
        assert there.origin.started == before + 1


@on_some_store
async def test_out_of_patience_a_trip_is_marked(tmp_path: Path, trips: Trips) -> None:
    """It was sent, and what became of it is not known: in doubt, which its caller is told."""
    async with (
        express(tmp_path, trips) as there,
        talking(there, trips, slow(asyncio.Event())) as outside,
    ):
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        assert await there.app.flights.drain(0.05) == 1
        got = await asking
        assert (got.status, json.loads(got.body)["type"]) == (409, "urn:semel:in-doubt")
        assert (await states(there))["in_doubt"] == 1
        assert (trips.out, trips.handed, there.origin.started) == ([body(0)], [body(0)], before + 1)


async def test_stopped_before_it_is_sent_it_is_released(tmp_path: Path, trips: Trips) -> None:
    """The claim was on its way to the disk: nothing goes out afterwards."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        received = there.origin.received
        with next_commit_held() as held:
            asking = asyncio.create_task(asked(outside, 0))
            await held.reached()
            draining = asyncio.create_task(there.app.flights.drain(0.0))
            await until(lambda: all(flight.stopped for flight in in_the_air(there)))
            held.let_go()
            await draining
        assert (await asking).status == 502
        assert there.origin.received == received
        assert (await states(there)).get("released") == 1


@pytest.mark.parametrize("what", ["claim", "settlement"])
async def test_given_up_while_the_store_is_silent_it_is_never_sent_again(
    tmp_path: Path, trips: Trips, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Semel ends and the store does not answer: the caller is told that it is in progress. What the store
    says later is nobody's; a claim that stands then sends nothing."""
    monkeypatch.setattr(flying, "MARKING_PATIENCE", 0.1)
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        with ExitStack() as to_the_end:
            held = to_the_end.enter_context(next_commit_held()) if what == "claim" else None
            asking = asyncio.create_task(asked(outside, 0))
            if held is None:
                await until(lambda: there.origin.started == before + 1)
                held = to_the_end.enter_context(next_commit_held())
            go_on.set()
            await held.reached()
            await there.app.flights.drain(0.0)
            got = await asking
            held.let_go()
        assert (got.status, json.loads(got.body)["type"]) == (409, "urn:semel:in-progress")
        await landed(there)
        await there.app.store.ping()
        stands = await states(there)
        assert (stands.get("pending"), stands["done"] - before) == ((1, 0) if what == "claim" else (None, 1))
        assert there.origin.started == before + (what == "settlement")


async def test_when_semel_stops_nothing_sets_out(tmp_path: Path, trips: Trips) -> None:
    """What comes on a connection that is still open is refused, or not heard at all, and not sent."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        received = there.origin.received
        there.app.flights.stopping = True
        assert (await asked(outside, 0)).status == 503
        assert (trips.out, there.origin.received) == ([], received)


RULES = {
    "refused": (rule("mode: deny"), 403, "refused"),
    "passed": (rule("mode: pass"), 200, "passed"),
    "another name": (rule("key: {exclude: [n]}"), 200, "executed"),
    "no rule": ("[]", 200, "executed"),
}


@pytest.mark.parametrize(("rules", "status", "how"), RULES.values(), ids=RULES)
async def test_the_next_request_is_judged_by_the_new_rules(
    tmp_path: Path, trips: Trips, rules: str, status: int, how: str
) -> None:
    """Between two requests of one connection: the first of the new rules does not go by the old plan."""
    async with express(tmp_path, trips) as there, talking(there, trips) as outside:
        assert (await asked(outside, 0)).semel == "executed"
        (tmp_path / "policies" / "test.yaml").write_text(policy(there.origin.port, rules))
        assert await there.app.watch.check_now()
        got = [await asked(outside, n) for n in (1, 2)]
        then = "replayed" if rules == RULES["another name"][0] else how
        assert [(one.status, one.semel) for one in got] == [(status, how), (status, then)]
        assert body(1) not in trips.out


async def test_who_is_under_way_ends_by_the_old_rules(tmp_path: Path, trips: Trips) -> None:
    """And its reply is given; the next one is refused by the new."""
    go_on = asyncio.Event()
    async with express(tmp_path, trips) as there, talking(there, trips, slow(go_on)) as outside:
        before = there.origin.started
        asking = asyncio.create_task(asked(outside, 0))
        await until(lambda: there.origin.started == before + 1)
        (tmp_path / "policies" / "test.yaml").write_text(policy(there.origin.port, rule("mode: deny")))
        assert await there.app.watch.check_now()
        go_on.set()
        assert (await asking).body == echo(0)
        assert (await asked(outside, 1)).status == 403
        assert (trips.out, there.origin.started) == ([body(0)], before + 1)
