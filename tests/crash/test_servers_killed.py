"""The server that keeps the record is killed and started again, over and over, while agents call.

Whatever it was doing: no acknowledged answer is lost, nothing has an effect twice, callers are told 503
meanwhile, and semel goes on by itself when the server is back.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from tests import ambient
from tests.counts import count
from tests.http.streaming import JSON, policy_of
from tests.inside import Answer, call, until
from tests.origin import OK, Origin
from tests.process import SemelProcess
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import valkey

KILLS = count(4, 150)
AGENTS = 6

# An address, and what kills the server there and starts it again.
Server: TypeAlias = tuple[str, Callable[[], None], Callable[[], None]]


@contextmanager
def postgres(_: Path) -> Iterator[Server]:
    server = PostgresServer()
    try:
        server.start()
        yield server.url(server.new_database()), server.kill, server.start
    finally:
        server.remove()


@contextmanager
def redis(tmp_path: Path) -> Iterator[Server]:
    with valkey(tmp_path / "valkey") as server:
        yield server.url, server.kill, server.start


class Agents:
    """Each makes one call after the other, and the same one again until it knows what became of it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._next = iter(range(1_000_000))
        self.answered: set[int] = set()
        self.doubtful: set[int] = set()
        self.away = 0  # how often the store was said to be
        self.stopped = asyncio.Event()

    async def work(self) -> None:
        while not self.stopped.is_set():
            n = next(self._next)
            while not await self.ask(n):
                await asyncio.sleep(0.02)

    async def are_told(self) -> None:
        """That the store is away. All of them may wait for the end of a call; a new one is refused."""
        away = self.away
        async with asyncio.timeout(30):
            while self.away == away:
                await self.ask(next(self._next))

    async def ask(self, n: int) -> bool:
        """Whether that was the last word on it."""
        try:
            got = await call(self._port, "POST", "/up/hold", JSON, b'{"n": %d}' % n, within=60)
        except ConnectionError:
            return False
        return self._heard(n, got)

    def _heard(self, n: int, got: Answer) -> bool:
        if not got.complete:
            return False
        if got.status == 200:
            assert got.body == b"ok"
            self.answered.add(n)
            return True
        if got.status == 409 and b"in-doubt" in got.body:
            assert n not in self.answered, "what was answered once is in doubt now"
            self.doubtful.add(n)
            return True
        # 502: claimed, and then its own sign of life was too old to send. Nothing was sent.
        assert got.status in (409, 502, 503), got
        self.away += got.status == 503
        return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", [postgres, redis])
async def test_a_server_killed_under_load(
    tmp_path: Path, store: Callable[[Path], AbstractContextManager[Server]]
) -> None:
    """Agents work on all the while; afterwards every call is asked for once more."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance = random.Random(seed)
    with store(tmp_path) as (address, kill, start), ambient.kept_in(address):
        async with Origin(OK) as origin:
            policies = tmp_path / "up.yaml"
            policies.write_text(policy_of(origin))
            async with SemelProcess(tmp_path / "state", policies) as semel:
                agents = Agents(semel.port)
                working = [asyncio.create_task(agents.work()) for _ in range(AGENTS)]
                for _ in range(KILLS):
                    before = len(agents.answered)
                    await until(lambda before=before: len(agents.answered) > before + 20)  # type: ignore[misc]
                    await asyncio.sleep(chance.uniform(0, 0.05))
                    await asyncio.to_thread(kill)
                    await agents.are_told()
                    await asyncio.to_thread(start)
                agents.stopped.set()
                await asyncio.gather(*working)
                known = agents.answered | agents.doubtful
                answered = frozenset(agents.answered)
                for n in sorted(known):
                    while not await agents.ask(n):
                        await asyncio.sleep(0.02)
                assert answered <= agents.answered
                effects = Counter(bytes(seen.body) for seen in origin.requests)
                assert max(effects.values()) == 1
                assert all(effects[b'{"n": %d}' % n] == 1 for n in agents.answered)
                assert await semel.stop() == 0
