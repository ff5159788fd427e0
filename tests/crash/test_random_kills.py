"""A fleet of clients, and a semel that is killed at random moments: whatever the moment, no call goes twice.

Every call has an id of its own, counted by the upstream as soon as its first line arrives. Clients ask again
until they are answered or told that the call is in doubt.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.counts import count
from tests.crash.scene import JSON, Kind, policy, states_left, told, write_policy
from tests.inside import call
from tests.origin import answer
from tests.process import SemelProcess

pytestmark = pytest.mark.usefixtures("any_store")

CLIENTS = 12
# So many calls are made before the first kill, and at least so many between two.
BETWEEN_KILLS = 12
AGAIN = {"a break", "in-progress 409", "store-unavailable 503", "upstream-unreachable 502"}
LARGE = 80_000  # goes to a blob


class CountingUpstream:
    """Counts ids, answers after a random while, now and then with a large answer or in two parts."""

    def __init__(self, coin: random.Random) -> None:
        self._coin = coin
        self._visits: set[asyncio.Task[None]] = set()
        self.seen: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.get_running_loop().create_task(self._visit(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await self._serve(line.split()[1].decode().partition("?")[2], reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen[name] += 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        coin = self._coin
        whole = answer(200, name.encode() + b"." * coin.choice((0, 0, 10, LARGE)))
        cut = coin.choice((0, len(whole) - 1, len(whole) // 2))
        await asyncio.sleep(coin.expovariate(100))
        writer.write(whole[:cut])
        await asyncio.sleep(coin.expovariate(100))
        writer.write(whole[cut:])
        await writer.drain()


@dataclass(slots=True)
class Campaign:
    """What the clients were told, by the id of the call."""

    answered: dict[str, str] = field(default_factory=dict)
    in_doubt: set[str] = field(default_factory=set)
    asked: int = 0
    port: int = 0
    over: bool = False

    async def client(self, number: int, coin: random.Random) -> None:
        made = 0
        while not self.over:
            made += 1
            kind = coin.choice((Kind.D, Kind.D, Kind.A))
            await self._until_told(f"{kind}-{number}-{made}", kind, coin)

    async def _until_told(self, name: str, kind: Kind, coin: random.Random) -> None:
        body = b'{"id": "%b", "pad": "%b"}' % (name.encode(), b"." * coin.choice((0, 0, 0, LARGE)))
        self.asked += 1
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            words = await self._ask(f"{kind.target}?{name}", body, name)
            if words in ("executed 200", "joined 200", "replayed 200"):
                self.answered[name] = words
                return
            if words == "in-doubt 409":
                self.in_doubt.add(name)
                return
            assert words in AGAIN, (name, words)
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} was never answered")

    async def _ask(self, target: str, body: bytes, name: str) -> str:
        try:
            answer = await call(self.port, "POST", target, JSON, body)
        except ConnectionError:
            return "a break"
        if answer.complete and answer.status == 200:
            assert answer.body.rstrip(b".") == name.encode()  # never another call's answer
        return told(answer)


async def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Killed again and again: no id twice; what was answered happened once; nothing is left pending."""
    seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
    print(f"seed {seed} (set TEST_SEED to use it again)")
    coin = random.Random(seed)
    campaign = Campaign()
    state = tmp_path / "state"
    async with CountingUpstream(random.Random(coin.random())) as upstream:
        policies = write_policy(tmp_path, policy(upstream.port))
        clients = [
            asyncio.create_task(campaign.client(number, random.Random(coin.random())))
            for number in range(CLIENTS)
        ]
        try:
            for _ in range(count(3, 60)):
                async with SemelProcess(state, policies) as semel:
                    campaign.port = semel.port
                    await _busy(campaign, clients)
                    await asyncio.sleep(coin.uniform(0, 0.1))
                    semel.send(signal.SIGKILL)
                    assert await semel.died() == -signal.SIGKILL
            async with SemelProcess(state, policies) as semel:
                campaign.port = semel.port
                campaign.over = True
                await asyncio.gather(*clients)
                assert await semel.stop() == 0
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
    _check(campaign, upstream.seen, Counter(await states_left(state)))


async def _busy(campaign: Campaign, clients: list[asyncio.Task[None]]) -> None:
    """Until calls go through this process."""
    enough = len(campaign.answered) + BETWEEN_KILLS
    async with asyncio.timeout(60):
        while len(campaign.answered) < enough:
            for client in clients:
                if client.done():
                    await client  # raises what it died of
            await asyncio.sleep(0.005)


def has_effects(name: str) -> bool:
    return name.startswith(f"{Kind.D}-")


def _check(campaign: Campaign, seen: Counter[str], states: Counter[str]) -> None:
    answered, doubtful = set(campaign.answered), campaign.in_doubt
    print(f"{campaign.asked} calls, {len(doubtful)} in doubt, told {Counter(campaign.answered.values())}")
    twice = {name: times for name, times in seen.items() if times > 1 and has_effects(name)}
    assert not twice, f"sent twice: {twice}"
    assert answered <= set(seen), "answered, but never seen by the upstream"
    assert all(has_effects(name) for name in doubtful)  # a safe call is made again instead
    assert not answered & doubtful
    assert len(answered | doubtful) == campaign.asked
    assert states == Counter(done=len(answered), in_doubt=len(doubtful))  # none pending, none unknown
    assert doubtful, "no kill hit a call under way: the campaign shows nothing"
