"""A lost mark may cause a replay, never a send: searched over records and over the marks they lose."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from hypothesis import given, note, settings
from hypothesis import strategies as st

from proxy.core.frontier import Frontier, GoLive, recall
from proxy.core.intent import State
from proxy.core.occurrence import MARK_LAG, Ask, Choice, Existing, New, choose_occurrence
from proxy.core.runs import End, Exchange, Occurrence, Receipt, with_dead_owners

EXAMPLES = 10_000 if os.environ.get("SEMEL_SOAK") else 500
ME = "a2"
# What an exchange of the present answer can have come to, by the state of its call.
ENDS = {
    State.DONE: tuple(End),
    State.RELEASED: tuple(End),
    State.PENDING: (End.UNDER_WAY, End.ABANDONED, End.PROBLEM),
    State.IN_DOUBT: (End.ABANDONED, End.PROBLEM),
    State.AWAITING_APPROVAL: (End.ABANDONED, End.PROBLEM),
}


@dataclass(frozen=True)
class Marked:
    """An exchange, and what may be lost of it: its start (a replay's), its end (any lazy mark)."""

    exchange: Exchange
    lazy_start: bool
    lose_start: bool
    lose_end: bool

    def left(self) -> list[Exchange]:
        running = self.exchange.end is End.UNDER_WAY and self.exchange.owner != "dead"  # nothing forgets that
        if self.lazy_start and self.lose_start and not running:
            return []
        return [self.exchange._replace(end=End.UNDER_WAY) if self.lose_end else self.exchange]


@st.composite
def occurrences(draw: st.DrawFn, n: int) -> tuple[Occurrence, list[Marked]]:
    state = draw(st.sampled_from(sorted(ENDS)))
    mine = draw(st.booleans())  # claimed by the asking attempt: that start is durable
    marked = []
    for number in range(1, draw(st.integers(1 if mine else 0, 3)) + 1):
        end = draw(st.sampled_from(ENDS[state]))
        exchange = Exchange(
            number=number,
            attempt=ME,
            fence=1,
            owner=draw(st.sampled_from(["here", "there", "dead"])),
            end=end,
            final=state is State.DONE,
            tokens=draw(st.sampled_from([frozenset[str](), frozenset({f"k{n}"})])),
        )
        durable = mine and number == 1
        marked.append(Marked(exchange, not durable, draw(st.booleans()), draw(st.booleans())))
    # Every delivery was owed when it began, or was counted as a use first, durably.
    counted = [m.exchange.end in (End.COMPLETE, End.UNDER_WAY) for m in marked]
    needed = max((sum(counted[:i]) + 1 for i in range(len(counted))), default=1)
    row = Occurrence(
        n=n,
        seq=2 * n,
        safe=False,
        state=state,
        fence=1,
        claimed_by=ME if mine else "a1",
        uses=max(needed, draw(st.integers(1, 3))),
        tries=draw(st.integers(1, 2)),
        # Released without an answer means that a person let it go live: that send is wanted, not tested here.
        answered=state in (State.DONE, State.RELEASED),
        receipts=(Receipt(attempt="a1", problem="in-doubt", position=2 * n),)
        if state is State.IN_DOUBT and draw(st.booleans())
        else (),
    )
    return row, marked


@st.composite
def records(draw: st.DrawFn) -> list[tuple[Occurrence, list[Marked]]]:
    return [draw(occurrences(n)) for n in range(1, draw(st.integers(1, 4)) + 1)]


asks = st.builds(
    Ask,
    attempt=st.just(ME),
    safe=st.just(False),
    proxy=st.just("here"),
    tokens=st.sampled_from([frozenset[str](), frozenset({"k1"}), frozenset({"k2"}), frozenset({"new"})]),
    retry_count=st.integers(0, 1),
)


def view(rows: list[Occurrence], other: int, asked_other: bool) -> Frontier:
    """These rows have effects themselves; `other` is some other call's seq."""
    asked = [row.seq for row in rows if row.by(ME)] + ([other] if asked_other else [])
    return Frontier(last_effect=max(*(row.seq for row in rows), other), asked=max(asked, default=0))


def goes_live(n: int, rows: list[Occurrence], frontier: Frontier) -> bool:
    (row,) = (row for row in rows if row.n == n)
    return recall(row, ME, frontier) == GoLive()


def sends(choice: Choice, rows: list[Occurrence], frontier: Frontier) -> bool:
    """A new call, or a claim. Who joins never claims."""
    return isinstance(choice, New) or (isinstance(choice, Existing) and goes_live(choice.n, rows, frontier))


def replays(choice: Choice, rows: list[Occurrence], frontier: Frontier) -> bool:
    """It is a call that was executed, or may have been, or that must be given again."""
    return not isinstance(choice, New) and not goes_live(choice.n, rows, frontier)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    record=records(),
    ask=asks,
    other=st.integers(0, 9),
    asked_other=st.booleans(),
    loses_other=st.booleans(),
)
def test_losing_marks_never_turns_a_replay_into_a_send(
    record: list[tuple[Occurrence, list[Marked]]], ask: Ask, other: int, asked_other: bool, loses_other: bool
) -> None:
    """Whatever starts of replays and ends of deliveries are lost, with dead, other and own proxies."""

    def with_marks(row: Occurrence, exchanges: list[Exchange]) -> Occurrence:
        (seen,) = with_dead_owners([replace(row, exchanges=tuple(exchanges))], frozenset({"dead"}))
        return seen

    whole = [with_marks(row, [m.exchange for m in marked]) for row, marked in record]
    less = [with_marks(row, [x for m in marked for x in m.left()]) for row, marked in record]
    known = view(whole, other, asked_other)
    known_less = view(less, other, asked_other and not loses_other)
    choice = choose_occurrence(whole, ask, known, waited=MARK_LAG)
    choice_less = choose_occurrence(less, ask, known_less, waited=MARK_LAG)
    note(f"{choice} with all marks, {choice_less} without")
    if replays(choice, whole, known):
        assert not sends(choice_less, less, known_less)
