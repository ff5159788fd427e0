"""What is a call is found, or refused: whoever reads the same bytes in another way finds no other call."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core import jsonrpc
from proxy.core.json_text import read
from proxy.core.jsonrpc import (
    CALL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LONGEST_NAME,
    MOST_IN_A_BATCH,
    PARSE_ERROR,
    Id,
    Other,
    ToolCall,
    Unclear,
    answers_to,
    asks_client,
    for_request,
    hear,
    is_id,
    is_response,
    with_progress_token,
)
from tests.core.json_values import TEXT, VALUES, Value, spelled
from tests.counts import count

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def said(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def call(**params: object) -> bytes:
    return said(id=7, method=CALL, params={"name": "pay", **params})


def the_call(body: bytes) -> ToolCall:
    (found,) = hear(body).messages
    assert isinstance(found, ToolCall)
    return found


def refused(body: bytes) -> Unclear:
    with pytest.raises(Unclear) as caught:
        hear(body)
    assert str(caught.value).endswith("."), "it is a sentence"
    return caught.value


# ---- what is heard ----


def test_a_call_is_known_by_its_name_and_its_arguments() -> None:
    """All else stays in its text."""
    body = b' {"id" : "a", "method":"tools\\/call",\n"params": {"arguments": {"n": 1.0 } ,"name":"pay"}}\r\n'
    heard = hear(body)
    assert not heard.is_batch
    assert heard.calls == (ToolCall("a", "pay", b'{"n": 1.0 }', body.strip()),)


@pytest.mark.parametrize("spelled_id", ["0", "-1", '"x"', '""', "9007199254740993", "1" * 640])
def test_an_id_is_a_text_or_a_whole_number(spelled_id: str) -> None:
    """Of any size that is read exactly."""
    body = call().replace(b'"id": 7', b'"id": ' + spelled_id.encode())
    assert the_call(body).id == json.loads(spelled_id)


@pytest.mark.parametrize(
    "spelled_id", ["null", "true", "false", "1.0", "1.5", "1e3", "[]", "{}", "NaN", "1" * 641, "1" * 9999]
)
def test_a_call_that_cannot_be_answered_by_its_id_is_refused(spelled_id: str) -> None:
    """Nor is it a notification."""
    body = call().replace(b'"id": 7', b'"id": ' + spelled_id.encode())
    assert refused(body).code == INVALID_REQUEST
    assert refused(call().replace(b'"id": 7, ', b"")).code == INVALID_REQUEST


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}, {"arguments": {}}])
def test_no_arguments_are_empty_arguments(arguments: dict[str, Any]) -> None:
    """Left out, null, and an empty object name the same call."""
    assert the_call(call(**arguments)).arguments == b"{}"


@pytest.mark.parametrize("arguments", [[], [1], "x", 1, True, 0.5])
def test_arguments_are_an_object(arguments: object) -> None:
    """What else they were would have no names."""
    unclear = refused(call(arguments=arguments))
    assert (unclear.code, unclear.id) == (INVALID_PARAMS, 7)


@pytest.mark.parametrize("name", [b'""', b"null", b"1", b"[]", b'"\\ud800"', b'"a\\udc00b"'])
def test_a_call_names_its_tool(name: bytes) -> None:
    """By a text; half a surrogate pair is none, and cannot be written down."""
    assert refused(call().replace(b'"pay"', name)).code == INVALID_PARAMS


@pytest.mark.parametrize("params", [b"[]", b"null", b"1", b'"x"'])
def test_params_of_a_call_are_an_object(params: bytes) -> None:
    """By position nobody calls."""
    assert refused(b'{"id":7,"method":"tools/call","params":%b}' % params).code == INVALID_PARAMS
    assert refused(b'{"id":7,"method":"tools/call"}').code == INVALID_PARAMS


def test_what_goes_with_a_call_is_heard() -> None:
    """The token for progress, answers to questions, the wish for a task, the era."""
    found = the_call(call(_meta={"progressToken": 3, **MODERN}, inputResponses={"a": 1}, task={}))
    assert (found.progress, found.answers, found.as_task, found.modern) == (3, b'{"a": 1}', True, True)
    found = the_call(call(_meta={"progressToken": True}, task=None))
    assert (found.progress, found.answers, found.as_task, found.modern) == (None, b"", False, False)
    assert the_call(call(_meta=[1])).progress is None


def test_everything_else_is_no_call() -> None:
    """Requests, notifications, responses: with their own text."""
    bodies = [
        said(id=1, method="tools/list"),
        said(method="notifications/cancelled", params={"requestId": 1}),
        said(id=1, result={}),
        said(id=1, method="x", params=[1]),
        said(id=1.5, method="x"),
        b"{}",
    ]
    found = [hear(body).messages[0] for body in bodies]
    assert found == [
        Other(1, "tools/list", bodies[0], {}),
        Other(None, "notifications/cancelled", bodies[1], {"requestId": 1}),
        Other(1, "", bodies[2], {}),
        Other(1, "x", bodies[3], {}),
        Other(None, "x", bodies[4], {}),
        Other(None, "", b"{}", {}),
    ]


def test_a_batch_is_heard_message_by_message() -> None:
    """In its order, each with its own text."""
    ping = said(id=1, method="ping")
    heard = hear(b" [ " + ping + b" ,\n" + call() + b"]\n")
    assert heard.is_batch
    assert heard.messages == (Other(1, "ping", ping, {}), ToolCall(7, "pay", b"{}", call()))
    assert heard.calls == heard.messages[1:]


@pytest.mark.parametrize("body", [b"1", b'"x"', b"null", b"true", b"[]", b"[1]", b"[[]]", b"[{}, null]"])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    """A batch in a batch too: nobody knows who would read it."""
    assert refused(body).code == INVALID_REQUEST
    assert refused(b"[" + call() + b",[" + call() + b"]]").code == INVALID_REQUEST


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        call() + b"x",
        call() + call(),
        call() + b"\0",
        b"\xff" + call(),
        b"\xef\xbb\xbf" + call(),
        call().decode().encode("utf-16-le"),
        call().decode().encode("utf-16"),
        call().decode().encode("utf-32"),
        call().replace(b"pay", b"\xed\xa0\x80"),
        b"\x0b" + call(),
        b"{'method': 'tools/call'}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        call().replace(b"pay", b"p\ny"),
    ],
    ids=lambda body: repr(body[:16]),
)
def test_what_is_not_plain_json_is_refused(body: bytes) -> None:
    """Some readers skip a mark, take UTF-16, stop at the first value: they would find a call."""
    assert refused(body).code == PARSE_ERROR


def test_nesting_of_any_depth_is_heard_or_refused() -> None:
    """Also where the first reading just succeeds: how deep the stack is differs between the readings."""
    heard = 0
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit() + 20):
        body = b'{"id":7,"method":"tools/call","params":{"name":"pay","arguments":{"a":%b}}}' % (
            b"[" * depth + b"]" * depth
        )
        try:
            heard += len(hear(b"[" + body + b"]").calls)
        except Unclear:
            continue
    assert 0 < heard < 170, "both happened"


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1" * 5000, b"-" + b"9" * 5000, b"1e999999"])
def test_a_number_that_is_hard_to_read_is_no_reason_to_refuse(number: bytes) -> None:
    """It goes out as it came; what the call is called is made from the text."""
    assert the_call(call(arguments={"n": 0}).replace(b"0}", number + b"}")).arguments == b'{"n": %b}' % number


# ---- other readers ----

FIRST, LAST = "first", "last"


def as_read(body: bytes, wins: str, *, folds: bool) -> Any:
    """By a reader for whom the first or the last of two members counts, and perhaps `Method` is `method`."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for name, value in found:
            key = _generous(name) if folds else name
            if wins == LAST or key not in told:
                told[key] = value
        return told

    return json.loads(body, object_pairs_hook=pairs)


def _generous(name: str) -> str:
    """The simple folding of Unicode, by hand, and Java's, where both dotted I and dotless i are an i."""
    plain = {"\u017f": "s", "\u212a": "k", "\u0130": "i", "\u0131": "i"}
    return "".join(plain.get(letter, letter) for letter in name).lower()


def calls_in(value: Any) -> list[tuple[Any, Any, Any]]:
    """Id, tool and arguments of every call that a reader finds."""
    messages = value if isinstance(value, list) else [value]
    found = []
    for message in messages:
        if isinstance(message, dict) and message.get("method") == CALL:
            params = message.get("params")
            params = params if isinstance(params, dict) else {}
            found.append((message.get("id"), params.get("name"), params.get("arguments") or {}))
    return found


NAMES = ["id", "method", "params", "result", "error", "jsonrpc", "name", "arguments", "_meta"]
ODD = [
    "Method",
    "METHOD",
    "param\u017f",
    "argument\u017f",
    "\u0130d",
    "\u0131d",
    "Id",
    "Name",
    "x",
    "",
    "Params",
]
SMALL: st.SearchStrategy[Any] = st.sampled_from(
    [CALL, "ping", "Tools/Call", "tools/call ", "pay", 1, 2, None, {}, [], True, 1.0]
)


@st.composite
def messages(draw: st.DrawFn, depth: int = 0) -> str:
    """Like a call, with members twice, in other letters, escaped, in any order."""
    pairs = []
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(NAMES + ODD))
        if name.lower().startswith("param") and depth == 0 and draw(st.booleans()):
            value = draw(messages(depth=1))
        else:
            value = json.dumps(draw(SMALL))
        pairs.append(f"{_escaped(name, draw(st.integers(0, 3)))}:{value}")
    likely = [
        ('"id":1', depth == 0),
        (f'"method":"{CALL}"', depth == 0),
        ('"params":{"name":"pay","arguments":{}}', depth == 0),
        ('"name":"pay"', depth == 1),
    ]
    pairs += [pair for pair, here in likely if here and draw(st.integers(0, 3))]
    return "{" + ",".join(draw(st.permutations(pairs))) + "}"


def _escaped(text: str, style: int) -> str:
    if style == 1:
        return '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'
    return json.dumps(text, ensure_ascii=style == 2)


@settings(max_examples=count(1500, 50_000), deadline=None)
@given(messages() | st.lists(messages(), min_size=1, max_size=3).map(lambda many: f"[{','.join(many)}]"))
@example('{"id":1,"method":"ping","method":"tools/call","params":{"name":"pay"}}')
@example('{"id":1,"method":"tools/call","method":"ping","params":{"name":"pay"}}')
@example('{"id":1,"Method":"tools/call","params":{"name":"pay"}}')
@example('{"id":1,"method":"tools/call","params":{"name":"a"},"param\u017f":{"name":"b"}}')
@example('{"id":1,"\u0131d":2,"method":"tools/call","params":{"name":"a"}}')
@example('{"id":1,"method":"tools/call","params":{"name":"a","name":"b"}}')
@example('{"id":1,"m\\u0065thod":"tools/call","params":{"n\\u0061me":"b"}}')
def test_no_reader_finds_another_call_than_the_one_that_was_heard(text: str) -> None:
    """Whichever of two members counts for it, and whatever letters it takes for the same."""
    try:
        heard = hear(text.encode())
    except Unclear:
        return
    ours = [(each.id, each.tool, json.loads(each.arguments)) for each in heard.calls]
    for wins in (FIRST, LAST):
        for folds in (False, True):
            assert calls_in(as_read(text.encode(), wins, folds=folds)) == ours


@pytest.mark.parametrize("method", ["Tools/Call", "TOOLS/CALL", "tool\u017f/call"])
def test_a_method_in_other_letters_is_refused(method: str) -> None:
    """Only one of them is what everybody takes for a call."""
    assert refused(said(id=1, method=method, params={"name": "pay"})).code == INVALID_REQUEST


def is_shown(name: str) -> bool:
    return bool(name) and name.isprintable()


@settings(max_examples=count(300, 10_000), deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=4), TEXT.filter(is_shown), st.integers(0, 2**32))
def test_arguments_are_the_bytes_of_the_same_value(arguments: dict[str, Value], tool: str, seed: int) -> None:
    """However the message is spelled."""
    print(f"seed {seed}")
    value: Value = ("object", frozenset(arguments.items()))
    params = ("object", frozenset({("name", ("string", tool)), ("arguments", value)}))
    body = spelled(
        (
            "object",
            frozenset({("id", ("string", "i")), ("method", ("string", CALL)), ("params", params)}),
        ),
        seed,
    )
    found = the_call(body)
    assert found.tool == tool
    assert found.text == body.strip()
    whole = json.loads(body, parse_float=str, parse_int=str)
    assert json.loads(found.arguments, parse_float=str, parse_int=str) == whole["params"]["arguments"]
    assert found.arguments in body


# ---- what is said ----


@settings(max_examples=count(400, 20_000), deadline=None)
@given(
    st.dictionaries(TEXT | st.sampled_from(["id", "result", "error"]), VALUES, max_size=5),
    st.integers() | TEXT,
    st.booleans(),
    st.integers(0, 2**32),
)
def test_only_the_id_changes_and_the_result_type_where_it_is_asked_for(
    response: dict[str, Value], new: Id, modern: bool, seed: int
) -> None:
    """Of any object, however it is spelled: all else stays to the byte."""
    print(f"seed {seed}")
    body = spelled(("object", frozenset(response.items())), seed)
    now = for_request(body, new, modern=modern)
    before = json.loads(body, parse_float=str, parse_int=str)
    after = json.loads(now, parse_float=str)
    if "id" in before:
        assert after["id"] == new
        assert type(after["id"]) is type(new)
    expected = {**before, **({"id": json.loads(json.dumps(new), parse_int=str)} if "id" in before else {})}
    result = before.get("result")
    if modern and isinstance(result, dict) and "resultType" not in result:
        expected["result"] = {**result, "resultType": "complete"}
    assert json.loads(now, parse_float=str, parse_int=str) == expected
    if not modern and "id" not in before:
        assert now == body


def test_every_id_of_a_response_is_changed() -> None:
    """Where one has two, one reader takes this and the next that; what is inside has its own."""
    body = b'{"id" : 1, "result":{"id":1, "a": [ {"id":1} ]},"i\\u0064":"x"  }'
    assert (
        for_request(body, "n", modern=False)
        == b'{"id" : "n", "result":{"id":1, "a": [ {"id":1} ]},"i\\u0064":"n"  }'
    )


@pytest.mark.parametrize(
    ("result", "now"),
    [
        (b"{}", b'{"resultType":"complete"}'),
        (b"{ }", b'{"resultType":"complete" }'),
        (b'{ "a":1}', b'{"resultType":"complete", "a":1}'),
        (b'{"resultType":"input_required"}', b'{"resultType":"input_required"}'),
        (b'{"resultTyp\\u0065":"task"}', b'{"resultTyp\\u0065":"task"}'),
        (b"[]", b"[]"),
        (b"null", b"null"),
    ],
)
def test_a_modern_client_is_told_that_a_result_is_complete(result: bytes, now: bytes) -> None:
    """Unless the server said something else; others are told nothing new."""
    body = b'{"id":1,"result":%b}' % result
    assert for_request(body, 1, modern=True) == b'{"id":1,"result":%b}' % now
    assert for_request(body, 1, modern=False) == body


def test_a_mark_before_a_response_is_dropped() -> None:
    """Clients take it, and so its answer can be given again."""
    assert for_request(b'\xef\xbb\xbf{"id":1}', 2, modern=False) == b'{"id":2}'


@pytest.mark.parametrize(
    "body", [b"", b"1", b"[]", b"{", b"\xff", b"{}x", b'{"id":1}{"id":2}', b"[" * 99_999]
)
def test_what_is_no_object_has_no_id(body: bytes) -> None:
    """It is said, not guessed."""
    with pytest.raises((ValueError, RecursionError)):
        for_request(body, 1, modern=False)


def test_a_progress_token_is_that_of_whoever_asks_now() -> None:
    """In params only."""
    body = b'{"progressToken":1,"params":{"progressToken":"a","x":{"progressToken":2}}}'
    assert with_progress_token(body, 9) == body.replace(b'"a"', b"9")
    assert with_progress_token(b'{"params":[1]}', 9) == b'{"params":[1]}'
    assert with_progress_token(b"{}", 9) == b"{}"


def test_an_error_is_one_line_of_json() -> None:
    """Whatever the id is."""
    told = jsonrpc.error("\ud800", -1, "x", {"a": 1})
    assert told.endswith(b"}\n")
    assert json.loads(told) == {
        "jsonrpc": "2.0",
        "id": "\ud800",
        "error": {"code": -1, "message": "x", "data": {"a": 1}},
    }
    assert json.loads(jsonrpc.error(None, -1, "x"))["id"] is None


# ---- what a server says ----


@pytest.mark.parametrize("id_", [1, "1", 0, "", -5, 2**70])
def test_a_response_answers_the_request_with_its_id(id_: Id) -> None:
    """Servers that have only one kind of number, or keep ids as texts, mean the same."""
    for told in (id_, str(id_)):
        assert answers_to({"id": told, "result": 1}, id_)
        assert answers_to({"id": told, "error": {}}, id_)
    other: list[Any] = ["x", 17, True, False, [], {}, [id_], None]
    for told in other:
        assert not answers_to({"id": told, "result": 1}, id_)
    if isinstance(id_, int) and abs(id_) < 2**50:
        assert answers_to({"id": float(id_), "result": 1}, id_)


def test_an_error_without_an_id_answers_and_a_result_does_not() -> None:
    """Where a server could not read the id it says null."""
    assert answers_to({"id": None, "error": {}}, 1)
    assert answers_to({"error": {}}, 1)
    assert not answers_to({"error": None, "result": 1}, 1)
    assert not answers_to({"result": 1}, 1)


@pytest.mark.parametrize("message", [None, 1, "x", [], {}, {"id": 1}, {"method": "x", "id": 1, "result": 1}])
def test_what_is_no_response_answers_nothing(message: object) -> None:
    """Of whatever shape."""
    assert not is_response(message)
    assert not answers_to(message, 1)


def test_a_server_asks_the_client_by_a_request() -> None:
    """A ping asks for nothing."""
    assert asks_client({"id": 1, "method": "sampling/createMessage"})
    assert asks_client({"id": None, "method": ["x"]})
    nothing: list[Any] = [
        {"method": "x"},
        {"id": 1, "method": "ping"},
        {"id": 1, "result": 1},
        [],
        None,
        "id",
    ]
    for message in nothing:
        assert not asks_client(message)


def test_an_id_is_no_truth_value() -> None:
    """True is not 1."""
    values: list[object] = [1, "", True, 1.0, None, []]
    assert [is_id(each) for each in values] == [True, True, False, False, False, False]


def test_what_a_server_says_is_read_with_its_mark_and_its_large_numbers() -> None:
    """As its clients read it."""
    assert read(b"\xef\xbb\xbf [1] ") == [1]
    assert read(b"[%b]" % (b"1" * 5000)) == [float("inf")]
    assert read(b"[%b]" % (b"1" * 640)) == [int("1" * 640)]
    for body in (b"", b"1 2", b"\xff", b"\xef\xbb\xbf"):
        with pytest.raises(ValueError):
            read(body)


# ---- bounds ----


def test_a_batch_has_an_end() -> None:
    """Each of its calls takes room until it is answered."""
    one = b'{"id":1,"method":"tools/call","params":{"name":"a"}}'
    assert len(hear(b"[" + b",".join([one] * MOST_IN_A_BATCH) + b"]").calls) == MOST_IN_A_BATCH
    assert refused(b"[" + b",".join([one] * (MOST_IN_A_BATCH + 1)) + b"]").code == INVALID_REQUEST


@pytest.mark.parametrize("tool", ["\0", "a\nb", "\x7f", "\u202e", "x" * (LONGEST_NAME + 1)])
def test_a_name_that_cannot_be_shown_is_refused(tool: str) -> None:
    """It goes into logs and records, and before people who decide."""
    assert refused(said(id=1, method=CALL, params={"name": tool})).code == INVALID_PARAMS


def test_which_request_is_given_up_is_said_once() -> None:
    """Which of two counts differs between readers, and one of them may be a call."""
    twice = b'{"method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}'
    assert refused(twice).code == INVALID_REQUEST


@settings(max_examples=count(300, 20_000), deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_anything_else_is_refused_and_nothing_else_happens(body: bytes) -> None:
    """No bytes make it stumble."""
    with suppress(Unclear):
        hear(body)


def test_a_damaged_call_is_heard_or_refused() -> None:
    """One byte changed, inserted or left out, anywhere."""
    seed = int(time.time())
    print(f"seed {seed}")
    dice, body = Random(seed), call(arguments={"a": [1, "x"]}, _meta={"progressToken": 1})
    for at in range(len(body)):
        for changed in (
            body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :],
            body[:at] + bytes([dice.randrange(256)]) + body[at:],
            body[:at] + body[at + 1 :],
            body[:at],
        ):
            try:
                found = hear(changed)
            except Unclear:
                continue
            assert calls_in(json.loads(changed)) == [
                (each.id, each.tool, json.loads(each.arguments)) for each in found.calls
            ]
