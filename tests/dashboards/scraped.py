"""The scripted traffic, scraped by a real Prometheus from its beginning to its end.

About exactness. `increase()` extrapolates to the edges of its window, but not beyond a counter's zero, and
not where a sample lies at the edge. Seen with Prometheus 2.42 and a counter that stood at 0 when it was first
scraped, in a window longer than its life: at the time of the last sample 8 events give 8.0, and dollars the
very sum; a millisecond later 8.0032, a third of a second later 8.96. A counter that first appears with a
value above 0 gives nothing for it. So what one proxy tells is exact at the time of its last sample. Another
proxy is scraped at other times: all its counters are too high by one and the same factor, which is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.dashboards.playing import Done
from tests.dashboards.traffic import play, play_beside
from tests.dashboards.world import METRICS, WORKERS, world
from tests.process import SemelProcess
from tests.servers.prometheus import Prometheus
from tests.servers.valkey import free_port

# Longer than everything takes, so that it holds the whole life of every series.
RANGE = 300
STATES = "semel_calls_in_state"


@dataclass(frozen=True, slots=True)
class Scraped:
    prometheus: Prometheus
    first: str  # the proxy with several workers, as `instance`
    second: str
    began: float  # everything stood at zero
    at: float  # the last sample of the first proxy
    done: Done
    beside: Done

    async def too_high(self) -> float:
        """The factor by which the second proxy's counters are extrapolated at that time."""
        asked = f'sum(increase(semel_calls_total{{instance="{self.second}"}}[{RANGE}s]))'
        shown = await self.prometheus.value(asked, self.at)
        assert shown is not None
        return shown / self.beside.total("semel_calls_total")

    async def all_done(self) -> Done:
        return self.done.with_more(self.beside, await self.too_high())


@contextmanager
def scraped(tmp_path: Path) -> Iterator[Scraped]:
    """The proxies have ended when it is there; Prometheus answers."""
    server = Prometheus(token=METRICS)
    try:
        yield asyncio.run(_scraped(tmp_path, server))
    finally:
        server.remove()


async def _scraped(tmp_path: Path, server: Prometheus) -> Scraped:
    second = f"127.0.0.1:{free_port()}"
    async with (
        asyncio.timeout(120),
        world(tmp_path) as there,
        there.proxy("--workers", str(WORKERS)) as semel,
    ):
        first = f"127.0.0.1:{semel.port}"
        server.start([first, second])
        began = await _first_scrape(server, first)
        done = await play(there, semel)
        async with there.proxy("--listen", second) as other:
            await _first_scrape(server, second)
            beside = await play_beside(other)
            await _all_told(server, second, beside, other)
            last = await server.last_scrape(f'semel_build_info{{instance="{second}"}}')
            done.figures[STATES].update(beside.figures.pop(STATES))  # told by every proxy on the store
            await _all_told(server, first, done, semel)
            at = await _first_scrape(server, first, after=last)
    return Scraped(server, first, second, began, at, done, beside)


async def _first_scrape(server: Prometheus, instance: str, after: float = 0.0) -> float:
    asked = f'timestamp(semel_build_info{{instance="{instance}"}})'
    found = await server.wait_for(asked, lambda found: found and found[0].value > after)
    return found[0].value


async def _all_told(server: Prometheus, instance: str, done: Done, semel: SemelProcess) -> None:
    """What is counted late: notifications, and what was only looked on at."""
    for metric in done.figures.keys() - {STATES}:
        expected = done.total(metric)
        try:
            await server.wait_for(
                f'sum({metric}{{instance="{instance}"}})',
                lambda found: found and abs(found[0].value - expected) < 1e-9,  # noqa: B023 (awaited at once)
                within=15,
            )
        except AssertionError as error:
            raise AssertionError(f"expected {expected}: {error}\n{semel.log[-2000:]}") from None
