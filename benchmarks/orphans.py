"""What a dead process left behind in a large ledger: how long the next one takes until it is ready.

Ready means settled too: when it says so, every orphan is in doubt.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from benchmarks import much
from benchmarks.judging import Found
from benchmarks.million import STARTS, filled, serve
from benchmarks.running import Plan, say
from proxy.store.database import FILE_NAME

ORPHANS = much(10_000)
DEAD = "1-1-0123456789abcdef"  # an epoch that no process has

ORPHANED = """
UPDATE calls SET state = 'pending', owner = ?1, version = version + 1, settled_at = NULL, expires_at = NULL,
  answer_status = NULL, answer_size = NULL, answer_recorded_at = NULL, answer_place = NULL,
  answer_head = NULL, answer_body = NULL, doubt_since = NULL, doubt_reason = NULL WHERE id <= ?2
"""


def orphan(directory: Path, number: int) -> None:
    """The oldest ones, as if their answers had never come."""
    connection = apsw.Connection(str(directory / FILE_NAME))
    try:
        with connection:
            connection.execute(ORPHANED, (DEAD, number))
        connection.pragma("wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def counted(directory: Path, state: str) -> int:
    connection = apsw.Connection(str(directory / FILE_NAME))
    try:
        number: int = connection.execute("SELECT count(*) FROM calls WHERE state = ?", (state,)).get
        return number
    finally:
        connection.close()


def measure(plan: Plan, found: Found) -> None:
    directory = filled(plan.work, plan.rows)
    ready = []
    for _ in range(STARTS):
        say(f"starting with {plan.rows:,} rows and {ORPHANS:,} orphans")
        orphan(directory, ORPHANS)
        ready.append(serve(directory, plan.work)[0])
        if (settled := counted(directory, "in_doubt")) != ORPHANS:
            raise RuntimeError(f"of {ORPHANS} orphans {settled} are in doubt")
    label = f"process ready with {plan.rows:,} rows and {ORPHANS:,} orphans, seconds"
    found.judge(label, min(ready), "at most", 3.0)
