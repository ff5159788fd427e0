"""A recorded answer for another request: whole or in parts, the same; never without its response."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answers import Produced
from proxy.core.headers import Headers
from proxy.core.mcp_again import Again
from proxy.errors import AnswerUnavailable
from proxy.front import again as module
from proxy.front.again import given_again
from proxy.front.aside import Aside
from tests.core.test_sse import cut
from tests.counts import count
from tests.exchange.virtual_time import run

EVENTS: Headers = (
    (b"Content-Type", b"text/event-stream"),
    (b"Mcp-Session-Id", b"s"),
    (b"content-length", b"1"),
)
JSON: Headers = ((b"Content-Type", b"application/json"), (b"Content-Length", b"1"))
BODY = (
    b'id: 1\ndata:\n\n: hello\n\nevent: message\ndata: {"method":"notifications/message"}\n\n'
    b'data: {"id":5,"method":"ping"}\n\nid: 2\ndata: {"jsonrpc":"2.0","id":1,"result":{"text":"a"}}\n\n'
)
AGAIN = (
    b'event: message\ndata: {"method":"notifications/message"}\n\n'
    b'data: {"jsonrpc":"2.0","id":"n","result":{"text":"a"}}\n\n'
)


async def parts_of(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def given_to(
    body: bytes | list[bytes], headers: Headers = EVENTS, again: Again | None = None
) -> Produced:
    """With its body as a whole."""
    aside = Aside()
    try:
        content = body if isinstance(body, bytes) else parts_of(body)
        answer = await given_again(Produced(200, headers, content), again or Again("n", None), aside)
        if isinstance(answer.body, bytes):
            assert dict(answer.headers)[b"Content-Length"] == b"%d" % len(answer.body)
            return answer
        return answer._replace(body=b"".join([part async for part in answer.body]))
    finally:
        aside.close()


@settings(max_examples=count(200, 5_000), deadline=None)
@given(
    st.lists(st.integers(0, 400), max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.integers(0, 2),
)
def test_however_a_record_is_read_its_events_are_the_same(
    points: list[int], end: bytes, mark: bytes, lacking: int
) -> None:
    """Whatever its lines end with, and if its last lacks the blank line behind it."""
    body = BODY[: len(BODY) - lacking].replace(b"\n", end)
    for content in (mark + body, cut(mark + body, points)):
        assert run(given_to(content)).body == AGAIN


async def test_a_stream_in_parts_says_no_length_and_no_session() -> None:
    """A whole one says its own."""
    assert (await given_to([BODY])).headers == EVENTS[:1]
    assert (await given_to(BODY)).headers == (EVENTS[0], (b"Content-Length", b"%d" % len(AGAIN)))


@pytest.mark.parametrize(
    "body", [b'{"id":1,"result":2}', [b'{"id":', b'1,"result":2}'], [b'{"id":1,"result":2}']]
)
async def test_a_message_is_changed_when_all_of_it_is_here(body: bytes | list[bytes]) -> None:
    """In one part or in many."""
    assert await given_to(body, JSON) == Produced(
        200, (JSON[0], (b"Content-Length", b"21")), b'{"id":"n","result":2}'
    )


async def test_what_would_lie_in_memory_whole_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message, or a single event; many events have none."""
    monkeypatch.setattr(module, "LONGEST", 1000)
    with pytest.raises(AnswerUnavailable):
        await given_to([b"x" * 600] * 2, JSON)
    with pytest.raises(AnswerUnavailable):
        await given_to([b"data: " + b"x" * 600, b"x" * 600])
    many = BODY * 20
    assert (await given_to([many[at : at + 100] for at in range(0, len(many), 100)])).body == AGAIN * 20


async def test_large_events_and_messages_are_changed_beside_the_loop() -> None:
    """And come out the same."""
    text = json.dumps("x" * (2 * module.INLINE)).encode()
    told = await given_to(BODY.replace(b'"a"', text))
    assert told.body == AGAIN.replace(b'"a"', text)
    assert (await given_to(b'{"id":1,"x":%b}' % text, JSON)).body == b'{"id":"n","x":%b}' % text


async def test_a_large_event_in_many_parts_takes_linear_time() -> None:
    """Other callers wait meanwhile."""

    async def seconds(size: int) -> float:
        parts = [b"data: ", *[b"x" * 1000] * (size // 1000), b"\n\n"]
        began = time.process_time()
        await given_to(parts)
        return time.process_time() - began

    small = min([await seconds(500_000) for _ in range(3)])
    assert await seconds(16_000_000) < 120 * small + 0.2
