"""Agents that are killed, proxies that die, an upstream that fails: in the end every effect happened once.

Everything an agent asks depends on everything it has seen, so a wrong answer anywhere makes another call
later. An attempt that reaches the end must have been given an answer for every effect that happened, and for
each only once. Nothing happens twice, finished or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from proxy.core.intent import State
from proxy.errors import (
    Diverged,
    InDoubt,
    InProgress,
    Refusal,
    StoreUnavailable,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink
from tests.exchange.stage import Got
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import run
from tests.runs import scenes
from tests.runs.stage import Agent, ByCall, RunProcess, identity_of

pytestmark = pytest.mark.usefixtures("any_stage")

STEPS, ATTEMPTS = 9, 60


@dataclass
class Fickle(ByCall):
    """Takes its time; fails now and then. `happened`: effects, by name."""

    chance: random.Random = field(default_factory=random.Random)
    happened: Counter[str] = field(default_factory=Counter)

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        name, draw = out.target.decode().lstrip("/"), self.chance.random()
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        if draw < 0.08 or not may_send():
            return NotSent("refused")
        self.sent[name] += 1
        effect = name.startswith("w")
        fails = draw < 0.25
        if effect and not fails:
            self.happened[name] += 1
        status, body = (429 if effect else 503, b"no") if fails else (200, self.answer(name))
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        if draw > 0.95:
            return Lost("the connection broke", None, not effect)
        sink.head(status, ((b"Content-Length", b"%d" % len(body)),))
        await sink.data(body)
        return Answered(status)

    def answer(self, name: str) -> bytes:
        return f"{name} {self.happened[name] or self.sent[name]}".encode()


@dataclass
class Stage:
    world: World
    upstream: Fickle
    chance: random.Random
    loses_marks: bool
    proxies: list[RunProcess] = field(default_factory=list)
    names: dict[bytes, str] = field(default_factory=dict)  # by family: what has been asked for

    def proxy(self) -> RunProcess:
        while len(self.proxies) < 2:
            self.proxies.append(RunProcess(self.world, self.upstream))
            if self.loses_marks and self.chance.random() < 0.5:
                scenes.Marks.kept_back(self.proxies[-1])
        return self.chance.choice(self.proxies)

    async def one_dies(self) -> None:
        if self.proxies:
            await self.proxies.pop(self.chance.randrange(len(self.proxies))).die()

    async def settle_doubts(self) -> None:
        """A person who can look at the upstream."""
        proxy = self.proxy()
        for call in list(self.world.calls.values()):
            if call.state is State.IN_DOUBT:
                assert call.in_run is not None
                family = call.in_run.family
                rows = [
                    row for row in self.world.calls.values() if row.in_run and row.in_run.family == family
                ]
                before = sum(row.state is State.DONE for row in rows)
                name = self.names[family]
                it_happened = self.upstream.happened[name] > before
                body = self.upstream.answer(name) if it_happened else None
                await scenes.resolve(proxy, call, body=body)


class GivesUp(Exception):
    """The agent cannot go on: somebody has to look."""


async def asked(stage: Stage, attempt: str, name: str, *, safe: bool) -> str:
    """Up to three tries, each saying so; a proxy that dies on the way is a try that does not count."""
    tries = 0
    stage.names[identity_of(f"r {name}").key] = name
    for _ in range(40):
        agent = Agent(stage.proxy(), attempt)
        try:
            got: Got = await agent.ask(name, safe=safe, retry_count=tries)
        except (UpstreamUnreachable, UpstreamTimeout) as problem:
            told = type(problem).__name__
        except (InProgress, StoreUnavailable):
            tries += 1
            await asyncio.sleep(0.05)
            continue
        except (InDoubt, Diverged):
            raise GivesUp from None
        else:
            if not got.whole:
                tries += 1
                continue
            told = f"{got.status} {got.body.decode()}"
            if got.status == 200:
                return told
        tries += 1
        if tries >= 3:
            return told
    raise GivesUp


async def agent(stage: Stage, attempt: str, plan: list[str]) -> list[tuple[str, str]]:
    transcript: list[tuple[str, str]] = []
    for step in plan:
        seen = hashlib.blake2b(repr(transcript).encode(), digest_size=4).hexdigest()
        name = "wremind" if step == "remind" else f"{step}?{seen}"
        transcript.append(
            (name, await asked(stage, attempt, name, safe=step.startswith("r") and step != "remind"))
        )
    return transcript


async def story(seed: int, *, loses_marks: bool) -> None:
    chance = random.Random(seed)
    stage = Stage(World(), Fickle(chance=chance), chance, loses_marks)
    plan = [chance.choice(["read", "read", "write", "write", "remind"]) for _ in range(STEPS)]
    for n in range(ATTEMPTS):
        task = asyncio.create_task(agent(stage, f"a{n}", plan))
        patient = n > ATTEMPTS // 2
        death = asyncio.create_task(asyncio.sleep(chance.uniform(0.02, 0.8)))
        done, _ = await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        if task not in done and not patient and chance.random() < 0.5:
            await stage.one_dies()
        if task not in done and not patient and chance.random() < 0.8:
            await scenes.gone(task)
        await asyncio.wait({task})
        death.cancel()
        await stage.settle_doubts()
        for name, times in stage.upstream.happened.items():
            assert times <= (plan.count("remind") if name == "wremind" else 1), f"seed {seed}: {name} twice"
        with contextlib.suppress(asyncio.CancelledError, GivesUp):
            transcript = task.result()
            given = Counter(name for name, told in transcript if name[0] == "w" and told.startswith("200"))
            happened = +stage.upstream.happened
            # With marks lost an earlier attempt may have seen another past, and gone another way.
            fits = loses_marks or happened == given
            assert fits, f"seed {seed}: {transcript}, and {happened}"
            return
    # With marks lost an attempt may see another past than the one before it, and is then held for good.
    assert loses_marks, f"seed {seed}: it never finished"


@pytest.mark.parametrize("loses_marks", [False, True], ids=["all marks", "marks are lost"])
@pytest.mark.parametrize("seed", range(60))
def test_in_the_end_every_effect_happened_once(seed: int, loses_marks: bool) -> None:
    """A different story for each seed; the same seed tells the same story."""
    try:
        run(story(seed, loses_marks=loses_marks))
    except Refusal as refusal:
        raise AssertionError(f"seed {seed}: {type(refusal).__name__}: {refusal}") from None
