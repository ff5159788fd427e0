"""Those who ask: callers outside runs; agents in runs, which crash and begin again; one that is healthy.

An agent goes through its program step by step, each time from the beginning. It asks again when it was not
answered, with the evidence that its client gives: the key of its request, or nothing but the broken
connection. What it has seen of a step, whoever comes after it must see there too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from proxy.errors import (
    AwaitingApproval,
    Denied,
    Diverged,
    InDoubt,
    Refusal,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.stream import CutOff
from tests.exchange.stage import Got
from tests.proof.simulation.asking import RULES, TOTAL, WAIT, Kind, kind_of, sending
from tests.proof.simulation.fate import Fate
from tests.proof.simulation.process import Semel
from tests.proof.simulation.upstream import FINAL
from tests.runs.stage import Agent, identity_of

# Seconds after which an agent's client gives up: it may have waited for another's call, and then a safe one
# is sent twice; the rest is for a slow store. And what it does before it asks again.
PATIENCE, PAUSES = WAIT + 2 * TOTAL + 30.0, (0.0, 0.1, 1.0, 10.0)
THINKING = (0.0, 0.0, 0.1, 3.0, 20.0)  # before each step
TRIES = 8
DONE = frozenset({FINAL, 200})
# What an agent takes for the end of its attempt: a person has to see to it.
HELD = (InDoubt, Diverged, AwaitingApproval, Denied)

Answer = tuple[int, bytes]


@dataclass
class Program:
    """One run: its steps, and what was seen of them."""

    run: str
    steps: tuple[str, ...]
    tokens: bool
    asked: dict[str, Counter[str]] = field(default_factory=dict)  # by attempt: how often each was meant
    forgotten: Counter[str] = field(default_factory=Counter)  # a person let it go out once more
    seen: dict[int, Answer] = field(default_factory=dict)
    given: set[tuple[str, Answer]] = field(default_factory=set)
    refused: dict[int, Answer] = field(default_factory=dict)  # and then a later step had an effect
    at_once: bool = False  # two attempts have lived at the same time: each may have gone its own way
    finished: bool = False

    def is_exact(self, step: str) -> bool:
        """Whether what it saw first it sees each time. Not where it calls the same more often: a lost mark
        may cause a replay. Nor of a safe call whose retries cannot be told from parallel samples."""
        return self.steps.count(step) == 1 and (self.tokens or not kind_of(step).safe)

    def meant(self, name: str) -> int:
        return max((asked[name] for asked in self.asked.values()), default=0) + self.forgotten[name]

    def family(self, name: str) -> bytes:
        return identity_of(f"{self.run} {name}").key


def _unheard(task: asyncio.Task[Got]) -> None:
    """Perhaps its client is gone by now."""
    _ = task.cancelled() or task.exception()


async def served(semel: Semel, asking: Coroutine[Any, Any, Got]) -> Got | Refusal | None:
    """What a client gets: an answer, a problem, or a broken connection (None)."""
    task = asyncio.ensure_future(asking)
    task.add_done_callback(_unheard)
    semel.serves(task)
    try:
        await asyncio.wait({task}, timeout=PATIENCE)
        if not task.done() and semel.link.steady:
            semel.fate.broken(f"whoever asks a proxy that lives is not answered within {PATIENCE:.0f} s")
    finally:
        if not task.done():  # the client is gone, or has waited long enough
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        return None
    error = task.exception()
    if error is None:
        got = task.result()
        return got if got.whole else None
    if isinstance(error, Refusal):
        return error
    if isinstance(error, CutOff):
        return None
    raise error


@dataclass
class RunAgent:
    """One attempt after the other. `pick` gives the process that the next request goes to; `recorded` says
    whether an answer is in the record."""

    fate: Fate
    program: Program
    pick: Callable[[], Semel]
    recorded: Callable[[bytes, Answer], bool]
    attempts: int = 0
    certain: bool = False  # nobody cuts it off
    problem: Refusal | None = None  # the last that it was told

    async def attempt(self) -> bool:
        """Whether it came to its end."""
        self.attempts += 1
        name, program = f"attempt-{self.attempts}", self.program
        asked = program.asked.setdefault(name, Counter())
        refused: dict[int, Answer] = {}
        for index, step in enumerate(program.steps):
            await asyncio.sleep(0.0 if self.certain else self.fate.one_of(THINKING))
            asked[step] += 1
            got = await self._step(name, index, step)
            if got is None:
                return False
            self._saw(index, step, got)
            self._takes_the_same_way(index, step, got)
            if got.status not in DONE and program.is_exact(step):
                refused[index] = (got.status, got.body)
            elif got.kind == "executed" and not kind_of(step).safe:
                program.refused = refused | program.refused
        program.finished = True
        return True

    async def _step(self, attempt: str, index: int, step: str) -> Got | None:
        """None: it is held, or nobody answers."""
        for tries in range(TRIES):
            semel = self.pick()
            agent = Agent(semel, attempt, self.program.run)
            tokens = frozenset({f"{attempt} {index}"}) if self.program.tokens else frozenset()
            taken = self.certain or not self.fate.happens(0.1)
            # Only a client that numbers its requests, or names them, can lose one without a trace.
            noticed = taken or not tokens or self.fate.happens(0.5)
            self.fate.reached["an answer is lost on its way"] += not noticed
            got = await served(semel, self._ask(agent, step, tokens, tries, taken, noticed))
            told = got.kind if isinstance(got, Got) else type(got).__name__
            self.fate.tell(f"{self.program.run} {attempt} step {index} {step}: {told}, taken {taken}")
            if isinstance(got, Got) and taken:
                return got
            self.problem = got if isinstance(got, Refusal) else None
            if isinstance(got, HELD):
                return None
            if isinstance(got, UpstreamUnreachable | UpstreamTimeout):
                problem = type(got).__name__.encode()
                if self._goes_past(index, step, problem):
                    return Got("problem", 0, problem)
                if self.fate.happens(0.3):
                    return None
            await asyncio.sleep(self.fate.one_of(PAUSES))
        return None

    def _goes_past(self, index: int, step: str, problem: bytes) -> bool:
        """Somebody else will do: the next step is taken instead. Whoever did so once does so again; and who
        tried again, and was refused then, tries again."""
        if index in self.program.refused:
            return self.program.refused[index] == (0, problem)
        return not self.certain and self.program.is_exact(step) and self.fate.happens(0.7)

    async def _ask(
        self, agent: Agent, step: str, tokens: frozenset[str], tries: int, taken: bool, noticed: bool
    ) -> Got:
        kind = kind_of(step)
        ask = await agent.asked(
            step, safe=kind.safe, rule=RULES[kind], tokens=tokens, retry_count=tries if tokens else 0
        )
        return await agent.given(ask._replace(sending=sending(step)), taken=taken, noticed=noticed)

    def _saw(self, index: int, step: str, got: Got) -> None:
        answer = (got.status, got.body)
        if got.status not in DONE:
            return
        program = self.program
        if not self.recorded(program.family(step), answer):
            self.fate.broken(f"{program.run} was given {answer} for {step}, and it is not in the record")
        program.given.add((step, answer))
        if program.is_exact(step) and program.seen.setdefault(index, answer) != answer:
            self.fate.broken(f"{program.run} saw {program.seen[index]} of {step} once, and then {answer}")

    def _takes_the_same_way(self, index: int, step: str, got: Got) -> None:
        """What an attempt was refused before it acted otherwise, a later one is refused again: or it would do
        both. A problem may have become an answer meanwhile; but nothing is sent for it."""
        program, answer = self.program, (got.status, got.body)
        before = program.refused.get(index, answer)
        if program.at_once or index not in program.refused:
            return
        problem = not before[0]
        self.fate.reached["a problem is met again" if problem else "a refusal is met again"] += 1
        if answer != before and (not problem or got.kind == "executed"):
            told = f"{program.run} was refused {step} with {before}, acted on it, and then had {got}"
            self.fate.broken(told)


def programs(fate: Fate, run: str) -> Program:
    """Short, with few different calls: what is identical is what is hard."""
    names = [f"{run}-{what}-{kind}" for what in ("one", "two") for kind in Kind]
    names += [f"{run}-one-{Kind.PLAIN}"] * 3
    if fate.happens(0.3):
        picked = dict.fromkeys(fate.one_of(names) for _ in range(fate.between(2, 6)))
        return Program(run, tuple(picked), fate.happens(0.5))
    return Program(run, tuple(fate.one_of(names) for _ in range(fate.between(2, 7))), fate.happens(0.5))


async def healthy(
    fate: Fate, semel: Semel, said: Callable[[str], list[Answer]], steps: tuple[str, ...]
) -> None:
    """An agent that neither crashes nor retries, behind a proxy that lives, gets what it would get without
    semel: each answer from the upstream itself, in order, a refusal too, however often it asks the same."""
    agent = Agent(semel, "only", "healthy")
    made: Counter[str] = Counter()
    for step in steps:
        await asyncio.sleep(fate.one_of(PAUSES))
        made[step] += 1
        kind = kind_of(step)
        ask = await agent.asked(step, safe=kind.safe, rule=RULES[kind])
        got = await agent.given(ask._replace(sending=sending(step)))
        answers = said(step)
        live = got.kind == "executed" and len(answers) == made[step]
        if not live or (got.status, got.body) != answers[-1]:
            fate.broken(f"a healthy agent was altered: {step} gave {got}, the upstream said {answers}")
