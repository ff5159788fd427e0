"""Agents at work, so that there is something to see: until a signal, a time or a number of calls says stop.

    python -m proxy.demo.traffic --proxy http://127.0.0.1:8080 --token-file agent --rate 5

The proxy has the policies beside this file, and toy.py is behind it. A proxy that is away for a while is
waited for; one that does not know the token ends this with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from proxy.demo.caller import Caller, Enough, NotLetIn, Pace
from proxy.demo.habits import Agent, Habit, day
from proxy.demo.kills import new_seed
from proxy.quantities import parse_duration

AT_ONCE = 3
# Seconds between two reports, and after a proxy that was not there.
REPORT, AGAIN = 60.0, 1.0
FASTEST = 1000.0


@dataclass(frozen=True, slots=True)
class Plan:
    proxy: str
    token: str
    rate: float
    seconds: float | None
    calls: int | None
    seed: int


class Traffic:
    def __init__(self, plan: Plan, session: aiohttp.ClientSession) -> None:
        self._plan = plan
        self._caller = Caller(session, plan.proxy, plan.token, Pace(plan.rate, plan.calls))
        self._notes: Counter[str] = Counter()
        self._in_trouble = False
        # The seed says what is done. It is called something else at every start: the record outlives this.
        self._name = f"demo-{time.time_ns() // 1_000_000:x}"
        self._day = enumerate(day(random.Random(plan.seed), time.monotonic))  # noqa: S311 (no secret)

    async def run(self) -> None:
        """Until there were enough calls, or it is cancelled."""
        reporting = asyncio.create_task(self._report())
        try:
            async with asyncio.TaskGroup() as agents:
                for _ in range(AT_ONCE):
                    agents.create_task(self._work(self._day))
        finally:
            reporting.cancel()

    async def _work(self, habits: Iterator[tuple[int, Habit]]) -> None:
        for number, habit in habits:
            chance = random.Random(f"{self._plan.seed}/{number}")  # noqa: S311
            agent = Agent(f"{self._name}-{number}", self._caller, chance, self._notes)
            try:
                await habit.play(agent)
                self._in_trouble = False
            except Enough:
                return
            except (aiohttp.ClientError, OSError, ValueError) as error:  # also of an answer that is no JSON
                if not self._in_trouble:  # said once, however long it lasts
                    print(f"{habit.play.__name__} broken off, going on: {error}", flush=True)
                self._in_trouble = True
                await asyncio.sleep(AGAIN)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT)
            self.tell()

    def tell(self) -> None:
        counted = self._caller.counted
        parts = ", ".join(f"{name} {counted[name]}" for name in sorted(counted))
        print(f"{counted.total()} calls: {parts or 'none yet'}", flush=True)


async def play(plan: Plan) -> None:
    connector = aiohttp.TCPConnector(limit=2 * AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:
        traffic = Traffic(plan, session)
        working = asyncio.create_task(traffic.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        pace = f"{plan.rate:g} calls a second"
        print(f"agents at work behind {plan.proxy}, {pace}, seed {plan.seed}", flush=True)
        try:
            await asyncio.wait({working}, timeout=plan.seconds)
        finally:
            working.cancel()
            await asyncio.wait({working})
            traffic.tell()
        if not working.cancelled() and (error := working.exception()) is not None:
            raise error.exceptions[0] if isinstance(error, ExceptionGroup) else error


def main() -> int:
    plan = _plan()
    try:
        asyncio.run(play(plan))
    except NotLetIn as error:
        print(f"semel does not let these agents in: {error}", file=sys.stderr)
        return 1
    return 0


def _plan() -> Plan:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.traffic", description=__doc__)
    parser.add_argument("--proxy", default="http://127.0.0.1:8080", metavar="URL", help="where semel is")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds a token of the role agent")
    parser.add_argument("--rate", type=_rate, default=5.0, metavar="N", help="calls a second (default: 5)")
    parser.add_argument("--for", type=_duration, dest="seconds", metavar="DURATION", help="as 10m; then end")
    parser.add_argument("--calls", type=int, metavar="N", help="end after so many")
    parser.add_argument("--seed", type=int, metavar="N", help="of what is done (default: a new one)")
    given = parser.parse_args()
    return Plan(
        proxy=given.proxy.rstrip("/"),
        token=given.token_file.read_text().strip() if given.token_file else "",
        rate=given.rate,
        seconds=given.seconds,
        calls=given.calls,
        seed=new_seed() if given.seed is None else given.seed,
    )


def _rate(text: str) -> float:
    rate = float(text.removesuffix("/s"))
    if not 0 < rate <= FASTEST:
        raise argparse.ArgumentTypeError(f"more than 0 and at most {FASTEST:g} calls a second")
    return rate


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
