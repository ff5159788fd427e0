"""A real receiver is told; and whatever the receiver does, no call waits for it."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from pathlib import Path

import pytest

from proxy.core.intent import Entry, evolve
from proxy.errors import StoreUnavailable
from proxy.notifying import hook as hooks
from proxy.notifying import standing
from tests.inside import call, raw_call, request_bytes, until
from tests.notifying.scene import LOSES, TAKEN, scene, verified
from tests.origin import OK, READ_ALL, Close, Origin, ReadHead, Reset, Stall, Wait, answer


async def test_a_call_in_doubt_is_told_once_signed_and_noted(tmp_path: Path) -> None:
    """The receiver can verify it; the call's history says who was told, and of which notification."""
    async with scene(tmp_path) as there:
        doubtful = await there.post()
        assert doubtful.status == 409
        (told,) = await there.told()
        name = doubtful.get("Semel-Call")
        assert (told["type"], told["call"]["id"], told["call"]["state"]) == ("in_doubt", name, "in_doubt")
        assert told["call"]["upstream"] == "up"
        assert told["resolve"] == f"http://127.0.0.1:{there.port}/_semel/calls/{name}/resolve"
        (seen,) = there.receiver.requests
        assert seen.head.startswith(b"POST /hook?token=in-the-query HTTP/1.1\r\n")
        headers = dict(seen.headers)
        assert headers[b"Content-Type"] == b"application/json"
        await until(lambda: there.lines("notification-delivered"))
        events = json.loads((await there.look(f"/_semel/calls/{name}")).body)["events"]
        (line,) = [one for one in events if one["event"] == "notified"]
        assert told["id"] in line["why"]
        assert await there.counted("in_doubt", "delivered") == 1
        assert "in-the-query" not in there.log.getvalue() + json.dumps(events)
        await there.post()  # asked again: still in doubt, and told already
        await there.post(1)
        await there.told(2)
        assert there.receiver.started == 2


async def test_what_needs_nobody_is_told_to_nobody(tmp_path: Path) -> None:
    """Answered, refused, passed: no notification; and none of a kind that was not asked for."""
    async with scene(tmp_path, upstream=(OK, (*READ_ALL, answer(404, b"no")), OK, LOSES)) as there:
        for number in range(3):
            await there.post(number)
        await there.post(3)
        (told,) = await there.told()
        assert told["type"] == "in_doubt"
    async with scene(tmp_path / "quiet", settings={"notify.events": ["diverged"]}, store="memory") as there:
        assert (await there.post()).status == 409
    assert there.receiver.started == 0


async def test_a_diverged_agent_is_told(tmp_path: Path) -> None:
    """With its run, and only once however often it asks."""
    rules = "rules: [{name: send, match: {path: /send}}]\n"
    async with scene(tmp_path, upstream=(OK,), rules=rules) as there:
        assert (await there.post(1, "/@trip+one/up/send")).semel == "executed"
        for _ in range(2):
            assert (await there.post(2, "/@trip+two/up/send")).status == 409
        (told,) = await there.told()
        assert told["type"] == "diverged"
        assert (told["call"]["run"], told["call"]["attempt"], told["call"]["rule"]) == ("trip", "two", "send")
        assert told["resolve"].endswith("/_semel/runs/trip/allow")
        await there.post(9, "/@other+one/up/send")
        assert there.receiver.started == 1


@pytest.mark.parametrize(
    "trouble",
    [
        (*READ_ALL, answer(500, b"no")),
        (*READ_ALL, answer(429, b"slower", (b"Retry-After", b"1"))),
        (*READ_ALL, answer(408)),
        (*READ_ALL, Close()),
        (ReadHead(), Reset()),
        (*READ_ALL, b"HTTP/1.1 200", Close()),
    ],
    ids=["500", "429", "408", "closed", "reset", "half an answer"],
)
async def test_a_receiver_in_trouble_is_told_again(tmp_path: Path, trouble: tuple[object, ...]) -> None:
    """Under the same id, with a new timestamp, until it takes it; then never again."""
    async with scene(tmp_path, trouble, trouble, TAKEN) as there:  # type: ignore[arg-type]
        await there.post()
        await until(lambda: there.lines("notification-delivered"))
        told = [verified(one) for one in there.receiver.requests if one.complete]
        assert len({one["id"] for one in told}) == 1
        assert await there.counted("in_doubt", "failed") == 2
        assert await there.counted("in_doubt", "delivered") == 1


async def test_a_receiver_that_hangs_or_streams_for_ever_holds_up_nothing(tmp_path: Path) -> None:
    """After the timeout it is tried again. Calls go on meanwhile."""
    stream = (*READ_ALL, b"HTTP/1.1 500 No\r\nContent-Type: text/event-stream\r\n\r\n", Stall())
    hanging = ((*READ_ALL, Stall()), stream, TAKEN)
    async with scene(tmp_path, *hanging, settings={"notify.timeout": "300ms"}) as there:
        for number in range(3):
            assert (await there.post(number)).status == 409
        await until(lambda: len(there.lines("notification-delivered")) == 3)
        assert [line["why"] for line in there.lines("notification-failed")] == [
            "no answer within 0.3 s",
            "status 500",
        ]


async def test_who_said_200_has_it_whatever_becomes_of_the_rest(tmp_path: Path) -> None:
    """A body that never ends is not waited for beyond the timeout."""
    endless = (*READ_ALL, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: x\n\n", Stall())
    async with scene(tmp_path, endless, settings={"notify.timeout": "300ms"}) as there:
        await there.post()
        await until(lambda: there.lines("notification-delivered"))
        assert there.receiver.started == 1


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 410])
async def test_a_refusal_is_tried_a_few_times_and_given_up(tmp_path: Path, status: int) -> None:
    """With a line in the log. A redirect is not followed: nobody there is told."""
    async with Origin() as elsewhere:
        location = b"http://127.0.0.1:%d/" % elsewhere.port
        refuses = (*READ_ALL, answer(status, b"", (b"Location", location)))
        async with scene(tmp_path, refuses) as there:
            await there.post()
            await until(lambda: there.lines("notification-given-up"))
            (line,) = there.lines("notification-given-up")
            assert (line["tries"], f"status {status}" in line["why"]) == (hooks.REFUSALS, True)
            assert there.receiver.started == hooks.REFUSALS
            assert await there.counted("in_doubt", "given_up") == 1
        assert elsewhere.connections == 0


async def test_one_that_is_refused_does_not_keep_others_back(tmp_path: Path) -> None:
    """The receiver answers; only this notification waits."""
    refuses = (*READ_ALL, answer(400))
    async with scene(tmp_path, refuses, TAKEN) as there:
        await there.post(1)
        await until(lambda: there.lines("notification-failed"))
        await there.post(2)
        await until(lambda: len(there.lines("notification-delivered")) == 2)


async def test_one_connection_at_a_time(tmp_path: Path) -> None:
    """However many are waiting."""
    free = asyncio.Event()
    async with scene(tmp_path, (*READ_ALL, Wait(free), answer(200)), TAKEN) as there:
        await asyncio.gather(*(there.post(number) for number in range(20)))
        await until(lambda: there.receiver.started == 1)
        hook = there.app._hook
        assert hook is not None
        assert len(hook._waiting) == 20
        assert there.receiver.connections == 1
        free.set()
        await there.told(20)
        names = {verified(one)["id"] for one in there.receiver.requests}
        assert len(names) == 20


async def test_what_was_decided_meanwhile_is_not_told_any_more(tmp_path: Path) -> None:
    """The receiver was away, and a person has resolved the call: an alarm would mislead."""
    gone, free = (*READ_ALL, answer(503)), asyncio.Event()
    async with scene(tmp_path, gone, (*READ_ALL, Wait(free), answer(503)), TAKEN) as there:
        name = (await there.post()).get("Semel-Call")
        await until(lambda: there.receiver.started == 2)
        decided = await raw_call(
            there.port,
            request_bytes(
                "POST",
                f"/_semel/calls/{name}/resolve",
                {"Content-Type": "application/json"},
                b'{"as": "not_executed", "reason": "looked"}',
                host=f"127.0.0.1:{there.port}",
            ),
        )
        assert decided.status == 200
        free.set()
        async with asyncio.timeout(15):
            while not await there.counted("in_doubt", "overtaken"):
                await asyncio.sleep(0.002)
        assert there.receiver.started == 2


async def test_ten_thousand_doubts_and_a_dead_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one is counted, the line is full and no fuller, memory stays; and no call asks the receiver."""
    monkeypatch.setattr(hooks, "LONGEST_PAUSE", 60.0)
    monkeypatch.setattr(hooks, "FIRST_PAUSE", 60.0)
    async with scene(tmp_path, (*READ_ALL, answer(503)), store="memory") as there:
        await there.post()
        await until(lambda: there.lines("notification-failed"))
        hook = there.app._hook
        assert hook is not None
        (first,) = [one.event for one in hook._waiting.values()]
        stored = await there.app.store.get(first.key)
        assert stored is not None
        before = there.receiver.started
        for number in range(1000):
            hook.entered(evolve(stored, fence=number + 10))
        tracemalloc.start()
        for number in range(9000):
            hook.entered(evolve(stored, fence=number + 2000))
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(hook._waiting) == hooks.WAITING
        assert grown < 8 * 1024 * 1024
        assert await there.counted("in_doubt", "dropped") == 10_001 - hooks.WAITING
        await until(lambda: there.lines("notifications-dropped"))
        assert len(there.lines("notifications-dropped")) == 1
        assert (await there.post(5)).status == 409
        assert there.receiver.started == before
        assert len(hook._told) <= hooks.REMEMBERED


async def test_what_was_dropped_is_found_in_the_record_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More calls in doubt than may wait: when the receiver is back each of them has been told."""
    monkeypatch.setattr(hooks, "WAITING", 5)
    monkeypatch.setattr(standing, "PAGE", 3)
    free = asyncio.Event()
    async with scene(tmp_path, (*READ_ALL, Wait(free), answer(503)), TAKEN) as there:
        names = {(await there.post(number)).get("Semel-Call") for number in range(20)}
        assert len(names) == 20
        assert await there.counted("in_doubt", "dropped") == 15
        free.set()
        await until(lambda: len(there.lines("notification-delivered")) == 20)
        told = [verified(one) for one in there.receiver.requests]
        assert {one["call"]["id"] for one in told} == names
        delivered = [line["id"] for line in there.lines("notification-delivered")]
        assert len(set(delivered)) == 20


async def test_a_shutdown_gives_a_short_chance_and_leaves_the_rest(tmp_path: Path) -> None:
    """What can be told at once is told. A receiver that hangs does not hold it up for its timeout."""
    async with scene(tmp_path, store="memory") as there:
        await asyncio.gather(*(there.post(number) for number in range(10)))
    assert len({verified(one)["id"] for one in there.receiver.requests}) == 10
    async with scene(tmp_path / "hangs", (*READ_ALL, Stall()), store="memory") as there:
        hook = there.app._hook
        assert hook is not None
        await there.post()
        await until(lambda: there.receiver.started == 1)
        await hook.stop(0.05)
        assert len(hook._waiting) == 1


async def test_semel_does_not_tell_itself(tmp_path: Path) -> None:
    """A receiver that is semel's own address would make a call of every notification, and so for ever."""
    async with scene(tmp_path) as there:
        hook = there.app._hook
        assert hook is not None
        loops = type(hook._notify.url)("http", "127.0.0.1", there.port, "/up/send")
        object.__setattr__(hook._notify, "url", loops)
        await there.post()
        await until(lambda: there.lines("notification-failed"))
        assert "semel itself" in there.lines("notification-failed")[0]["why"]
        assert there.origin.started == 1


async def test_a_store_that_fails_costs_a_second_notification_and_no_more(tmp_path: Path) -> None:
    """The note cannot be written: it is said, and the next process tells it again under the same id."""
    async with scene(tmp_path, store="memory") as there:

        async def fails(key: bytes, entry: Entry) -> None:
            raise StoreUnavailable("no store")

        there.app.store.note = fails  # type: ignore[method-assign]
        await there.post()
        await until(lambda: there.lines("notification-delivered"))
        await until(lambda: there.lines("store-trouble"))
        assert (await call(there.port, "GET", "/healthz")).status == 200


async def test_what_another_process_left_is_found_by_one_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody here heard of the doubt: looked for now and then, told once; what is young is left to others."""
    monkeypatch.setattr(hooks.Hook, "entered", lambda self, call: None)
    monkeypatch.setattr(hooks, "LOOKED_THROUGH_EVERY", 0.02)
    async with scene(tmp_path) as there:
        hook = there.app._hook
        assert hook is not None
        await there.post()
        # The walk of the start is over, and the next one has begun.
        await until(lambda: hook._spares_the_young)
        await until(lambda: hook._walk is None)
        assert there.receiver.started == 0
        monkeypatch.setattr(hooks, "YOUNG", 0.0)
        await until(lambda: there.lines("notification-delivered"))
        await there.post(2)
        await until(lambda: len(there.lines("notification-delivered")) == 2)
        assert there.receiver.started == 2
