"""Tools of the agent's own, over the wire: handed out once, recorded once, given again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from proxy.app import App
from tests.inside import Answer, raw_call, request_bytes, semel
from tests.tools.workers import JSON, PATIENT, Worker

POLICY = "upstream: other\nbase_url: http://127.0.0.1:9\n"


@pytest_asyncio.fixture
async def app(tmp_path: Path, any_store: None) -> AsyncIterator[App]:
    async with semel(tmp_path, POLICY, settings=PATIENT) as app:
        yield app


async def post(app: App, target: str, body: bytes) -> Answer:
    return await raw_call(app.address.port, request_bytes("POST", target, JSON, body, host="127.0.0.1"))


async def test_it_is_handed_out_once_and_given_again(app: App) -> None:
    """Begin, do, complete; whoever begins the same call later gets the result and does nothing."""
    worker = Worker(app.address.port)
    handed = await worker.begin()
    assert (handed.status, handed.semel) == (200, "executed")
    assert handed.execute.keys() == {"call", "fence", "heartbeat"}
    assert await worker.complete(handed, {"id": 7, "big": 2**80}) == (200, {"state": "done"}, None)
    again = await worker.begin()
    assert (again.status, again.semel) == (200, "replayed")
    assert again.document == {"result": {"id": 7, "big": 2**80}}


async def test_in_a_run_each_call_is_met_again_in_order(app: App) -> None:
    """The second identical call of an attempt is another one; the next attempt gets both, then goes on."""
    worker = Worker(app.address.port, run="night")
    for number in (1, 2):
        handed = await worker.begin()
        assert handed.semel == "executed"
        await worker.complete(handed, number)
    later = worker.next("a2")
    assert [(await later.begin()).document for _ in range(2)] == [{"result": 1}, {"result": 2}]
    third = await later.begin()
    assert third.semel == "executed"
    await later.complete(third, 3)


async def test_the_run_may_stand_in_the_address(app: App) -> None:
    """All that a client needs is the address that `semel run` gives it."""
    answers = []
    for attempt in ("a1", "a2"):
        at = f"/@night+{attempt}/_semel/tools/pay"
        answers.append(await post(app, at, b"{}"))
        if attempt == "a1":
            told = json.loads(answers[0].body)["execute"]
            report = f"{at}/{told['call']}/complete?fence={told['fence']}"
            assert (await post(app, report, b'{"result": "paid"}')).status == 200
    assert [one.semel for one in answers] == ["executed", "replayed"]
    assert answers[1].body == b'{"result": "paid"}'


async def test_of_many_at_once_one_does_it_and_all_get_it(app: App) -> None:
    """The others wait for the one that has it in hand."""
    worker = Worker(app.address.port)
    asking = [asyncio.create_task(worker.begin()) for _ in range(20)]
    done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    (first,) = [task.result() for task in done]
    assert first.semel == "executed"
    await worker.complete(first, "once")
    others = [await task for task in waiting]
    assert {(one.semel, one.document["result"]) for one in others} <= {
        ("joined", "once"),
        ("replayed", "once"),
    }


async def test_an_error_is_recorded_as_it_is(app: App) -> None:
    """It may have had an effect: nobody runs it again."""
    worker = Worker(app.address.port)
    error = {"error": {"type": "ValueError", "message": "no such order"}}
    handed = await worker.begin()
    assert (await worker.report("complete", handed, error)).document == {"state": "done"}
    assert (await worker.begin()).document == error


@pytest.mark.parametrize("run", ["", "night"])
async def test_what_was_surely_not_done_is_handed_out_again(app: App, run: str) -> None:
    """To whoever asks next."""
    worker = Worker(app.address.port, run)
    handed = await worker.begin()
    assert await worker.fail(handed) == (200, {"state": "released"}, None)
    again = await worker.begin()
    assert (again.semel, again.execute["call"]) == ("executed", handed.execute["call"])
    assert again.execute["fence"] > handed.execute["fence"]
    assert (await worker.complete(again)).document == {"state": "done"}
    assert (await worker.complete(handed)).problem == "stale-version"


async def test_reports_may_be_repeated(app: App) -> None:
    """The first one counts."""
    worker = Worker(app.address.port)
    handed = await worker.begin()
    for result in ("first", "second"):
        assert (await worker.complete(handed, result)).document == {"state": "done"}
    assert (await worker.begin()).document == {"result": "first"}
    assert (await worker.fail(handed)).problem == "stale-version"
