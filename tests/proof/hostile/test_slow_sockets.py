"""Hundreds of sockets that only hold their place: all are cut off in time, and the others do not notice."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.counts import count
from tests.inside import read_answer, request_bytes, until
from tests.origin import READ_ALL, answer
from tests.process import ROOT
from tests.proof.hostile.scene import MIB, Scene, accounted, hostile_scene
from tests.proof.hostile.slow import BEGINS, BEYOND, CUT_WITHIN, KINDS, many_slow
from tests.proof.report import Figure

LARGE = 8 * MIB
# Seconds in which not a byte is taken: nobody takes any more.
UNMOVED = 0.5


@asynccontextmanager
async def unread(there: Scene, number: int) -> AsyncIterator[None]:
    """Callers who ask for a large answer and never read it: a few bytes of it are in memory, no more. When it
    begins all are there, and nothing moves any more: that much is sent at once is ordinary work, and not
    what they do to others. When it is over, semel is done with all that they have asked for."""

    def unsent() -> int:
        return sum(one.transport.get_write_buffer_size() for one in there.origin.visitors)

    before = there.origin.started
    with ExitStack() as open_ones:
        for _ in range(number):
            there.asked += 1
            there.origin.then((*READ_ALL, answer(200, bytes(LARGE))))
            sock = open_ones.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", there.port))
            sock.sendall(request_bytes("POST", f"/pay/large/{there.asked}", {}, b"x"))
        await until(lambda: there.origin.started == before + number)
        left = -1
        while left != (left := unsent()):
            await asyncio.sleep(UNMOVED)
        yield
    await until(lambda: not unsent())


TIMER = 0.5


async def test_slow_sockets_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every kind, by semel's own timers, here shorter than they are by default; beyond them each has as
    long as it has with the settings as they are."""
    monkeypatch.setenv("SEMEL_LIMITS_HEADER_TIMEOUT", f"{TIMER * 1000:.0f}ms")
    cut: list[tuple[float, str]] = []

    def counted() -> dict[str, Figure]:
        longest: dict[str, Figure] = {"longest until cut s": round(max(cut)[0], 2)} if cut else {}
        return {"slow sockets cut": len(cut), **longest}

    async with (
        hostile_scene(tmp_path) as there,
        accounted(there, "slow sockets, short timers", counted),
    ):
        origin = b"127.0.0.1:%d" % there.origin.port
        before = there.origin.started
        async with unread(there, 8):
            async with asyncio.timeout(60):
                cut += await many_slow(there.port, origin, 4 * len(KINDS))
            await there.still_works()
        assert there.origin.started == before + 9, "the large ones, and the healthy one"
        assert [one for one in cut if one[0] >= TIMER + BEYOND] == []


# Of the steady client alone, in each round: about as many as it makes beside the slow ones.
CALLS = 1000


async def _steady(there: Scene, is_over: Callable[[int], bool]) -> list[float]:
    """One client, one call after the other, each made once, until it is over after so many; seconds that each
    took."""
    took: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
    try:
        while not is_over(len(took)):
            there.asked += 1
            began = time.perf_counter()
            writer.write(request_bytes("POST", "/pay/steady", {}, b"%d" % there.asked))
            assert (await read_answer(reader)).status == 200
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
    finally:
        writer.close()
    return took


def _p99(took: Sequence[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


async def _attacked(there: Scene, sockets: int, rate: int) -> tuple[list[float], dict[str, float]]:
    """By another process, so that this client is not slower because its enemy is. It calls from the moment
    when the first of them comes until the last one is cut off, no longer."""
    attack = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.proof.hostile.slow",
        str(there.port), f"127.0.0.1:{there.origin.port}", str(sockets), str(rate),
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert attack.stdout is not None
        async with asyncio.timeout(120), asyncio.TaskGroup() as together:
            assert (await attack.stdout.readline()).decode().strip() == BEGINS
            ended = together.create_task(attack.communicate())
            steady = together.create_task(_steady(there, lambda _: ended.done()))
    finally:
        if attack.returncode is None:
            attack.kill()
            await attack.wait()
    return steady.result(), json.loads(ended.result()[0])


@dataclass(frozen=True, slots=True)
class Round:
    """The steady client's calls before any socket that hangs is there, and beside all of them."""

    alone: Sequence[float]
    beside: Sequence[float]
    told: Mapping[str, float]  # by those who attacked


def _ratio(rounds: Sequence[Round]) -> float:
    """Of the p99 of all calls beside them to the p99 of all calls alone."""
    alone = [took for one in rounds for took in one.alone]
    beside = [took for one in rounds for took in one.beside]
    return _p99(beside) / _p99(alone)


def _counted(rounds: Sequence[Round]) -> dict[str, Figure]:
    """All there is to tell of the rounds that were played to their end."""
    if not rounds:
        return {"rounds": 0}
    ratios = [_ratio([one]) for one in rounds]
    return {
        "rounds": len(rounds),
        "slow sockets cut": sum(int(one.told["sockets"]) for one in rounds),
        "longest until cut s": max(one.told["longest"] for one in rounds),
        "callers who read nothing": UNREAD * len(rounds),
        "hostile requests meanwhile": sum(int(one.told["hostile requests"]) for one in rounds),
        "healthy calls alone": sum(len(one.alone) for one in rounds),
        "healthy calls meanwhile": sum(len(one.beside) for one in rounds),
        "healthy p99 ratio": round(_ratio(rounds), 2),
        "of each round": [f"{ratio:.2f}" for ratio in ratios],
        "median round": round(statistics.median(ratios), 2),
        "worst round": round(max(ratios), 2),
    }


SLOW, UNREAD = 500, 50


@pytest.mark.soak
async def test_five_hundred_slow_sockets_and_a_flood(tmp_path: Path) -> None:
    """With the settings as they are: cut off within 20 s, less than 100 MB, and a steady client's p99 at most
    twice what it is without them. Rounds without any of them and with all of them take turns; the calls of
    all rounds together have one p99 without and one with."""
    rounds: list[Round] = []
    async with (
        hostile_scene(tmp_path) as there,
        accounted(there, "slow sockets", lambda: _counted(rounds)),
    ):
        await _steady(there, lambda made: made >= CALLS)
        there.mark_warm()  # caches that ordinary traffic fills are not the enemy's doing
        for _ in range(count(test=1, soak=5)):
            alone = await _steady(there, lambda made: made >= CALLS)
            async with unread(there, UNREAD):
                beside, told = await _attacked(there, sockets=SLOW, rate=50)
            rounds.append(Round(alone, beside, told))
        assert [one.told["sockets"] for one in rounds] == [SLOW] * len(rounds)
        assert max(one.told["longest"] for one in rounds) < CUT_WITHIN
        assert _ratio(rounds) <= 2.0, [_ratio([one]) for one in rounds]
