"""Every combination of what is stored and what is asked: one decision each."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from proxy.core import decide as core
from proxy.core.clauses import OnStale
from proxy.core.identity import Identity
from proxy.core.intent import OPEN_STATES, Answer, Call, Doubt, Place, State
from proxy.core.policy import Rule
from proxy.core.terms import Terms

NOW = 1_700_000_000.0
KEY = bytes(16)
ANSWERS = {
    Place.INLINE: Answer(status=200, size=1, recorded_at=NOW, place=Place.INLINE, body=b"x"),
    Place.BLOB: Answer(status=200, size=1, recorded_at=NOW, place=Place.BLOB, blob="ab"),
    Place.CACHE: Answer(status=200, size=1, recorded_at=NOW, place=Place.CACHE),
    Place.NOWHERE: Answer(status=200, size=1, recorded_at=NOW, place=Place.NOWHERE, why_nowhere="too long"),
}


def row(
    state: State, *, live: bool = True, safe: bool = False, place: Place = Place.INLINE, named_by: bytes = b""
) -> Call:
    expires = None if state in OPEN_STATES else NOW + (1 if live else 0)
    return Call(
        key=KEY, fingerprint=b"f", named_by=named_by, tenant="default", upstream="mail", rule="send",
        tool="send", safe=safe, state=state, version=3, fence=2, owner="p1", created_at=NOW - 100,
        expires_at=expires, sends=2, answer=ANSWERS[place] if state is State.DONE else None,
        doubt=Doubt(since=NOW, reason="r") if state is State.IN_DOUBT else None,
        terms=Terms(bound_to=b"this") if state is State.AWAITING_APPROVAL else None,
    )  # fmt: skip


def asks(fingerprint: bytes = b"f", named_by: bytes = b"") -> Identity:
    return Identity(key=KEY, fingerprint=fingerprint, named_by=named_by, arguments=b"")


# State, live, safe, refresh, place of the answer -> decision. None stands for any.
TABLE: list[tuple[State, bool | None, bool | None, bool | None, Place | None, type]] = [
    (State.PENDING, None, None, None, None, core.Wait),
    (State.IN_DOUBT, None, None, None, None, core.Hold),
    (State.RELEASED, None, None, None, None, core.Claim),
    (State.AWAITING_APPROVAL, True, None, None, None, core.AwaitPerson),
    (State.AWAITING_APPROVAL, False, None, None, None, core.Claim),
    (State.DENIED, True, None, None, None, core.Refused),
    (State.DENIED, False, None, None, None, core.Claim),
    (State.DONE, False, None, None, None, core.Claim),
    (State.DONE, True, True, True, None, core.Claim),
    (State.DONE, True, True, False, Place.NOWHERE, core.Claim),
    (State.DONE, True, False, None, Place.NOWHERE, core.Unavailable),
    (State.DONE, True, True, False, Place.INLINE, core.Replay),
    (State.DONE, True, True, False, Place.BLOB, core.Replay),
    (State.DONE, True, True, False, Place.CACHE, core.Replay),
    (State.DONE, True, False, None, Place.INLINE, core.Replay),
    (State.DONE, True, False, None, Place.BLOB, core.Replay),
    (State.DONE, True, False, None, Place.CACHE, core.Replay),
]
CASES = list(itertools.product(State, (True, False), (True, False), (True, False), Place))


def expected(state: State, live: bool, safe: bool, refresh: bool, place: Place) -> type:
    given = (state, live, safe, refresh, place)
    found = [
        line[-1]
        for line in TABLE
        if all(want is None or want == have for want, have in zip(line[:-1], given, strict=True))
    ]
    assert len(found) == 1, f"the table of this test has {len(found)} lines for {given}"
    return found[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_what_is_stored_decides(case: tuple[State, bool, bool, bool, Place]) -> None:
    """The whole table: state, live or expired, safe, refresh, where the answer lies."""
    state, live, safe, refresh, place = case
    stored = row(state, live=live, safe=safe, place=place)
    decision = core.decide(stored, asks(), now=NOW, refresh=refresh)
    assert type(decision) is expected(*case)
    carried = decision.over if isinstance(decision, core.Claim) else getattr(decision, "call", None)
    assert carried is stored


def test_without_a_row_the_call_is_claimed() -> None:
    """Never seen, or deleted."""
    assert core.decide(None, asks(), now=NOW) == core.Claim(None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_another_fingerprint_never_gets_the_rows_answer(
    case: tuple[State, bool, bool, bool, Place],
) -> None:
    """While the row lives: a collision, or a conflict of the client's key. Once lapsed, a new call."""
    state, live, safe, refresh, place = case
    for mine, theirs, kind in (
        (b"", b"", core.Collision),
        (b"n", b"n", core.Conflict),
        (b"n", b"", core.Collision),
        (b"", b"n", core.Collision),
        (b"n", b"m", core.Collision),
    ):
        stored = row(state, live=live, safe=safe, place=place, named_by=theirs)
        decision = core.decide(stored, asks(b"other", mine), now=NOW, refresh=refresh)
        if live or state in OPEN_STATES:
            assert type(decision) is kind
        else:
            assert decision == core.Claim(stored)


def test_a_client_key_over_a_row_without_one_is_a_collision_even_with_equal_fingerprints() -> None:
    """The key's own proof is compared first."""
    assert core.decide(row(State.DONE), asks(named_by=b"n"), now=NOW) == core.Collision()


def test_a_lost_answer_is_fetched_again_only_for_a_safe_call() -> None:
    """It happened; for effects that is all that can be said."""
    assert core.answer_lost(row(State.DONE, safe=True), "gone") == core.Claim(row(State.DONE, safe=True))
    assert core.answer_lost(row(State.DONE), "gone") == core.Unavailable(row(State.DONE), "gone")


def test_a_claim_over_a_released_row_goes_on_with_its_history() -> None:
    """Created and sends go on, fence and version grow; over a lapsed row everything but those starts anew."""
    new = replace(row(State.PENDING), version=1, fence=1, created_at=NOW, sends=1, owner="p2")
    again, entry, version = core.claim(new, row(State.RELEASED), actor="a", now=NOW)
    assert (again.created_at, again.sends, again.fence, again.version, version) == (NOW - 100, 3, 3, 4, 3)
    assert entry.before is State.RELEASED
    for state in (State.RELEASED, State.DONE, State.DENIED, State.AWAITING_APPROVAL):
        anew, entry, version = core.claim(new, row(state, live=False), actor="a", now=NOW)
        assert (anew.created_at, anew.sends, anew.fence, anew.version, version) == (NOW, 1, 3, 4, 3)
        assert entry.before is None
        assert anew.answer is None
    first, entry, version = core.claim(new, None, actor="a", now=NOW)
    assert (first, entry.before, version) == (new, None, 0)


@pytest.mark.parametrize("expires", [None, NOW + 5, NOW + 50])
@pytest.mark.parametrize("max_age", [None, 10.0, 20.0])
@pytest.mark.parametrize("stale", list(OnStale))
@pytest.mark.parametrize("safe", [False, True])
def test_a_replay_is_one_until_its_time_and_no_longer(
    expires: float | None, max_age: float | None, stale: OnStale, safe: bool
) -> None:
    """What `replays_until` says is what `decide` does, a moment before and a moment after."""
    rule = Rule(name="r", max_age=max_age, stale=stale)
    done = replace(row(State.DONE, safe=safe), expires_at=expires)
    until = core.replays_until(done, rule)

    def replays(now: float) -> bool:
        return isinstance(core.decide(done, asks(), now=now, rule=rule), core.Replay)

    assert all(replays(now) for now in (NOW - 1000, NOW, NOW + 4, until - 0.25) if now < until)
    if until == math.inf:
        assert replays(NOW + 1e9)
    else:
        assert not replays(until + 0.25)
