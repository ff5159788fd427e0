"""A stream that ends without its response is taken up by its last event id, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.headers import Headers
from proxy.core.policy import Timeouts
from proxy.core.reachable import Said
from proxy.core.sse import split_events
from proxy.spool import Spool
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink
from proxy.upstream.rpc import LARGEST_EVENT, LONGEST_PAUSE, PATIENCE, PAUSE, SHORTEST_PAUSE, RpcUpstream
from tests.counts import count
from tests.exchange.virtual_time import VirtualClock, in_virtual_time, run
from tests.sending import Collecting

EVENTS: Headers = ((b"Content-Type", b"text/event-stream"),)
JSON: Headers = ((b"Content-Type", b"application/json"), (b"Content-Length", b"2"))
BROKE = Lost("the connection broke", 200)

FIRST = b"id: 1\ndata:\n\n"
NOTE = b'id: 2\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\n\n'
DONE = b'id: 3\ndata: {"jsonrpc":"2.0","id":7,"result":{"a":[1,2]}}\n\n'
LATE = b"id: 4\ndata: {}\n\n"

OUT = Outgoing(
    scheme="http",
    host="mcp.example",
    port=80,
    method="POST",
    target=b"/mcp?x=1",
    headers=(
        (b"Host", b"mcp.example"),
        (b"Authorization", b"Bearer t"),
        (b"Mcp-Session-Id", b"s"),
        (b"Mcp-Protocol-Version", b"2025-11-25"),
        (b"Accept", b"application/json, text/event-stream"),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"2"),
        (b"content-encoding", b"identity"),
        (b"Content-Digest", b"sha-256=:x:"),
        (b"Digest", b"x"),
        (b"Mcp-Method", b"tools/call"),
        (b"Mcp-Name", b"pay"),
        (b"Last-Event-ID", b"0"),
    ),
    body=Spool.of(b"{}"),
    timeouts=Timeouts(),
    max_idle=1.0,
    said=Said.NAMED,
    head=b"POST /mcp?x=1 HTTP/1.1\r\n\r\n",
    rpc=7,
)


@dataclass(frozen=True)
class Step:
    """What one request meets: perhaps a head, some parts, and how it ended."""

    result: Result
    parts: tuple[bytes, ...] = ()
    headers: Headers = EVENTS
    status: int = 200


def ends(*parts: bytes, headers: Headers = EVENTS, status: int = 200) -> Step:
    return Step(Answered(status), parts, headers, status)


def breaks(*parts: bytes) -> Step:
    return Step(BROKE, parts)


@dataclass
class Network:
    """Plays one step after the other; then has nothing to say."""

    steps: list[Step]
    asked: list[Outgoing] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    closed: bool = False

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        self.asked.append(out)
        self.at.append(asyncio.get_running_loop().time())
        step = self.steps.pop(0) if self.steps else ends(status=404, headers=JSON)
        if not may_send():
            return NotSent("not the owner any more")
        if not isinstance(step.result, NotSent):
            sink.head(step.status, step.headers)
            for part in step.parts:
                await sink.data(part)
        return step.result

    async def close(self) -> None:
        self.closed = True

    @property
    def posts(self) -> int:
        return [out.method for out in self.asked].count("POST")

    @property
    def last_ids(self) -> list[bytes]:
        return [dict(out.headers)[b"Last-Event-ID"] for out in self.asked[1:]]


async def sent(*steps: Step, out: Outgoing = OUT) -> tuple[Result, Collecting, Network]:
    network, sink = Network(list(steps)), Collecting()
    result = await RpcUpstream(network=network, clock=VirtualClock()).send(out, sink, lambda: True)
    assert network.posts == (out.method == "POST"), "never a second one"
    return result, sink, network


# ---- what is left alone ----


@in_virtual_time
async def test_what_is_no_call_goes_by_untouched() -> None:
    """Its sink and its permission too."""
    network, sink = Network([ends(FIRST)]), Collecting()
    upstream = RpcUpstream(network=network, clock=VirtualClock())
    out = OUT._replace(rpc=None)
    assert await upstream.send(out, sink, lambda: True) == Answered(200)
    assert network.asked == [out]
    assert (sink.body, sink.headers) == (FIRST, EVENTS)
    assert await upstream.send(out, sink, lambda: False) == NotSent("not the owner any more")
    await upstream.close()
    assert network.closed


@in_virtual_time
@pytest.mark.parametrize(
    "step",
    [
        ends(b"{", b"}", headers=JSON),
        ends(headers=JSON, status=202),
        ends(FIRST, b"id: 9", headers=(*EVENTS, (b"Content-Encoding", b"gzip"), (b"Content-Length", b"9"))),
        ends(FIRST, NOTE, status=500),
        ends(FIRST, NOTE, status=206),
        Step(Lost("broke", 200, timed_out=True), (b"{",), JSON),
        Step(Lost("broke", None)),
    ],
    ids=range(7),
)
async def test_what_is_no_plain_stream_is_handed_on_as_it_comes(step: Step) -> None:
    """JSON, what is compressed, what is no 200: the same head and parts, the same result, one request."""
    result, sink, network = await sent(step)
    assert sink.parts == list(step.parts)
    assert (sink.status, sink.headers) == (step.status, step.headers)
    assert len(network.asked) == 1
    assert result == (Answered(step.status, 7) if isinstance(step.result, Answered) else step.result)


@in_virtual_time
async def test_what_was_not_sent_was_not_sent() -> None:
    """Neither is anything asked afterwards."""
    never = NotSent("no such host", for_good=True)
    result, sink, network = await sent(Step(never))
    assert result is never
    assert (sink.status, len(network.asked)) == (0, 1)


@in_virtual_time
async def test_who_may_not_send_asks_nothing() -> None:
    """The permission is asked for the request itself."""
    network = Network([ends(FIRST)])
    upstream = RpcUpstream(network=network, clock=VirtualClock())
    assert isinstance(await upstream.send(OUT, Collecting(), lambda: False), NotSent)
    assert len(network.asked) == 1


# ---- a stream with its response ----


@settings(max_examples=count(300, 10_000), deadline=None)
@given(
    st.lists(st.integers(0, 400), max_size=12),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\n"]),
    st.sampled_from([b"", b"data: more", b": bye\n\n", LATE]),
    st.booleans(),
)
def test_however_a_stream_is_cut_the_same_bytes_arrive(
    points: list[int], end: bytes, before: bytes, after: bytes, broken: bool
) -> None:
    """With its response it is complete, whatever became of the connection, and nothing is asked."""
    body = before + (FIRST + NOTE + DONE + after).replace(b"\n", end)
    at = sorted({point % (len(body) + 1) for point in points} | {0, len(body)})
    parts = [body[start:stop] for start, stop in itertools.pairwise(at)]
    result, sink, network = run(sent(breaks(*parts) if broken else ends(*parts)))
    assert sink.body == body
    assert result == Answered(200, 7)
    assert len(network.asked) == 1


@in_virtual_time
async def test_events_are_handed_on_when_they_are_whole() -> None:
    """Not before, and not later; a CR is a line end, whatever may follow."""
    _, sink, _ = await sent(
        ends(FIRST[:5], FIRST[5:] + NOTE[:3], NOTE[3:], b"data: x\r", b"\r", b"\n" + DONE)
    )
    assert sink.parts == [FIRST, NOTE, b"data: x\r\r", b"\n" + DONE]


@in_virtual_time
async def test_a_length_that_may_not_stay_true_is_not_said() -> None:
    """What is taken up makes the body longer."""
    _, sink, _ = await sent(
        ends(FIRST, headers=(*EVENTS, (b"content-length", b"%d" % len(FIRST)), (b"X", b"y"))), ends(DONE)
    )
    assert sink.headers == (*EVENTS, (b"X", b"y"))
    assert sink.body == FIRST + DONE


@in_virtual_time
async def test_a_stream_without_ids_cannot_be_taken_up() -> None:
    """What it came to is said as it was."""
    note = NOTE.replace(b"id: 2\n", b"")
    assert (await sent(ends(note)))[0] == Answered(200, 7)
    result, sink, network = await sent(breaks(note, b"data: ha"))
    assert result == BROKE
    assert sink.body == note + b"data: ha"
    assert len(network.asked) == 1


# ---- taken up ----


@in_virtual_time
@pytest.mark.parametrize("first", [ends, breaks])
async def test_the_rest_is_asked_for_by_the_last_id(first: Callable[..., Step]) -> None:
    """By GET, however the stream came to its end; the client sees one stream."""
    result, sink, network = await sent(first(FIRST, NOTE), ends(DONE))
    assert result == Answered(200, 7)
    assert sink.body == FIRST + NOTE + DONE
    assert [out.method for out in network.asked] == ["POST", "GET"]
    assert network.last_ids == [b"2"]


@in_virtual_time
async def test_the_question_has_session_and_credentials_and_nothing_of_the_message() -> None:
    """It is another request, to the same place."""
    _, _, network = await sent(breaks(FIRST), ends(DONE))
    asking = network.asked[1]
    assert asking.headers == (
        (b"Host", b"mcp.example"),
        (b"Authorization", b"Bearer t"),
        (b"Mcp-Session-Id", b"s"),
        (b"Mcp-Protocol-Version", b"2025-11-25"),
        (b"Accept", b"text/event-stream"),
        (b"Last-Event-ID", b"1"),
    )
    assert (asking.method, asking.target, asking.body, asking.rpc) == ("GET", OUT.target, None, None)
    assert asking.head == (
        b"GET /mcp?x=1 HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in asking.headers) + b"\r\n"
    )


@settings(max_examples=count(300, 10_000), deadline=None)
@given(st.data(), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_wherever_streams_break_nothing_is_spliced_into_an_event(data: st.DataObject, end: bytes) -> None:
    """Whole events, each once, in order: as if there had been one stream."""
    events = [each.replace(b"\n", end) for each in (FIRST, NOTE, b'id: x 2\ndata: {"a":1}\n\n', DONE)]
    steps, at = [], 0
    ids = [b"1", b"2", b"x 2", b"3"]
    expected_ids = []
    while at < len(events):
        left = b"".join(events[at:])
        size = data.draw(st.integers(len(events[0]) if at == 0 else 0, len(left)))
        steps.append(data.draw(st.sampled_from([ends, breaks]))(left[:size]))
        # CRLF CR is a blank line already: the LF behind it may be missing.
        seen = size + (end == b"\r\n")
        whole = sum(len(b"".join(events[at : n + 1])) <= seen for n in range(at, len(events)))
        if whole == 0 and sum(not step.parts[0] for step in steps) >= PATIENCE - 1:
            return
        at += whole
        if at < len(events):
            expected_ids.append(ids[at - 1])
    if _in_vain(expected_ids) >= PATIENCE:
        return
    result, sink, network = run(sent(*steps))
    assert result == Answered(200, 7)
    assert split_events(sink.body) == split_events(b"".join(events))
    assert network.last_ids == expected_ids


def _in_vain(ids: list[bytes]) -> int:
    """How often the same was asked in a row, at most."""
    most = now = 0
    for before, after in zip([b"", *ids], ids, strict=False):
        now = now + 1 if before == after else 1
        most = max(most, now)
    return most


@in_virtual_time
async def test_half_an_event_comes_again_whole() -> None:
    """What was cut is not handed on."""
    _, sink, _ = await sent(breaks(FIRST, NOTE[:9]), breaks(NOTE[:20]), ends(NOTE, DONE))
    assert sink.body == FIRST + NOTE + DONE


@in_virtual_time
@pytest.mark.parametrize(
    "step",
    [
        ends(b"[]", headers=JSON),
        ends(b"no", headers=(), status=405),
        ends(DONE, status=404),
        ends(DONE, headers=(*EVENTS, (b"Content-Encoding", b"gzip"))),
        ends(),
        breaks(),
        Step(NotSent("connection refused")),
        Step(Lost("no answer", None)),
    ],
    ids=range(8),
)
async def test_a_server_is_asked_a_few_times_in_vain(step: Step) -> None:
    """What else it says is for nobody. It may be restarting; then it is given up, in doubt."""
    result, sink, network = await sent(breaks(FIRST, b"data: ha"), *[step] * (PATIENCE + 3))
    assert len(network.asked) == 1 + PATIENCE
    assert result == BROKE
    assert sink.body.startswith(FIRST)
    result, _, network = await sent(ends(FIRST), *[step] * (PATIENCE + 3))
    assert len(network.asked) == 1 + PATIENCE
    if isinstance(step.result, Answered):
        assert result == Answered(200, 7)  # without a response, as its judge will find
    else:
        assert result == Lost(f"the stream ended without a response, and {step.result.reason}", 200)


@in_virtual_time
async def test_a_server_that_was_away_for_a_moment_is_asked_again() -> None:
    """A refused connection is not the end of it."""
    away = Step(NotSent("connection refused"))
    result, sink, _ = await sent(breaks(FIRST), away, away, ends(DONE))
    assert (result, sink.body) == (Answered(200, 7), FIRST + DONE)


@in_virtual_time
async def test_as_long_as_there_is_news_it_is_asked_on() -> None:
    """Some servers end a stream after every event, so that nobody holds connections."""
    news = [ends(b"id: n%d\ndata: {}\n\n" % n) for n in range(30)]
    result, _, network = await sent(ends(FIRST), *news, ends(), ends(), ends(DONE))
    assert result == Answered(200, 7)
    assert network.last_ids[-4:] == [b"n28", b"n29", b"n29", b"n29"]


@in_virtual_time
@pytest.mark.parametrize(
    ("told", "pause"),
    [
        (b"", PAUSE),
        (b"retry: 250\n", 0.25),
        (b"retry: 0\n", SHORTEST_PAUSE),
        (b"retry: 9999999\n", LONGEST_PAUSE),
        (b"retry: 99999999999999999999\n", PAUSE),
        (b"retry: -1\n", PAUSE),
        (b"retry: 1.5\n", PAUSE),
        (b"retry:\n", PAUSE),
        (b"retry: \xb2\n", PAUSE),
    ],
)
async def test_the_server_says_how_long_to_wait(told: bytes, pause: float) -> None:
    """Within bounds; what is no number is not heard."""
    _, _, network = await sent(ends(told + FIRST), ends(DONE))
    assert network.at[1] - network.at[0] == pytest.approx(pause)


@in_virtual_time
@pytest.mark.parametrize(
    ("told", "asked"),
    [
        (b"id: a\n\nid: b\ndata: {}\n\n", [b"b"]),
        (b"id: a\n\ndata: {}\n\n", [b"a"]),
        (b"id: a\n\nid: b\0c\n\n", [b"a"]),
        (b"id: a\n\nid\n\n", []),
        (b"id: a\nid:\n\n", []),
        (b"id: a\n\nid: b\n", [b"a"]),
        (b"id:a b: c\n\n", [b"a b: c"]),
        (b"\xef\xbb\xbfid: a\n\n", [b"a"]),
        (b": a\n\n\xef\xbb\xbfid: a\n\n", []),
        (b"Id: a\n\n", []),
        (b"id: \xc3\xa4\n\n", [b"\xc3\xa4"]),
    ],
)
async def test_the_last_id_is_that_of_the_last_whole_event(told: bytes, asked: list[bytes]) -> None:
    """An empty one takes it back; one with a zero byte is not heard."""
    _, _, network = await sent(ends(told), ends(DONE))
    assert network.last_ids == asked


@in_virtual_time
async def test_a_response_without_its_blank_line_reaches_the_record() -> None:
    """Nobody else has it."""
    result, sink, _ = await sent(ends(NOTE.replace(b"id: 2\n", b""), DONE[:-2]))
    assert result == Answered(200, 7)
    assert sink.body.endswith(DONE[:-2])


@in_virtual_time
async def test_a_very_large_event_goes_by_and_nothing_is_asked_after_it() -> None:
    """What was handed on of it cannot be taken back."""
    large = b"data: " + b"x" * (LARGEST_EVENT + 1)
    result, sink, network = await sent(breaks(FIRST, large, b"y", b"z"))
    assert result == BROKE
    assert sink.body == FIRST + large + b"yz"
    assert len(network.asked) == 1
    result, _, _ = await sent(ends(FIRST, large, b"\n\n", DONE))
    assert result == Answered(200, 7)


@in_virtual_time
async def test_any_response_ends_it_so_that_nothing_is_asked_for_ever() -> None:
    """Whether it is the right one is for the judge to say."""
    other = b'id: 3\ndata: {"jsonrpc":"2.0","id":99,"error":{"code":1}}\n\n'
    result, _, network = await sent(ends(FIRST, other))
    assert (result, len(network.asked)) == (Answered(200, 7), 1)


def test_small_parts_of_a_large_event_take_linear_time() -> None:
    """Whoever sends a byte at a time does not occupy the loop."""

    def seconds(size: int) -> float:
        parts = [b"x"] * size
        began = time.process_time()
        run(sent(ends(FIRST, b"data: ", *parts, b"\n\n", DONE)))
        return time.process_time() - began

    small = min(seconds(10_000) for _ in range(2))
    assert seconds(160_000) < 60 * small + 0.2


def test_the_events_of_these_tests_are_what_they_seem() -> None:
    """The response is one."""
    assert json.loads(DONE.split(b"data: ")[1])["result"]
