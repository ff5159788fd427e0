"""Coroutines: the same, without holding the event loop up; and what a cancellation leaves."""

from __future__ import annotations

import asyncio
import threading
from threading import Event

import pytest

import semel
from semel import Client, beginning
from tests.client.fake import Fake, Reply, execute, problem, result


async def never() -> None:
    raise AssertionError("the function ran")


async def heard(fake: Fake, word: str, times: int = 1) -> None:
    await asyncio.to_thread(fake.wait_heard, word, times)


async def test_a_coroutine_function_is_a_tool(fake: Fake, client: Client) -> None:
    """Decorated or not; it stays a coroutine function."""

    @client.tool
    async def refund(order: int, usd: float = 5.0) -> tuple[int, float]:
        await asyncio.sleep(0)
        return order, usd

    assert asyncio.iscoroutinefunction(refund)
    assert await refund(7) == [7, 5.0]  # type: ignore[comparison-overlap]
    assert fake.only("begin").document == {"order": 7, "usd": 5.0}
    assert fake.only("complete").document == {"result": [7, 5.0]}
    assert len({one.connection for one in fake.heard}) == 1
    fake.says["begin"].append(result(3))
    assert await client.call_async("refund", {}, never) == 3


async def test_failures_are_reported_as_those_of_functions(fake: Fake, client: Client) -> None:
    """Raised again as they are; and replayed as ToolFailed, refused, passed on."""

    async def fails(error: Exception) -> None:
        raise error

    @client.tool(not_executed=(ConnectionRefusedError,), exclude=["error"])
    async def refund(error: Exception) -> None:
        await fails(error)

    for error, word in ((ValueError("odd"), "complete"), (ConnectionRefusedError(), "fail")):
        with pytest.raises(type(error)) as raised:
            await refund(error)
        assert raised.value is error
        assert fake.heard[-1].word == word
    fake.says["begin"] += [
        Reply(document={"error": {"type": "ValueError", "message": "odd"}}),
        problem("diverged", 409),
        Reply(document={"execute": {}}),
    ]
    with pytest.raises(semel.ToolFailed):
        await client.call_async("refund", {}, never)
    with pytest.raises(semel.Diverged):
        await client.call_async("refund", {}, never)
    with pytest.raises(AssertionError, match="the function ran"):
        await client.call_async("refund", {}, never)
    await asyncio.to_thread(fake.wait_left)


async def test_calls_run_in_parallel_and_the_loop_goes_on(fake: Fake, client: Client) -> None:
    """More begins than the loop's pool has threads wait for an answer; reports of others go out."""
    gate = Event()
    waiting = 40
    fake.says["begin"] += [Reply(document={"result": 1}, gate=gate)] * waiting
    tasks = [asyncio.create_task(client.call_async("wait", {}, never)) for _ in range(waiting)]
    try:
        async with asyncio.timeout(10):
            while len(fake.words("begin")) < waiting:
                await asyncio.sleep(0.01)
            both = asyncio.Barrier(2)

            async def meet() -> int:
                await both.wait()
                return 7

            met = await asyncio.gather(
                *(client.call_async("meet", {"n": n}, lambda n: meet()) for n in (1, 2))
            )
        assert met == [7, 7]
        assert not any(task.done() for task in tasks)
    finally:
        gate.set()
    assert await asyncio.gather(*tasks) == [1] * waiting


async def test_a_coroutine_that_blocks_the_loop_gives_signs_of_life(fake: Fake, client: Client) -> None:
    """A task could not: the heart is a thread."""
    fake.says["begin"].append(execute(heartbeat=0.02))
    fake.says["heartbeat"] += [Reply(document={"state": "pending", "heartbeat": 0.02})] * 1000

    async def blocks() -> int:
        fake.wait_heard("heartbeat", 3)
        return 7

    assert await client.call_async("refund", {}, blocks) == 7
    assert fake.heard[-1].word == "complete"


async def test_a_cancelled_function_is_not_reported_at_all(fake: Fake, client: Client) -> None:
    """It may have had its effect: the heart stops, the connection is closed, and the call may lapse."""
    fake.says["begin"].append(execute(heartbeat=0.02))
    task = asyncio.create_task(client.call_async("refund", {}, asyncio.Event().wait))
    await heard(fake, "heartbeat")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [one for one in threading.enumerate() if one.name.startswith("semel-heart")]
    await asyncio.to_thread(fake.wait_left)
    assert fake.words() == ["begin"]


async def test_cancelled_while_it_begins_semel_sees_us_leave(fake: Fake, client: Client) -> None:
    """So that it does not hand out to nobody; and nothing is asked again."""
    gate = Event()
    fake.says["begin"].append(Reply(document={"result": 1}, gate=gate))
    task = asyncio.create_task(client.call_async("refund", {}, never))
    await heard(fake, "begin")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await asyncio.to_thread(fake.wait_left)
    assert fake.words() == ["begin"]


async def test_cancelled_while_it_waits_to_ask_again_nothing_is_asked_again(
    fake: Fake, client: Client
) -> None:
    """The thread that waits ends at once: a test before the end of this one's fixtures looks for it."""
    fake.says["begin"].append(problem("in-progress", 409, after=3))
    task = asyncio.create_task(client.call_async("refund", {}, never))
    await heard(fake, "begin")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(fake.wait_left)
    assert fake.words() == ["begin"]


async def test_handed_out_to_a_call_that_is_cancelled_it_is_given_back(
    fake: Fake, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not begun, and we know it: semel is told, and nothing is in doubt."""
    real, there = beginning.begin, Event()

    def begin(*args: object) -> object:
        begun = real(*args)  # type: ignore[arg-type]
        there.set()
        return begun

    monkeypatch.setattr("semel.performing.begin", begin)
    task = asyncio.create_task(client.call_async("refund", {}, never))
    await asyncio.sleep(0)  # it has started its thread
    assert there.wait(10)  # the loop stands still: it has not taken what it was handed
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await heard(fake, "fail")
    assert fake.only("fail").document == {"reason": "cancelled before it began"}
    await asyncio.to_thread(fake.wait_left)
    assert fake.words() == ["begin", "fail"]


async def test_cancelled_while_it_reports_the_report_goes_out(fake: Fake, client: Client) -> None:
    """The function has run: what is under way is brought to its end behind the caller's back."""
    gate = Event()
    fake.says["complete"] += [Reply(document={"state": "done"}, gate=gate)]

    async def seven() -> int:
        return 7

    task = asyncio.create_task(client.call_async("refund", {}, seven))
    await heard(fake, "complete")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one for one in threading.enumerate() if one.name == "semel" and not one.daemon]
    gate.set()
    await asyncio.to_thread(fake.wait_left)
    assert fake.words() == ["begin", "complete"]


async def test_a_report_that_fails_is_told(fake: Fake, client: Client) -> None:
    """As for functions."""
    fake.says["complete"].append(problem("stale-version", 409))

    async def seven() -> int:
        return 7

    with pytest.raises(semel.NotRecorded) as raised:
        await client.call_async("refund", {}, seven)
    assert raised.value.result == 7
