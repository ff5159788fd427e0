"""An agent of many steps, killed at random until it finishes: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import ambient
from tests.counts import count
from tests.process import ROOT, SemelProcess
from tests.runs.busy_agent import HELD
from tests.runs.busy_world import POLICY, BusyWorld

pytestmark = pytest.mark.usefixtures("any_store")

ROUNDS = 3  # of some twenty calls each
STEPS = 75  # a little more than it takes: now and then it finishes
KILLS = count(test=6, soak=200)
FEWER = count(test=3, soak=200)  # on the other stores


@dataclass
class Started:
    """A busy agent at work. `steps` counts the calls it has got through."""

    process: asyncio.subprocess.Process
    steps: int = 0
    errors: str = ""
    output: list[str] = field(default_factory=list)

    @classmethod
    async def at(cls, base: str) -> Started:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.runs.busy_agent", base, str(ROUNDS),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return cls(process)

    async def until(self, steps: int) -> None:
        """It has made so many calls, or it has ended."""
        assert self.process.stderr is not None
        while self.steps < steps and (line := (await self.process.stderr.readline()).decode()):
            self.steps += line == "step\n"
            self.errors += "" if line == "step\n" else line

    def kill(self) -> None:
        """Not by its own method, which would take the exit status away from whoever waits for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    async def ended(self) -> int:
        async with asyncio.timeout(120):
            assert self.process.stdout is not None
            _, out = await asyncio.gather(self.until(sys.maxsize), self.process.stdout.read())
            self.output = out.decode().splitlines()
            return await self.process.wait()


def enough() -> int:
    """How often it is killed."""
    return KILLS if ambient.store() == ambient.EMBEDDED else FEWER


async def finished(base: str) -> list[str]:
    agent = await Started.at(base)
    assert await agent.ended() == 0, agent.errors
    return agent.output


async def undisturbed(tmp_path: Path) -> tuple[list[str], Counter[str]]:
    """What it does with nobody around: its output, and what the upstream saw."""
    async with BusyWorld() as world:
        return await finished(f"http://127.0.0.1:{world.port}"), world.asked


def policies_for(world: BusyWorld, tmp_path: Path) -> Path:
    policies = tmp_path / "policies"
    policies.mkdir(exist_ok=True)
    (policies / "up.yaml").write_text(POLICY.format(port=world.port))
    return policies


def expected_through_semel(asked: Counter[str]) -> Counter[str]:
    """The same, but `repeat: same` makes one of two identical calls."""
    return Counter({name: 1 if "/guarded" in name else count for name, count in asked.items()})


def final(asked: Counter[str]) -> Counter[str]:
    """What is not final may be asked again, as long as no effect was made because of it."""
    return Counter({name: n for name, n in asked.items() if not name.endswith((" -> 404", " -> 429"))})


async def test_undisturbed_it_does_not_notice(tmp_path: Path) -> None:
    """Output and requests are what they are without semel, save for what the rule guards."""
    output, asked = await undisturbed(tmp_path)
    async with BusyWorld() as world, SemelProcess(tmp_path / "s", policies_for(world, tmp_path)) as semel:
        through = await finished(f"{semel.url}/@run+a1/up")
        assert (through, world.asked) == (output, expected_through_semel(asked))
        assert await finished(f"{semel.url}/@run+a2/up") == output
        assert world.asked == expected_through_semel(asked), "the second attempt asked nobody"


@pytest.mark.timeout(600)
async def test_the_agent_is_killed_until_it_finishes(tmp_path: Path) -> None:
    """Every request reaches the upstream as often as undisturbed: not one more, not one less."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance = random.Random(seed)
    output, asked = await undisturbed(tmp_path)
    kills = 0
    for campaign in range(10 * enough()):  # some finish before anybody is killed
        if kills >= enough():
            break
        async with BusyWorld(slow=0.005) as world:
            state = tmp_path / f"state-{campaign}"
            async with SemelProcess(state, policies_for(world, tmp_path)) as semel:
                for attempt in range(1000):
                    agent = await Started.at(f"{semel.url}/@run{campaign}+a{attempt}/up")
                    await agent.until(chance.randrange(STEPS))
                    await asyncio.sleep(chance.uniform(0.0, 0.03))
                    agent.kill()
                    status = await agent.ended()
                    if status == 0:
                        break
                    assert status == -signal.SIGKILL, agent.errors
                    kills += 1
                assert agent.output == output
                assert final(world.asked) == final(expected_through_semel(asked))
                assert not world.regrets
    assert kills >= enough(), "it was too fast to be killed"


@pytest.mark.timeout(900)
async def test_agent_and_proxy_are_killed_until_it_finishes(tmp_path: Path) -> None:
    """Every effect once. Where the proxy died in the window the call is held until somebody who knows the
    upstream settles it; then the agent goes on and its output is as undisturbed."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance = random.Random(seed)
    output, _ = await undisturbed(tmp_path)
    kills = held = 0
    for campaign in range(10 * enough()):  # some finish before anybody is killed
        if kills >= enough():
            break
        async with BusyWorld(slow=0.005) as world:
            run = Campaign(world, policies_for(world, tmp_path), tmp_path / f"state-{campaign}", chance)
            lines = await run.until_finished()
            kills, held = kills + run.kills, held + run.held
            assert lines == output
            assert not world.regrets
            twice = {name: len(answers) for name, answers in world.done.items() if len(answers) > 1}
            meant = {name for name in twice if "/remind" in name and twice[name] == 2}
            assert twice.keys() == meant, "an effect happened twice"
    assert kills >= enough(), "it was too fast to be killed"
    print(f"{kills} kills, {held} calls held in doubt and settled")


class Campaign:
    def __init__(self, world: BusyWorld, policies: Path, state: Path, chance: random.Random) -> None:
        self._world, self._policies, self._state, self._chance = world, policies, state, chance
        self.kills = self.held = 0

    async def until_finished(self) -> list[str]:
        attempt = 0
        while True:
            async with SemelProcess(self._state, self._policies) as semel:
                while semel.alive:
                    attempt += 1
                    status, lines = await self._one_start(semel, attempt)
                    if status == 0:
                        return lines
                    if status == HELD and semel.alive:
                        await self._settle(semel)

    async def _one_start(self, semel: SemelProcess, attempt: int) -> tuple[int, list[str]]:
        agent = await Started.at(f"{semel.url}/@{self._state.name}+a{attempt}/up")
        await agent.until(self._chance.randrange(STEPS))
        await asyncio.sleep(self._chance.uniform(0.0, 0.03))
        if self._chance.random() < 0.5:
            await semel.kill()
        agent.kill()
        status = await agent.ended()
        assert status in (0, HELD, -signal.SIGKILL), agent.errors
        self.kills += status == -signal.SIGKILL
        return status, agent.output

    async def _settle(self, semel: SemelProcess) -> None:
        """As a person does who looks at the upstream: it happened and said this, or it did not."""
        page = await self._api(semel, "GET", "calls?state=in_doubt")
        assert page["calls"], "an agent was held, so something is in doubt"
        for call in page["calls"]:
            shown = await self._api(semel, "GET", f"calls/{call['id']}")
            asked = (shown["request"]["target"], shown["call"]["args"]["body"])
            answers = self._done_of(*asked)
            which = call["occurrence"] - 1
            self.held += 1
            if len(answers) > which:
                said = {"as": "executed", "body": answers[which].decode(), "status": 200}
            else:
                said = {"as": "not_executed"}
            await self._api(semel, "POST", f"calls/{call['id']}/resolve", {**said, "reason": "looked"})

    def _done_of(self, target: str, body: object) -> list[bytes]:
        for name, answers in self._world.done.items():
            _, path, text = name.split(" ", 2)
            if path == target and json.loads(text) == body:
                return answers
        return []

    async def _api(
        self, semel: SemelProcess, method: str, path: str, body: dict[str, object] | None = None
    ) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{semel.url}/_semel/{path}", json=body) as answer,
        ):
            said = json.loads(await answer.read())
            assert answer.status == 200, said
            return dict(said)
