"""Who falls silent leaves a doubt, and who comes back late settles it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.inside import request_bytes, semel, until
from tests.process import SemelProcess
from tests.tools.workers import HASTY, JSON, PATIENT, Said, Worker

POLICY = "upstream: other\nbase_url: http://127.0.0.1:9\n"


async def in_doubt(worker: Worker) -> Said:
    """Whoever asks next waits for the first, and is told when that is given up."""
    told = await worker.next("later").begin()
    assert (told.status, told.problem) == (409, "in-doubt")
    return told


@pytest.mark.parametrize("run", ["", "night"])
async def test_who_falls_silent_leaves_a_doubt_and_a_late_result_settles_it(
    tmp_path: Path, run: str, any_store: None
) -> None:
    """It is not handed out again; the result is taken whenever it comes, and given again."""
    async with semel(tmp_path, POLICY, settings=HASTY) as app:
        worker = Worker(app.address.port, run)
        handed = await worker.begin()
        told = await in_doubt(worker)
        assert "no sign of life" in told.document["detail"]
        assert (await worker.beat(handed)).document == {"state": "in_doubt"}
        assert (await worker.complete(handed, "late")).document == {"state": "done"}
        assert (await worker.next("a3").begin()).document == {"result": "late"}


async def test_what_is_in_doubt_is_not_released_by_a_late_word(tmp_path: Path) -> None:
    """Only an answer settles a doubt, or a person: the word is in the history, for that person."""
    async with semel(tmp_path, POLICY, settings=HASTY) as app:
        worker = Worker(app.address.port)
        handed = await worker.begin()
        await in_doubt(worker)
        assert (await worker.fail(handed, "nothing was sent")).problem == "stale-version"
        history = await app.store.history(bytes.fromhex(handed.execute["call"]))
        assert "it was not done: nothing was sent" in history[-1].why
        await in_doubt(worker)


async def test_a_sign_of_life_keeps_it(tmp_path: Path) -> None:
    """For as long as it takes, far beyond one lease."""
    async with semel(tmp_path, POLICY, settings=HASTY) as app:
        worker = Worker(app.address.port)
        handed = await worker.begin()
        until_when = asyncio.get_running_loop().time() + 1.5
        while asyncio.get_running_loop().time() < until_when:
            told = await worker.beat(handed)
            assert told.document == {"state": "pending", "heartbeat": 0.1}
            await asyncio.sleep(0.05)
        waiting = asyncio.create_task(worker.begin())
        assert (await worker.complete(handed, "slow")).document == {"state": "done"}
        assert (await waiting).document == {"result": "slow"}


async def test_a_caller_that_has_left_is_handed_nothing(tmp_path: Path) -> None:
    """It waited for another's call, which came to nothing after it had gone: nobody is to have it in hand."""
    async with semel(tmp_path, POLICY, settings=PATIENT) as app:
        worker = Worker(app.address.port)
        handed = await worker.begin()
        _, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", "/_semel/tools/pay", JSON, b'{"usd": 5}', host="127.0.0.1"))
        flight = next(iter(app.flights.by_key.values()))
        await until(lambda: flight.callers == 2)
        writer.transport.abort()
        await until(lambda: flight.callers == 2)
        await worker.fail(handed)
        assert (await worker.begin()).semel == "executed"


@asynccontextmanager
async def process(at: Path) -> AsyncIterator[SemelProcess]:
    (at / "other.yaml").write_text(POLICY)
    async with SemelProcess(at / "state", at / "other.yaml") as running:
        yield running


async def test_killed_with_a_call_in_somebodys_hands(tmp_path: Path, any_store: None) -> None:
    """The next semel says that it is in doubt, hands it to nobody, and takes the result."""
    async with process(tmp_path) as first:
        worker = Worker(first.port, "night")
        handed = await worker.begin()
        await first.kill()
    async with process(tmp_path) as second:
        worker = worker.at(second.port)
        await in_doubt(worker)
        assert (await worker.complete(handed, "after all")).document == {"state": "done"}
        assert (await worker.next("a3").begin()).document == {"result": "after all"}


async def test_killed_after_the_result_it_is_given_again(tmp_path: Path, any_store: None) -> None:
    """What was reported is durable before whoever reports is told so."""
    async with process(tmp_path) as first:
        worker = Worker(first.port, "night")
        await worker.complete(await worker.begin(), {"id": 7})
        await first.kill()
    async with process(tmp_path) as second:
        assert (await worker.at(second.port).next("a2").begin()).document == {"result": {"id": 7}}


@pytest.mark.parametrize("what", ["complete", "fail", "heartbeat"])
async def test_reports_to_another_process(tmp_path: Path, what: str, some_store: None) -> None:
    """Several proxies on one store behind one address: a report counts wherever it arrives."""
    async with (
        semel(tmp_path, POLICY, settings=HASTY) as one,
        semel(tmp_path, POLICY, settings=HASTY) as two,
    ):
        here, there = Worker(one.address.port), Worker(two.address.port)
        handed = await here.begin()
        if what == "complete":
            assert (await there.complete(handed, "there")).document == {"state": "done"}
            assert (await here.begin()).document == {"result": "there"}
        elif what == "fail":
            assert (await there.fail(handed)).document == {"state": "released"}
            assert (await here.begin()).semel == "executed"
        else:
            until_when = asyncio.get_running_loop().time() + 1.5
            while asyncio.get_running_loop().time() < until_when:
                assert (await there.beat(handed)).document["state"] == "pending"
                await asyncio.sleep(0.05)
            waiting = asyncio.create_task(here.begin())
            assert (await there.complete(handed, "kept alive")).document == {"state": "done"}
            assert (await waiting).document == {"result": "kept alive"}


async def test_a_semel_that_ends_waits_for_nobody(
    tmp_path: Path,
) -> None:
    """Who has a call in hand cannot report to it any more: that is doubt at once, and settled afterwards."""
    async with semel(tmp_path, POLICY, settings=PATIENT) as app:
        worker = Worker(app.address.port, "night")
        handed = await worker.begin()
        assert await app.stop(60.0) == 0  # none had to be stopped when patience was over
    async with semel(tmp_path, POLICY, settings=PATIENT) as app:
        worker = worker.at(app.address.port)
        await in_doubt(worker)
        assert (await worker.complete(handed, "after all")).document == {"state": "done"}
        assert (await worker.next("a3").begin()).document == {"result": "after all"}
