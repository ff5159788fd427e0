"""A person's decisions: on a version, with a reason, once; and what the next identical call then gets."""

from __future__ import annotations

import asyncio

import pytest

from proxy import operator
from proxy.core.intent import Call, Event, Place, State
from proxy.errors import (
    AnswerUnavailable,
    InDoubt,
    NotFound,
    NotInDoubt,
    NotSettled,
    StaleVersion,
    StoreUnavailable,
)
from proxy.operator import Verdict
from tests.exchange.stage import Got, Process, Talk, answers, ask, lost
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

ID = ask().identity.id


async def resolve(
    semel: Process,
    verdict: Verdict = Verdict.EXECUTED,
    *,
    version: int | None = None,
    actor: str = "ada",
    reason: str = "looked it up",
    status: int | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    body: bytes | None = None,
) -> Call:
    return await operator.resolve(
        semel.store, semel.ledger.answers, semel.clock, ID, verdict=verdict, reason=reason, actor=actor,
        version=version, status=status, headers=headers, body=body,
    )  # fmt: skip


async def forget(semel: Process, *, version: int | None = None) -> Call:
    return await operator.forget(
        semel.store, semel.clock, ID, reason="wrong address", actor="ada", version=version
    )


async def in_doubt(*further: object) -> Process:
    semel = Process(None, lost(), *further)  # type: ignore[arg-type]
    with pytest.raises(InDoubt):
        await semel.call(ask())
    return semel


@in_virtual_time
async def test_executed_with_an_answer_is_replayed() -> None:
    """Status, headers and body as given; framing as it must be; nobody else's session."""
    semel = await in_doubt()
    given = ((b"Content-Type", b"text/plain"), (b"Content-Length", b"999"), (b"Set-Cookie", b"s=1"),
             (b"Connection", b"close"), (b"Semel-Run", b"x"))  # fmt: skip
    call = await resolve(semel, version=2, status=201, headers=given, body=b"made")
    assert (call.state, call.version, call.unresolved) == (State.DONE, 3, False)
    assert await semel.call(ask()) == Got("replayed", 201, b"made")
    assert call.answer is not None
    assert semel.codec.open_head(call.answer.head) == (
        (b"Content-Type", b"text/plain"),
        (b"Content-Length", b"4"),
    )
    last = semel.events(ask())[-1]
    assert (last.actor, last.event, last.before) == ("operator:ada", Event.ANSWERED, State.IN_DOUBT)
    assert "looked it up" in last.why


@in_virtual_time
@pytest.mark.parametrize("body", [b"", b"x", b"long " * 50_000], ids=["empty", "short", "blob"])
async def test_any_body_is_given_back_whole_with_200_unless_said_otherwise(body: bytes) -> None:
    """An empty body is an answer; a long one goes into a blob."""
    semel = await in_doubt()
    call = await resolve(semel, body=body)
    assert call.answer is not None
    assert call.answer.place is (Place.BLOB if len(body) > 1024 else Place.INLINE)
    assert await semel.call(ask()) == Got("replayed", 200, body)


@in_virtual_time
@pytest.mark.parametrize("status", [None, 201])
async def test_executed_without_a_body_is_answer_unavailable_and_never_sent_again(status: int | None) -> None:
    """It happened; what was said is not known."""
    semel = await in_doubt()
    call = await resolve(semel, status=status)
    assert call.answer is not None
    assert call.answer.place is Place.NOWHERE
    assert call.answer.status == (status or operator.UNKNOWN_STATUS)
    for _ in range(2):
        with pytest.raises(AnswerUnavailable, match="looked it up"):
            await semel.call(ask())
    assert semel.upstream.started == 1


@in_virtual_time
async def test_not_executed_lets_the_next_identical_call_go_live_once() -> None:
    """Released: the next ask claims it with a new fence; the one after that replays."""
    semel = await in_doubt(answers(201, b"made"))
    call = await resolve(semel, Verdict.NOT_EXECUTED)
    assert call.state is State.RELEASED
    assert await semel.call(ask()) == Got("executed", 201, b"made")
    assert await semel.call(ask()) == Got("replayed", 201, b"made")
    assert semel.row(ask()).fence == 2


@in_virtual_time
async def test_not_executed_and_lost_again_is_in_doubt_again() -> None:
    """A person's word is about that send, not about the next."""
    semel = await in_doubt(lost())
    await resolve(semel, Verdict.NOT_EXECUTED)
    with pytest.raises(InDoubt):
        await semel.call(ask())
    await resolve(semel, body=b"x")
    assert (await semel.call(ask())).kind == "replayed"


@in_virtual_time
async def test_a_stale_version_is_refused_with_the_present_state() -> None:
    """The decision was made on a record that is not there any more."""
    semel = await in_doubt()
    for stale in (1, 3):
        with pytest.raises(StaleVersion) as refused:
            await resolve(semel, version=stale)
        assert refused.value.present == semel.row(ask())
    assert semel.state(ask()) is State.IN_DOUBT
    assert len(semel.events(ask())) == 2


@in_virtual_time
async def test_only_a_call_in_doubt_is_resolved_and_only_a_settled_one_forgotten() -> None:
    """Pending: neither. Done and released: only forgotten. In doubt: only resolved."""
    semel, talk = Process(None), Talk()
    semel.upstream.steps = [talk]
    first = semel.start(ask())
    await talk.sent.wait()
    with pytest.raises(NotInDoubt):
        await resolve(semel)
    with pytest.raises(NotSettled) as refused:
        await forget(semel)
    assert refused.value.present == semel.row(ask())
    talk.answer()
    await first
    with pytest.raises(NotInDoubt):
        await resolve(semel)
    doubtful = await in_doubt()
    with pytest.raises(NotSettled):
        await forget(doubtful)


@in_virtual_time
@pytest.mark.parametrize("call_id", ["00" * 16, "zz", "", "0123"])
async def test_an_unknown_id_is_not_found(call_id: str) -> None:
    """Nor is what is no id at all."""
    semel = Process()
    with pytest.raises(NotFound):
        await operator.resolve(
            semel.store, semel.ledger.answers, semel.clock, call_id, verdict=Verdict.EXECUTED, reason="r",
            actor="a",
            version=None,
        )  # fmt: skip
    with pytest.raises(NotFound):
        await operator.forget(semel.store, semel.clock, call_id, reason="r", actor="a", version=None)


@in_virtual_time
async def test_nonsense_is_refused_and_nothing_changes() -> None:
    """No reason, an answer to what did not happen, a status that is none, a body where none can be."""
    semel = await in_doubt()
    with pytest.raises(ValueError, match="reason"):
        await resolve(semel, reason="  ")
    with pytest.raises(ValueError, match="no answer"):
        await resolve(semel, Verdict.NOT_EXECUTED, body=b"x")
    for status in (0, 100, 199, 600):
        with pytest.raises(ValueError, match="between"):
            await resolve(semel, status=status, body=b"x")
    with pytest.raises(ValueError, match="no body"):
        await resolve(semel, status=204, body=b"x")
    assert semel.row(ask()).version == 2


@in_virtual_time
@pytest.mark.parametrize("status", [201, 404, 429])
async def test_a_forgotten_call_goes_live_again_with_its_history(status: int) -> None:
    """Done or released: the next identical call is a new first one, with a higher fence."""
    semel = Process(None, answers(status, b"first"), answers(201, b"second"))
    await semel.call(ask())
    past = await forget(semel, version=2)
    assert (past.version, past.fence) == (3, 1)
    last = semel.events(ask())[-1]
    assert (last.event, last.actor, last.after, last.why) == (
        "forgotten",
        "operator:ada",
        None,
        "wrong address",
    )
    assert await semel.call(ask()) == Got("executed", 201, b"second")
    assert semel.row(ask()).fence == 2
    assert len(semel.events(ask())) == 5


@in_virtual_time
async def test_a_forgotten_call_is_forgotten_for_clocks_that_run_behind_too() -> None:
    """Another proxy whose clock is a minute behind, or a clock set back, does not bring the answer back."""
    semel = Process(None, answers(body=b"first"), answers(body=b"second"))
    await semel.call(ask())
    await asyncio.sleep(3000)
    await forget(semel)
    semel.clock.offset = -60.0
    assert await semel.call(ask()) == Got("executed", 200, b"second")


@in_virtual_time
async def test_of_two_operators_one_decides_and_the_other_is_told() -> None:
    """Both looked at the same version; also without one, nobody overwrites the other's word."""
    for version in (2, None):
        semel = await in_doubt()
        results = await asyncio.gather(
            resolve(semel, Verdict.EXECUTED, version=version, actor="ada", body=b"x"),
            resolve(semel, Verdict.NOT_EXECUTED, version=version, actor="bob"),
            return_exceptions=True,
        )
        assert isinstance(results[0], Call)
        assert isinstance(results[1], StaleVersion)
        assert results[1].present == results[0]
        assert (await semel.call(ask())).kind == "replayed"


@in_virtual_time
@pytest.mark.parametrize("first_to_write", ["operator", "answer"])
async def test_an_operator_who_says_executed_races_a_late_answer(first_to_write: str) -> None:
    """One of them is the record, and the caller of the late answer gets the record, never its own."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk), Process(world)
    caller = paused.start(ask())
    await talk.sent.wait()
    paused.store.declare_dead()
    with pytest.raises(InDoubt):
        await other.call(ask())
    slow = other if first_to_write == "answer" else paused

    async def wait_a_little(call: Call) -> None:
        await asyncio.sleep(1.0)

    slow.store.before_swap = wait_a_little
    talk.answer(201, b"late answer")
    decision = asyncio.create_task(resolve(other, version=2, status=200, body=b"a person's word"))
    results = await asyncio.gather(decision, caller, return_exceptions=True)
    if first_to_write == "operator":
        assert isinstance(results[0], Call)
        assert results[1] == Got("replayed", 200, b"a person's word")
        assert other.events(ask())[-1].event == "evidence"
    else:
        assert isinstance(results[0], StaleVersion)
        assert results[0].present is not None
        assert results[0].present.state is State.DONE
        assert results[1] == Got("executed", 201, b"late answer")


@in_virtual_time
async def test_a_late_answer_corrects_an_operator_who_said_not_executed() -> None:
    """The fence is still the same: the answer proves that it was executed, and nothing is sent again."""
    world, talk = World(), Talk()
    paused, other = Process(world, talk), Process(world)
    caller = paused.start(ask())
    await talk.sent.wait()
    paused.store.declare_dead()
    with pytest.raises(InDoubt):
        await other.call(ask())
    await resolve(other, Verdict.NOT_EXECUTED)
    talk.answer(201, b"it was")
    assert await caller == Got("executed", 201, b"it was")
    assert await other.call(ask()) == Got("replayed", 201, b"it was")
    assert other.upstream.started == 0


@in_virtual_time
async def test_a_decision_whose_reply_is_lost_shows_as_stale_when_repeated() -> None:
    """It may have landed; asking again on the same version never decides twice."""
    semel = await in_doubt()
    semel.store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await resolve(semel, version=2, body=b"x")
    with pytest.raises(StaleVersion) as refused:
        await resolve(semel, version=2, body=b"x")
    assert refused.value.present is not None
    assert refused.value.present.state is State.DONE
