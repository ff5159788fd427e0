"""JSON-RPC as MCP speaks it: what a client says, which of it is a call, and the same answer for another ask.

Only `tools/call` is a call. Whether something is one must be beyond doubt: a message that some reader could
take for one and another could not is refused, since it would go out without a record.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeAlias

from proxy.core.json_text import Member, after_space, elements, members, one_value, plain_text

Id: TypeAlias = int | str

CALL = "tools/call"
LIST_TOOLS = "tools/list"
CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
MOST_IN_A_BATCH = 1000
# The protocol has 128; what is longer, or cannot be shown, does not go into a record.
LONGEST_NAME = 256
PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS = -32700, -32600, -32602
# What semel says by itself. Servers choose between -32000 and -32099; MCP has given a meaning to some.
REFUSED = -32080
_VERSION = "io.modelcontextprotocol/protocolVersion"
_ENVELOPE = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = ("name", "arguments", "_meta", "task", "inputResponses", "requestState")


class Unclear(Exception):
    """No JSON-RPC message with one meaning."""

    def __init__(self, code: int, message: str, id: Id | None = None) -> None:  # noqa: A002 (its name)
        super().__init__(message)
        self.code = code
        self.id = id


class ToolCall(NamedTuple):
    """`arguments` are the bytes of the object, `text` those of the whole message. `progress`: the token under
    which the client wants to hear how it goes. `answers`: what the server had asked for before. `modern`: it
    is of 2026-07-28 or later, where every message says so."""

    id: Id
    tool: str
    arguments: bytes
    text: bytes
    progress: Id | None = None
    answers: bytes = b""
    as_task: bool = False
    modern: bool = False


class Other(NamedTuple):
    """Anything else. `method` is empty for a response, `id` None for a notification."""

    id: Id | None
    method: str
    text: bytes
    params: dict[str, Any]


Message: TypeAlias = ToolCall | Other


class Heard(NamedTuple):
    messages: tuple[Message, ...]
    is_batch: bool

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(each for each in self.messages if isinstance(each, ToolCall))


def hear(body: bytes) -> Heard:
    """Raises Unclear."""
    try:
        return _heard(body.decode())
    except UnicodeDecodeError:
        raise Unclear(PARSE_ERROR, "The body is not UTF-8.") from None
    except ValueError as error:
        raise Unclear(PARSE_ERROR, f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Unclear(PARSE_ERROR, "The body is nested too deeply.") from None


def _heard(text: str) -> Heard:
    value, start = one_value(text), after_space(text, 0)
    if isinstance(value, dict):
        return Heard((_message(text, Member("", start, len(text.rstrip()), value)),), is_batch=False)
    if isinstance(value, list) and len(value) > MOST_IN_A_BATCH:
        raise Unclear(INVALID_REQUEST, f"A batch has at most {MOST_IN_A_BATCH} messages.")
    if not isinstance(value, list) or not value:
        raise Unclear(INVALID_REQUEST, "A JSON-RPC message is an object, or an array of such objects.")
    found = tuple(_message(text, element) for element in elements(text, start))
    return Heard(found, is_batch=True)


def _message(text: str, place: Member) -> Message:
    if not isinstance(place.value, dict):
        raise Unclear(INVALID_REQUEST, "A JSON-RPC message is an object.")
    said = _unmistakable(text, place.begin, _ENVELOPE, "message")
    id_ = said["id"].value if "id" in said else None
    known = id_ if is_id(id_) else None
    raw = text[place.begin : place.end].encode()
    if "method" not in said:
        return Other(known, "", raw, {})
    method = said["method"].value
    if not isinstance(method, str):
        raise Unclear(INVALID_REQUEST, "'method' is a text.", known)
    if method != CALL:
        if _folded(method) == CALL:
            raise Unclear(INVALID_REQUEST, f"Write {CALL!r}, not {method[:64]!r}.", known)
        params = said["params"].value if "params" in said else None
        if method == CANCELLED and isinstance(params, dict):  # which one is meant must be beyond doubt too
            _unmistakable(text, said["params"].begin, ("requestId",), CANCELLED)
        return Other(known, method, raw, params if isinstance(params, dict) else {})
    if known is None:
        raise Unclear(INVALID_REQUEST, f"A {CALL} needs an 'id', a text or a whole number.")
    if "params" not in said or not isinstance(said["params"].value, dict):
        raise Unclear(INVALID_PARAMS, f"The 'params' of a {CALL} are an object.", known)
    return _call(known, text, said["params"], raw)


def _call(id_: Id, text: str, params: Member, raw: bytes) -> ToolCall:
    said = _unmistakable(text, params.begin, _PARAMS, f"{CALL}'s params")
    name = said["name"].value if "name" in said else None
    if not isinstance(name, str) or not name or not _is_text(name):
        raise Unclear(INVALID_PARAMS, f"A {CALL} names its tool: 'params.name' is a text.", id_)
    arguments = said.get("arguments")
    if arguments is not None and not isinstance(arguments.value, dict | None):
        raise Unclear(INVALID_PARAMS, f"The 'arguments' of a {CALL} are an object.", id_)
    meta = said["_meta"].value if "_meta" in said else None
    meta = meta if isinstance(meta, dict) else {}
    token = meta.get("progressToken")
    answers = said.get("inputResponses")
    return ToolCall(
        id_,
        name,
        b"{}" if arguments is None or arguments.value is None else _bytes(text, arguments),
        raw,
        token if is_id(token) else None,
        b"" if answers is None else _bytes(text, answers),
        said["task"].value is not None if "task" in said else False,
        _VERSION in meta,
    )


def _bytes(text: str, place: Member) -> bytes:
    return text[place.begin : place.end].encode()


def _unmistakable(text: str, start: int, known: tuple[str, ...], what: str) -> dict[str, Member]:
    """The members by name. Which of two counts, and whether `Method` is `method`, differs between readers."""
    said: dict[str, Member] = {}
    meant = {_folded(name): name for name in known}
    for member in members(text, start):
        if member.name in said:
            raise Unclear(INVALID_REQUEST, f"The {what} has {member.name[:64]!r} twice.")
        name = meant.get(_folded(member.name), member.name)
        if member.name != name:
            raise Unclear(INVALID_REQUEST, f"Write {name!r}, not {member.name[:64]!r}.")
        said[member.name] = member
    return said


def _folded(name: str) -> str:
    """As the most generous reader has it: some take \u017f for s, \u212a for k, \u0130 and \u0131 for i, some
    drop what cannot be seen, and in C a text ends with a zero."""
    seen = "".join(filter(str.isprintable, name.partition("\0")[0]))
    return seen.upper().casefold().replace("\u0307", "")


def _is_text(name: str) -> bool:
    """Half a surrogate pair is none, nor is what cannot be shown."""
    return name.isprintable() and len(name) <= LONGEST_NAME


def is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


# ---- what is said to the client ----


def for_request(body: bytes, new: Id, *, modern: bool) -> bytes:
    """The same response for the request `new`. Raises ValueError, or RecursionError."""
    text = plain_text(body)
    start = after_space(text, 0)
    if not isinstance(one_value(text), dict):
        raise ValueError("it is no object")
    return _of_era(_with(text, start, "id", new), start, modern=modern).encode()


def _of_era(text: str, start: int, *, modern: bool) -> str:
    """A client of 2026-07-28 wants to be told that a result is complete; earlier ones ignore the word."""
    for result in members(text, start):
        if result.name != "result" or not isinstance(result.value, dict):
            continue
        if modern and "resultType" not in result.value:
            comma = "," if result.value else ""
            return f'{text[: result.begin + 1]}"resultType":"complete"{comma}{text[result.begin + 1 :]}'
    return text


def _with(text: str, start: int, name: str, value: Id) -> str:
    """Every member of this name of the object that begins at `start` has this value."""
    for member in reversed([each for each in members(text, start) if each.name == name]):
        text = text[: member.begin] + json.dumps(value) + text[member.end :]
    return text


def with_progress_token(body: bytes, new: Id) -> bytes:
    text = plain_text(body)
    for member in members(text, after_space(text, 0)):
        if member.name == "params" and isinstance(member.value, dict):
            return _with(text, member.begin, "progressToken", new).encode()
    return body


def error(id_: Id | None, code: int, message: str, data: object = None) -> bytes:
    said: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        said["data"] = data
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": said}).encode() + b"\n"


# ---- what the server says ----


def is_response(message: object) -> bool:
    return (
        isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message)
    )


def answers_to(message: object, id_: Id) -> bool:
    """An error may come without an id, where the server could not read it. Some servers give a number back as
    a text, or as another spelling of it, and clients take that."""
    if not is_response(message):
        return False
    assert isinstance(message, dict)
    told = message.get("id")
    if told is None:
        return message.get("error") is not None
    if isinstance(told, bool | list | dict):
        return False
    return bool(told == id_) or str(told) == str(id_)


def is_request(message: object) -> bool:
    return isinstance(message, dict) and "id" in message and "method" in message


def asks_client(message: object) -> bool:
    """The server asks the client something. To be there says nothing, so a ping is not meant."""
    return is_request(message) and isinstance(message, dict) and message["method"] != "ping"
