"""Everything that is left to chance, from one seed; and what happened, in order.

There is one source of chance for a whole history. It is asked in the order in which things happen, and
virtual time makes that order the same each time, so the seed is the history.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Violation(AssertionError):
    """Something that semel promises did not hold."""


class Fate:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._dice = Random(seed)
        self.told: list[tuple[float, str]] = []
        self.violations: list[str] = []
        self.reached: Counter[str] = Counter()  # what a law had occasion to be about, by name
        self.permits: Counter[bytes] = Counter()  # by row: how often a person has let it go out

    def tell(self, what: str) -> None:
        self.told.append((asyncio.get_running_loop().time(), what))

    def broken(self, law: str) -> None:
        """Not raised at once: whoever broke it would catch it, as any other defect."""
        self.tell(f"BROKEN: {law}")
        self.violations.append(law)

    def check(self) -> None:
        if self.violations:
            raise Violation(f"seed {self.seed}: {'; '.join(self.violations)}")

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[int(self._dice.random() * len(choices))]

    def happens(self, chance: float) -> bool:
        return self._dice.random() < chance

    def between(self, least: int, most: int) -> int:
        return self._dice.randint(least, most)

    def digest(self) -> str:
        """Two histories with the same digest were the same, event by event."""
        lines = "\n".join(f"{at:.6f} {what}" for at, what in self.told)
        return hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()
