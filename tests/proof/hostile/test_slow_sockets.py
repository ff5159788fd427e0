"""Hundreds of sockets that only hold their place: all are cut off in time, and the others do not notice."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.counts import count
from tests.inside import read_answer, request_bytes, until
from tests.origin import READ_ALL, answer
from tests.process import ROOT
from tests.proof.hostile.scene import GROWTH, MIB, Scene, hostile_scene
from tests.proof.hostile.slow import CUT_WITHIN, KINDS, many_slow
from tests.proof.report import report

LARGE = 8 * MIB


@contextmanager
def unread(there: Scene, number: int) -> Iterator[None]:
    """Callers who ask for a large answer and never read it: a few bytes of it are in memory, no more."""
    with ExitStack() as open_ones:
        for caller in range(number):
            there.origin.then((*READ_ALL, answer(200, bytes(LARGE))))
            sock = open_ones.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", there.port))
            sock.sendall(request_bytes("POST", f"/pay/large/{caller}", {}, b"x"))
        yield


async def test_slow_sockets_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every kind, by semel's own timers, here shorter than they are by default."""
    monkeypatch.setenv("SEMEL_LIMITS_HEADER_TIMEOUT", "500ms")
    async with hostile_scene(tmp_path) as there:
        origin = b"127.0.0.1:%d" % there.origin.port
        before = there.origin.started
        with unread(there, 8):
            await until(lambda: there.origin.started == before + 8)
            async with asyncio.timeout(60):
                await many_slow(there.port, origin, 4 * len(KINDS))
            await there.still_works()
            assert there.growth() < GROWTH
        assert there.origin.started == before + 9, "the large ones, and the healthy one"


CALLS = 250


async def _steady(there: Scene, until_done: asyncio.Event | None = None) -> list[float]:
    """One client, one call after the other, each made once; seconds that each took."""
    took: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
    try:
        while len(took) < CALLS or (until_done is not None and not until_done.is_set()):
            there.asked += 1
            began = time.perf_counter()
            writer.write(request_bytes("POST", "/pay/steady", {}, b"%d" % there.asked))
            assert (await read_answer(reader)).status == 200
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
    finally:
        writer.close()
    return took


def _p99(took: list[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


async def _attacked(there: Scene, sockets: int, rate: int) -> tuple[list[float], dict[str, float]]:
    """By another process, so that this client is not slower because its enemy is."""
    done = asyncio.Event()
    attack = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.proof.hostile.slow",
        str(there.port), f"127.0.0.1:{there.origin.port}", str(sockets), str(rate),
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        steady = asyncio.create_task(_steady(there, done))
        said, _ = await asyncio.wait_for(attack.communicate(), 120)
    finally:
        done.set()
        if attack.returncode is None:
            attack.kill()
            await attack.wait()
    return await steady, json.loads(said)


@pytest.mark.soak
async def test_five_hundred_slow_sockets_and_a_flood(tmp_path: Path) -> None:
    """With the settings as they are: cut off within 20 s, less than 100 MB, and a steady client's p99 at most
    twice what it is without them. Rounds with and without take turns; the median of them counts."""
    async with hostile_scene(tmp_path) as there:
        ratios, longest, flooded = [], 0.0, 0
        with unread(there, 50):
            for _ in range(count(test=1, soak=5)):
                alone = await _steady(there)
                beside, told = await _attacked(there, sockets=500, rate=50)
                ratios.append(_p99(beside) / _p99(alone))
                longest, flooded = max(longest, told["longest"]), flooded + int(told["hostile requests"])
            growth = there.growth()
        await there.still_works()
        ratio = statistics.median(ratios)
        report(
            "hostile",
            "slow sockets",
            {
                "sockets": 500,
                "longest until cut s": longest,
                "callers who read nothing": 50,
                "hostile requests meanwhile": flooded,
                "healthy p99 ratio": round(ratio, 2),
                "rounds": [f"{one:.2f}" for one in ratios],
                "peak memory growth MB": growth // MIB,
            },
        )
        assert longest < CUT_WITHIN
        assert growth < GROWTH
        assert ratio <= 2.0, ratios
