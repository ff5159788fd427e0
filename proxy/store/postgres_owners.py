"""Heartbeats as rows of PostgreSQL, for heartbeats.py; and the latest time that any process has had."""

from __future__ import annotations

import time

from proxy.store.heartbeats import Beat
from proxy.store.postgres_line import Line

# The dead, and those that nobody has heard of for so long, are removed when no pending call needs them.
LONG_DEAD = "1 day"

_CLOCK = "clock AS (UPDATE semel.clock SET mark = greatest(mark, $2::float8) WHERE mark < $2::float8)"
ENROLL = (
    f"WITH durable AS (SELECT semel.be_durable()), {_CLOCK} "  # noqa: S608
    "INSERT INTO semel.owners (epoch, beat, patience) SELECT $1, 1, $3::float8 FROM durable"
)
# A statement sees what was there before it: the own beat is told apart.
BEAT = (
    f"WITH {_CLOCK}, mine AS (UPDATE semel.owners SET beat = beat + 1, seen_at = now() "  # noqa: S608
    "WHERE epoch = $1 AND NOT dead RETURNING epoch, beat, patience) "
    "SELECT epoch, beat, false, patience FROM mine "
    "UNION ALL SELECT epoch, beat, dead, patience FROM semel.owners WHERE epoch <> $1"
)
ALL = "SELECT epoch, beat, dead, patience FROM semel.owners"
BURY = (
    "WITH durable AS (SELECT semel.be_durable()) UPDATE semel.owners SET dead = true FROM durable "
    "WHERE epoch = $1 AND (dead OR beat = $2) RETURNING epoch"
)
LEAVE = "DELETE FROM semel.owners WHERE epoch = $1"
FORGET = (
    "DELETE FROM semel.owners AS o WHERE seen_at < now() - $1::interval AND dead AND NOT EXISTS "
    "(SELECT 1 FROM semel.calls AS c WHERE c.state = 'pending' AND c.owner = o.epoch)"
)
MARK = (
    "WITH told AS (UPDATE semel.clock SET mark = greatest(mark, $1::float8) WHERE mark < $1::float8) "
    "SELECT greatest(mark, $1::float8) FROM semel.clock"
)


class PostgresBeats:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def enroll(self, epoch: str, patience: float) -> None:
        await self._line.ask(ENROLL, (epoch, time.time(), patience))

    async def beat(self, epoch: str) -> list[Beat]:
        return [Beat(*row) for row in await self._line.ask(BEAT, (epoch, time.time()))]

    async def all(self) -> list[Beat]:
        return [Beat(*row) for row in await self._line.ask(ALL, again=True)]

    async def bury(self, beat: Beat) -> bool:
        return bool(await self._line.ask(BURY, (beat.epoch, beat.count)))

    async def leave(self, epoch: str) -> None:
        await self._line.ask(LEAVE, (epoch,))

    async def forget(self) -> None:
        await self._line.ask(FORGET, (LONG_DEAD,))

    async def clock_mark(self, now: float) -> float:
        ((mark,),) = await self._line.ask(MARK, (now,), again=True)
        return float(mark)
