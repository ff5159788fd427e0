"""Kill cycles on each store: no second effect, no answer lost after it was seen, every doubt listed."""

from __future__ import annotations

import itertools
import os
import random
import time
from pathlib import Path

import pytest

from tests.counts import SOAK, count
from tests.proof.kills.campaign import Campaign
from tests.proof.kills.servers import Postgres, ValkeyServer
from tests.proof.report import report
from tests.servers.postgres import postgres
from tests.servers.valkey import valkey

EMBEDDED, SERVERS = count(100, 2000), count(30, 500)
pytestmark = pytest.mark.timeout(3600 if SOAK else 240)


async def run(campaign: Campaign, store: str, cycles: int) -> None:
    cycles = int(os.environ.get("TEST_CYCLES", cycles))
    print(f"seed {campaign.seed} (set TEST_SEED to use it again)")
    began = time.monotonic()
    await campaign.run(cycles)
    figures = campaign.figures
    counts = figures.counts
    report(
        "kills",
        store,
        {
            "seed": campaign.seed,
            "cycles": counts["cycles"],
            "by_victim": dict(figures.by_victim),
            "relay_faults": dict(figures.relay_faults),
            "calls": counts["calls"],
            "agents_started": counts["agents_started"],
            "answers_seen": counts["answers_seen"],
            "effects": dict(figures.effects),
            "in_doubt_at_some_time": counts["in_doubt_at_some_time"],
            "settled_by_operator": counts["settled_by_operator"],
            "listed_at_the_end": counts["listed_at_the_end"],
            "held_as_diverged": counts["held_as_diverged"],
            "passed_without_record": counts["passed_without_record"],
            "second_effects": counts["second_effects"],
            "answers_lost": counts["answers_lost"],
            "seconds": round(time.monotonic() - began, 1),
        },
    )
    assert counts["cycles"] == cycles
    assert counts["in_doubt_at_some_time"], "no kill hit a call under way: the campaign shows nothing"


def seeded() -> int:
    return int(os.environ.get("TEST_SEED") or random.randrange(2**32))


async def test_kill_cycles_embedded(tmp_path: Path) -> None:
    """One semel on its own store; in every other round it has two workers."""
    await run(Campaign(tmp_path, seeded()), "embedded", EMBEDDED)


async def test_kill_cycles_postgres(tmp_path: Path) -> None:
    """Two semels on one PostgreSQL, which is killed too."""
    with postgres() as server:

        def address(port: int) -> str:
            return server.url(server.new_database(), port=port)

        campaign = Campaign(tmp_path, seeded(), Postgres(server), address)
        await run(campaign, "postgres", SERVERS)


async def test_kill_cycles_valkey(tmp_path: Path) -> None:
    """Two semels on one Valkey, which is killed too."""
    numbers = itertools.count()
    with valkey(tmp_path / "valkey") as server:

        def address(port: int) -> str:
            return f"redis://127.0.0.1:{port}/{next(numbers)}"

        campaign = Campaign(tmp_path, seeded(), ValkeyServer(server), address)
        await run(campaign, "valkey", SERVERS)
