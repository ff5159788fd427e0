"""What is easily overlooked: halves of a line end, counts that are needed, keys by their place."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.canonical import Body
from proxy.core.clauses import UpstreamKey
from proxy.core.frontier import Frontier, is_sealed, is_used_up
from proxy.core.headers import without_nominated
from proxy.core.hints import Hints
from proxy.core.identity import Asked, identify, wording
from proxy.core.intent import Answer, Place, State, evolve
from proxy.core.outcome import Verdict, judge_status, reads_answers
from proxy.core.patterns import is_like
from proxy.core.policy import Implied, KeyRecipe, OutcomeRule, Rule
from proxy.core.prices import tokens_usd
from proxy.core.run_record import InRun, Receipt
from proxy.core.runs import End, Exchange, Occurrence, step_of
from proxy.core.sse import EventStream, is_terminal
from tests.stores import calls

SECRET = b"s" * 32
ASKED = Asked(
    tenant="t", upstream="u", method="POST", raw_path=b"/a", query=b"", headers=(), path_names={},
    body=Body("application/json", b"application/json", b'{"a": 1, "b": 2}'),
)  # fmt: skip


def test_a_line_end_may_come_in_halves() -> None:
    """CR at the end of a part: an LF that follows belongs to it, anything else does not."""
    stream = EventStream()
    assert stream.feed(b"data: 1\r\r") == 9
    assert stream.feed(b"\ndata: 2\n\n") == 19
    stream = EventStream()
    assert stream.feed(b"data: 1\r\r") == 9
    assert stream.feed(b"data: 2") == 9
    assert stream.feed(b"\r\n\r") == 19
    assert stream.feed(b"\n") == 20
    stream = EventStream()
    assert [stream.feed(bytes([each])) for each in b"a\n\nb\n\n"] == [0, 0, 3, 3, 3, 6]
    assert stream.feed(b"") == 6


def test_after_the_end_nothing_more_is_shown() -> None:
    """Whatever comes; a mark before the first event says nothing."""
    stream = EventStream()
    before = stream.ended
    assert stream.feed(b"\xef\xbb\xbfdata: 1\n\ndata: [DONE]\n\ndata: 2\n\n") == 12
    assert (before, stream.ended) == (False, True)
    assert stream.feed(b"data: 3\n\n") == 12


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (b'data: {"jsonrpc": "2.0", "id": 1, "result": {}}', True),
        (b'data: {"jsonrpc": "2.0", "id": 1, "error": {}}', True),
        (b'data: {"jsonrpc": "2.0", "method": "x", "params": {"result": 1}}', False),
        (b'data: {"x": "\\"jsonrpc\\"", "result": 1}', False),
        (b"event: message_stop\nevent: ping\ndata: {}", False),
        (b"event: ping\nevent: message_stop\ndata: {}", True),
        (b"data: message_stop", False),
    ],
)
def test_which_events_end_a_stream(event: bytes, ends: bool) -> None:
    """The last name counts; a word in a text is none."""
    assert is_terminal(event) is ends


def test_a_key_counts_where_the_upstream_takes_it() -> None:
    """In that header before the usual one; what a rule includes is all that names a call."""
    there = Rule(name="r", key=KeyRecipe(implied=Implied(client_header="x-key")))
    mine, usual = (b"X-Key", b"1"), (b"Idempotency-Key", b"2")
    by_place = identify(ASKED._replace(headers=(usual, mine)), there, SECRET)
    assert by_place.named_by == identify(ASKED._replace(headers=(mine,)), there, SECRET).named_by != b""
    assert by_place.named_by != identify(ASKED._replace(headers=(usual,)), there, SECRET).named_by
    some = Rule(name="r", key=KeyRecipe(include=("a",)))
    other = ASKED._replace(body=ASKED.body._replace(data=b'{"a": 1, "b": 3}'))
    assert identify(ASKED, some, SECRET) == identify(other, some, SECRET)
    assert identify(ASKED, Rule(name="r"), SECRET) != identify(other, Rule(name="r"), SECRET)
    assert len(wording(ASKED, some, SECRET)) == 32


def test_a_signature_is_read_in_authorization_alone() -> None:
    """In another header the same text is a secret like any other."""
    signed = b"AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=%d"
    one, two = (ASKED._replace(headers=((b"Authorization", signed % n),)) for n in (1, 2))
    assert identify(one, Rule(name="r"), SECRET) == identify(two, Rule(name="r"), SECRET)
    one, two = (ASKED._replace(headers=((b"X-Api-Key", signed % n),)) for n in (1, 2))
    assert identify(one, Rule(name="r"), SECRET) != identify(two, Rule(name="r"), SECRET)


def test_whether_an_answer_is_read_at_all() -> None:
    """Only where something may stand in it."""
    plain = OutcomeRule()
    assert not reads_answers(plain)
    assert not reads_answers(plain, UpstreamKey(header="k"))
    assert reads_answers(plain, UpstreamKey(header="k", mismatch_if="x"))
    assert reads_answers(OutcomeRule(in_doubt_if="x"))
    assert reads_answers(OutcomeRule(not_executed_if="x"))
    known = UpstreamKey(header="k", mismatch=frozenset({422}))
    for safe in (True, False):
        assert judge_status(422, safe=safe, rule=plain, key=known) is Verdict.IN_DOUBT


@pytest.mark.parametrize(
    "usage",
    [
        {"output_tokens": 1},
        {"input_tokens": 1},
        {"completion_tokens": 1, "total_tokens": 1},
        {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"audio_tokens": 1},
        },
        {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}},
    ],
)
def test_without_the_counts_that_are_needed_there_is_no_price(usage: dict[str, Any]) -> None:
    """Nothing is guessed."""
    assert tokens_usd({"model": "claude-opus-4-5", "usage": usage}) is None
    assert tokens_usd({"model": "gpt-4.1", "usage": usage}) is None
    assert tokens_usd({"model": "gpt-4.1", "usage": {"prompt_tokens": 10**9}}) is not None
    assert tokens_usd({"model": "gpt-4.1", "usage": {"prompt_tokens": 10**9 + 1}}) is None
    cached = {"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": 2}}
    assert tokens_usd({"model": "gpt-4.1", "usage": cached}) is not None
    assert tokens_usd({"model": "gpt-4.1", "usage": {"prompt_tokens": 1}, "output": ["message"]}) is None


def test_what_is_harmless_is_not_harmful_whatever_else_is_said() -> None:
    """A server that says both is taken at the kinder word, which only a trusted one's is."""
    assert not Hints(read_only=True, destructive=True).harmful
    assert not Hints(idempotent=True, read_only=False).harmful
    assert Hints(destructive=True).harmful
    assert Hints(read_only=False).harmful
    assert not Hints().harmful


def row(*exchanges: Exchange, **more: Any) -> Occurrence:
    given: dict[str, Any] = {"n": 1, "seq": 5, "safe": True, "state": State.RELEASED, "fence": 2} | more
    return Occurrence(exchanges=exchanges, claimed_by="a1", **given)


def test_how_often_a_failure_is_given_again() -> None:
    """As often as it took the first attempt; beyond it once for every problem of the present answer."""
    beyond = Frontier(last_effect=9, asked=9)
    problem = Exchange(number=1, attempt="a2", fence=2, owner="p", end=End.PROBLEM)
    old = Exchange(number=2, attempt="a2", fence=1, owner="p", end=End.PROBLEM)
    assert is_used_up(row(problem, answered=True), "a2", beyond)
    assert not is_used_up(row(old, answered=True), "a2", beyond)
    assert not is_used_up(row(problem, answered=True, uses=2), "a2", beyond)
    given = [Exchange(number=n, attempt="a2", fence=2, owner="p", end=End.COMPLETE) for n in (1, 2, 3)]
    before = Frontier(last_effect=9)
    assert not is_used_up(row(*given[:2], answered=True, tries=3), "a2", before)
    assert is_used_up(row(*given, answered=True, tries=3), "a2", before)


def test_a_doubt_is_sealed_by_what_came_after_it_was_first_given() -> None:
    """The earliest time it was given counts."""
    receipts = tuple(Receipt(attempt=f"a{n}", problem="in-doubt", position=n) for n in (3, 7))
    doubted = row(state=State.IN_DOUBT, receipts=receipts)
    assert is_sealed(doubted, Frontier(last_effect=5))
    assert not is_sealed(doubted, Frontier(last_effect=3))
    assert not is_sealed(row(state=State.PENDING, answered=True), Frontier(last_effect=9))


@pytest.mark.parametrize(
    "change", [{"state": State.DONE}, {"state": State.IN_DOUBT}, {"expires_at": 1.0}, {"owner": ""}], ids=str
)
def test_a_call_that_is_changed_obeys_the_laws_of_a_new_one(change: dict[str, Any]) -> None:
    """Done has an answer, doubt a reason; what is open never expires and has an owner."""
    call, _ = calls.claim("p", bytes(16))
    assert call.state is State.PENDING
    with pytest.raises(ValueError):
        evolve(call, **change)


def test_a_step_tells_the_size_of_its_answer() -> None:
    """And nothing of one that is not there."""
    call, _ = calls.claim("p", bytes(16))
    in_run = evolve(call, run="r", in_run=InRun(family=b"f", group=()))
    assert (step_of(in_run).size, step_of(in_run).status) == (0, None)
    answer = Answer(status=201, size=7, recorded_at=1.0, place=Place.INLINE)
    done = evolve(in_run, state=State.DONE, answer=answer)
    assert (step_of(done).size, step_of(done).status) == (7, 201)


def test_stars_take_what_is_between_in_order() -> None:
    """Each piece after the one before it; none twice."""
    for value, pattern, fits in (
        ("abc", "a*b*c", True),
        ("acb", "a*b*c", False),
        ("ab", "a*b*b", False),
        ("abxb", "a*b*b", True),
        ("aa", "a*a*a", False),
        ("a", "a*a", False),
        ("xx", "*x*x*", True),
        ("x", "*x*x*", False),
    ):
        assert is_like(value, pattern) is fits, (value, pattern)


def test_a_connection_that_is_kept_names_nothing_however_it_is_spaced() -> None:
    """Spaces and tabs around the word do not make it another."""
    headers = ((b"Connection", b"\t close "), (b"Te", b"x"))
    assert without_nominated(headers) == headers
