"""An order of so many durable once-calls, and the seconds they took: what rate_*.py have in common.

Run in the environment of a library, so nothing is imported here but Python's own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.bodies import body

ANSWER = 450  # bytes: what the upstream says


class Order(NamedTuple):
    """What a program is started with: its store, the upstream's port, how many ask at once."""

    store: str
    port: int
    callers: int


def ordered() -> Order:
    return Order(**json.loads(sys.argv[1]))


def calls(seed: str, number: int) -> Iterator[dict[str, Any]]:
    """The arguments of each: another call every time, and as bytes those that everybody posts."""
    return (json.loads(body(seed, one)) for one in range(1, number + 1))


def result(status: int, answer: bytes) -> dict[str, Any]:
    """What is kept, if it is what the upstream gives."""
    if status != 200 or len(answer) != ANSWER:
        raise RuntimeError(f"the upstream said {status}: {answer[:100]!r}")
    kept: dict[str, Any] = json.loads(answer)
    return kept


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def serve(work: Callable[[str, int], float]) -> None:
    """`work` gives the seconds that it took; ends when nobody orders any more."""
    say({"ready": True})
    for line in sys.stdin:
        told = json.loads(line)
        say({"seconds": work(told["seed"], told["calls"])})
