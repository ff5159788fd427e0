"""A call of an MCP tool in the exchange: one POST, judged by its response, whatever became of the stream."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from proxy import judge as judging
from proxy.asking import Ask
from proxy.core.intent import Place, State
from proxy.core.policy import Rule
from proxy.errors import AnswerUnavailable, InDoubt, UpstreamUnreachable
from proxy.upstream.base import Answered, Headers, Lost, NotSent, Outgoing, Result, Sink
from proxy.upstream.rpc import PATIENCE, RpcUpstream
from tests.exchange.stage import CACHE, EFFECT, SAFE, Got, Prepared, Process, Step, Talk, ask, quietly, until
from tests.exchange.virtual_time import in_virtual_time

EVENTS: Headers = ((b"Content-Type", b"text/event-stream"),)
JSON: Headers = ((b"Content-Type", b"application/json"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling(Prepared):
    def outgoing(self) -> Outgoing:
        return Prepared.outgoing(self)._replace(rpc=7)


def calling(rule: Rule = EFFECT) -> Ask:
    safe = rule is not EFFECT
    return ask(rule)._replace(sending=Calling(rule=rule, safe=safe, body=b"{}", total=600.0))


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def event(*lines: bytes, **members: Any) -> bytes:
    return b"\n".join([*lines, b"data: " + message(**members)]) + b"\n\n"


DONE = message(id=7, result={"text": "paid"})
ENDED = event(b"id: 9", id=7, result={"text": "paid"})
NOTE = event(method="notifications/message", params={})


def says(*parts: bytes, status: int = 200, headers: Headers = JSON, result: Result | None = None) -> Step:
    """What one request meets; by default a complete answer."""

    async def step(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        if not may_send():
            return NotSent("not the owner any more")
        sink.head(status, headers)
        for part in parts:
            await sink.data(part)
        return result or Answered(status)

    return step


def server(*steps: Step) -> Process:
    semel = Process(None, *steps)
    semel.send_to(RpcUpstream(network=semel.upstream, clock=semel.clock))
    return semel


async def in_doubt(semel: Process, asked: Ask) -> None:
    """Held, however often it is asked; and nothing is sent for that."""
    before = semel.upstream.started
    try:
        got = await semel.call(asked)
    except InDoubt:
        pass
    else:
        assert not got.whole
    assert semel.state(asked) is State.IN_DOUBT
    sent = semel.upstream.started
    assert sent > before
    with pytest.raises(InDoubt):
        await semel.call(asked)
    assert semel.upstream.started == sent


# ---- final ----


@in_virtual_time
@pytest.mark.parametrize(
    "step",
    [
        says(DONE),
        says(message(id=7, result={"isError": True})),
        says(message(id="7", result={})),
        says(message(id=7, error={"code": -32603, "message": "x"})),
        says(message(id=7, error={"code": -32602}), status=400),
        says(NOTE, ENDED, headers=EVENTS),
        says(event(id=None, error={"code": -32700}) + ENDED, headers=EVENTS),
        says(ENDED.replace(b"\n", b"\r"), headers=EVENTS),
        says(b"\xef\xbb\xbf" + ENDED, headers=EVENTS),
        says(NOTE, ENDED[:-2], headers=EVENTS),
        says(gzip.compress(DONE), headers=(*JSON, (b"Content-Encoding", b"gzip"))),
        says(gzip.compress(NOTE + ENDED), headers=(*EVENTS, (b"Content-Encoding", b"gzip"))),
        says(DONE.replace(b'"paid"', b"1" * 5000)),
        says(NOTE, ENDED, headers=EVENTS, result=Lost("the connection broke", 200)),
    ],
    ids=range(14),
)
async def test_a_response_is_kept_and_given_again(step: Step) -> None:
    """One send; the same bytes for whoever asks again."""
    semel, asked = server(step), calling()
    first = await semel.call(asked)
    assert first.kind == "executed"
    assert first.whole
    assert await semel.call(asked) == replace(first, kind="replayed")
    assert semel.upstream.started == 1


@in_virtual_time
async def test_the_response_is_withheld_until_it_is_durable() -> None:
    """What was said before it is not."""
    talk = Talk()
    semel, asked = server(talk), calling()
    caller = semel.start(asked)
    await talk.sent.wait()
    talk.head(200, EVENTS)
    talk.part(NOTE)
    flight = next(iter(semel.flights.by_key.values()))
    await until(lambda: flight.capture.visible == len(NOTE))
    talk.part(ENDED)
    await until(lambda: flight.capture.received == len(NOTE + ENDED))
    assert flight.capture.visible == len(NOTE)
    talk.end(Answered(200))
    assert (await caller).body == NOTE + ENDED
    await quietly(caller)


@in_virtual_time
async def test_a_stream_is_taken_up_and_the_call_is_made_once() -> None:
    """The rest is asked for, and is part of the record."""
    first = event(b"id: 1", method="notifications/message")
    steps: list[Outgoing] = []

    def kept(step: Step) -> Step:
        async def keeping(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
            steps.append(out)
            return await step(out, sink, may_send)

        return keeping

    broken = says(first, b"id: 2\ndata: {", headers=EVENTS, result=Lost("the connection broke", 200))
    semel, asked = server(kept(broken), kept(says(ENDED, headers=EVENTS))), calling()
    assert await semel.call(asked) == Got("executed", 200, first + ENDED)
    assert await semel.call(asked) == Got("replayed", 200, first + ENDED)
    assert [out.method for out in steps] == ["POST", "GET"]


# ---- doubt ----


@in_virtual_time
@pytest.mark.parametrize(
    "step",
    [
        says(b""),
        says(status=202),
        says(b"<html>", status=200, headers=()),
        says(message(id=8, result={})),
        says(message(id=7, method="x")),
        says(message(id=None, error={"code": -32603})),
        says(message(id=7, error={"code": -32001})),
        says(DONE, status=500),
        says(DONE, status=408),
        says(status=303),
        says(status=502, headers=()),
        says(NOTE, headers=EVENTS),
        says(NOTE, headers=EVENTS, result=Lost("the connection broke", 200)),
        says(DONE[:9], result=Lost("the connection broke", 200)),
        says(DONE, result=Lost("the connection broke", 200)),
    ],
    ids=range(15),
)
async def test_without_its_response_nobody_knows(step: Step) -> None:
    """It is held, and not sent again."""
    await in_doubt(server(step), calling())


@in_virtual_time
async def test_a_stream_that_cannot_be_taken_up_is_in_doubt() -> None:
    """After a few questions, and never by a second POST."""
    nothing = says(b"no", status=404)
    semel = server(says(event(b"id: 1", method="x"), headers=EVENTS), *[nothing] * (PATIENCE + 2))
    asked = calling()
    await in_doubt(semel, asked)
    assert semel.upstream.started == 1 + PATIENCE


@in_virtual_time
async def test_doubt_shows_nothing_of_a_whole_answer() -> None:
    """It may turn out not to be for the caller."""
    semel = server(says(message(id=7, error={"code": -32001, "message": "slow"})))
    with pytest.raises(InDoubt) as caught:
        await semel.call(calling())
    assert "slow" in str(caught.value.members), "but for an excerpt"


@in_virtual_time
@pytest.mark.parametrize("status", [200, 500])
async def test_nothing_of_a_whole_answer_is_shown_before_it_was_read(status: int) -> None:
    """What it means stands in it."""
    talk = Talk()
    semel, asked = server(talk), calling()
    caller = semel.start(asked)
    await talk.sent.wait()
    talk.head(status, JSON)
    talk.part(message(id=7, error={"code": -32001}))
    flight = next(iter(semel.flights.by_key.values()))
    await until(lambda: flight.capture.received > 0)
    assert not flight.capture.can_begin
    talk.end(Answered(status))
    with pytest.raises(InDoubt):
        await caller


# ---- released ----


@in_virtual_time
@pytest.mark.parametrize(
    "step",
    [
        says(message(id=7, result={"resultType": "input_required"})),
        says(message(id=7, error={"code": -32600})),
        says(message(id=7, error={"code": -32601}), status=404),
        says(message(id=None, error={"code": -32700}), status=400),
        says(message(id=None, error={"code": -32001, "message": "Session not found"}), status=404),
        says(message(id="server-error", error={"code": -32600}), status=404),
        says(status=401),
        says(b"slow down", status=429, headers=()),
        says(status=307),
        says(NOTE, event(id=7, result={"resultType": "input_required"}), headers=EVENTS),
    ],
    ids=range(10),
)
async def test_what_was_not_begun_is_handed_on_and_goes_out_again(step: Step) -> None:
    """With another session, another token, the answers to its questions."""
    semel, asked = server(step, says(DONE)), calling()
    assert (await semel.call(asked)).kind == "executed"
    assert semel.state(asked) is State.RELEASED
    assert await semel.call(asked) == Got("executed", 200, DONE)
    assert await semel.call(asked) == Got("replayed", 200, DONE)


@in_virtual_time
async def test_what_was_not_sent_is_released() -> None:
    """The same as ever: tried once more, then said."""

    async def away(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        return NotSent("connection refused")

    semel, asked = server(away, away, says(DONE)), calling()
    with pytest.raises(UpstreamUnreachable):
        await semel.call(asked)
    assert semel.state(asked) is State.RELEASED
    assert (await semel.call(asked)).body == DONE


# ---- not for everybody ----


@in_virtual_time
@pytest.mark.parametrize(
    "headers", [EVENTS, (*EVENTS, (b"Content-Encoding", b"gzip"))], ids=["plain", "gzip"]
)
async def test_what_a_client_was_asked_for_is_not_given_to_another(headers: Headers) -> None:
    """The call is done, and is not made again; whoever was there has its answer."""
    body = event(id=1, method="elicitation/create") + ENDED
    told = gzip.compress(body) if headers != EVENTS else body
    semel, asked = server(says(told, headers=headers)), calling()
    assert (await semel.call(asked)).body == told
    assert semel.state(asked) is State.DONE
    with pytest.raises(AnswerUnavailable, match="asked the client"):
        await semel.call(asked)
    assert semel.upstream.started == 1


@in_virtual_time
@pytest.mark.parametrize("rule", [SAFE, CACHE], ids=["safe", "cache"])
@pytest.mark.parametrize(
    "step",
    [
        says(message(id=7, error={"code": -32603})),
        says(message(id=7, error={"code": -32601})),
        says(message(id=7, error={"code": -32001})),
        says(DONE, status=404),
        says(DONE, status=503),
        says(message(id=7, result={"resultType": "input_required"})),
        says(b"<html>"),
    ],
    ids=range(7),
)
async def test_what_failed_is_not_kept_where_repeating_does_no_harm(rule: Rule, step: Step) -> None:
    """It is handed on, and the next ask goes out."""
    semel, asked = server(step, says(DONE)), calling(rule)
    assert (await semel.call(asked)).kind == "executed"
    assert semel.state(asked) is State.RELEASED
    assert await semel.call(asked) == Got("executed", 200, DONE)
    assert semel.upstream.started == 2


# ---- too long to be read ----


@in_virtual_time
@pytest.mark.parametrize(
    ("step", "state"),
    [
        (says(DONE), State.DONE),
        (says(NOTE + ENDED, headers=EVENTS), State.DONE),
        (says(NOTE * 9, headers=EVENTS), State.IN_DOUBT),
        (says(DONE, status=500), State.IN_DOUBT),
        (says(DONE * 9, status=404), State.RELEASED),
    ],
    ids=range(5),
)
async def test_what_is_too_long_to_be_read_is_done_if_it_is_complete(
    step: Step, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never made again; a stream without its end is in doubt."""
    monkeypatch.setattr(judging, "READABLE", 10)
    semel, asked = server(step), calling()
    try:
        await semel.call(asked)
    except InDoubt:
        assert state is State.IN_DOUBT
    assert semel.state(asked) is state
    answer = semel.row(asked).answer
    assert state is not State.DONE or (answer is not None and answer.place is not Place.NOWHERE)
