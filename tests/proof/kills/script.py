"""What an agent does: a list of steps for each piece of work, drawn from the seed and the work's name alone.

So every start of an agent does the same, and whoever checks knows what was meant. Each step has a name of its
own, and means one effect.
"""

from __future__ import annotations

import json
import random
from enum import Enum
from typing import NamedTuple

# By kind (semantics): how often it is drawn. a: safe; b: the upstream honours a key; c: it can be asked;
# d: neither.
KINDS = {"a": 3, "b": 3, "c": 3, "d": 5}
EFFECTS = ("b", "c", "d")
SAFE = "a"
LARGE = 80_000  # beyond what lies in a row


class OnDoubt(Enum):
    """What the agent does when it is told that a step is in doubt."""

    INSIST = "asks again for a while, then stops"
    STOP = "stops; the next start asks again"
    SKIP = "goes on without it"


class Step(NamedTuple):
    name: str
    kind: str
    answer_size: int
    request_size: int
    on_doubt: OnDoubt

    def path(self, *, in_run: bool) -> str:
        """Outside a run a safe call is recorded only where its rule says `repeat: same`."""
        same = "" if in_run or self.kind != "a" else "-same"
        return f"{self.kind}{same}?ref={self.name}&size={self.answer_size}"

    def body(self) -> bytes:
        return json.dumps({"ref": self.name, "pad": "." * self.request_size}).encode()


def steps_of(seed: int, work: str, count: int) -> list[Step]:
    coin = random.Random(f"{seed} {work}")
    return [
        Step(
            name=f"{work}.{number}",
            kind=coin.choices(list(KINDS), weights=list(KINDS.values()))[0],
            answer_size=coin.choices((0, 300, LARGE), weights=(8, 4, 1))[0],
            request_size=coin.choices((0, 300, LARGE), weights=(12, 4, 1))[0],
            on_doubt=coin.choice(list(OnDoubt)),
        )
        for number in range(count)
    ]


def batches_of(seed: int, work: str, steps: list[Step]) -> list[list[Step]]:
    """One to three at a time."""
    coin = random.Random(f"{seed} {work} at once")
    batches, left = [], list(steps)
    while left:
        size = coin.choice((1, 1, 2, 3))
        batches.append(left[:size])
        left = left[size:]
    return batches
