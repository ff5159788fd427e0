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
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.counts import count
from tests.process import ROOT, SemelProcess
from tests.runs.busy_agent import HELD
from tests.runs.busy_world import POLICY, BusyWorld

ROUNDS = 3  # of some twenty calls each
KILLS = count(test=20, soak=200)


async def start_agent(base: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.runs.busy_agent", base, str(ROUNDS),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def ended(agent: asyncio.subprocess.Process) -> tuple[int, list[str], str]:
    async with asyncio.timeout(120):
        out, errors = await agent.communicate()
    assert agent.returncode is not None
    return agent.returncode, out.decode().splitlines(), errors.decode()


async def undisturbed(tmp_path: Path) -> tuple[list[str], Counter[str]]:
    """What it does with nobody around: its output, and what the upstream saw."""
    async with BusyWorld() as world:
        status, output, errors = await ended(await start_agent(f"http://127.0.0.1:{world.port}"))
        assert status == 0, errors
        return output, world.asked


def policies_for(world: BusyWorld, tmp_path: Path) -> Path:
    policies = tmp_path / "policies"
    policies.mkdir(exist_ok=True)
    (policies / "up.yaml").write_text(POLICY.format(port=world.port))
    return policies


def expected_through_semel(asked: Counter[str]) -> Counter[str]:
    """The same, but `repeat: same` makes one of two identical calls."""
    return Counter({name: 1 if "/guarded" in name else count for name, count in asked.items()})


async def test_undisturbed_it_does_not_notice(tmp_path: Path) -> None:
    """Output and requests are what they are without semel, save for what the rule guards."""
    output, asked = await undisturbed(tmp_path)
    async with BusyWorld() as world, SemelProcess(tmp_path / "s", policies_for(world, tmp_path)) as semel:
        status, through, errors = await ended(await start_agent(f"{semel.url}/@run+a1/up"))
        assert status == 0, errors
        assert (through, world.asked) == (output, expected_through_semel(asked))
        status, again, errors = await ended(await start_agent(f"{semel.url}/@run+a2/up"))
        assert (status, again) == (0, output), errors
        assert world.asked == expected_through_semel(asked), "the second attempt asked nobody"


@pytest.mark.timeout(600)
async def test_the_agent_is_killed_until_it_finishes(tmp_path: Path) -> None:
    """Every request reaches the upstream as often as undisturbed: not one more, not one less."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance = random.Random(seed)
    output, asked = await undisturbed(tmp_path)
    kills = 0
    for campaign in range(KILLS):
        if kills >= KILLS:
            break
        async with BusyWorld(slow=0.025) as world:
            state = tmp_path / f"state-{campaign}"
            async with SemelProcess(state, policies_for(world, tmp_path)) as semel:
                for attempt in range(1000):
                    agent = await start_agent(f"{semel.url}/@run+a{attempt}/up")
                    status, lines = await killed_or_done(agent, chance.uniform(0.2, 1.2))
                    if status == 0:
                        break
                    kills += 1
                assert lines == output
                assert world.asked == expected_through_semel(asked)
    assert kills >= KILLS, "it was too fast to be killed"


async def killed_or_done(agent: asyncio.subprocess.Process, after: float) -> tuple[int, list[str]]:
    ending = asyncio.create_task(ended(agent))
    done, _ = await asyncio.wait({ending}, timeout=after)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            agent.send_signal(signal.SIGKILL)
    status, lines, errors = await ending
    assert status in (0, -signal.SIGKILL), errors
    return status, lines


@pytest.mark.timeout(900)
async def test_agent_and_proxy_are_killed_until_it_finishes(tmp_path: Path) -> None:
    """Every effect once. Where the proxy died in the window the call is held until somebody who knows the
    upstream settles it; then the agent goes on and its output is as undisturbed."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance = random.Random(seed)
    output, _ = await undisturbed(tmp_path)
    kills = held = 0
    for campaign in range(KILLS):
        if kills >= KILLS:
            break
        async with BusyWorld(slow=0.025) as world:
            run = Campaign(world, policies_for(world, tmp_path), tmp_path / f"state-{campaign}", chance)
            lines = await run.until_finished()
            kills, held = kills + run.kills, held + run.held
            assert lines == output
            twice = {name: len(answers) for name, answers in world.done.items() if len(answers) > 1}
            meant = {name for name in twice if "/remind" in name and twice[name] == 2}
            assert twice.keys() == meant, "an effect happened twice"
    assert kills >= KILLS, "it was too fast to be killed"
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
                    if status == HELD:
                        await self._settle(semel)

    async def _one_start(self, semel: SemelProcess, attempt: int) -> tuple[int, list[str]]:
        agent = await start_agent(f"{semel.url}/@run+a{attempt}/up")
        ending = asyncio.create_task(ended(agent))
        done, _ = await asyncio.wait({ending}, timeout=self._chance.uniform(0.2, 1.3))
        if not done:
            self.kills += 1
            if self._chance.random() < 0.5:
                await semel.kill()
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGKILL)
        status, lines, errors = await ending
        assert status in (0, HELD, -signal.SIGKILL), errors
        return status, lines

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
