"""A small agent, killed anywhere and run again, on a record kept by these rules: is every step done once?

The agent is a deterministic program of steps; what the upstreams do is drawn per send. Every step has a name
that semel never sees: it tells which sends were meant to be the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from proxy.core.divergence import GRACE, Hold, Row, group_of, judge
from proxy.core.frontier import Again, ByState, Frontier, GoLive, frontier_of, recall
from proxy.core.intent import State
from proxy.core.occurrence import Ask, Existing, New, choose_occurrence
from proxy.core.runs import (
    End,
    Exchange,
    Occurrence,
    Receipt,
    after_claim,
    after_delivery_ended,
    after_delivery_started,
    after_problem_given,
    after_resend,
    after_retry,
)

EXAMPLES = 10_000 if os.environ.get("SEMEL_SOAK") else 500
OK, BUSY, UNREACHABLE, DOUBT = "200", "429", "upstream-unreachable", "in-doubt"


class Killed(Exception):
    """The agent's process died."""


@dataclass(frozen=True)
class Request:
    name: str  # its content: equal names are identical calls
    safe: bool = False
    resend: bool = False  # the upstream honours a key


@dataclass(frozen=True)
class Try:
    """Call `request` up to `tries` times until it succeeds, else `fallback`."""

    request: Request
    tries: int = 1
    evidence: bool = False  # the client's retries say that they are retries
    fallback: Request | None = None


@dataclass
class World:
    """The upstreams: what each send comes to, and what was really done."""

    script: list[str]
    sends: list[tuple[str, str]] = field(default_factory=list)  # (step, request)
    executed: list[tuple[str, str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)  # upstream keys already executed

    def send(self, step: str, request: Request, key: str) -> str:
        """The n-th send meets the n-th line of the script; DOUBT is executed, and the answer lost."""
        outcome = self.script[len(self.sends)] if len(self.sends) < len(self.script) else OK
        self.sends.append((step, request.name))
        if request.safe and outcome == DOUBT:
            outcome = BUSY
        if outcome in (OK, DOUBT) and not request.safe and key not in self.keys:
            self.executed.append((step, request.name))
            self.keys.add(key)
        return outcome


@dataclass
class Kill:
    """Counts down the points at which a process can die."""

    left: int

    def point(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@dataclass
class Semel:
    """The driver in small: choose, recall, judge, claim, send, settle, deliver."""

    world: World
    kill: Kill
    rows: dict[str, dict[int, Occurrence]] = field(default_factory=dict)
    asked: dict[int, set[str]] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    seq: int = 0
    last_effect: tuple[int, bool] = (-1, False)  # the furthest step whose effect was claimed

    def run_rows(self) -> list[Row]:
        found = []
        for name, numbered in self.rows.items():
            group = group_of(upstream="u", rule=None, method="POST", host="h", path=name)
            for row in numbered.values():
                by = frozenset(self.asked[row.seq])
                found.append(
                    Row(
                        id=f"{name}#{row.n}",
                        seq=row.seq,
                        safe=row.safe,
                        state=row.state,
                        group=group,
                        attempt=row.claimed_by,
                        asked_by=by,
                    )
                )
        return found

    def ask(self, attempt: str, step: str, request: Request, retry: int) -> str:
        if attempt not in self.attempts:
            self.attempts.append(attempt)
        self.kill.point()  # before anything
        mine = self.rows.setdefault(request.name, {})
        frontier = frontier_of(self.run_rows(), attempt)
        asked = Ask(attempt=attempt, safe=request.safe, proxy="p", retry_count=retry)
        choice = choose_occurrence(tuple(mine.values()), asked, frontier)
        x = Exchange(number=0, attempt=attempt, fence=0, owner="p")
        match choice:
            case New(n):
                if not request.safe and self.leaves_the_record(attempt, request):
                    raise Killed  # an agent that is held stops
                self.seq += 1
                self.asked[self.seq] = set()
                fresh = Occurrence(n=n, seq=self.seq, safe=request.safe, state=None, fence=0)
                return self.execute(attempt, step, request, after_claim(fresh, x))
            case Existing(n):
                return self.known(attempt, step, request, mine[n], frontier, choice, x)
            case _:
                raise AssertionError(f"a sequential agent never overlaps: {choice}")

    def leaves_the_record(self, attempt: str, request: Request) -> bool:
        group = group_of(upstream="u", rule=None, method="POST", host="h", path=request.name)
        rows = self.run_rows()
        verdict = judge(group=group, attempt=attempt, attempts=self.attempts, rows=rows, waited=GRACE)
        return isinstance(verdict, Hold)

    def known(
        self,
        attempt: str,
        step: str,
        request: Request,
        row: Occurrence,
        frontier: Frontier,
        choice: Existing,
        x: Exchange,
    ) -> str:
        self.asked[row.seq].add(attempt)
        match recall(row, attempt, frontier):
            case GoLive():
                return self.execute(attempt, step, request, after_claim(row, x))
            case ByState(State.IN_DOUBT) if request.resend:
                sent = after_delivery_started(after_resend(row), x)
                return self.execute(attempt, step, request, sent, unresolved=True)
            case ByState(State.IN_DOUBT):
                told = Receipt(attempt=attempt, problem=DOUBT, position=self.seq)
                row = after_problem_given(row, told)
                return self.deliver(attempt, request, after_delivery_started(row, x), DOUBT)
            case Again(what):
                row = after_retry(row, x) if choice.is_retry else after_delivery_started(row, x)
                given = OK if row.state is State.DONE else BUSY if what == "answer" else what
                return self.deliver(attempt, request, row, given)
            case other:
                raise AssertionError(f"{other} for a sequential agent")

    def execute(
        self, attempt: str, step: str, request: Request, row: Occurrence, *, unresolved: bool = False
    ) -> str:
        """`row` is pending. The proxy lives on when the agent dies, so the call is always settled."""
        self.asked[row.seq].add(attempt)
        if not request.safe:
            self.last_effect = max(self.last_effect, order(step))
        outcome = self.world.send(step, request, f"{request.name}#{row.n}")
        if unresolved and outcome != OK:
            outcome = DOUBT
        states = {OK: State.DONE, BUSY: State.RELEASED, UNREACHABLE: State.RELEASED, DOUBT: State.IN_DOUBT}
        row = replace(row, state=states[outcome], answered=outcome in (OK, BUSY))
        if outcome in (UNREACHABLE, DOUBT):
            row = after_problem_given(row, Receipt(attempt=attempt, problem=outcome, position=self.seq))
        return self.deliver(attempt, request, row, outcome)

    def deliver(self, attempt: str, request: Request, row: Occurrence, what: str) -> str:
        number = max(x.number for x in row.by(attempt))
        self.rows[request.name][row.n] = after_delivery_ended(row, number, End.ABANDONED)
        self.kill.point()  # settled, not handed on
        end = End.COMPLETE if what in (OK, BUSY) else End.PROBLEM
        self.rows[request.name][row.n] = after_delivery_ended(row, number, end, final=what == OK)
        self.kill.point()  # handed on, and the agent dies before it acts on it
        return what


Caller = Callable[[str, Request, int], str]  # step, request, how often it was retried


def run_agent(program: list[Try], call: Caller, results: dict[str, str]) -> None:
    """Notes what every step came to, as far as it gets."""

    def tried(step: str, request: Request, tries: int, *, evidence: bool) -> str:
        what = ""
        for count in range(tries):
            what = call(step, request, count if evidence else 0)
            if what == OK:
                break
        results[step] = what
        return what

    for number, todo in enumerate(program):
        what = tried(f"{number}", todo.request, todo.tries, evidence=todo.evidence)
        if what != OK and todo.fallback is not None:
            tried(f"{number} fallback", todo.fallback, 1, evidence=False)


EFFECTS = [Request("send"), Request("charge", resend=True), Request("book")]
READS = [Request("poll", safe=True), Request("list", safe=True)]
SPARE = Request("spare")

steps = st.builds(
    Try,
    request=st.sampled_from(EFFECTS + READS),
    tries=st.integers(1, 3),
    evidence=st.booleans(),
    fallback=st.sampled_from([None, SPARE, Request("send")]),
)
programs = st.lists(steps, min_size=1, max_size=6)


def scripts(*outcomes: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(outcomes), max_size=25)


def no_step_twice(world: World) -> None:
    assert len(world.executed) == len(set(world.executed)), world.executed


def no_more_than_meant(world: World, program: list[Try]) -> None:
    """Identical calls cannot be told apart, but never are there more of them than the program means."""
    meant = Counter(todo.request.name for todo in program)
    meant.update(todo.fallback.name for todo in program if todo.fallback is not None)
    done = Counter(name for _, name in world.executed)
    assert all(done[name] <= meant[name] for name in done), (done, meant)


def no_failed_step_after_its_fallback(world: World) -> None:
    """Once the fallback of a step was sent, the step itself is not sent any more."""
    for at, (step, _) in enumerate(world.sends):
        if step.endswith(" fallback"):
            failed = step.removesuffix(" fallback")
            assert failed not in [later for later, _ in world.sends[at:]], world.sends


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs, script=scripts(OK, BUSY, UNREACHABLE))
def test_a_healthy_agent_does_not_notice_semel(program: list[Try], script: list[str]) -> None:
    """Principle one: never killed, every call goes out exactly as without semel, with the same answers."""
    bare, behind = World(script), World(script)
    alone: dict[str, str] = {}
    guarded: dict[str, str] = {}
    run_agent(program, lambda step, request, _: bare.send(step, request, str(len(bare.sends))), alone)
    semel = Semel(behind, Kill(0))
    run_agent(program, partial(semel.ask, "a1"), guarded)
    assert behind.sends == bare.sends
    assert behind.executed == bare.executed
    assert guarded == alone


def order(step: str) -> tuple[int, bool]:
    number, _, fallback = step.partition(" ")
    return int(number), bool(fallback)


def live_and_die(program: list[Try], world: World, kills: list[int], *, compare: bool) -> None:
    """Runs the program until it is not killed; each attempt must meet the past of the one before."""
    semel = Semel(world, Kill(0))
    past: dict[str, str] = {}
    for number, kill in enumerate([*kills, 0]):
        semel.kill.left = kill
        lived: dict[str, str] = {}
        try:
            run_agent(program, partial(semel.ask, f"a{number}"), lived)
        except Killed:
            event("killed")
        note(f"a{number}: {lived}, sends so far {world.sends}")
        # A doubt may be settled by now; everything else before the last effect is met again as it was.
        for step in past.keys() & lived.keys() if compare else ():
            assert lived[step] == past[step] or past[step] == DOUBT, (number, step, past, lived)
        past = {step: what for step, what in lived.items() if order(step) < semel.last_effect}


def told_apart(program: list[Try]) -> list[Try]:
    """The same program with every step's content its own."""

    def own(request: Request, number: int, what: str) -> Request:
        return replace(request, name=f"{request.name} {what} {number}")

    return [
        replace(
            todo,
            request=own(todo.request, n, "step"),
            fallback=todo.fallback and own(todo.fallback, n, "fallback"),
        )
        for n, todo in enumerate(program)
    ]


kill_points = st.lists(st.integers(1, 30), min_size=1, max_size=3)


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs, script=scripts(OK, BUSY, BUSY, UNREACHABLE, DOUBT), kills=kill_points)
def test_a_killed_agent_run_again_does_every_step_once(
    program: list[Try], script: list[str], kills: list[int]
) -> None:
    """No effect twice for one step, no step after its fallback, the same results up to the frontier."""
    world = World(script)
    live_and_die(told_apart(program), world, kills, compare=True)
    no_step_twice(world)
    no_failed_step_after_its_fallback(world)


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs, script=scripts(OK, BUSY), kills=kill_points)
def test_the_same_with_identical_calls_in_several_steps(
    program: list[Try], script: list[str], kills: list[int]
) -> None:
    """Polling, second reminders: identical calls are told apart by their count alone.

    A read that says "I retry" is left out: it means the oldest identical read that failed, whichever step
    that belonged to, so the answers of two such steps may change places. Nothing is sent twice for it.
    """
    program = [replace(todo, evidence=todo.evidence and not todo.request.safe) for todo in program]
    world = World(script)
    live_and_die(program, world, kills, compare=True)
    no_step_twice(world)


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs, script=scripts(OK, BUSY, BUSY, UNREACHABLE, DOUBT), kills=kill_points)
def test_identical_calls_with_problems_are_never_more_than_meant(
    program: list[Try], script: list[str], kills: list[int]
) -> None:
    """A problem is owed, so a later identical step may take an earlier one's place, never add to it."""
    world = World(script)
    live_and_die(program, world, kills, compare=False)
    no_more_than_meant(world, program)
