"""How much later the first byte of an event stream comes through semel, and whether its size matters.

The upstream sends the first event at once and the rest as fast as it is taken; semel records the stream under
a `once` rule while it hands it on. Upstream and client share a core, and the upstream has megabytes to write:
the client goes before it, in both ways alike. Nor shall it matter how long a server had nothing to do while
the other was asked, or what it cleared away: each stream is asked for right after a small one that is not
measured. "No growth" means: the p50 at the largest size is at most 1.5 times the p50 at the smallest, plus
0.2 ms.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from itertools import count, product

from benchmarks import much
from benchmarks.asking import Client
from benchmarks.bodies import body
from benchmarks.judging import Found
from benchmarks.running import LOAD_CORE, Plan, Stage, pinned, say, urgent

SIZES = {"10 KB": 10_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
TIMES = much(5)  # in each round, of each size, each way
BEFORE = 1000  # bytes of the stream that is asked for before each
RULES = '  - {name: talk, match: {method: POST, path: "/stream/*"}}\n'
GROWTH, GRACE = 1.5, 0.0002  # times, and seconds


def growth_allowed(smallest: float) -> float:
    return smallest * GROWTH + GRACE


def measure(plan: Plan, found: Found) -> None:
    numbers = count(1)
    taken: dict[tuple[str, str], list[float]] = {(way, s): [] for way in ("direct", "semel") for s in SIZES}
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "streaming", upstream="sized", rules=RULES)
        semel = stage.semel("semel").port
        stack.enter_context(pinned(LOAD_CORE))
        ways = {
            "direct": ("", stack.enter_context(Client(stage.origin))),
            "semel": ("/bench", stack.enter_context(Client(semel))),
        }
        stack.enter_context(urgent())
        for turn in range(plan.rounds * TIMES + 1):
            say(f"turn {turn} of {plan.rounds * TIMES}: first byte of a stream")
            for (size, number), (way, (prefix, client)) in product(SIZES.items(), ways.items()):
                client.ask(f"{prefix}/stream/{BEFORE}", body("s", next(numbers)))
                told = client.ask(f"{prefix}/stream/{number}", body("s", next(numbers)))
                if told.size < number:
                    raise RuntimeError(f"a stream of {number} bytes came to {told.size}")
                if turn:  # the first only warms up
                    taken[way, size].append(told.first)
    p50 = {which: statistics.median(times) for which, times in taken.items()}
    for size in SIZES:
        later = p50["semel", size] - p50["direct", size]
        found.judge(
            f"first byte of a stream of {size}, p50, later than direct, ms", later * 1000, "at most", 1.0
        )
    smallest, largest = (
        p50["semel", size] for size in (min(SIZES, key=SIZES.__getitem__), max(SIZES, key=SIZES.__getitem__))
    )
    label = "first byte of the largest stream, p50, against 1.5 times the smallest's and 0.2 ms"
    found.judge(label, largest / growth_allowed(smallest), "at most", 1.0)
