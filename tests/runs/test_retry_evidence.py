"""Section 2, rule 1: a retry on evidence is the same occurrence."""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body
from proxy.core.intent import State
from proxy.core.policy import KeyRecipe
from proxy.core.retry_evidence import evidence_of
from proxy.errors import InDoubt, UpstreamTimeout
from proxy.upstream.base import Answered, Lost
from tests.exchange.stage import Talk, answers, lost, until
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

SECRET = b"s" * 32


def token(header: bytes, value: bytes) -> frozenset[str]:
    return evidence_of(((header, value),), Body(), KeyRecipe(), (), SECRET).tokens


KEY, OTHER_KEY = token(b"Idempotency-Key", b"k1"), token(b"Idempotency-Key", b"k2")
EITHER = pytest.mark.parametrize("safe", [True, False], ids=["safe", "effects"])


@EITHER
@pytest.mark.parametrize("header", [b"Idempotency-Key", b"idempotency-key", b"amz-sdk-invocation-id"])
@in_virtual_time
async def test_the_same_token_within_the_attempt_is_the_same_occurrence(header: bytes, safe: bool) -> None:
    """Also after the answer was fully delivered: it is replayed, nothing is sent."""
    agent = Agent(RunProcess())
    first = await agent.ask("call", safe=safe, tokens=token(header, b"t"))
    again = await agent.ask("call", safe=safe, tokens=token(header, b"t"))
    assert (again.kind, again.body) == ("replayed", first.body)
    assert agent.semel.origin.sent["call"] == 1


@EITHER
@in_virtual_time
async def test_another_token_is_another_call(safe: bool) -> None:
    """And so is the same value under another header."""
    agent = Agent(RunProcess())
    for tokens in (KEY, OTHER_KEY, token(b"amz-sdk-invocation-id", b"k1"), frozenset[str]()):
        assert (await agent.ask("call", safe=safe, tokens=tokens)).kind == "executed"
    assert agent.semel.origin.sent["call"] == 4


@EITHER
@in_virtual_time
async def test_a_token_finds_its_occurrence_among_several(safe: bool) -> None:
    """Not the latest, not the first: the one that it was sent with."""
    agent = Agent(RunProcess())
    for tokens in (KEY, OTHER_KEY, frozenset({"third"})):
        await agent.ask("call", safe=safe, tokens=tokens)
    assert (await agent.ask("call", safe=safe, tokens=OTHER_KEY)).body == b"call #2"
    assert agent.semel.origin.sent["call"] == 3


@EITHER
@in_virtual_time
async def test_the_same_token_for_another_call_is_no_evidence(safe: bool) -> None:
    """Some SDKs use one key for a whole step: other arguments are another call."""
    agent = Agent(RunProcess())
    assert (await agent.ask("one", safe=safe, tokens=KEY)).body == b"one #1"
    assert (await agent.ask("two", safe=safe, tokens=KEY)).body == b"two #1"


@EITHER
@in_virtual_time
async def test_a_token_of_another_attempt_is_no_evidence(safe: bool) -> None:
    """A new attempt counts from one, whatever keys it uses."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe, tokens=KEY)
    await agent.ask("call", safe=safe, tokens=OTHER_KEY)
    second = agent.next("a2")
    assert (await second.ask("call", safe=safe, tokens=OTHER_KEY)).body == b"call #1"
    assert (await second.ask("call", safe=safe, tokens=KEY)).body == b"call #2"
    assert agent.semel.origin.sent["call"] == 2


@EITHER
@in_virtual_time
async def test_a_token_of_a_call_still_pending_joins_it(safe: bool) -> None:
    """A safe one too: it is a retry, no parallel sample."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("call", talk)
    first = agent.start("call", safe=safe, tokens=KEY)
    await talk.sent.wait()
    again = agent.start("call", safe=safe, tokens=KEY)
    await until(lambda: scenes.uses(agent.semel, "call") == 2)
    talk.answer(body=b"once")
    assert [(await task).body for task in (first, again)] == [b"once", b"once"]
    assert agent.semel.origin.sent["call"] == 1


@EITHER
@in_virtual_time
async def test_a_retry_count_means_the_oldest_occurrence_that_was_abandoned(safe: bool) -> None:
    """The first and the last were taken; the second was not."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe)
    await agent.ask("call", safe=safe, taken=False, tokens=KEY)
    # Told apart by its token, or it would be taken for the retry itself.
    await agent.ask("call", safe=safe, occurrence=7)
    again = await agent.ask("call", safe=safe, retry_count=1)
    assert (again.kind, again.body) == ("replayed", b"call #2")
    assert agent.semel.origin.sent["call"] == 3


@EITHER
@in_virtual_time
async def test_a_retry_count_means_the_oldest_occurrence_that_was_not_final(safe: bool) -> None:
    """It goes live again, under its own number."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("call", answers(200, b"one"), answers(429, b"later"), answers(200, b"two"))
    assert (await agent.ask("call", safe=safe)).body == b"one"
    assert (await agent.ask("call", safe=safe)).status == 429
    assert (await agent.ask("call", safe=safe, retry_count=2)).body == b"two"
    again = scenes.row(agent.semel, "call", 2)
    assert (again.state, again.fence) == (State.DONE, 2)
    assert len(agent.semel.rows()) == 2


@EITHER
@in_virtual_time
async def test_a_retry_count_without_anything_open_means_the_latest(safe: bool) -> None:
    """The client did not like the answer; semel has no other."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe)
    await agent.ask("call", safe=safe)
    assert (await agent.ask("call", safe=safe, retry_count=1)).body == b"call #2"
    assert agent.semel.origin.sent["call"] == 2


@EITHER
@in_virtual_time
async def test_a_retry_count_without_any_occurrence_of_the_attempt_goes_on(safe: bool) -> None:
    """The first send never arrived here: it is the next one, in a later attempt the first recorded one."""
    agent = Agent(RunProcess())
    assert (await agent.ask("call", safe=safe, retry_count=1)).kind == "executed"
    assert (await agent.ask("call", safe=safe)).body == b"call #2"
    again = await agent.next("a2").ask("call", safe=safe, retry_count=1)
    assert (again.kind, again.body) == ("replayed", b"call #1")
    assert agent.semel.origin.sent["call"] == 2


@EITHER
@in_virtual_time
async def test_a_retry_count_of_zero_is_no_evidence(safe: bool) -> None:
    """SDKs send it with every first try."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe, retry_count=0)
    assert (await agent.ask("call", safe=safe, retry_count=0)).body == b"call #2"


@EITHER
@in_virtual_time
async def test_abandoned_before_the_first_byte_is_evidence(safe: bool) -> None:
    """The caller leaves, the call is finished and kept, and the next identical one is its retry."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("call", talk)
    caller = agent.start("call", safe=safe)
    await talk.sent.wait()
    await scenes.gone(caller)
    talk.answer(body=b"once")
    await until(lambda: scenes.row(agent.semel, "call").state is State.DONE)
    again = await agent.ask("call", safe=safe)
    assert (again.kind, again.body) == ("replayed", b"once")
    assert (await agent.ask("call", safe=safe)).kind == "executed"
    assert agent.semel.origin.sent["call"] == 2


@EITHER
@in_virtual_time
async def test_abandoned_while_pending_a_retry_joins(safe: bool) -> None:
    """Before the answer is there: nothing more is sent, safe or not."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("call", talk)
    caller = agent.start("call", safe=safe)
    await talk.sent.wait()
    await scenes.gone(caller)
    again = agent.start("call", safe=safe)
    await until(lambda: again.done() or bool(agent.semel.flights.by_key))
    talk.answer(body=b"once")
    assert (await again).body == b"once"
    assert agent.semel.origin.sent["call"] == 1


@EITHER
@in_virtual_time
async def test_abandoned_in_the_middle_of_the_answer_is_evidence(safe: bool) -> None:
    """A part was handed on; the rest is still owed."""
    agent, talk = Agent(RunProcess()), Talk()
    agent.semel.origin.plays("call", talk)
    talk.head(200, ((b"Content-Length", b"6"),))
    talk.part(b"one")
    await scenes.leaves_after_a_part(agent, "call", safe=safe)
    talk.part(b"two")
    talk.end(Answered(200))
    await until(lambda: scenes.row(agent.semel, "call").state is State.DONE)
    assert (await agent.ask("call", safe=safe)).body == b"onetwo"
    assert (await agent.ask("call", safe=safe)).kind == "executed"


@EITHER
@in_virtual_time
async def test_abandoned_after_the_last_write_is_evidence(safe: bool) -> None:
    """A reset behind the last byte says that it was not read."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe, taken=False)
    assert (await agent.ask("call", safe=safe)).kind == "replayed"
    assert (await agent.ask("call", safe=safe)).kind == "executed"


@pytest.mark.parametrize("how", [{}, {"retry_count": 1}], ids=["left", "says so"])
@in_virtual_time
async def test_in_other_words_it_is_no_retry(how: dict[str, int]) -> None:
    """A name may leave dates out. Within one attempt the answer for the 18th is not the answer for the 19th;
    in the same words it still is a retry."""
    agent = Agent(RunProcess())
    await agent.read("call", wording="the 18th", taken=False)
    other = await agent.read("call", wording="the 19th", **how)
    assert (other.kind, other.body) == ("executed", b"call #2")
    again = await agent.read("call", wording="the 18th", **how)
    assert (again.kind, again.body) == ("replayed", b"call #1")


@in_virtual_time
async def test_a_later_attempt_meets_its_past_in_other_words() -> None:
    """That is what names without dates are for: the prompt says another "now" after a crash."""
    agent = Agent(RunProcess())
    await agent.read("call", wording="at nine")
    await agent.read("call", wording="at ten")
    later = agent.next("a2")
    for wording, body in (("at eleven", b"call #1"), ("at noon", b"call #2")):
        got = await later.read("call", wording=wording)
        assert (got.kind, got.body) == ("replayed", body)
    assert agent.semel.origin.sent["call"] == 2


@in_virtual_time
async def test_an_effect_in_other_words_is_rather_given_again_than_sent_again() -> None:
    """Whoever lets a rule with effects leave dates out means that: a send cannot be taken back."""
    agent = Agent(RunProcess())
    await agent.write("call", wording="at nine", taken=False)
    assert (await agent.write("call", wording="at ten")).kind == "replayed"
    assert agent.semel.origin.sent["call"] == 1


@EITHER
@in_virtual_time
async def test_only_the_latest_exchange_counts_as_abandoned(safe: bool) -> None:
    """Abandoned, then taken in full: the next one is another call."""
    agent = Agent(RunProcess())
    for taken in (False, False, True):
        await agent.ask("call", safe=safe, taken=taken)
    assert (await agent.ask("call", safe=safe)).kind == "executed"
    assert agent.semel.origin.sent["call"] == 2


@EITHER
@in_virtual_time
async def test_what_another_attempt_abandoned_is_no_evidence(safe: bool) -> None:
    """The second attempt counts from one all the same."""
    agent = Agent(RunProcess())
    await agent.ask("call", safe=safe)
    await agent.ask("call", safe=safe, taken=False)
    second = agent.next("a2")
    assert [(await second.ask("call", safe=safe)).body for _ in range(3)] == [
        b"call #1",
        b"call #2",
        b"call #3",
    ]


@EITHER
@in_virtual_time
async def test_the_proxy_that_served_it_died_while_handing_on(safe: bool) -> None:
    """The answer is durable, the caller never saw its end: another proxy gives it to the same attempt."""
    semel = RunProcess()
    agent = Agent(semel)
    await scenes.begun(agent, "call", safe=safe)
    await until(lambda: scenes.row(semel, "call").state is State.DONE)
    await semel.die()
    other = agent.on(RunProcess(semel.world, semel.origin))
    again = await other.ask("call", safe=safe)
    assert (again.kind, again.body) == ("replayed", b"call #1")
    assert (await other.ask("call", safe=safe)).body == b"call #2"
    assert semel.origin.sent["call"] == 2


@EITHER
@in_virtual_time
async def test_what_ended_with_a_problem_is_still_owed(safe: bool) -> None:
    """`upstream-timeout`, `in-doubt`: the next identical call is the same occurrence."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("call", lost(timed_out=True), lost(timed_out=True))
    problem: type[Exception] = UpstreamTimeout if safe else InDoubt
    with pytest.raises(problem):
        await agent.ask("call", safe=safe)
    if safe:
        assert (await agent.ask("call", safe=safe)).kind == "executed"
    else:
        with pytest.raises(InDoubt):
            await agent.ask("call", safe=safe)
    assert [call.occurrence for call in agent.semel.rows()] == [1]


@in_virtual_time
async def test_what_was_abandoned_comes_before_what_is_only_owed() -> None:
    """Of two parallel samples one ended with a problem, the other was left: the next ask is the retry of the
    one that was left."""
    agent, one, two = Agent(RunProcess()), Talk(), Talk()
    agent.semel.origin.plays("poll", one, two, lost(timed_out=True))
    first = agent.start("poll", safe=True)
    await one.sent.wait()
    second = agent.start("poll", safe=True, taken=False)
    await two.sent.wait()
    one.end(Lost("nothing came", None, True))
    with pytest.raises(UpstreamTimeout):
        await first
    two.answer(body=b"two")
    await second
    assert (await agent.read("poll")).body == b"two"
    assert (await agent.read("poll")).kind == "executed"


@in_virtual_time
async def test_a_retry_count_goes_back_behind_what_was_final() -> None:
    """The first sample failed, the second one did not: it is the first that the client retries."""
    agent = Agent(RunProcess())
    agent.semel.origin.plays("call", answers(503), answers(200, b"two"), answers(200, b"one"))
    assert [(await agent.read("call")).status for _ in range(2)] == [503, 200]
    assert (await agent.read("call", retry_count=1)).body == b"one"
    assert [scenes.row(agent.semel, "call", n).fence for n in (1, 2)] == [2, 1]
