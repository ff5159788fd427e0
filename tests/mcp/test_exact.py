"""Servers that do what no library does on purpose: streams that end early, strange codes, no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.clients import LEGACY, REFUSED
from tests.mcp.scene import Behind, inside
from tests.mcp.scripts import (
    ASKS,
    HEAD,
    JSON,
    asked_for_the_rest,
    bare,
    calls,
    error,
    event,
    result,
    stream,
    whole,
)
from tests.mcp.wire import Heard, Wire
from tests.origin import READ_ALL, Close, Origin, Script, answer

PROGRESS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": 1, "progress": 1},
}
ORDER = {"order": "1"}


async def twice(origin: Origin, at: Path, more: str = "") -> tuple[Heard, Heard, list[str]]:
    """One call, made again with another id; what is on record then."""
    async with inside(at, origin.port, more) as semel:
        wire = wire_to(semel)
        first = await wire.call("pay", ORDER, id=1)
        again = await wire.call("pay", ORDER, id="again")
        return first, again, await semel.states()


def wire_to(semel: Behind) -> Wire:
    """In the middle of a session of the old era."""
    return Wire(
        semel.port, semel.path(), LEGACY, {"Mcp-Session-Id": "s1", "Mcp-Protocol-Version": "2025-11-25"}
    )


def type_of(said: Heard) -> str:
    assert said.last["error"]["code"] == REFUSED, said.last
    name: str = said.last["error"]["data"]["type"]
    return name.removeprefix("urn:semel:")


# ---- streams that are taken up again ----


@pytest.mark.parametrize("reset", [False, True], ids=["ended", "reset"])
async def test_a_stream_that_ends_before_the_answer_is_taken_up(tmp_path: Path, reset: bool) -> None:
    """The events have ids, so the rest can be asked for: by semel, and the tool is called once."""
    begun = stream(event(None, "e0", retry=10), event(PROGRESS, "e1"), reset=reset)
    rest = stream(event(result(1), "e2"))
    async with Origin(begun, rest) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert (calls(origin), asked_for_the_rest(origin)) == (1, [b"e1"])
    assert (first.semel, first.last) == ("executed", result(1))
    assert (again.semel, again.last) == ("replayed", result("again"))
    assert b"id: e" not in again.answer.body
    assert states == ["done"]


async def test_a_server_that_lets_its_client_come_back_often(tmp_path: Path) -> None:
    """It ends every stream at once and says when to ask again, as for long work."""
    scripts = [stream(event(None, f"e{n}", retry=5)) for n in range(6)]
    async with Origin(*scripts, stream(event(result(1), "last"))) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert (calls(origin), asked_for_the_rest(origin)) == (1, [b"e%d" % n for n in range(6)])
    assert (first.last, again.last, states) == (result(1), result("again"), ["done"])


async def test_an_event_cut_in_the_middle_comes_again(tmp_path: Path) -> None:
    """Half of the answer's event had come: nobody hears a half and a whole."""
    half = event(result(1), "e2")[:30]
    async with Origin(stream(event(None, "e1", retry=5), half), stream(event(result(1), "e2"))) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert (calls(origin), asked_for_the_rest(origin)) == (1, [b"e1"])
    assert first.messages == [result(1)]
    assert (again.last, states) == (result("again"), ["done"])


@pytest.mark.parametrize("refusal", [404, 405, 500])
async def test_the_rest_is_not_to_be_had(tmp_path: Path, refusal: int) -> None:
    """Asked a few times and in vain: nobody knows, and the tool is not called again."""
    async with Origin(stream(event(None, "e1", retry=1)), bare(refusal)) as origin:
        _, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 1
        assert 1 <= len(asked_for_the_rest(origin)) <= 10
    assert (type_of(again), states) == ("in-doubt", ["in_doubt"])


# ---- streams and answers that are lost ----


@pytest.mark.parametrize(
    "script",
    {
        "no answer in the stream": stream(event(PROGRESS)),
        "an empty stream": stream(),
        "cut in the middle": (*READ_ALL, HEAD, event(result(1))[:25], Close()),
        "another id": stream(event(result(2))),
        "202": bare(202),
        "204": bare(204),
        "an empty body": bare(200),
        "no JSON": (*READ_ALL, answer(200, b"<html>", (b"Content-Type", b"text/html"))),
        "broken JSON": (*READ_ALL, answer(200, b'{"jsonrpc": "2.0", "id": 1, "res', JSON)),
        "a body cut off": (*READ_ALL, answer(200, b" " * 500, JSON)[:-100], Close()),
        "500": bare(500),
        "503 with an answer": whole(result(1), 503),
        "408": bare(408),
        "an error of a server behind it": whole(error(1, -32001)),
    }.items(),
    ids=lambda each: each[0],
)  # fmt: skip
async def test_no_answer_is_doubt(tmp_path: Path, script: tuple[str, Script]) -> None:
    """It was sent, and nobody can know: held, and said to whoever asks."""
    async with Origin(script[1]) as origin:
        _, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 1
    assert (type_of(again), states) == ("in-doubt", ["in_doubt"])
    assert again.last["id"] == "again"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *((200, code) for code in (-32700, -32600, -32601, -32042)),
        *((400, code) for code in (-32020, -32021, -32022)),
    ],
)
async def test_an_error_from_before_it_began(tmp_path: Path, status: int, code: int) -> None:
    """No such method, a wrong version: nothing was done, and the next call goes out again."""
    async with Origin(whole(error(1, code), status), whole(error("again", code), status)) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 2
    assert (first.status, first.semel, first.last) == (status, "executed", error(1, code))
    assert (again.status, again.semel, again.last) == (status, "executed", error("again", code))
    assert states == ["released"]


@pytest.mark.parametrize(
    "script",
    [
        whole(error(None, -32000), 400),
        whole(error("server-error", -32000), 400),
        *(bare(status) for status in (301, 307, 400, 401, 403, 404, 405, 406, 429)),
        whole(result(1), 401),
    ],
)
async def test_refused_before_it_began(tmp_path: Path, script: Script) -> None:
    """No session, no right to, no such address: as the server says it, and the next call goes out again."""
    async with Origin(script) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 2
    assert first.status in range(300, 500)
    assert (first.status, first.semel) == (again.status, again.semel) == (first.status, "executed")
    assert first.answer.body == again.answer.body
    assert states == ["released"]


@pytest.mark.parametrize("code", [-32000, -32602, -32603, -32099, 1, 0])
@pytest.mark.parametrize("events", [False, True], ids=["json", "sse"])
async def test_an_error_of_the_tool_is_the_last_word(tmp_path: Path, code: int, events: bool) -> None:
    """The tool was looked for, at least: it may have begun."""
    said = error(1, code)
    async with Origin(stream(event(said)) if events else whole(said)) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 1
    assert (first.last, again.last) == (said, error("again", code))
    assert (again.semel, states) == ("replayed", ["done"])


@pytest.mark.parametrize("events", [False, True], ids=["json", "sse"])
async def test_a_server_that_makes_a_text_of_a_number(tmp_path: Path, events: bool) -> None:
    """Its id comes back as "1": clients take that for 1, and so the answer is one."""
    said = result("1")
    async with Origin(stream(event(said)) if events else whole(said)) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 1
    assert (first.last, again.last, states) == (said, result("again"), ["done"])


# ---- what else stands in a stream ----


async def test_a_question_in_the_stream_passes_and_is_not_given_again(tmp_path: Path) -> None:
    """Byte by byte to the client that is asked; the next one is told that there is no answer for it."""
    events = event(PROGRESS, "e1") + event(ASKS, "e2") + event(result(1), "e3")
    async with Origin(stream(events)) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 1
    assert first.answer.body == events
    assert (type_of(again), states) == ("answer-unavailable", ["done"])


async def test_a_ping_in_the_stream_is_no_question(tmp_path: Path) -> None:
    """The server asks whether somebody is there; what follows is good for others too."""
    ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
    async with Origin(stream(event(ping), event(PROGRESS), event(result(1)))) as origin:
        first, again, _ = await twice(origin, tmp_path)
    assert first.messages == [ping, PROGRESS, result(1)]
    assert result("again") == again.last
    assert PROGRESS not in again.messages, "nobody has asked for it under that token"


async def test_comments_and_other_line_ends(tmp_path: Path) -> None:
    """As servers of the standard may write: given on as they are, read all the same."""
    text = b": ping\r\n\r\nevent: message\r\ndata:" + event(result(1))[6:].strip() + b"\r\n\r\n"
    async with Origin(stream(text)) as origin:
        first, again, states = await twice(origin, tmp_path)
        assert calls(origin) == 1
    assert first.answer.body == text
    assert (again.last, states) == (result("again"), ["done"])


async def test_an_answer_in_many_lines(tmp_path: Path) -> None:
    """One event whose data has several lines, and members in another order than usual."""
    text = b'data: {"result": {"id": 1, "a": "\xc3\xa4"},\ndata:  "jsonrpc": "2.0",\ndata: "id": 1}\n\n'
    async with Origin(stream(text)) as origin:
        first, again, _ = await twice(origin, tmp_path)
    assert first.answer.body == text
    assert again.last == {"jsonrpc": "2.0", "id": "again", "result": {"id": 1, "a": "ä"}}
