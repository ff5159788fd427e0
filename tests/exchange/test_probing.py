"""Asking the upstream what became of a call: found, absent when its time has come, or still in doubt."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from proxy import operator
from proxy.asking import Ask
from proxy.core.clauses import OnDoubt, Probe, UpstreamKey
from proxy.core.intent import State
from proxy.core.patterns import PathPattern
from proxy.core.policy import Rule
from proxy.errors import InDoubt
from proxy.recovery import sweep_once
from tests.exchange.keyed import Seen
from tests.exchange.stage import (
    EFFECT,
    Got,
    Prepared,
    Process,
    Step,
    Talk,
    answers,
    ask,
    lost,
    not_sent,
    until,
)
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import EPOCH, in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

PROBE = Probe(method="GET", target="/v1/mails?ref={body.ref}", found="length(items) > `0`", result="items[0]")
PROBED = replace(EFFECT, in_doubt=OnDoubt.PROBE, probe=PROBE)
TOTAL = 600.0
SETTLED = TOTAL + PROBE.settle
HIT = answers(200, b'{"items": [{"id": "m_1"}]}')
MISS = answers(200, b'{"items": []}')


def asked(rule: Rule = PROBED, *, ref: object = "a b/ü", target: bytes = b"/base/v1/mails") -> Ask:
    sending = Prepared(
        rule=rule,
        safe=False,
        body=json.dumps({"ref": ref}).encode(),
        total=TOTAL,
        target=target,
        headers=((b"Host", b"api"), (b"Content-Type", b"application/json"), (b"Idempotency-Key", b"k")),
        secrets=((b"Authorization", b"secret"),),
        base_path="/base",
    )
    return ask(rule)._replace(sending=sending)


async def doubtful(*steps: Step, rule: Rule = PROBED, ref: object = "a b/ü") -> tuple[Process, Seen]:
    seen = Seen()
    semel = Process(None, *seen(lost(), *steps))
    with pytest.raises(InDoubt):
        await semel.call(asked(rule, ref=ref))
    return semel, seen


@in_virtual_time
async def test_found_is_done_with_its_result() -> None:
    """The next identical call asks the upstream, with its own credentials, and is told what it says."""
    semel, seen = await doubtful(HIT)
    assert await semel.call(asked()) == Got("replayed", 200, b'{"id": "m_1"}')
    _, probe = seen.outs
    assert (probe.method, probe.target, probe.body) == ("GET", b"/base/v1/mails?ref=a%20b%2F%C3%BC", None)
    assert dict(probe.headers) == {
        b"Host": b"api",
        b"Authorization": b"secret",
        b"Accept": b"application/json",
    }
    row = semel.row(asked())
    assert (row.state, row.sends) == (State.DONE, 1)
    assert [entry.event for entry in semel.events(asked())] == ["claim", "lost", "answered"]
    assert await semel.call(asked()) == Got("replayed", 200, b'{"id": "m_1"}')
    assert len(seen.outs) == 2


@in_virtual_time
async def test_without_result_the_whole_answer_is_kept() -> None:
    """Status and body as the upstream gave them."""
    rule = replace(PROBED, probe=replace(PROBE, result=None))
    semel, _ = await doubtful(HIT, rule=rule)
    assert await semel.call(asked(rule)) == Got("replayed", 200, b'{"items": [{"id": "m_1"}]}')


@in_virtual_time
async def test_absence_counts_only_when_what_was_on_its_way_has_had_its_time() -> None:
    """Total timeout and settle, from the end of the send; until then it is doubt, after that it is sent."""
    semel, seen = await doubtful(MISS, MISS, answers(201, b"sent"))
    with pytest.raises(InDoubt, match="counts only in 605 s"):
        await semel.call(asked())
    await asyncio.sleep(SETTLED)
    assert await semel.call(asked()) == Got("executed", 201, b"sent")
    assert [out.method for out in seen.outs] == ["POST", "GET", "GET", "POST"]
    assert semel.row(asked()).sends == 2


@in_virtual_time
async def test_a_dead_owners_call_counts_from_when_its_death_was_seen() -> None:
    """Not from its claim: its last byte may have left just before."""
    world = World()
    first = Process(world, talk := Talk())
    caller = first.start(asked())
    await until(talk.sent.is_set)
    await asyncio.sleep(SETTLED)
    await first.die()
    await asyncio.gather(caller, return_exceptions=True)
    second = Process(world, MISS, MISS, answers(201))
    with pytest.raises(InDoubt, match="counts only in"):
        await second.call(asked())
    await asyncio.sleep(SETTLED)
    assert (await second.call(asked())).kind == "executed"


@in_virtual_time
@pytest.mark.parametrize("wrong", [-7200.0, -600.0, 600.0, 7200.0])
async def test_a_clock_that_is_wrong_makes_no_absence_count(wrong: float) -> None:
    """Neither the clock of the process that lost it nor that of the one that asks. Found by the simulation
    (seeds 1510 and 2395): what others wrote down, and clocks that are set, measure nothing."""
    world = World()
    first, second = Process(world, lost()), Process(world, MISS, MISS, answers(201))
    first.clock.offset = wrong
    with pytest.raises(InDoubt):
        await first.call(asked())
    with pytest.raises(InDoubt, match="counts only in 605 s"):
        await second.call(asked())
    second.clock.offset = -wrong
    with pytest.raises(InDoubt, match="counts only in 605 s"):
        await second.call(asked())
    await asyncio.sleep(SETTLED)
    second.upstream.steps[:0] = [MISS]
    assert (await second.call(asked())).kind == "executed"


@in_virtual_time
async def test_a_doubt_is_known_from_the_first_sweep_on() -> None:
    """Whoever has watched it for so long need not be asked first; one that is settled is forgotten, and one
    that is sent again is another."""
    world = World()
    first, second = Process(world, lost()), Process(world, MISS, lost(), MISS)
    with pytest.raises(InDoubt):
        await first.call(asked())
    await sweep_once(second.store, second.ledger, second.notebook)
    await asyncio.sleep(SETTLED)
    with pytest.raises(InDoubt):  # absent, so it was sent, and lost again
        await second.call(asked())
    await sweep_once(second.store, second.ledger, second.notebook)
    with pytest.raises(InDoubt, match="counts only in"):
        await second.call(asked())
    assert len(second.ledger.known_doubts._since) == 1


@in_virtual_time
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answers(500), "answered the probe with 500"),
        (answers(401), "answered the probe with 401"),
        (answers(302), "answered the probe with 302"),
        (answers(200, b"<html>"), "no JSON"),
        (answers(200, b""), "no JSON"),
        (answers(404, b"<html>not here"), "no JSON"),
        (answers(404, b""), "no JSON"),
        (answers(200, b"{}"), "neither true nor false"),
        (answers(200, b"x" * (5 * 1024 * 1024)), "too long"),
        (lost(), "not answered"),
        (not_sent("no route"), "no route"),
    ],
)
async def test_what_says_nothing_leaves_it_in_doubt(answer: Step, why: str) -> None:
    """Only an honest true or false counts."""
    semel, seen = await doubtful(answer, answer)
    with pytest.raises(InDoubt, match=why):
        await semel.call(asked())
    assert semel.state(asked()) is State.IN_DOUBT
    assert [out.method for out in seen.outs] == ["POST", "GET"]


@in_virtual_time
async def test_a_404_may_say_absent_and_never_found() -> None:
    """Of one thing by its name."""
    rule = replace(
        PROBED, probe=replace(PROBE, target="/v1/mails/{body.ref}", found="id != null", result=None)
    )
    semel, _ = await doubtful(answers(404, b'{"error": "none"}'), answers(200, b"sent"), rule=rule)
    await asyncio.sleep(SETTLED)
    assert (await semel.call(asked(rule))).body == b"sent"
    semel, _ = await doubtful(answers(404, b'{"id": "of the error"}'), rule=rule)
    with pytest.raises(InDoubt, match="and `found` says that there is"):
        await semel.call(asked(rule))


@in_virtual_time
async def test_a_page_that_is_no_answer_is_no_absence() -> None:
    """`id != null` is honestly false about nothing at all: a page of a proxy in between says nothing."""
    rule = replace(PROBED, probe=replace(PROBE, found="id != null"))
    semel, seen = await doubtful(answers(200, b"<html>maintenance"), rule=rule)
    await asyncio.sleep(SETTLED)
    with pytest.raises(InDoubt, match="no JSON"):
        await semel.call(asked(rule))
    assert [out.method for out in seen.outs] == ["POST", "GET"]


@in_virtual_time
async def test_another_address_by_now_is_not_asked() -> None:
    """There nobody knows the call: not to find it would prove nothing."""
    semel, seen = await doubtful(MISS)
    await asyncio.sleep(SETTLED)
    moved = asked()
    headers = ((b"Host", b"sandbox"), (b"Content-Type", b"application/json"))
    with pytest.raises(InDoubt, match="another address"):
        await semel.call(moved._replace(sending=replace(moved.sending, headers=headers)))  # type: ignore[type-var]
    assert len(seen.outs) == 1


@in_virtual_time
@pytest.mark.parametrize("ref", [None, "", ["a", "b"], {"x": 1}])
async def test_a_call_without_the_argument_is_not_asked_for(ref: object) -> None:
    """The probe would name every call, or none: nothing is asked, nothing is sent."""
    semel, seen = await doubtful(HIT, ref=ref)
    with pytest.raises(InDoubt, match="does not have"):
        await semel.call(asked(ref=ref))
    assert len(seen.outs) == 1


@in_virtual_time
async def test_the_arguments_are_those_that_were_sent() -> None:
    """A later request that is the same call by its rule may have others: the first one's fate is asked."""
    rule = replace(
        PROBED,
        path=PathPattern.parse("/v1/mails/{box}"),
        probe=replace(PROBE, target="/find?b={path.box}&r={ref}&q={query.q}"),
    )
    seen = Seen()
    semel = Process(None, *seen(lost(), HIT))
    with pytest.raises(InDoubt):
        await semel.call(asked(rule, ref=7, target=b"/base/v1/mails/in%20box?q=x"))
    assert (await semel.call(asked(rule, ref=8, target=b"/base/v1/mails/other?q=y"))).kind == "replayed"
    assert seen.outs[1].target == b"/base/find?b=in%20box&r=7&q=x"


@in_virtual_time
async def test_upstream_key_and_time_can_be_asked_for() -> None:
    """The key that was sent, and when."""
    rule = replace(
        PROBED,
        upstream_key=UpstreamKey(header="x-key"),
        probe=replace(PROBE, target="/k/{upstream_key}?since={sent_at}&r={body.ref}"),
    )
    semel, seen = await doubtful(HIT, rule=rule)
    assert (await semel.call(asked(rule))).kind == "replayed"
    key = semel.row(asked(rule)).terms
    assert key is not None
    assert seen.outs[1].target == f"/base/k/{key.key}?since={int(EPOCH)}&r=a%20b%2F%C3%BC".encode()


@in_virtual_time
@pytest.mark.parametrize("target", ["/find?ref={body.ref}", "/find?ref={body.ref}&after={sent_at}"])
async def test_of_identical_calls_a_probe_must_tell_which(target: str) -> None:
    """What is found may be the one before: only the time or the key tells them apart."""
    rule = replace(PROBED, probe=replace(PROBE, target=target))
    second = asked(rule)._replace(occurrence=2)
    second = second._replace(sending=replace(second.sending, occurrence=2))  # type: ignore[type-var]
    semel = Process(None, lost(), HIT)
    with pytest.raises(InDoubt):
        await semel.call(second)
    if "sent_at" in target:
        assert (await semel.call(second)).kind == "replayed"
    else:
        with pytest.raises(InDoubt, match="identical one before it"):
            await semel.call(second)


@in_virtual_time
async def test_a_probe_that_is_overtaken_changes_nothing() -> None:
    """A late answer of the owner settles first; the probe's finding is of no use any more."""
    seen, world = Seen(), World()
    talk = Talk()
    one = Process(world, *seen(talk))
    caller = one.start(asked())
    await until(talk.sent.is_set)
    one.store.declare_dead()
    two = Process(world, *seen(answers(200, b'{"items": [{"id": "probe"}]}', after=5.0)))
    other = two.start(asked())
    await until(lambda: len(seen.outs) == 2)
    talk.answer(200, b"late")
    assert (await caller).status == 200
    assert await other == Got("replayed", 200, b"late")


@in_virtual_time
async def test_absence_is_as_old_as_the_question() -> None:
    """Asked before its time, answered after: what was on its way may have come in between."""
    semel, seen = await doubtful(answers(200, b'{"items": []}', after=25.0), answers(201))
    await asyncio.sleep(SETTLED - 20)
    with pytest.raises(InDoubt, match="counts only in"):
        await semel.call(asked())
    assert [out.method for out in seen.outs] == ["POST", "GET"]


@in_virtual_time
async def test_another_key_of_the_client_may_have_been_executed() -> None:
    """A deliberate repeat under its own key is lost: the probe finds the first one's effect."""
    semel = Process(None, answers(201, b"first"), lost(), HIT)
    second = asked()._replace(identity=ask(PROBED, n=2, named_by=b"k2").identity)
    assert (await semel.call(asked())).status == 201
    with pytest.raises(InDoubt):
        await semel.call(second)
    with pytest.raises(InDoubt, match="identical one before it"):
        await semel.call(second)


@in_virtual_time
async def test_what_was_forgotten_may_have_been_executed() -> None:
    """Under the very name: its history says so."""
    semel = Process(None, answers(201, b"first"), lost(), HIT)
    await semel.call(asked())
    row = semel.row(asked())
    await operator.forget(semel.store, semel.clock, row.id, reason="again", actor="ada", version=None)
    with pytest.raises(InDoubt):
        await semel.call(asked())
    with pytest.raises(InDoubt, match="identical one before it"):
        await semel.call(asked())


@in_virtual_time
@pytest.mark.parametrize("ref", [".", ".."])
async def test_no_argument_leads_a_probe_elsewhere(ref: str) -> None:
    """A dot segment would ask for another thing, with the caller's credential."""
    rule = replace(PROBED, probe=replace(PROBE, target="/v1/mails/{body.ref}"))
    semel, seen = await doubtful(HIT, rule=rule, ref=ref)
    with pytest.raises(InDoubt):
        await semel.call(asked(rule, ref=ref))
    assert len(seen.outs) == 1


@in_virtual_time
async def test_a_rule_that_is_for_other_calls_by_now_is_not_asked_by() -> None:
    """Its name was given to another endpoint: that one would not find the call."""
    rule = replace(PROBED, path=PathPattern.parse("/v1/mails"))
    semel, seen = await doubtful(MISS, rule=rule)
    await asyncio.sleep(SETTLED)
    with pytest.raises(InDoubt, match="for other calls by now"):
        await semel.call(asked(replace(rule, path=PathPattern.parse("/v2/mails"))))
    assert len(seen.outs) == 1
