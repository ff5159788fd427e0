"""What clients say is sorted: calls are called, what is unclear goes nowhere, the rest passes as it is."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.headers import Headers
from proxy.core.jsonrpc import PARSE_ERROR
from proxy.front.incoming import Asked
from proxy.front.mcp_batch import CONNECTION_CLOSED
from proxy.front.mcp_memory import Listed
from proxy.upstream.base import Answered
from tests.front.desk import Desk, Said
from tests.sending import Collecting

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":1}}}'
PING = b'{"jsonrpc":"2.0","id":2,"method":"ping"}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
JSON = (b"Content-Type", b"application/json")


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def sent(named: Asked) -> tuple[Headers, bytes]:
    """The headers that come from the client, and the body under them."""
    assert named.message is not None
    return named.message.headers, named.message.body.whole()


def length_of(headers: Headers) -> int | None:
    lengths = [int(value) for name, value in headers if name.lower() == b"content-length"]
    assert len(lengths) <= 1
    return lengths[0] if lengths else None


def problem(said: Said) -> Any:
    assert dict(said.headers)[b"Semel-Status"] == b"refused"
    return json.loads(said.body)


# ---- what goes out ----


async def test_a_call_goes_out_as_it_came(desk: Desk) -> None:
    """To the byte, with its headers; it is named by its tool and its arguments."""
    await desk.post(CALL, ((b"X-A", b"b"),))
    (named,) = desk.called
    headers, body = sent(named)
    assert body == CALL
    assert length_of(headers) == len(CALL)
    assert (b"X-A", b"b") in headers
    assert (named.address.raw_path, named.method) == ("/pay", "TOOL")
    assert named.body is not None
    assert named.body.whole() == b'{"n":1}'


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (CALL + b"\n", ()),
        (b" \r\n" + CALL + b"  ", ()),
        (b"[" + CALL + b"]", ()),
        (b"[" + PING + b"," + CALL + b"," + NOTE + b"]", ()),
        (gzip.compress(CALL), ((b"Content-Encoding", b"gzip"),)),
        (zlib.compress(b"[" + CALL + b"]"), ((b"content-encoding", b"deflate"), (b"Content-MD5", b"x"))),
        (CALL + b" ", ((b"Content-Digest", b"x"), (b"Digest", b"y"))),
    ],
    ids=range(7),
)
async def test_a_part_of_a_body_is_not_framed_as_the_whole(desk: Desk, body: bytes, headers: Headers) -> None:
    """A length that is not its own would make the server wait, or take the rest for another request; and what
    was decoded is said to be plain."""
    await desk.post(body, headers)
    (named,) = desk.called
    said, text = sent(named)
    assert text == CALL
    assert length_of(said) in (None, len(CALL))
    names = {name.lower() for name, _ in said}
    assert not names & {b"content-encoding", b"content-md5", b"content-digest", b"digest"}
    for out in desk.passed:
        assert out.body is not None
        assert length_of(out.headers) == out.body.size


async def test_the_rest_of_a_batch_is_a_smaller_batch(desk: Desk) -> None:
    """Plain, and with its own length."""
    await desk.post(
        gzip.compress(b"[" + PING + b" , " + CALL + b"," + NOTE + b"]"), ((b"Content-Encoding", b"gzip"),)
    )
    (out,) = desk.passed
    assert out.body is not None
    assert out.body.whole() == b"[" + PING + b"," + NOTE + b"]"
    assert length_of(out.headers) == out.body.size
    assert b"content-encoding" not in {name.lower() for name, _ in out.headers}


async def test_what_is_no_call_passes_to_the_byte(desk: Desk) -> None:
    """White space, coding, and all."""
    for body, headers in (
        (b" " + PING + b"\n", ()),
        (gzip.compress(PING), ((b"Content-Encoding", b"gzip"),)),
        (b"[" + PING + b" ]", ()),
    ):
        await desk.post(body, headers)
        out = desk.passed[-1]
        assert out.body is not None
        assert out.body.whole() == body
        assert set(headers) <= set(out.headers)
        assert out.rpc is None
    assert desk.called == []


async def test_listening_and_leaving_pass(desk: Desk) -> None:
    """GET may be silent for long."""
    await desk.post(b"", method="GET")
    await desk.post(b"", method="DELETE")
    assert [out.method for out in desk.passed] == ["GET", "DELETE"]
    assert [out.timeouts.idle for out in desk.passed] == [86400.0, 120.0]
    assert desk.passed[0].target == b"/mcp", "the base_url itself"


FORM = (b"Content-Type", b"application/x-www-form-urlencoded")


async def test_a_form_passes(desk: Desk) -> None:
    """OAuth's requests may go to the same host, and no reader takes a form for a message."""
    for body in (b"grant_type=refresh_token&refresh_token=x", b"token=x"):
        await desk.post(body, (FORM,), typed=False)
        out = desk.passed[-1]
        assert out.body is not None
        assert out.body.whole() == body


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (CALL.replace(b'"method"', b'"Method"'), (FORM,)),
        (b"grant_type=x", (FORM, (b"Content-Type", b"application/json"))),
        (b"grant_type=x", ((b"Content-Type", FORM[1] + b"; charset=utf-7"),)),
        (b"grant_type=x", (FORM, (b"Content-Encoding", b"gzip"))),
        (b" a=b", (FORM,)),
        (b"1=b", (FORM,)),
        (b"", (FORM,)),
        (b"grant_type=x", ()),
    ],
    ids=range(8),
)
async def test_what_only_says_that_it_is_a_form_does_not_pass(
    desk: Desk, body: bytes, headers: Headers
) -> None:
    """Some servers do not look at the type."""
    said, _ = await desk.post(body, headers, typed=False)
    assert said.status == 400
    assert desk.passed == []


async def test_a_call_that_says_it_is_a_form_is_a_call(desk: Desk) -> None:
    """By its bytes."""
    await desk.post(CALL, (FORM,), typed=False)
    assert len(desk.called) == 1


# ---- what goes nowhere ----


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", ()),
        (b"{", ()),
        (CALL.replace(b'"method"', b'"Method"'), ()),
        (CALL, ((b"Content-Encoding", b"gzip"),)),
        (PING, ((b"Content-Encoding", b"x-unknown"),)),
        (PING, ((b"Content-Encoding", b"deflate"),)),
        (gzip.compress(PING) + b"x", ((b"Content-Encoding", b"gzip"),)),
        (gzip.compress(PING + b" " * 200_000), ((b"Content-Encoding", b"gzip"),)),
        (
            PING.replace(b"ping", b"+AHQ-ools/call"),
            ((b"Content-Type", b"application/json; charset=utf-7"),),
        ),
        (PING, ((b"content-type", b'application/json;a=b; Charset = "UTF-16"'),)),
        (PING, ((b"Content-Type", b"application/json;charset='utf-7'"),)),
        (PING, ((b"Content-Type", b"application/json;charset=utf-8;charset=utf-7"),)),
    ],
    ids=range(12),
)
async def test_what_some_server_could_read_otherwise_is_refused(
    desk: Desk, body: bytes, headers: Headers
) -> None:
    """By its members, its coding, or its alphabet: it might be a call, and nothing was sent."""
    said, tale = await desk.post(body, headers)
    assert said.status == 400
    assert "Nothing was sent" in problem(said)["error"]["message"]
    assert tale.code == 400
    assert (desk.called, desk.passed) == ([], [])


async def test_utf_8_may_be_said(desk: Desk) -> None:
    """In any letters."""
    for value in (
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b"application/json;charset=utf8",
    ):
        await desk.post(CALL, ((b"Content-Type", value),))
    assert len(desk.called) == 3


async def test_a_refusal_names_the_request(desk: Desk) -> None:
    """Where it could be read."""
    said, _ = await desk.post(CALL.replace(b'{"n":1}', b"[]"))
    assert problem(said)["id"] == 1
    said, _ = await desk.post(b"nonsense")
    assert (problem(said)["id"], problem(said)["error"]["code"]) == (None, PARSE_ERROR)


@pytest.mark.parametrize("tool", ["\ud800", "a\udfffb", "\0", "\n"])
async def test_a_tool_that_cannot_be_named_is_refused(desk: Desk, tool: str) -> None:
    """Instead of a stumble."""
    said, _ = await desk.post(CALL.replace(b'"pay"', json.dumps(tool).encode()))
    assert said.status == 400


@pytest.mark.parametrize("tool", ["a/b", "..", ".", "a b", "ä", "%2F", "a#b?c"])
async def test_any_other_name_is_one_segment(desk: Desk, tool: str) -> None:
    """No two names become one."""
    await desk.post(CALL.replace(b'"pay"', json.dumps(tool).encode()))
    (named,) = desk.called
    assert named.address.raw_path.count("/") == 1
    assert "#" not in named.address.raw_path


async def test_a_large_call_is_read_beside_the_loop(desk: Desk) -> None:
    """And comes out the same."""
    body = CALL.replace(b'"n":1', b'"n":"%b"' % (b"x" * 70_000))
    await desk.post(body)
    assert sent(desk.called[0])[1] == body


# ---- cancellations ----


def cancels(id_: object) -> bytes:
    said = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
    return json.dumps(said).encode()


@pytest.mark.parametrize("id_", [1, "1", None, True, 1.0, [], {}, "x"])
async def test_a_cancellation_of_what_is_not_known_goes_no_further(desk: Desk, id_: object) -> None:
    """It might be a call with effects."""
    said, tale = await desk.post(cancels(id_))
    assert (said.status, said.body, tale.code) == (202, b"", 202)
    assert desk.passed == []


async def test_of_a_batch_with_a_cancellation_the_rest_passes(desk: Desk) -> None:
    """Smaller by one."""
    await desk.post(b"[" + cancels(1) + b"," + PING + b"]")
    (out,) = desk.passed
    assert out.body is not None
    assert out.body.whole() == b"[" + PING + b"]"


# ---- batches ----


async def test_every_request_of_a_batch_is_answered(desk: Desk) -> None:
    """Also where the server gave a status and no response: in an array there is no room for one."""
    desk.answer = Said(404, ((b"Content-Type", b"text/html"),), b"<html>")
    said, tale = await desk.post(b"[" + CALL + b"," + PING + b"," + NOTE + b"]")
    answers = json.loads(said.body)
    assert [(each["id"], each["error"]["code"]) for each in answers] == [
        (1, CONNECTION_CLOSED),
        (2, CONNECTION_CLOSED),
    ]
    assert "404" in answers[0]["error"]["message"]
    assert tale.own, "each part is told by itself"


async def test_responses_of_a_batch_are_as_they_came(desk: Desk) -> None:
    """From a message, from events, from an array; what is no response is left out."""
    response = b'{"jsonrpc":"2.0", "id":1,"result":{"n":%b}}' % (b"1" * 5000)
    for answer in (
        Said(200, (JSON,), b" " + response + b"\n"),
        Said(200, (JSON,), b"\xef\xbb\xbf[ " + response + b" ,1,{}]"),
        Said(200, ((b"Content-Type", b"text/event-stream"),), b"data: {}\n\ndata: " + response),
    ):
        desk.answer = answer
        said, _ = await desk.post(b"[" + CALL + b"]")
        assert said.body == b"[" + response + b"]"
        assert length_of(said.headers) == len(said.body)


async def test_two_calls_of_a_batch_are_two_calls(desk: Desk) -> None:
    """Each with its own id and its own tale."""
    other = CALL.replace(b'"id":1', b'"id":"b"').replace(b"pay", b"book")
    await desk.post(b"[" + CALL + b"," + other + b"]")
    assert [sent(named)[1] for named in desk.called] == [CALL, other]
    assert [tale.rpc for tale in desk.tales] == [1, "b"]


# ---- what a server says of its tools ----


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (b"application/json", b"%b"),
        (b"application/json", b"\xef\xbb\xbf%b"),
        (b"text/event-stream", b"data: {}\n\nid: 1\ndata: %b\n\n"),
        (b"text/event-stream", b"data: %b"),
    ],
)
async def test_what_a_list_of_tools_says_is_heard_as_it_goes_by(desk: Desk, kind: bytes, wrap: bytes) -> None:
    """And not changed."""
    await desk.post(PING.replace(b"ping", b"tools/list"))
    tap = desk.taps[0]
    assert isinstance(tap, Listed)
    tools = [{"name": "pay", "annotations": {"destructiveHint": True}}]
    body = wrap % json.dumps({"id": 2, "result": {"tools": tools}}).encode()
    sink = Collecting()
    heard = tap.onto(sink)
    heard.head(200, ((b"Content-Type", kind),))
    await heard.data(body[:9])
    await heard.data(body[9:])
    tap.ended(Answered(200))
    assert sink.body == body
    await desk.post(CALL)
    message = desk.called[0].message
    assert message is not None
    assert message.hints is not None
    assert message.hints.destructive


async def test_what_else_passes_is_not_listened_to(desk: Desk) -> None:
    """Only lists of tools."""
    await desk.post(PING)
    assert desk.taps == [None]


async def test_in_a_stateful_upstream_a_first_call_may_go_out(desk: Desk) -> None:
    """Nothing of another session was given yet."""
    desk.upstream = replace(desk.upstream, stateful=True)
    await desk.post(CALL, ((b"Mcp-Session-Id", b"s"),))
    message = desk.called[0].message
    assert message is not None
    message.check()
