"""Answers that are too old: served, fetched anew and compared, or refused, as the rule says."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.core.clauses import OnStale
from proxy.core.policy import Repeat, Rule
from proxy.errors import Stale, UpstreamUnreachable
from proxy.upstream.base import Answered
from tests.exchange.stage import CACHE, EFFECT, SAFE, Got, Process, Talk, answers, ask, lost, not_sent, until
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")

SAME = replace(SAFE, repeat=Repeat.SAME)


def aged(stale: OnStale, rule: Rule = CACHE) -> Rule:
    return replace(rule, max_age=60.0, stale=stale)


@in_virtual_time
@pytest.mark.parametrize("stale", OnStale)
async def test_what_is_young_enough_is_replayed(stale: OnStale) -> None:
    """Up to max_age, whatever happens after it."""
    semel = Process(None, answers(body=b"1"))
    await semel.call(ask(aged(stale)))
    await asyncio.sleep(59)
    assert await semel.call(ask(aged(stale))) == Got("replayed", 200, b"1")


@in_virtual_time
async def test_serve_gives_it_all_the_same() -> None:
    """Until its ttl is over."""
    semel = Process(None, answers(body=b"1"), answers(body=b"2"))
    await semel.call(ask(aged(OnStale.SERVE)))
    await asyncio.sleep(3000)
    assert await semel.call(ask(aged(OnStale.SERVE))) == Got("replayed", 200, b"1")
    await asyncio.sleep(700)
    assert await semel.call(ask(aged(OnStale.SERVE))) == Got("executed", 200, b"2")


@in_virtual_time
async def test_refuse_says_so_and_sends_nothing() -> None:
    """A refresh fetches it anew, and it is young again."""
    semel, rule = Process(None, answers(body=b"1"), answers(body=b"2")), aged(OnStale.REFUSE)
    await semel.call(ask(rule))
    await asyncio.sleep(61)
    with pytest.raises(Stale, match=r"61 seconds old.*allows 60"):
        await semel.call(ask(rule))
    assert semel.upstream.started == 1
    assert await semel.call(ask(rule, refresh=True)) == Got("executed", 200, b"2")
    assert await semel.call(ask(rule)) == Got("replayed", 200, b"2")


@in_virtual_time
@pytest.mark.parametrize("rule", [CACHE, SAME], ids=["cached", "recorded"])
@pytest.mark.parametrize(("second", "drifts"), [(b"1", False), (b"2", True)], ids=["the same", "another"])
async def test_revalidate_fetches_compares_and_keeps(rule: Rule, second: bytes, drifts: bool) -> None:
    """The new answer is given and recorded, and is young; that it differs is said, in the history too."""
    semel, rule = Process(None, answers(body=b"1"), answers(body=second)), aged(OnStale.REVALIDATE, rule)
    await semel.call(ask(rule))
    await asyncio.sleep(61)
    live = await semel.exchange.ask(ask(rule))
    flight = live.flight  # type: ignore[union-attr]
    assert flight.renews is not None
    assert flight.drifted is drifts
    live.leave()  # type: ignore[union-attr]
    assert semel.notebook.told_of("drift") is drifts
    assert any("not what was recorded" in entry.why for entry in semel.events(ask(rule))) is drifts
    await asyncio.sleep(59)
    assert await semel.call(ask(rule)) == Got("replayed", 200, second)


@in_virtual_time
async def test_another_status_is_another_answer() -> None:
    """Also with the same body."""
    semel, rule = Process(None, answers(200, b"1"), answers(203, b"1")), aged(OnStale.REVALIDATE)
    await semel.call(ask(rule))
    await asyncio.sleep(61)
    await semel.call(ask(rule))
    assert semel.notebook.told_of("drift")


@in_virtual_time
async def test_nothing_is_handed_on_before_it_was_compared() -> None:
    """The head says whether it differs, so it waits for the end."""
    talk, rule = Talk(), aged(OnStale.REVALIDATE)
    semel = Process(None, answers(body=b"1"), talk)
    await semel.call(ask(rule))
    await asyncio.sleep(61)
    asking = asyncio.ensure_future(semel.exchange.ask(ask(rule)))
    await until(lambda: semel.upstream.started == 2)
    talk.head(200)
    talk.part(b"a part")
    await asyncio.sleep(1)
    assert not asking.done()
    talk.end(Answered(200))
    live = await asking
    assert live.flight.drifted  # type: ignore[union-attr]
    live.leave()  # type: ignore[union-attr]


@in_virtual_time
@pytest.mark.parametrize("how", ["not sent", "lost", "503"])
async def test_a_fetch_that_fails_is_told_and_the_next_tries_again(how: str) -> None:
    """The rule wants a fresh answer: an old one is not passed off as one."""
    steps = {"not sent": [not_sent()] * 2, "lost": [lost()] * 2, "503": [answers(503, b"busy")]}[how]
    semel, rule = Process(None, answers(body=b"1"), *steps, answers(body=b"3")), aged(OnStale.REVALIDATE)
    await semel.call(ask(rule))
    await asyncio.sleep(61)
    if how == "503":
        assert await semel.call(ask(rule)) == Got("executed", 503, b"busy")
    else:
        with pytest.raises(UpstreamUnreachable):
            await semel.call(ask(rule))
    assert await semel.call(ask(rule)) == Got("executed", 200, b"3")


@in_virtual_time
async def test_many_who_ask_at_once_fetch_once() -> None:
    """The others join the one that fetches."""
    semel = Process(None, answers(body=b"1"), answers(body=b"2", after=1))
    rule = aged(OnStale.REVALIDATE)
    await semel.call(ask(rule))
    await asyncio.sleep(61)
    got = await asyncio.gather(*(semel.call(ask(rule)) for _ in range(20)))
    assert {one.body for one in got} == {b"2"}
    assert semel.upstream.started == 2


@in_virtual_time
@pytest.mark.parametrize("stale", OnStale)
async def test_an_effect_is_never_fetched_anew(stale: OnStale) -> None:
    """However old: only a safe answer becomes stale."""
    semel, rule = Process(None, answers(body=b"1")), aged(stale, EFFECT)
    await semel.call(ask(rule))
    await asyncio.sleep(3000)
    assert await semel.call(ask(rule)) == Got("replayed", 200, b"1")
