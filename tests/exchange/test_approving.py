"""Calls that a person permits first: held, then sent once, and only if it is exactly what was permitted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy import operator
from proxy.asking import Ask
from proxy.core.approval import GRANTED_FOR
from proxy.core.clauses import Approval, OnDoubt, UpstreamKey
from proxy.core.intent import Call, State
from proxy.core.policy import Rule
from proxy.errors import AwaitingApproval, Denied, InDoubt, NotAwaiting, StaleVersion, StoreUnavailable
from proxy.recovery import sweep_once
from tests.exchange.stage import EFFECT, Got, Prepared, Process, Talk, answers, ask, lost, not_sent, until
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

WAIT, EXPIRES = 20.0, 86400.0
GUARDED = replace(EFFECT, approval=Approval(wait=WAIT, expires=EXPIRES))
ID = ask().identity.id


def asked(rule: Rule = GUARDED, *, bound_to: bytes = b"usd 10", body: bytes = b'{"usd": 10}') -> Ask:
    sending = Prepared(rule=rule, safe=False, body=body, total=600.0, bound_to=bound_to)
    return ask(rule)._replace(sending=sending)


async def approve(semel: Process, *, version: int | None = None) -> Call:
    return await operator.approve(
        semel.store, semel.clock, ID, reason="it is right", actor="ada", version=version
    )


async def deny(semel: Process, *, version: int | None = None, ttl: float | None = None) -> Call:
    return await operator.deny(
        semel.store, semel.clock, ID, reason="too much", actor="ada", version=version, ttl=ttl
    )


async def held(*steps: object, world: World | None = None) -> Process:
    """A process with the call waiting."""
    semel = Process(world, *steps)  # type: ignore[arg-type]
    with pytest.raises(AwaitingApproval) as told:
        await semel.call(asked())
    assert told.value.members["call"] == ID
    return semel


@in_virtual_time
async def test_it_is_held_for_as_long_as_the_rule_says_and_nothing_is_sent() -> None:
    """Then the caller is told; asking again changes nothing."""
    began = asyncio.get_running_loop().time()
    semel = await held()
    assert asyncio.get_running_loop().time() - began == pytest.approx(WAIT)
    row = semel.row(asked())
    assert (row.state, row.sends, row.sent_at, row.version) == (State.AWAITING_APPROVAL, 0, None, 1)
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())
    assert semel.row(asked()) == row
    assert semel.upstream.started == 0


@in_virtual_time
async def test_permitted_it_goes_out_once_also_days_later() -> None:
    """The process may have exited: the identical call made later goes through, and is replayed after that."""
    semel = await held(answers(201, b"done"))
    await approve(semel)
    await asyncio.sleep(5 * 86400)
    assert await semel.call(asked()) == Got("executed", 201, b"done")
    assert await semel.call(asked()) == Got("replayed", 201, b"done")
    assert [entry.event for entry in semel.events(asked())] == [
        "needs_approval", "approve", "claim", "answered",
    ]  # fmt: skip


@in_virtual_time
async def test_who_waits_goes_on_when_it_is_permitted() -> None:
    """In another process too, by the same wake-up as everything else."""
    world = World()
    semel = Process(world, answers(201, b"done"))
    caller = semel.start(asked())
    await until(lambda: semel.state(asked()) is State.AWAITING_APPROVAL)
    await asyncio.sleep(3)
    await approve(Process(world))
    assert await caller == Got("executed", 201, b"done")


@in_virtual_time
async def test_refused_it_says_why_and_lapses() -> None:
    """For the rule's time to live; then it is asked anew."""
    semel = await held()
    await deny(semel, ttl=3600.0)
    with pytest.raises(Denied, match="too much"):
        await semel.call(asked())
    await asyncio.sleep(3600)
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())
    assert semel.upstream.started == 0


@in_virtual_time
async def test_a_changed_request_needs_its_own_permission() -> None:
    """The same call by its key, other money: what was permitted does not cover it, and is gone then."""
    semel = await held(answers(200))
    await approve(semel)
    with pytest.raises(AwaitingApproval):
        await semel.call(asked(bound_to=b"usd 1000", body=b'{"usd": 1000}'))
    assert semel.codec.open_request(semel.row(asked()).request).body == b'{"usd": 1000}'
    with pytest.raises(AwaitingApproval):  # the first is not permitted any more
        await semel.call(asked())
    await approve(semel)
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())
    assert semel.upstream.started == 0


@in_virtual_time
async def test_while_one_waits_a_changed_one_does_not_take_its_place() -> None:
    """What the person sees stays what the person decides."""
    semel = await held(answers(200))
    before = semel.row(asked())
    with pytest.raises(AwaitingApproval):
        await semel.call(asked(bound_to=b"usd 1000", body=b'{"usd": 1000}'))
    assert semel.row(asked()) == before


@in_virtual_time
async def test_an_occurrence_has_its_own_permission() -> None:
    """The second of two identical ones is another request."""
    first, second = (
        asked().sending.intent(asked().identity, asked().sending.outgoing())._replace(occurrence=n)
        for n in (1, 2)
    )
    assert first.permission != second.permission


@in_virtual_time
@pytest.mark.parametrize("nothing", [not_sent(), answers(429), answers(402)], ids=["unsent", "429", "402"])
async def test_a_send_that_was_not_executed_uses_nothing_up(nothing: object) -> None:
    """The permission stays for the send that is."""
    semel = await held(nothing, nothing, answers(200, b"done"))
    await approve(semel)
    for _ in range(3):
        try:
            got = await semel.call(asked())
        except Exception:
            continue
        if got.status == 200:
            break
    assert got == Got("executed", 200, b"done")


@in_virtual_time
async def test_a_send_that_may_have_been_executed_uses_it_up() -> None:
    """In doubt; a person who finds that nothing happened is asked again for the next send."""
    semel = await held(lost(), answers(200))
    await approve(semel)
    with pytest.raises(InDoubt):
        await semel.call(asked())
    await operator.resolve(
        semel.store, semel.ledger.answers, semel.clock, ID, verdict=operator.Verdict.NOT_EXECUTED,
        reason="looked", actor="ada", version=None,
    )  # fmt: skip
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())
    assert semel.upstream.started == 1


@in_virtual_time
async def test_a_crash_after_the_claim_uses_it_up_too() -> None:
    """Nobody knows whether it was sent."""
    world = World()
    first = await held(talk := Talk(), world=world)
    await approve(first)
    caller = first.start(asked())
    await until(talk.sent.is_set)
    await first.die()
    await asyncio.gather(caller, return_exceptions=True)
    second = Process(world, answers(200))
    with pytest.raises(InDoubt):
        await second.call(asked())
    assert second.upstream.started == 0


@in_virtual_time
async def test_a_crash_while_it_waits_leaves_it_waiting() -> None:
    """Nothing was sent; the next process finds the question."""
    world = World()
    first = await held(world=world)
    await first.die()
    second = Process(world, answers(200))
    await sweep_once(second.store, second.ledger, second.notebook)
    assert second.state(asked()) is State.AWAITING_APPROVAL
    await approve(second)
    assert (await second.call(asked())).kind == "executed"


@in_virtual_time
async def test_under_a_key_a_permitted_call_is_resent_without_asking_again() -> None:
    """It is the same call still."""
    rule = replace(GUARDED, upstream_key=UpstreamKey(header="x-key"), in_doubt=OnDoubt.RESEND)
    semel = Process(None, lost(), answers(200, b"done"))
    with pytest.raises(AwaitingApproval):
        await semel.call(asked(rule))
    await approve(semel)
    assert await semel.call(asked(rule)) == Got("executed", 200, b"done")


@in_virtual_time
async def test_a_question_lapses() -> None:
    """Nobody decided: who is late is told, the sweep takes it off the list, the next ask asks anew."""
    semel = await held(answers(200))
    await asyncio.sleep(EXPIRES)
    for decide in (approve, deny):
        with pytest.raises(NotAwaiting, match="lapsed"):
            await decide(semel)
    await sweep_once(semel.store, semel.ledger, semel.notebook)
    assert semel.state(asked()) is State.RELEASED
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())
    assert [entry.event for entry in semel.events(asked())] == ["needs_approval", "expire", "needs_approval"]
    assert semel.upstream.started == 0


@in_virtual_time
async def test_who_waits_longer_than_the_question_stands_asks_anew() -> None:
    """The caller's patience is longer: a new question, no send."""
    rule = replace(GUARDED, approval=Approval(wait=100.0, expires=30.0))
    semel = Process(None, answers(200))
    with pytest.raises(AwaitingApproval):
        await semel.call(asked(rule))
    events = [entry.event for entry in semel.events(asked())]
    assert events[:3] == ["needs_approval", "expire", "needs_approval"]
    assert semel.upstream.started == 0


@in_virtual_time
async def test_a_permission_that_nobody_used_lapses() -> None:
    """After a month it is no longer what anybody has in mind."""
    semel = await held(answers(200))
    await approve(semel)
    await asyncio.sleep(GRANTED_FOR)
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())


@in_virtual_time
async def test_decisions_are_made_on_the_version_that_was_seen() -> None:
    """Twice, or beside another operator: the first one wins, the other is told."""
    semel = await held(answers(200))
    with pytest.raises(StaleVersion):
        await approve(semel, version=7)
    await approve(semel, version=1)
    with pytest.raises(StaleVersion):
        await deny(semel, version=1)
    with pytest.raises(NotAwaiting, match="released"):
        await approve(semel)
    assert (await semel.call(asked())).kind == "executed"


@in_virtual_time
async def test_a_late_answer_settles_what_waits() -> None:
    """A person said that it was not executed, the call was asked again and waits; then its answer comes."""
    semel = await held(talk := Talk())
    await approve(semel)
    caller = semel.start(asked())
    await until(talk.sent.is_set)
    semel.store.declare_dead()
    other = Process(semel.world)
    with pytest.raises(InDoubt):
        await other.call(asked())
    await operator.resolve(
        other.store, other.ledger.answers, other.clock, ID, verdict=operator.Verdict.NOT_EXECUTED,
        reason="not in its books", actor="ada", version=None,
    )  # fmt: skip
    with pytest.raises(AwaitingApproval):
        await other.call(asked())
    talk.answer(200, b"late")
    assert await caller == Got("executed", 200, b"late")
    assert await other.call(asked()) == Got("replayed", 200, b"late")
    assert other.upstream.started == 0


@in_virtual_time
async def test_a_late_answer_settles_what_was_refused() -> None:
    """It had happened before anybody was asked: whoever makes the call shall know."""
    world = World()
    first = Process(world, talk := Talk())
    caller = first.start(ask())
    await until(talk.sent.is_set)
    first.store.declare_dead()
    second = Process(world)
    with pytest.raises(InDoubt):
        await second.call(ask())
    await operator.resolve(
        second.store, second.ledger.answers, second.clock, ID, verdict=operator.Verdict.NOT_EXECUTED,
        reason="not in its books", actor="ada", version=None,
    )  # fmt: skip
    with pytest.raises(AwaitingApproval):
        await second.call(asked())
    await deny(second)
    talk.answer(201, b"it happened")
    await caller
    assert await second.call(asked()) == Got("replayed", 201, b"it happened")


@in_virtual_time
async def test_a_store_that_is_away_holds_nothing_and_sends_nothing() -> None:
    """store-unavailable; whether the question was written shows when it is back."""
    semel = Process(None, answers(200))
    semel.store.unavailable = True
    with pytest.raises(StoreUnavailable):
        await semel.call(asked())
    semel.store.unavailable = False
    semel.store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await semel.call(asked())
    with pytest.raises(AwaitingApproval):
        await semel.call(asked())
    assert semel.upstream.started == 0


@in_virtual_time
async def test_two_who_ask_at_once_ask_one_question_and_one_of_them_sends() -> None:
    """The other gets that answer."""
    world = World()
    one, two = Process(world, answers(200, b"once")), Process(world, answers(200, b"once"))
    callers = [semel.start(asked()) for semel in (one, two) for _ in range(3)]
    await until(lambda: one.state(asked()) is State.AWAITING_APPROVAL)
    await approve(one)
    got = await asyncio.gather(*callers)
    assert {each.body for each in got} == {b"once"}
    assert one.upstream.started + two.upstream.started == 1
