"""When a key is not relied on: it grew old, nobody can say how old it is, or the rule has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from proxy.core.clauses import OnDoubt, UpstreamKey
from proxy.core.doubt import usable_for
from proxy.core.intent import State
from proxy.core.policy import Rule
from proxy.errors import InDoubt
from proxy.upstream.base import NotSent, Outgoing, Result, Sink
from tests.exchange.keyed import HOUR, KEYED, SENDS, Seen, asked
from tests.exchange.stage import (
    EFFECT,
    Process,
    Talk,
    answers,
    lost,
    quietly,
    until,
)
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
async def test_a_key_grows_old_between_the_decision_and_the_first_byte() -> None:
    """A process may stand still for as long as it likes after it has decided. Found by the simulation (seed
    1628): it woke, and sent under a key that the upstream had forgotten."""

    async def stands_still(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        await asyncio.sleep(24 * HOUR)
        assert not may_send()
        return NotSent("it may not be sent any more")

    world = World()
    first = Process(world, Talk())
    caller = first.start(asked())
    await until(lambda: bool(first.flights.in_flight))
    await first.die()
    await quietly(caller)
    second = Process(world, stands_still, stands_still)
    with pytest.raises(InDoubt, match="nothing was sent now"):
        await second.call(asked())
    assert second.state(asked()) is State.IN_DOUBT


@in_virtual_time
async def test_past_retention_it_is_held() -> None:
    """The upstream may have forgotten the key: up to a margin before that it is sent again, then never."""
    for age, resent in ((usable_for(24 * HOUR) - 10, True), (usable_for(24 * HOUR) + 1, False)):
        seen = Seen()
        semel = Process(None, *seen(*[lost()] * SENDS, answers(200)))
        with pytest.raises(InDoubt):
            await semel.call(asked())
        semel.clock.offset = age
        if resent:
            assert (await semel.call(asked())).status == 200
        else:
            with pytest.raises(InDoubt, match="forgotten its key"):
                await semel.call(asked())
        assert len(seen.outs) == SENDS + resent


@in_virtual_time
async def test_a_clock_that_was_set_back_holds_it_until_the_mark_is_passed() -> None:
    """Who cannot say how old the key is does not rely on it."""
    seen = Seen()
    semel = Process(None, *seen(*[lost()] * SENDS, answers(200)))
    with pytest.raises(InDoubt):
        await semel.call(asked())
    await semel.store.clock_mark(semel.clock.now() + HOUR)
    with pytest.raises(InDoubt, match="set back"):
        await semel.call(asked())
    assert len(seen.outs) == SENDS
    await asyncio.sleep(HOUR)
    assert (await semel.call(asked())).status == 200


@in_virtual_time
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (replace(KEYED, upstream_key=UpstreamKey(header="x-other")), "otherwise by now"),
        (replace(EFFECT, in_doubt=OnDoubt.HOLD), "not sent again by itself. Find out"),
    ],
)
async def test_a_rule_that_has_changed_its_key_holds_it(rule: object, why: str) -> None:
    """Under another header the upstream does not know the key: a resend there would be a second call."""
    seen = Seen()
    semel = Process(None, *seen(*[lost()] * SENDS, answers(200)))
    with pytest.raises(InDoubt):
        await semel.call(asked())
    with pytest.raises(InDoubt, match=why):
        await semel.call(asked(rule))
    assert len(seen.outs) == SENDS


BESIDE = replace(KEYED, upstream_key=UpstreamKey(body="nonce", beside=(("enforce", True),)))
ALONE = replace(KEYED, upstream_key=UpstreamKey(body="nonce"))


@in_virtual_time
@pytest.mark.parametrize(("before", "after"), [(BESIDE, ALONE), (ALONE, BESIDE)], ids=["less", "more"])
async def test_a_rule_that_has_changed_what_goes_beside_its_key_holds_it(before: Rule, after: Rule) -> None:
    """Without it, or suddenly with it, the key may count for nothing: a resend would be a second call."""
    seen = Seen()
    semel = Process(None, *seen(*[lost()] * SENDS, answers(200)))
    with pytest.raises(InDoubt):
        await semel.call(asked(before))
    with pytest.raises(InDoubt, match="otherwise by now"):
        await semel.call(asked(after))
    assert len(seen.outs) == SENDS
    assert (await semel.call(asked(before))).status == 200


@in_virtual_time
@pytest.mark.parametrize("way", [OnDoubt.HOLD, OnDoubt.PROBE])
async def test_with_a_key_but_another_way_out_it_is_sent_once(way: OnDoubt) -> None:
    """The rule says what its key is for; the record counts what was sent."""
    rule = replace(KEYED, in_doubt=way)
    semel = Process(None, lost())
    began = asyncio.get_running_loop().time()
    with pytest.raises(InDoubt):
        await semel.call(asked(rule))
    assert (semel.row(asked()).sends, semel.upstream.started) == (1, 1)
    assert asyncio.get_running_loop().time() == began


@in_virtual_time
async def test_a_call_that_was_sent_without_a_key_is_held() -> None:
    """The rule got its key later."""
    semel = Process(None, lost(), answers(200))
    with pytest.raises(InDoubt):
        await semel.call(asked(EFFECT))
    with pytest.raises(InDoubt, match="without an upstream key"):
        await semel.call(asked())


@in_virtual_time
async def test_another_address_by_now_holds_it() -> None:
    """Elsewhere its key is not known."""
    semel = Process(None, *[lost()] * SENDS, answers(200))
    with pytest.raises(InDoubt):
        await semel.call(asked())
    moved = asked()
    headers = ((b"Host", b"sandbox"), (b"X-Kept", b"yes"))
    with pytest.raises(InDoubt, match="another address"):
        await semel.call(moved._replace(sending=replace(moved.sending, headers=headers)))  # type: ignore[type-var]
    assert semel.upstream.started == SENDS


@in_virtual_time
async def test_a_claim_from_the_future_is_not_relied_on() -> None:
    """Made while the clock was ahead: how old its key is, nobody can say."""
    seen = Seen()
    semel = Process(None, *seen(*[lost()] * SENDS, answers(200)))
    semel.clock.offset = HOUR
    with pytest.raises(InDoubt):
        await semel.call(asked())
    semel.clock.offset, semel.world.latest = 0.0, 0.0
    with pytest.raises(InDoubt, match="set back"):
        await semel.call(asked())
    assert len(seen.outs) == SENDS
