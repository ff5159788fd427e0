"""Very many identical calls: what is left out of the choice beforehand could not have been chosen."""

from __future__ import annotations

from random import Random

import pytest

from proxy.core.frontier import Frontier
from proxy.core.intent import State
from proxy.core.occurrence import FEW, Ask, New, choose_occurrence, free_number, worth_choosing_from
from proxy.core.policy import Repeat
from proxy.core.run_record import End, Exchange, Receipt
from proxy.core.runs import Occurrence
from tests.counts import count

STATES = [State.DONE] * 6 + [State.RELEASED, State.PENDING, State.IN_DOUBT, None]


def some_row(chance: Random, n: int, *, safe: bool) -> Occurrence:
    fence = chance.randint(1, 2)
    exchanges = tuple(
        Exchange(
            number=number,
            attempt=chance.choice(["a", "a", "b"]),
            fence=chance.randint(1, fence),
            owner=chance.choice(["me", "other"]),
            end=chance.choice([End.COMPLETE] * 4 + [End.UNDER_WAY, End.ABANDONED, End.PROBLEM]),
            final=chance.random() < 0.9,
            credentials=chance.choice([b"", b"c"]),
            tokens=frozenset(chance.sample(["k1", "k2", "k3"], chance.choice([0, 0, 1]))),
            wording=chance.choice(["", "monday", "tuesday"]),
        )
        for number in range(1, chance.choice([1, 2, 2, 3]))
    )
    state = chance.choice(STATES)
    told = Receipt(attempt="b", problem=chance.choice(["in-doubt", "upstream-timeout"]), position=n)
    return Occurrence(
        n=n,
        seq=chance.randint(1, 40),
        safe=safe,
        state=state,
        fence=fence,
        claimed_by=chance.choice(["a", "b"]),
        uses=chance.choice([1, 1, 2]),
        tries=chance.choice([1, 1, 2]),
        answered=state is State.DONE or chance.random() < 0.5,
        receipts=(told,) if chance.random() < 0.2 else (),
        exchanges=exchanges,
        numbered=chance.random() < 0.05,
        resolved=chance.random() < 0.1,
    )


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_what_is_left_out_could_not_have_been_chosen(kind: str) -> None:
    """The choice among those that are worth it is the choice among all."""
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    chance, safe = Random(seed), kind == "reads"
    shortened = 0
    for _ in range(count(test=1000, soak=100_000)):
        numbers = sorted(chance.sample(range(1, 40), chance.randint(FEW + 1, 30)))
        rows = [some_row(chance, n, safe=safe) for n in numbers]
        ask = Ask(
            attempt=chance.choice(["a", "a", "a", ""]),
            safe=safe,
            proxy="me",
            repeat=chance.choice([Repeat.ORDINAL, Repeat.ORDINAL, Repeat.SAME]),
            credentials=chance.choice([b"", b"c"]),
            tokens=frozenset(chance.sample(["k1", "k2", "k4"], chance.choice([0, 0, 1]))),
            retry_count=chance.choice([0, 0, 1]),
            occurrence=chance.choice([None, None, None, 3]),
            wording=chance.choice(["", "monday"]),
        )
        frontier = Frontier(last_effect=chance.randint(0, 40), asked=chance.randint(0, 20))
        waited = chance.choice([0.0, 9.0])
        few = worth_choosing_from(rows, ask)
        shortened += len(few) < len(rows)
        among_few = choose_occurrence(few, ask, frontier, waited=waited)
        if isinstance(among_few, New):
            among_few = New(ask.occurrence or free_number(numbers))
        assert among_few == choose_occurrence(rows, ask, frontier, waited=waited), (rows, ask, frontier)
    assert shortened > 100
