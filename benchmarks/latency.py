"""What semel adds to one call when nothing else is going on, against what two durable commits cost.

One client, one call at a time, each another one: through semel, and straight to the upstream. The commits are
of one row of about a kilobyte each, on a connection that is opened as the store opens its own, in a directory
beside the store's. All three in turns, so that a slow minute of the disk hits each.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from benchmarks import million, much
from benchmarks.asking import Client
from benchmarks.bodies import body
from benchmarks.judging import Found
from benchmarks.running import LOAD_CORE, Plan, Stage, pinned, say
from proxy.store.database import FILE_NAME, Database, Patience, close_quietly
from proxy.store.statements import INSERT

BLOCK = much(40)  # of one kind, before it is another's turn
BLOCKS = 2  # of each kind, in each round
COMMITS = 2  # that a call with an effect takes: its intent, and its answer


@contextmanager
def committing(directory: Path) -> Iterator[Callable[[], float]]:
    """Gives the seconds of one commit, from BEGIN on, as the writer makes it."""
    directory.mkdir(mode=0o700)
    asyncio.run(million.make(directory))
    connection = Database(path=directory / FILE_NAME).connect(Patience())
    rows = million.rows(count())

    def commit() -> float:
        row = next(rows)
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT, row)
        connection.execute("COMMIT")
        return time.perf_counter() - began

    try:
        yield commit
    finally:
        close_quietly(connection)


def measure(plan: Plan, found: Found) -> None:
    numbers = count(1)
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "latency")
        semel = stage.semel("semel").port
        commit = stack.enter_context(committing(plan.work / "latency" / "commits"))
        stack.enter_context(pinned(LOAD_CORE))
        direct = stack.enter_context(Client(stage.origin))
        through = stack.enter_context(Client(semel))
        kinds: dict[str, Callable[[], float]] = {
            "direct": lambda: direct.ask("/pay", body("l", next(numbers))).last,
            "once": lambda: through.ask("/bench/pay", body("l", next(numbers))).last,
            "commit": commit,
        }
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        say("one call at a time")
        for turn in range(plan.rounds * BLOCKS + 1):
            for name, kind in kinds.items():
                times = [kind() for _ in range(BLOCK)]
                if turn:  # the first only warms up
                    taken[name] += times
    p50 = {name: statistics.median(times) for name, times in taken.items()}
    added, commits = p50["once"] - p50["direct"], COMMITS * p50["commit"]
    found.judge(
        "added latency of one idle once call, p50, against two commits, times",
        added / commits,
        "at most",
        1.5,
    )
    found.shown["added latency of one idle once call, p50, ms"] = added * 1000
    found.shown["one commit of a kilobyte with the store's settings, p50, ms"] = p50["commit"] * 1000
