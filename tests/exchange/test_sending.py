"""Retry rules, disconnects, and what an upstream's result means for caller and record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from proxy.asking import Labels, Live
from proxy.core.intent import Event, Place, State
from proxy.core.policy import OnDisconnect, Rule
from proxy.errors import InDoubt, UpstreamTimeout, UpstreamUnreachable
from proxy.stream import CutOff
from proxy.upstream.base import Answered, Outgoing, Sink
from tests.exchange.stage import (
    CACHE,
    EFFECT,
    OUTGOING,
    SAFE,
    Got,
    Process,
    Step,
    Talk,
    answers,
    ask,
    lost,
    not_sent,
    quietly,
    read,
    until,
)
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
@pytest.mark.parametrize("rule", [EFFECT, SAFE], ids=["effects", "safe"])
async def test_what_was_not_sent_is_tried_once_more(rule: Rule) -> None:
    """A restarting upstream is met by the second try."""
    semel = Process(None, not_sent(), answers(body=b"x"))
    assert await semel.call(ask(rule)) == Got("executed", 200, b"x")


@in_virtual_time
@pytest.mark.parametrize("rule", [EFFECT, SAFE], ids=["effects", "safe"])
async def test_twice_not_sent_is_released_and_said(rule: Rule) -> None:
    """upstream-unreachable, and the next ask goes live."""
    asked = ask(rule)
    semel = Process(None, not_sent(), not_sent("no such host"), answers())
    with pytest.raises(UpstreamUnreachable, match="no such host"):
        await semel.call(asked)
    assert semel.state(asked) is State.RELEASED
    assert [entry.event for entry in semel.events(asked)] == [Event.CLAIM, Event.NOT_SENT]
    assert (await semel.call(asked)).kind == "executed"


@in_virtual_time
@pytest.mark.parametrize(
    "step",
    [
        lost(),
        lost(timed_out=True),
        lost(status=200),
        lost(b"took effe", status=200),
        lost(b"err", status=500),
        lost(status=404),
    ],
)
async def test_a_lost_call_with_effects_is_never_sent_again(step: Step) -> None:
    """Whatever was seen of an answer: one send, in doubt, held."""
    semel = Process(None, step)
    try:
        got = await semel.call(ask())
    except InDoubt:
        pass
    else:
        assert not got.whole  # a part was handed on: all that is left is to abort
    assert semel.state(ask()) is State.IN_DOUBT
    with pytest.raises(InDoubt):
        await semel.call(ask())
    assert semel.upstream.started == 1


@in_virtual_time
async def test_not_sent_then_lost_is_doubt() -> None:
    """The retry of a call with effects went out and was lost: there is no third try."""
    semel = Process(None, not_sent(), lost())
    with pytest.raises(InDoubt):
        await semel.call(ask())
    assert semel.upstream.started == 2


@in_virtual_time
async def test_a_safe_call_is_retried_once_while_nothing_was_handed_on() -> None:
    """The head of a broken answer was not handed on yet, so the second one is the whole answer."""
    semel = Process(None, lost(status=200), answers(body=b"whole"))
    assert await semel.call(ask(SAFE)) == Got("executed", 200, b"whole")
    assert semel.state(ask(SAFE)) is State.DONE


@in_virtual_time
@pytest.mark.parametrize(
    ("timed_out", "error"), [(True, UpstreamTimeout), (False, UpstreamUnreachable)], ids=["timeout", "break"]
)
async def test_a_safe_call_lost_twice_is_released(timed_out: bool, error: type[Exception]) -> None:
    """Its caller is told which it was; the next ask is live."""
    semel = Process(None, lost(timed_out=timed_out), lost(timed_out=timed_out), answers())
    with pytest.raises(error):
        await semel.call(ask(SAFE))
    assert semel.state(ask(SAFE)) is State.RELEASED
    assert (await semel.call(ask(SAFE))).kind == "executed"


@in_virtual_time
async def test_nothing_is_spliced_onto_a_part_that_was_handed_on() -> None:
    """A safe answer breaks off after a part: its caller is cut off and nothing is sent again for it."""
    semel = Process(None, lost(b"half", status=200), answers())
    got = await semel.call(ask(SAFE))
    assert (got.body, got.whole) == (b"half", False)
    assert semel.upstream.started == 1
    assert semel.state(ask(SAFE)) is State.RELEASED


@in_virtual_time
@pytest.mark.parametrize("status", [500, 503, 408])
async def test_an_answer_that_proves_nothing_is_withheld(status: int) -> None:
    """The caller gets in-doubt with what the upstream said; not a byte of the answer itself."""
    semel = Process(None, answers(status, b"it broke"))
    with pytest.raises(InDoubt) as held:
        await semel.call(ask())
    assert held.value.members["upstream_status"] == status
    assert held.value.members["excerpt"] == "it broke"
    assert semel.upstream.started == 1


@in_virtual_time
@pytest.mark.parametrize("status", [500, 404, 301, 429])
async def test_a_safe_answer_that_is_not_final_is_handed_on_and_asked_anew(status: int) -> None:
    """Failures of safe calls are never kept outside runs."""
    semel = Process(None, answers(status, b"no"), answers(200, b"yes"))
    assert await semel.call(ask(SAFE)) == Got("executed", status, b"no")
    assert await semel.call(ask(SAFE)) == Got("executed", 200, b"yes")


@in_virtual_time
@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 409, 410, 422])
async def test_a_final_answer_is_kept_and_replayed_until_its_time_is_over(status: int) -> None:
    """Byte for byte, without a second send; after `ttl` the call is new."""
    body = b"" if status == 204 else b"final"
    semel = Process(None, answers(status, body), answers(200, b"anew"))
    assert await semel.call(ask()) == Got("executed", status, body)
    assert await semel.call(ask()) == Got("replayed", status, body)
    await asyncio.sleep(EFFECT.ttl - 1)
    assert (await semel.call(ask())).kind == "replayed"
    await asyncio.sleep(1)
    assert await semel.call(ask()) == Got("executed", 200, b"anew")
    assert semel.row(ask()).fence == 2


@in_virtual_time
async def test_a_long_answer_goes_through_a_blob() -> None:
    """Over the inline limit the row names a blob; a damaged one is unavailable, never sent again."""
    body = b"long " * 1000
    semel = Process(None, answers(body=body))
    await semel.call(ask())
    answer = semel.row(ask()).answer
    assert answer is not None
    assert answer.place is Place.BLOB
    assert (await semel.call(ask())).body == body
    semel.world.ground.lose_blobs()
    with pytest.raises(Exception, match="lost or damaged"):
        await semel.call(ask())
    assert semel.upstream.started == 1


@in_virtual_time
async def test_a_cached_answer_that_is_gone_is_fetched_again_and_refresh_fetches_at_once() -> None:
    """What may be lost is lost without harm: the call is safe."""
    semel = Process(None, answers(body=b"1"), answers(body=b"2"), answers(body=b"3"))
    assert (await semel.call(ask(CACHE))).body == b"1"
    assert (await semel.call(ask(CACHE))).kind == "replayed"
    semel.world.ground.lose_cache()
    assert await semel.call(ask(CACHE)) == Got("executed", 200, b"2")
    assert await semel.call(ask(CACHE, refresh=True)) == Got("executed", 200, b"3")
    assert await semel.call(ask(CACHE)) == Got("replayed", 200, b"3")


@in_virtual_time
async def test_refresh_never_sends_a_call_with_effects_again() -> None:
    """Asked for or not."""
    semel = Process(None, answers())
    await semel.call(ask())
    assert (await semel.call(ask(refresh=True))).kind == "replayed"


# ---- who owns, who leaves ----


@in_virtual_time
@pytest.mark.parametrize("rule", [EFFECT, SAFE], ids=["effects", "safe"])
async def test_a_process_that_may_not_act_as_owner_sends_nothing(rule: Rule) -> None:
    """Declared dead between the claim and the first byte: not sent, twice, and said so."""
    asked = ask(rule)
    semel = Process(None, answers(), answers())
    semel.store.declare_dead()
    with pytest.raises(UpstreamUnreachable):
        await semel.call(asked)
    assert semel.upstream.went_out == 0
    assert semel.state(asked) is State.RELEASED


@in_virtual_time
async def test_a_caller_who_leaves_never_stops_a_call_with_effects() -> None:
    """The answer is recorded and the retry gets it."""
    talk = Talk()
    semel = Process(None, talk)
    first = semel.start(ask())
    await talk.sent.wait()
    await quietly(first)
    talk.answer(body=b"done anyway")
    await until(lambda: semel.flights.in_flight == 0)
    assert await semel.call(ask()) == Got("replayed", 200, b"done anyway")


@in_virtual_time
@pytest.mark.parametrize("when", ["before the claim", "while sending"])
async def test_on_disconnect_cancel_stops_a_safe_call_when_the_last_caller_has_left(when: str) -> None:
    """The send is cancelled, the row released; with one caller left it goes on."""
    rule, talk, second_talk = replace(SAFE, on_disconnect=OnDisconnect.CANCEL), Talk(), Talk()
    semel = Process(None, talk, second_talk, answers())
    first, second = semel.start(ask(rule)), semel.start(ask(rule))
    if when == "while sending":
        await talk.sent.wait()
    else:
        await until(lambda: bool(semel.flights.by_key))
    await quietly(first)
    assert semel.flights.in_flight == 1
    await quietly(second)
    await until(lambda: semel.flights.in_flight == 0)
    assert talk.cancelled or when == "before the claim"
    assert semel.state(ask(rule)) is State.RELEASED
    assert semel.upstream.went_out <= 1
    assert not second_talk.sent.is_set()


@in_virtual_time
async def test_cancel_on_disconnect_does_not_touch_what_finished() -> None:
    """The last caller leaves after the end, as every caller does: the answer stays."""
    rule = replace(SAFE, on_disconnect=OnDisconnect.CANCEL)
    semel = Process(None, answers(body=b"x"))
    assert (await semel.call(ask(rule))).body == b"x"
    assert (await semel.call(ask(rule))).kind == "replayed"


@in_virtual_time
async def test_a_defect_in_the_middle_of_a_send_is_doubt_not_a_lost_row() -> None:
    """An exception of our own after the first byte: in doubt, noted; before it: released."""

    async def breaks(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Answered:
        may_send()
        raise ZeroDivisionError

    semel = Process(None, breaks)
    with pytest.raises(InDoubt):
        await semel.call(ask())
    assert semel.state(ask()) is State.IN_DOUBT
    assert semel.notebook.told_of("defect")


# ---- without a record ----


@in_virtual_time
async def test_what_is_passed_through_ends_with_its_caller() -> None:
    """Parts go through as they come, the end too; when the caller leaves the send is cancelled."""
    talk = Talk()
    semel = Process(None, answers(body=b"passed"), talk)
    labels = Labels("mail", "default")
    live = await semel.exchange.forward(OUTGOING, labels, safe=True)
    assert (await read(live)).body == b"passed"
    second = asyncio.create_task(semel.exchange.forward(OUTGOING, labels, safe=False))
    await talk.sent.wait()
    talk.head()
    talk.part(b"half")
    live = await second
    assert isinstance(live, Live)
    live.leave()
    await until(lambda: semel.flights.in_flight == 0)
    assert talk.cancelled
    assert semel.world.calls == {}


@in_virtual_time
async def test_a_passed_call_that_fails_is_told_as_it_would_look_without_semel() -> None:
    """Not sent: unreachable. Lost with effects: only a broken connection says just that."""
    semel = Process(None, not_sent(), not_sent(), lost(), lost(), lost(timed_out=True))
    labels = Labels("mail", "default")
    with pytest.raises(UpstreamUnreachable):
        await semel.exchange.forward(OUTGOING, labels, safe=False)
    with pytest.raises(CutOff):
        await semel.exchange.forward(OUTGOING, labels, safe=False)
    with pytest.raises(UpstreamTimeout):
        await semel.exchange.forward(OUTGOING, labels, safe=True)


@in_virtual_time
async def test_a_defect_after_the_send_ends_in_doubt_and_leaves_nothing_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever goes wrong in judging or keeping an answer: it was sent, and that is said at once."""
    semel = Process(World(), answers())

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr("proxy.answers.Answers.in_row", broken)
    with pytest.raises(InDoubt):
        await semel.call(ask())
    assert semel.row(ask()).state is State.IN_DOUBT
    assert [name for name, _ in semel.notebook.notes].count("defect") == 1


@in_virtual_time
async def test_a_row_of_our_own_that_no_flight_has_is_recovered_when_it_is_asked_for() -> None:
    """A defect may leave one behind; nobody should have to wait for a restart."""
    world, talk = World(), Talk()
    semel = Process(world, talk)
    first = semel.start(ask())
    await talk.sent.wait()
    for flight in list(semel.flights.by_key.values()):
        flight.give_up()
    await quietly(first)
    assert semel.row(ask()).state is State.PENDING
    with pytest.raises(InDoubt):
        await semel.call(ask())
