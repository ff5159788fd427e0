"""Sending again under an upstream key: same bytes, same key, bounded; what proves nothing stays in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from proxy.carrying import RESEND_PAUSES
from proxy.core.clauses import KeyEncoding, UpstreamKey
from proxy.core.headers import Headers
from proxy.core.intent import State
from proxy.core.policy import OutcomeRule, Rule
from proxy.core.upstream_key import can_carry
from proxy.errors import InDoubt, StoreUnavailable
from proxy.keys import mint
from proxy.store.base import BlobRef
from proxy.upstream.base import Lost
from tests.exchange.keyed import IN_BODY, KEYED, SENDS, Seen, asked
from tests.exchange.stage import (
    Got,
    Process,
    Step,
    Talk,
    answers,
    lost,
    not_sent,
    quietly,
    until,
)
from tests.exchange.staged_store import World
from tests.exchange.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("any_stage")


@in_virtual_time
@pytest.mark.parametrize("first", [lost(), lost(status=200), answers(503), answers(408), answers(409)])
async def test_what_is_lost_is_sent_again_under_the_same_key(first: Step) -> None:
    """The caller gets the answer of the second send, and nothing of the first; one record, two sends."""
    seen = Seen()
    semel = Process(None, *seen(first, answers(201, b"charged")))
    assert await semel.call(asked()) == Got("executed", 201, b"charged")
    one, two = seen.keys
    assert one == two
    assert len(one) == 32
    row = semel.row(asked())
    assert (row.state, row.sends, row.unresolved) == (State.DONE, 2, False)
    assert [entry.event for entry in semel.events(asked())] == ["claim", "resent", "answered"]
    assert await semel.call(asked()) == Got("replayed", 201, b"charged")
    assert len(seen.outs) == 2


@in_virtual_time
async def test_who_joins_between_two_sends_sees_nothing_of_the_first() -> None:
    """Its caller had left before a part came, so it may be sent again; the part is nobody's any more. Found
    by the simulation (seed 11288): who joined during the pause read it, and the resend came to nothing."""
    semel = Process(None, talk := Talk(), answers(201, b"charged"))
    caller = semel.start(asked())
    await until(talk.sent.is_set)
    await quietly(caller)
    talk.head(201, ((b"Content-Length", b"100"),))
    talk.part(b"half of the first")
    talk.end(Lost("broke off", 201))
    await asyncio.sleep(RESEND_PAUSES[0] / 2)
    assert await semel.call(asked()) == Got("joined", 201, b"charged")
    assert not semel.notebook.told_of("defect")


@in_virtual_time
async def test_resends_are_bounded_and_then_it_is_doubt() -> None:
    """A few tries with growing pauses; then held, with the upstream's words; the next ask tries again."""
    seen = Seen()
    semel = Process(None, *seen(*[answers(500, b"broken")] * SENDS, *[answers(500)] * SENDS))
    began = asyncio.get_running_loop().time()
    with pytest.raises(InDoubt) as told:
        await semel.call(asked())
    assert asyncio.get_running_loop().time() - began == pytest.approx(sum(RESEND_PAUSES))
    assert told.value.members["upstream_status"] == 500
    assert told.value.members["excerpt"] == "broken"
    assert semel.state(asked()) is State.IN_DOUBT
    assert len(seen.outs) == SENDS
    with pytest.raises(InDoubt):
        await semel.call(asked())
    assert len(seen.outs) == 2 * SENDS
    assert len(set(seen.keys)) == 1


@in_virtual_time
@pytest.mark.parametrize("result", [not_sent("refused"), answers(401, b"who?"), answers(429), answers(403)])
async def test_a_resend_that_proves_nothing_leaves_it_in_doubt(result: Step) -> None:
    """No connection, or a refusal, speaks only for this send: the earlier one may have been executed."""
    seen = Seen()
    semel = Process(None, *seen(lost(), *[result] * 10))
    with pytest.raises(InDoubt) as told:
        await semel.call(asked())
    row = semel.row(asked())
    assert (row.state, row.unresolved) == (State.IN_DOUBT, True)
    assert "earlier send" in told.value.detail
    assert len(set(seen.keys)) == 1


@in_virtual_time
async def test_a_refused_first_send_is_released_and_the_next_has_a_new_key() -> None:
    """Declined for certain: what is made next is another call to the upstream."""
    seen = Seen()
    semel = Process(None, *seen(answers(402, b"declined"), answers(200)))
    assert (await semel.call(asked())).status == 402
    assert semel.state(asked()) is State.RELEASED
    assert (await semel.call(asked())).status == 200
    one, two = seen.keys
    assert one != two


@in_virtual_time
async def test_not_sent_at_first_is_tried_once_more_and_released() -> None:
    """Without an earlier send there is no doubt."""
    semel = Process(None, not_sent(), not_sent(), answers(200))
    with pytest.raises(Exception, match="Nothing was sent"):
        await semel.call(asked())
    assert semel.state(asked()) is State.RELEASED


@in_virtual_time
async def test_a_key_mismatch_is_doubt_and_not_tried_again() -> None:
    """The upstream knows the key for something else: sending once more would say the same."""
    seen = Seen()
    semel = Process(None, *seen(lost(), answers(422, b"key used")))
    with pytest.raises(InDoubt, match="another request") as told:
        await semel.call(asked())
    assert told.value.members["upstream_status"] == 422
    assert len(seen.outs) == 2
    assert semel.state(asked()) is State.IN_DOUBT


@in_virtual_time
async def test_after_a_crash_the_recorded_bytes_go_out_with_the_new_callers_credentials() -> None:
    """Killed while sending; another proxy, a re-run agent: other spelling, new token, same key and bytes."""
    seen, world = Seen(), World()
    first = Process(world, *seen(Talk()))
    caller = first.start(asked(body=b'{"usd":1}', token=b"old"))
    await until(lambda: bool(seen.outs))
    await first.die()
    await asyncio.gather(caller, return_exceptions=True)
    second = Process(world, *seen(answers(200, b"once")))
    assert await second.call(asked(body=b'{ "usd": 1 }', token=b"new")) == Got("executed", 200, b"once")
    assert seen.bodies == [b'{"usd":1}'] * 2
    assert len(set(seen.keys)) == 1
    assert seen.headers(b"authorization") == [b"old", b"new"]
    assert seen.headers(b"x-kept") == [b"yes"] * 2
    row = second.row(asked())
    assert (row.state, row.fence, row.sends) == (State.DONE, 2, 2)


@in_virtual_time
async def test_a_large_recorded_body_is_read_back() -> None:
    """It lies in a blob."""
    seen, world = Seen(), World()
    body = b'{"text": "' + b"x" * 5000 + b'"}'
    first = Process(world, *seen(Talk()))
    caller = first.start(asked(body=body))
    await until(lambda: bool(seen.outs))
    await first.die()
    await asyncio.gather(caller, return_exceptions=True)
    second = Process(world, *seen(answers(200)))
    assert (await second.call(asked(body=body))).status == 200
    assert seen.bodies == [body, body]


@in_virtual_time
async def test_a_key_in_the_body_is_set_within_it() -> None:
    """Everything else to the byte; the record keeps the body as it came."""
    seen = Seen()
    body = b'{ "amount": 1.10, "meta": {"a":[1]} }'
    semel = Process(None, *seen(lost(), answers(200)))
    assert (await semel.call(asked(IN_BODY, body))).status == 200
    one, two = seen.bodies
    assert one == two
    head, _, tail = one.partition(b'{"key": "')
    assert head == b'{ "amount": 1.10, "meta": '
    assert len(tail.partition(b'"')[0]) == 20
    assert tail.partition(b'"')[2] == b', "a":[1]} }'
    stored = semel.codec.open_request(semel.row(asked(IN_BODY)).request)
    assert stored.body == body
    assert seen.headers(b"content-length") == [b"%d" % len(one)] * 2


@in_virtual_time
@pytest.mark.parametrize("rule", [replace(KEYED, upstream_key=UpstreamKey(header="x-key")), IN_BODY])
async def test_the_clients_own_key_gives_way_to_ours(rule: Rule) -> None:
    """Under whatever name ours goes: the upstream shall know the call by one key."""
    seen, made = Seen(), asked(rule)
    semel = Process(None, *seen(answers(200)))
    headers = (*made.sending.headers, (b"Idempotency-Key", b"the client's"))  # type: ignore[attr-defined]
    await semel.call(made._replace(sending=replace(made.sending, headers=headers)))  # type: ignore[type-var]
    assert seen.keys == []


@in_virtual_time
async def test_what_was_handed_on_is_not_spliced() -> None:
    """A part was seen: the caller is cut off, and the next ask sends again."""
    seen = Seen()
    semel = Process(None, *seen(lost(b"half", status=200), answers(200, b"whole")))
    got = await semel.call(asked())
    assert (got.body, got.whole) == (b"half", False)
    assert not semel.notebook.told_of("defect")
    assert semel.state(asked()) is State.IN_DOUBT
    assert await semel.call(asked()) == Got("executed", 200, b"whole")
    assert len(set(seen.keys)) == 1


@in_virtual_time
async def test_nothing_is_resent_while_the_store_is_away() -> None:
    """The resend must be in the history first; until the store is back the call is not even settled."""
    semel = Process(None, lost(after=1.0), answers(200))
    caller = semel.start(asked())
    await until(lambda: semel.upstream.started == 1)
    semel.store.unavailable = True
    await asyncio.sleep(5)
    assert semel.upstream.started == 1
    semel.store.unavailable = False
    with pytest.raises(InDoubt):
        await caller
    assert semel.upstream.started == 1
    assert semel.state(asked()) is State.IN_DOUBT


@in_virtual_time
async def test_two_who_ask_at_once_resend_once() -> None:
    """In two processes: one claims the resend, the other waits for it."""
    seen, world = Seen(), World()
    one = Process(world, *seen(*[lost()] * SENDS, answers(200, b"x", after=1.0)))
    two = Process(world, *seen(answers(200, b"never")))
    with pytest.raises(InDoubt):
        await one.call(asked())
    got = await asyncio.gather(one.call(asked()), two.call(asked()))
    assert sorted(each.body for each in got) == [b"x", b"x"]
    assert len(seen.outs) == SENDS + 1


@in_virtual_time
async def test_a_resend_whose_claim_is_uncertain_sends_nothing() -> None:
    """The store failed while it was claimed: back to doubt, never a send without a record."""
    semel = Process(None, *[lost()] * SENDS, answers(200))
    with pytest.raises(InDoubt):
        await semel.call(asked())
    semel.store.fail_after_swaps = 1
    with pytest.raises(StoreUnavailable):
        await semel.call(asked())
    assert semel.upstream.started == SENDS
    await until(lambda: semel.state(asked()) is State.IN_DOUBT)
    assert (await semel.call(asked())).status == 200


@in_virtual_time
async def test_a_failure_inside_a_200_proves_nothing_of_the_send_before() -> None:
    """`not_executed_if` of a resend is a word about that resend; nobody is handed its answer."""
    rule = replace(KEYED, outcome=OutcomeRule(not_executed_if="ok == `false`"))
    semel = Process(None, lost(), *[answers(200, b'{"ok": false}')] * 10)
    with pytest.raises(InDoubt, match="refused it now"):
        await semel.call(asked(rule))


@pytest.mark.parametrize(
    ("key", "length", "alphabet"),
    [
        (UpstreamKey(header="k"), 32, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"),
        (UpstreamKey(header="k", max_length=25), 25, None),
        (UpstreamKey(header="k", encoding=KeyEncoding.HEX), 32, "0123456789abcdef"),
        (UpstreamKey(header="k", encoding=KeyEncoding.UUID), 36, "0123456789abcdef-"),
    ],
)
def test_keys_are_random_and_as_the_upstream_takes_them(
    key: UpstreamKey, length: int, alphabet: str | None
) -> None:
    """No two alike; never longer than it takes."""
    made = {mint(key) for _ in range(500)}
    assert len(made) == 500
    assert {len(one) for one in made} == {length}
    assert alphabet is None or set("".join(made)) <= set(alphabet)


@in_virtual_time
async def test_a_paused_owner_whose_call_was_resent_meanwhile_changes_nothing() -> None:
    """Its late answer has an old fence: kept as evidence. Both callers get what stands."""
    seen, world, talk = Seen(), World(), Talk()
    one = Process(world, *seen(talk))
    caller = one.start(asked())
    await until(talk.sent.is_set)
    one.store.declare_dead()
    two = Process(world, *seen(answers(200, b"resent")))
    assert await two.call(asked()) == Got("executed", 200, b"resent")
    talk.answer(200, b"late")
    assert await caller == Got("replayed", 200, b"resent")
    assert [entry.event for entry in two.events(asked())][-1] == "evidence"
    assert len(set(seen.keys)) == 1


@in_virtual_time
async def test_a_paused_owner_does_not_resend() -> None:
    """Its first send is lost while others take it for dead: the call is theirs to settle."""
    seen, world, talk = Seen(), World(), Talk()
    one = Process(world, *seen(talk, answers(200, b"never")))
    caller = one.start(asked())
    await until(talk.sent.is_set)
    one.store.declare_dead()
    talk.end(Lost("the connection broke"))
    with pytest.raises(InDoubt):
        await caller
    assert len(seen.outs) == 1
    assert one.state(asked()) is State.IN_DOUBT


@in_virtual_time
async def test_shutting_down_between_resends_sends_nothing_more() -> None:
    """What is lost stays in doubt, for the next process."""
    seen = Seen()
    semel = Process(None, *seen(lost(), answers(200)))
    caller = semel.start(asked())
    await until(lambda: len(seen.outs) == 1)
    await semel.flights.drain(10.0)
    with pytest.raises(InDoubt):
        await caller
    assert len(seen.outs) == 1
    assert semel.state(asked()) is State.IN_DOUBT


@in_virtual_time
async def test_a_caller_that_leaves_does_not_stop_a_resend() -> None:
    """A call with effects goes on to its end, and is there for whoever asks again."""
    seen = Seen()
    semel = Process(None, *seen(lost(), answers(200, b"done")))
    caller = semel.start(asked())
    await until(lambda: len(seen.outs) == 1)
    await quietly(caller)
    await until(lambda: semel.state(asked()) is State.DONE)
    assert await semel.call(asked()) == Got("replayed", 200, b"done")


@in_virtual_time
async def test_a_store_that_goes_away_while_the_record_is_read_back_is_said() -> None:
    """store-unavailable, nothing claimed, nothing sent."""
    semel, body = Process(None, *[lost()] * SENDS, answers(200)), b'{"text": "' + b"x" * 5000 + b'"}'
    with pytest.raises(InDoubt):
        await semel.call(asked(body=body))

    async def away(ref: BlobRef) -> AsyncIterator[bytes]:
        if ref.size:
            raise StoreUnavailable("away")
        yield b""

    semel.store.read_blob = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await semel.call(asked(body=body))
    assert semel.upstream.started == SENDS


@pytest.mark.parametrize(
    ("headers", "body", "carries"),
    [
        ((), b'{"a": 1}', True),
        ((), b"[1]", False),
        ((), b'{"n": ' + b"9" * 5000 + b"}", True),
        (((b"Content-Encoding", b"gzip"),), b'{"a": 1}', False),
        (((b"Content-Digest", b"x"),), b'{"a": 1}', False),
        (((b"X-Hub-Signature-256", b"x"),), b'{"a": 1}', False),
        (((b"X-Ms-Content-Sha256", b"x"),), b'{"a": 1}', False),
        (((b"X-Body-Checksum", b"x"),), b'{"a": 1}', False),
        (((b"Authorization", b"AWS4-HMAC-SHA256 x"),), b'{"a": 1}', False),
    ],
)
def test_what_cannot_carry_a_key_in_its_body(headers: Headers, body: bytes, carries: bool) -> None:
    """It is sent as it is, and doubted as any other call."""
    json_type = (b"Content-Type", b"application/json")
    assert can_carry(UpstreamKey(body="key"), (json_type, *headers), body) is carries
