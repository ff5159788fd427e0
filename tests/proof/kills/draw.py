"""Which harm comes to whom: drawn from the seed before anything starts, so that the order is the same again.

How long somebody stands still is bounded, and the bounds add up to less than the time after which the absence
of an effect counts (`CERTAIN`): a proxy that slept for longer between its last look and its first byte could
send what a probe or a person has found absent meanwhile. That window is the one that the promise leaves open.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import NamedTuple

from tests.relay import Act

# Of the policy: how long a call may take, how long after that its effect may still come to light.
TOTAL, SETTLE = 2.0, 1.5
CERTAIN = TOTAL + SETTLE
# The longest that each may stand still, in seconds; owners are taken for dead after half a second.
STANDSTILL = {"agent": 1.0, "semel": 1.5, "world": 1.0, "store": 1.5}
SLICED = "slices"


class Whom(StrEnum):
    AGENT = "agent"
    SEMEL = "semel"
    WORLD = "world"
    STORE = "store"
    AGENT_WIRE = "agent-proxy"
    WORLD_WIRE = "proxy-upstream"
    STORE_WIRE = "proxy-store"


WIRES = (Whom.AGENT_WIRE, Whom.WORLD_WIRE, Whom.STORE_WIRE)
KILL, TERM, STOP = "SIGKILL", "SIGTERM", "SIGSTOP"
# How often which harm is drawn.
WEIGHTS: dict[tuple[Whom, str], int] = {
    (Whom.AGENT, KILL): 24,
    (Whom.AGENT, TERM): 4,
    (Whom.AGENT, STOP): 6,
    (Whom.SEMEL, KILL): 18,
    (Whom.SEMEL, TERM): 4,
    (Whom.SEMEL, STOP): 8,
    (Whom.WORLD, KILL): 7,
    (Whom.WORLD, TERM): 2,
    (Whom.WORLD, STOP): 5,
    **{(Whom.AGENT_WIRE, act): 2 for act in (*Act, SLICED)},
    **{(Whom.WORLD_WIRE, act): 3 for act in (*Act, SLICED)},
}
OF_SERVERS: dict[tuple[Whom, str], int] = {
    (Whom.STORE, KILL): 5,
    (Whom.STORE, TERM): 2,
    (Whom.STORE, STOP): 4,
    **{(Whom.STORE_WIRE, act): 2 for act in (*Act, SLICED)},
}


class Harm(NamedTuple):
    whom: Whom
    what: str
    which: float  # in [0, 1): of several
    pause: float  # before it, once calls are under way
    seconds: float  # how long somebody stands still, or a broken connection is left open
    down: bool  # of a wire: on the way from the server to the client
    at: int | None  # of a wire: on the next connection after so many bytes; None: on all there are, now
    piece: int  # of slices

    def __str__(self) -> str:
        if self.whom in WIRES:
            where = "now" if self.at is None else f"at byte {self.at} of the next connection"
            return f"{self.whom} {self.what} {'down' if self.down else 'up'} {where}, {self.seconds:.2f} s"
        still = f" for {self.seconds:.2f} s" if self.what == STOP else ""
        return f"{self.whom} {self.what}{still}"


def harms(seed: int, count: int, *, server: bool) -> list[Harm]:
    """`server`: the record is kept by a process of its own."""
    coin = random.Random(f"{seed} harm")
    weights = WEIGHTS | (OF_SERVERS if server else {})
    return [_drawn(coin, weights) for _ in range(count)]


def _drawn(coin: random.Random, weights: dict[tuple[Whom, str], int]) -> Harm:
    (whom, what), *_ = coin.choices(list(weights), weights=list(weights.values()))
    return Harm(
        whom=whom,
        what=what,
        which=coin.random(),
        pause=coin.uniform(0, 0.06),
        seconds=coin.uniform(0.02, STANDSTILL.get(whom, 1.2)),
        down=coin.random() < 0.5,
        at=coin.choice((None, 0, 1, coin.randrange(400), coin.randrange(400))),
        piece=coin.choice((1, 7, 40)),
    )
