"""The same call from many callers at once: one send, the same bytes for all, in whichever process."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.counts import count
from tests.inside import Answer, read_answer, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, Script, Wait, answer
from tests.process import SemelProcess

pytestmark = pytest.mark.usefixtures("any_store")

ROUNDS = count(3, 20)
CALLERS = 200
# Rounds of the latency measurement; one waiter in each, so that nobody queues behind somebody else.
WAKINGS = count(60, 400)
WAKE_WITHIN = 0.050


def request_of(number: int) -> bytes:
    return request_bytes(
        "POST", "/pay/charge", {"Content-Type": "application/json"}, b'{"round": %d, "usd": 5}' % number
    )


def scripts(gates: Sequence[asyncio.Event]) -> list[Script]:
    """The answer of each round is another one, and comes when its gate opens."""
    return [
        (*READ_ALL, Wait(gate), answer(201, b'{"charge": "ch_%d"}' % number, (b"X-Round", b"%d" % number)))
        for number, gate in enumerate(gates)
    ]


def policy_of(origin: Origin) -> str:
    return f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"


class Callers:
    """Connections that are kept over the rounds, as an agent's client keeps them."""

    def __init__(self, streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        self._streams = streams

    def ask(self, request: bytes) -> list[asyncio.Task[Answer]]:
        for _, writer in self._streams:
            writer.write(request)
        return [asyncio.create_task(read_answer(reader)) for reader, _ in self._streams]


@asynccontextmanager
async def callers(*ports: int, each: int) -> AsyncIterator[Callers]:
    streams = [await asyncio.open_connection("127.0.0.1", port) for port in ports for _ in range(each)]
    try:
        yield Callers(streams)
    finally:
        for _, writer in streams:
            writer.close()


async def until_the_send(origin: Origin, number: int) -> None:
    await until(lambda: origin.started >= number)


def assert_one_answer(answers: list[Answer], number: int) -> None:
    assert {one.body for one in answers} == {b'{"charge": "ch_%d"}' % number}
    assert {one.status for one in answers} == {201}
    assert {one.get("X-Round") for one in answers} == {str(number)}
    assert all(one.complete for one in answers)
    assert [one.semel for one in answers].count("executed") == 1
    assert {one.semel for one in answers} <= {"executed", "joined", "replayed"}
    assert len({one.get("Semel-Call") for one in answers}) == 1


async def test_through_one_proxy_200_at_once(tmp_path: Path) -> None:
    """One upstream hit per round, identical bytes for everybody."""
    gates = [asyncio.Event() for _ in range(ROUNDS)]
    async with (
        Origin(*scripts(gates)) as origin,
        semel(tmp_path, policy_of(origin)) as app,
        callers(app.address.port, each=CALLERS) as everybody,
    ):
        for number, gate in enumerate(gates):
            asking = everybody.ask(request_of(number))
            await until_the_send(origin, number + 1)
            gate.set()
            async with asyncio.timeout(60):
                assert_one_answer(await asyncio.gather(*asking), number)
            assert origin.started == number + 1


async def test_200_of_which_some_come_before_and_some_after_the_answer(tmp_path: Path) -> None:
    """No gate: callers meet the call before its claim, in flight, at its commit, and when it is done."""
    open_gate = asyncio.Event()
    open_gate.set()
    async with (
        Origin(*scripts([open_gate] * ROUNDS)) as origin,
        semel(tmp_path, policy_of(origin)) as app,
        callers(app.address.port, each=CALLERS) as everybody,
    ):
        for number in range(ROUNDS):
            async with asyncio.timeout(60):
                assert_one_answer(await asyncio.gather(*everybody.ask(request_of(number))), number)
            assert origin.started == number + 1


@asynccontextmanager
async def two_processes(tmp_path: Path, origin: Origin) -> AsyncIterator[tuple[SemelProcess, SemelProcess]]:
    """On one state directory. The first one tells of every commit, on the clock that all processes share."""
    policy = tmp_path / "pay.yaml"
    policy.write_text(policy_of(origin))
    stamps = {"committed": {"action": "stamp"}}
    async with (
        SemelProcess(tmp_path / "state", policy, faults=stamps) as one,
        SemelProcess(tmp_path / "state", policy) as other,
    ):
        yield one, other


async def test_over_two_processes_200_at_once(tmp_path: Path) -> None:
    """100 connections to each of two processes: still one upstream hit per round, identical bytes."""
    gates = [asyncio.Event() for _ in range(ROUNDS)]
    async with (
        Origin(*scripts(gates)) as origin,
        two_processes(tmp_path, origin) as (one, other),
        callers(one.port, other.port, each=CALLERS // 2) as everybody,
    ):
        for number, gate in enumerate(gates):
            asking = everybody.ask(request_of(number))
            await until_the_send(origin, number + 1)
            gate.set()
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*asking)
            assert_one_answer(answers, number)
            assert "replayed" in {one.semel for one in answers}  # in the process that did not send
            assert origin.started == number + 1
        assert one.alive
        assert other.alive


async def test_a_waiter_in_the_other_process_wakes_within_50_ms_of_the_commit(tmp_path: Path) -> None:
    """At p99, from the moment the commit is durable to the last byte at the client.

    A machine that is busy with something else gets three tries; a polling interval of 50 ms fails them all.
    """
    series: list[float] = []
    for attempt in range(3):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        latencies = sorted(await wakings(directory))
        assert len(latencies) == WAKINGS
        p99 = latencies[int(0.99 * len(latencies)) - 1]
        series.append(p99)
        print(f"wake-up: median {latencies[len(latencies) // 2]:.4f} s, p99 {p99:.4f} s")
        if p99 <= WAKE_WITHIN:
            return
    raise AssertionError(f"p99 of the wake-up in three series: {series}")


async def wakings(directory: Path) -> list[float]:
    gates = [asyncio.Event() for _ in range(WAKINGS)]
    latencies = []
    async with (
        Origin(*scripts(gates)) as origin,
        two_processes(directory, origin) as (one, other),
        callers(one.port, each=1) as sender,
        callers(other.port, each=1) as waiter,
    ):
        for number, gate in enumerate(gates):
            (sending,) = sender.ask(request_of(number))
            await until_the_send(origin, number + 1)
            (waiting,) = waiter.ask(request_of(number))
            await asyncio.sleep(0.02)  # time for the waiter to stand where it waits
            assert not waiting.done()
            released = time.monotonic()
            gate.set()
            async with asyncio.timeout(10):
                woken = await waiting
                at = time.monotonic()
                await sending
            assert woken.semel == "replayed"
            latencies.append(at - await commit_after(one, released))
        assert origin.started == WAKINGS
    return latencies


async def commit_after(process: SemelProcess, released: float) -> float:
    """The first commit after the answer was let go is the one that the waiter waited for."""

    def later() -> list[float]:
        stamps = re.findall(r"^stamp ([0-9.]+)$", process.log, re.MULTILINE)
        return [stamp for stamp in map(float, stamps) if stamp > released]

    await until(later)
    return later()[0]
