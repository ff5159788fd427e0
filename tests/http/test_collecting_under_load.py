"""Collecting under load: what is being collected is asked for all the time, and no answer is wrong or half.

Things lapse within a fraction of a second, and two collectors never rest: semel's own, and `semel gc` in a
process beside it. After each round all bodies are made an hour old, so that in the next one every body that
no row names goes at once, while callers put the same content again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count as numbers
from itertools import pairwise
from pathlib import Path

import pytest

from proxy import collecting, faults
from proxy.app import App
from proxy.core.intent import Call
from proxy.faults import Point
from tests import ambient
from tests.conftest import STORES, kept_as_named
from tests.counts import count
from tests.http.collected_world import Telling, telling
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.process import ROOT
from tests.stores import calls
from tests.stores.whole import age_all, assert_whole

ROUNDS = count(test=3, soak=25)
CALLERS, ASKS = 8, count(test=12, soak=25)
TTL, RETENTION, GRACE = 0.12, 0.5, 0.05
LARGE = b'{"n": "%b"}' % (b"r" * 90_000)  # over limits.inline_body: goes to a blob
# semel's own words that are true of a call, or a run, that is over just now.
CLEAN = {"answer-unavailable", "run-expired", "in-progress"}
WHAT = ("calls", "runs", "blobs")
KINDS = {
    "once/small": 8, "once/blob": 8, "once/same": 6, "once/huge": 1, "large/small": 4, "cached/small": 3,
    "cached/blob": 2,
}  # fmt: skip


@pytest.fixture(params=[*STORES, "memory"])
def any_store(request: pytest.FixtureRequest) -> Iterator[None]:
    with kept_as_named(request):
        yield
    faults.disarm_all()


def policy(port: int) -> str:
    ttl = f"ttl: {TTL * 1000:.0f}ms"
    return f"""
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: cached, match: {{method: GET, path: /cached/**}}, mode: cache, {ttl}}}
  - {{name: shared, match: {{method: POST, path: /shared/**}}, mode: once, scope: tenant, {ttl}}}
  - {{name: run, match: {{method: POST, path: /run/**}}, mode: once}}
  - {{name: once, match: {{method: POST, path: /**}}, mode: once, {ttl}}}
"""


class Load:
    """Callers that ask for anything, again and again, and look at every reply."""

    def __init__(self, app: App, origin: Telling, drawn: random.Random) -> None:
        self.port = app.address.port
        self.origin = origin
        self.drawn = drawn
        self.told: Counter[str] = Counter()
        self.names = (f"r{n}" for n in numbers(1))
        self.attempts = (f"a{n}" for n in numbers(1))
        self.runs = [next(self.names)]
        self.complete: set[str] = set()  # all of its calls are recorded: a fork has nothing to send

    async def go(self) -> None:
        for _ in range(ASKS):
            if self.drawn.random() < 0.35:
                await self.agent()
            else:
                (kind,) = self.drawn.choices(list(KINDS), list(KINDS.values()))
                await self.ask(f"/{kind}/{self.drawn.randrange(4)}")

    async def ask(self, path: str, run: str = "") -> Answer:
        body = LARGE if path.startswith("/large") else b'{"n": 1}'
        at = f"/@{run}/up{path}" if run else f"/up{path}"
        headers = {"Content-Type": "application/json"}
        if path.startswith("/cached"):
            got = await call(self.port, "GET", at)
        else:
            got = await call(self.port, "POST", at, headers, body)
        self.judge(path, got)
        return got

    async def desk(self, path: str, said: object) -> Answer:
        headers = {"Content-Type": "application/json"}
        host = f"127.0.0.1:{self.port}"
        asked = request_bytes("POST", f"/_semel/{path}", headers, json.dumps(said).encode(), host=host)
        return await raw_call(self.port, asked)

    def judge(self, path: str, got: Answer) -> None:
        assert got.complete, f"{path}: cut off after {len(got.body)} bytes"
        if got.get("Content-Type") == "application/problem+json":
            problem = json.loads(got.body)["type"].removeprefix("urn:semel:")
            assert problem in CLEAN, (path, got.body)
            self.told[problem] += 1
        else:
            assert got.status == 200, got
            assert self.origin.is_answer(path, got.body), (path, got.semel, got.body[:80])
            self.told[f"{path.split('/')[1]} {got.semel}"] += 1

    async def agent(self) -> None:
        """A start of a run's agent, or of one that was forked from it. Most runs are left alone after a
        while, and some of those are asked for when they are over."""
        if self.drawn.random() < 0.3:
            self.runs.append(next(self.names))
        run = family = self.drawn.choice(self.runs[-12:])
        if family in self.complete and self.drawn.random() < 0.4:
            fork = {"at": self.drawn.randrange(1, 3), "as": next(self.names), "reason": "to see"}
            got = await self.desk(f"runs/{run}/fork", fork)
            self.told[f"fork {got.status}"] += 1
            if got.status == 200:
                run = str(fork["as"])
        attempt = next(self.attempts)
        shared = int(family[1:]) % 3
        for path in (f"/run/blob/{family}", f"/run/small/{family}", f"/shared/blob/{shared}"):
            if (await self.ask(path, f"{run}+{attempt}")).status != 200:
                return
        self.complete.add(family)


def assert_explained(origin: Telling) -> None:
    """A second send only when the time of the answer before it was over; in a run, and its forks, never."""
    for path, sends in origin.sends.items():
        if path.startswith("/run"):
            assert len(sends) == 1, f"{path} was sent {len(sends)} times"
        elif not path.startswith("/cached"):
            for (_, answered), (came, _) in pairwise(sends):
                assert came - answered >= TTL - 0.002, f"{path} was sent again after {came - answered:.3f} s"


@asynccontextmanager
async def gc_beside(state: Path, did: list[list[int]]) -> AsyncIterator[None]:
    """`did`: what it has removed, each time."""
    where = ambient.options() or ["--state-dir", str(state)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.collect_again", str(GRACE), *where,
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **ambient.environment(), "SEMEL_RUNS_RETENTION": f"{RETENTION * 1000:.0f}ms"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    async def read(lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            did.append([int(word) for word in line.split()])

    reading = asyncio.create_task(read(process.stdout))
    try:
        yield
        assert process.returncode is None, "semel gc has failed"
    finally:
        process.stdin.close()
        async with asyncio.timeout(30):
            await process.wait()
            await reading


async def planted(app: App) -> list[Call]:
    """On its way, and in doubt: with bodies that nobody will touch again."""
    made = []
    for n in range(2):
        body = await app.store.put_blob([b"%d" % n * len(LARGE)])
        pending, entry = calls.claim(app.store.owner)
        pending = replace(pending, request_blob=body.digest)
        assert (await app.store.swap(pending, entry, expected=0)).won
        made.append(pending)
    doubtful, entry = calls.lose(made[1])
    assert (await app.store.swap(doubtful, entry, expected=1)).won
    return [made[0], doubtful]


async def collected(app: App, beside: list[list[int]]) -> Counter[str]:
    lines = (await call(app.address.port, "GET", "/metrics")).body.decode().splitlines()
    parts = (line.rpartition(" ") for line in lines if line.startswith("semel_collected_total{"))
    gone = Counter({name.split('"')[1]: int(float(value)) for name, _, value in parts})
    return gone + Counter({what: sum(each[n] for each in beside) for n, what in enumerate(WHAT)})


@pytest.mark.usefixtures("any_store")
async def test_no_answer_is_wrong_and_no_body_missing_while_all_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reply is the answer to one of the sends, or a clean problem; every send is explained; what is
    open stays; every body that a row names is there."""
    monkeypatch.setattr(collecting, "GRACE", GRACE)
    monkeypatch.setattr(collecting, "PAUSE", 0.001)
    # Between a body and the row that names it: time enough to collect it.
    faults.arm(Point.BLOB_RENAMED, lambda: time.sleep(0.01))
    seed = int(os.environ.get("SEMEL_SEED", random.randrange(2**32)))
    print(f"SEMEL_SEED={seed}")
    settings = {"gc.every": "2ms", "runs.retention": f"{RETENTION * 1000:.0f}ms"}
    async with telling() as origin, semel(tmp_path, policy(origin.port), settings=settings) as app:
        load = Load(app, origin, random.Random(seed))
        still = await planted(app)
        looked, beside = 0, list[list[int]]()

        async def rounds() -> None:
            nonlocal looked
            for n in range(100 * ROUNDS):
                if n >= ROUNDS and (await collected(app, beside)).keys() == set(WHAT):
                    return
                await asyncio.gather(*(load.go() for _ in range(CALLERS)))
                assert_explained(origin)
                await age_all(app.store)
                looked += await assert_whole(app.store, request_size=len(LARGE))
                for row in still:
                    assert await app.store.get(row.key) == row, "what was open has changed"

        if ambient.store() == "memory":
            await rounds()
        else:
            async with gc_beside(tmp_path / "state", beside):
                await rounds()
        gone = await collected(app, beside)
        print(dict(load.told), dict(gone), f"gc beside: {len(beside)} times", f"bodies looked at: {looked}")
        assert all(gone[what] for what in WHAT), gone
        assert min(load.told[each] for each in ("once replayed", "run replayed", "fork 200")) > 0, load.told
        assert looked > len(still) * ROUNDS
