"""What Prometheus sees when a worker is killed: nothing falls, and little is missing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.cli.test_workers import MANY, answered, ask, children, serving
from tests.inside import until
from tests.origin import OK, Origin
from tests.servers.prometheus import Prometheus, needs_prometheus, prometheus

pytestmark = needs_prometheus

EXECUTED = 'sum(semel_calls_total{status="executed"})'
# Whatever only grows; histograms too.
GROWING = ("_total", "_count", "_bucket", "_sum")


async def scraped(server: Prometheus, least: int) -> float:
    """As soon as so many are shown."""
    found = await server.wait_for(EXECUTED, lambda found: found and found[0].value >= least)
    return found[0].value


async def test_sums_do_not_fall_when_a_worker_is_killed(tmp_path: Path) -> None:
    """Calls that were scraped stay counted. Of those in the moment before, some may be missing; those after
    it, made by the other worker and the new one, are all there."""
    async with Origin(OK) as origin, serving(tmp_path, origin) as semel:
        with prometheus([f"127.0.0.1:{semel.port}"]) as server:
            await server.wait_for(EXECUTED, len)
            await asyncio.gather(*(ask(semel.port, n) for n in range(MANY)))
            assert await scraped(server, MANY) == MANY

            before = children(semel.pid)
            await asyncio.gather(*(ask(semel.port, n) for n in range(MANY, 2 * MANY)))
            os.kill(before[0], signal.SIGKILL)
            await until(lambda: len(children(semel.pid)) == 2 and set(children(semel.pid)) != set(before))
            await answered(semel.port, 0)  # in its place, and listening
            shown = (await server.query(EXECUTED))[0].value
            assert MANY <= shown <= 2 * MANY

            await asyncio.gather(*(answered(semel.port, n) for n in range(2 * MANY, 3 * MANY)))
            assert 2 * MANY <= await scraped(server, 2 * MANY) <= 3 * MANY
            assert await fallen(server) == []


async def fallen(server: Prometheus) -> list[str]:
    growing = [name for name in await server.names() if name.startswith("semel_") and name.endswith(GROWING)]
    assert "semel_calls_total" in growing
    return [name for name in growing if await server.query(f"resets({name}[5m]) > 0")]
