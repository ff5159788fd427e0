"""All rows, one after the other. A project that cannot be installed, or fails at the start, has a row that
says so, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import installing
from benchmarks.peers.installing import NotInstalled
from benchmarks.peers.programs import DidNotWork
from benchmarks.peers.rows import SEMEL, Peer, Row
from benchmarks.peers.scenarios import SCENARIOS, Outcome, Scenario, warm_up
from benchmarks.peers.subjects import World
from proxy import __version__

ROW_WITHIN = 600.0


@dataclass(slots=True)
class Result:
    """What became of one row: its outcomes by scenario, one for each time, or why there are none."""

    peer: Peer
    row: Row
    version: str = ""
    why_not: str = ""
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)


async def try_peer(
    world: World, peer: Peer, say: Callable[[str], None], times: int = 1,
    scenarios: dict[str, Scenario] | None = None,
) -> list[Result]:  # fmt: skip
    try:
        if peer.packages:
            say(f"{peer.title}: installing")
        place = await peer.install(peer.name)
        versions = [await installing.version(peer.name, package) for package in peer.packages]
        versions += [__version__] if peer is SEMEL else []
    except (NotInstalled, OSError) as error:
        say(f"{peer.title}: not installed: {error}")
        return [Result(peer, row, why_not=f"not installed: {error}") for row in peer.rows]
    results = []
    for row in peer.rows:
        result = Result(peer, row, version=", ".join(versions))
        results.append(result)
        try:
            async with asyncio.timeout(ROW_WITHIN * times):
                await _try_row(world, result, place, say, times, scenarios or SCENARIOS)
        except (DidNotWork, RuntimeError, TimeoutError, OSError) as error:
            result.why_not = f"did not work: {str(error) or type(error).__name__}"
            say(f"{row.label}: {result.why_not}")
    return results


async def _try_row(
    world: World, result: Result, place: Path, say: Callable[[str], None], times: int,
    scenarios: dict[str, Scenario],
) -> None:  # fmt: skip
    async with result.row.make(world, place) as subject:
        await warm_up(subject)
        for name, scenario in scenarios.items():
            for time in range(1, times + 1):
                call = f"{result.row.label}-{name}-{time}".replace(" ", "-").replace("`", "").replace(",", "")
                outcome = await scenario(world, subject, call)
                result.outcomes.setdefault(name, []).append(outcome)
                say(f"{result.row.label}: {name}: effects {outcome.effects}; {outcome.in_words()}")
