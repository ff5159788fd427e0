"""Words that outlive a version: in records, in policy files. Renaming one breaks what is out there."""

from __future__ import annotations

from enum import StrEnum

import pytest

from proxy.core.budget import BUCKETS, DAY, FOR_GOOD, MICRO, Meter
from proxy.core.canonical import CANONICAL_VERSION
from proxy.core.clauses import KeyEncoding, OnDoubt, OnStale, Wire
from proxy.core.divergence import OnDivergence
from proxy.core.intent import NEED_A_PERSON, OPEN_STATES, RECORD_VERSION, SETTLED_STATES, Event, Place, State
from proxy.core.policy import ClientKey, Credential, Mode, Normalize, OnDisconnect, Repeat, Scope
from proxy.core.run_record import RECEIVED_PROBLEMS, End, Exchange, How, InRun, Parent, Run, RunState
from proxy.core.terms import Terms

WORDS: dict[type[StrEnum], str] = {
    State: "pending in_doubt done released awaiting_approval denied",
    Event: "claim answered not_sent not_executed inconclusive lost resend needs_approval approve deny expire",
    Place: "inline blob cache nowhere",
    End: "under_way complete abandoned problem",
    How: "executed joined replayed refused",
    RunState: "open complete expired",
    Meter: "calls usd",
    Mode: "once cache pass deny",
    Scope: "run tenant",
    Repeat: "ordinal same",
    Credential: "auto include exclude",
    ClientKey: "auto ignore require",
    Normalize: "timestamps uuids",
    OnDisconnect: "finish cancel",
    OnDoubt: "hold resend probe",
    OnStale: "serve revalidate refuse",
    KeyEncoding: "text hex uuid",
    OnDivergence: "hold allow",
    Wire: "http mcp tools",
}


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_words_stay(kind: type[StrEnum]) -> None:
    """Each is read from somewhere that this version did not write."""
    assert [str(member) for member in kind] == WORDS[kind].split()
    assert [member.name.lower() for member in kind] == WORDS[kind].split()


def test_which_states_are_open_settled_or_for_a_person() -> None:
    """Nobody may delete an open one; every state but one that waits for a person is one or the other."""
    assert {State.PENDING, State.IN_DOUBT} == OPEN_STATES
    assert {State.DONE, State.RELEASED, State.DENIED} == SETTLED_STATES
    assert {State.IN_DOUBT, State.AWAITING_APPROVAL} == NEED_A_PERSON
    assert {"upstream-unreachable", "upstream-timeout", "in-doubt", "denied"} == RECEIVED_PROBLEMS


def test_numbers_that_are_part_of_names_and_sums() -> None:
    """Changing one of these is a migration."""
    assert (CANONICAL_VERSION, RECORD_VERSION) == (1, 1)
    assert (BUCKETS, FOR_GOOD, DAY, MICRO) == (60, 2**53 - 1, 86400.0, 1_000_000)


def test_what_a_record_means_where_it_says_nothing() -> None:
    """Fields that older versions did not write are read as these."""
    in_run = InRun(family=b"f", group=())
    assert (in_run.uses, in_run.tries, in_run.receipts, in_run.shared) == (1, 1, (), "")
    assert [in_run.numbered, in_run.resolved, in_run.retired, in_run.orphaned] == [False] * 4
    served = Exchange(number=1, attempt="a", fence=1, owner="p")
    assert (served.end, served.final, served.how, served.at) == (End.UNDER_WAY, True, How.EXECUTED, 0.0)
    assert (served.credentials, served.tokens, served.wording) == (b"", frozenset(), "")
    run = Run(tenant="t", name="r", created_at=1.0, active_at=1.0)
    assert (run.state, run.version, run.pulse, run.last_seq) == (RunState.OPEN, 1, 0, 0)
    assert (run.attempts, run.parent, run.origin, run.recipes) == ((), None, "", {})
    assert (run.passed, run.retired) == (frozenset(), frozenset())
    assert not Parent(run="r", at=1).resend
    terms = Terms()
    assert (terms.key, terms.place, terms.keyed_at, terms.bound_to, terms.said) == ("", "", 0.0, b"", "")
    assert (terms.granted, terms.until, terms.reserved) == (False, None, None)
