"""When the agent of act two is killed: at steps that a seed draws, and what its log says about a step.

Every step has two lines in the agent's log, `asked` and `done`. A kill at the first hits a call that is under
way; at the second, one whose answer nobody has made use of yet.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

# What the agent does, in this order: the model decides, the tool does it, and at the end the model is told.
STEPS = ("model", "search", "model", "charge", "model", "email", "model")
KILLS = 3
LARGEST_SEED = 9999
_LOGGED = re.compile(r"^\[(?P<pid>\d+)\] (?P<name>\w+): (?P<phase>asked|done)$")


@dataclass(frozen=True, slots=True)
class Moment:
    """The so many-th line of one start of the agent."""

    step: int  # from 1
    phase: str  # asked | done

    @property
    def line(self) -> int:
        return 2 * self.step - (self.phase == "asked")

    def __str__(self) -> str:
        when = "during" if self.phase == "asked" else "after"
        return f"{when} step {self.step} ({STEPS[self.step - 1]})"


@dataclass(frozen=True, slots=True)
class Logged:
    pid: int
    name: str
    phase: str


# The last line is left out: after it there is nothing to be killed in. The late ones come when everything has
# taken effect, which is where it hurts to begin again.
_MOMENTS = tuple(Moment(step, phase) for step in range(1, len(STEPS) + 1) for phase in ("asked", "done"))[:-1]
_LATE = _MOMENTS[-2:]


def moment_of(lines: int) -> Moment:
    """Where the agent is that has written so many of them, at least one."""
    return Moment((lines + 1) // 2, "asked" if lines % 2 else "done")


def new_seed() -> int:
    return random.randint(1, LARGEST_SEED)  # noqa: S311 (no secret, here and below)


def draw_kills(seed: int) -> tuple[Moment, ...]:
    """The same for the same seed; the agent comes further each time, and at last nearly to its end."""
    chance = random.Random(seed)  # noqa: S311
    drawn = [chance.choice(_MOMENTS) for _ in range(KILLS - 1)]
    return tuple(sorted([*drawn, chance.choice(_LATE)], key=lambda moment: moment.line))


def read_log(line: str) -> Logged | None:
    """None: the agent's log has other lines too."""
    found = _LOGGED.match(line)
    return Logged(int(found["pid"]), found["name"], found["phase"]) if found else None
