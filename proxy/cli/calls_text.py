"""A call in words: for a person who has to decide, what is known and which commands settle it.

The document may come from a proxy that means no good: no value of it reaches the terminal but through
`printable`, also where the schema says that it is a number.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from proxy.cli.output import print_table, printable
from proxy.core.decide import FORGOTTEN

if TYPE_CHECKING:
    from proxy.admin.views import Json

LONGEST_CELL = 60
LONGEST_ARGUMENTS = 4000


def print_list(page: Json) -> None:
    calls = page["calls"]
    if calls:
        titles = ("id", "state", "upstream", "tool", "created", "status", "replays", "arguments")
        print_table(titles, [_row(call) for call in calls])
    elif not page["unreadable"]:
        print("no calls")
    for one in page["unreadable"]:
        print(f"{printable(one['id'])}  cannot be read: {printable(one['why'])}")


def _row(call: Json) -> tuple[object, ...]:
    state = f"{call['state']} (past)" if _is_past(call) else call["state"]
    arguments = _compact(call["args"])
    cut = arguments if len(arguments) <= LONGEST_CELL else arguments[: LONGEST_CELL - 1] + "…"
    status, created = call["status_code"], when(call["created_at"])
    return (
        call["id"], state, call["upstream"], call["tool"], created, status, call["replays"], cut,
    )  # fmt: skip


def print_call(detail: Json, place: str) -> None:
    """`place` are the flags that lead to this record."""
    call = detail["call"]
    for label, value in _facts(detail):
        if value not in (None, ""):
            print(f"{label + ':':<12}{printable(value)}")
    if detail["request"] is not None and detail["request"]["headers"]:
        print("request headers:")
        _print_headers(detail["request"]["headers"])
    if detail["answer"] is not None and detail["answer"]["headers"]:
        print("answer headers:")
        _print_headers(detail["answer"]["headers"])
    for damage in detail["damage"]:
        print(f"{'damaged:':<12}{printable(damage)}")
    print("history:")
    for event in detail["events"]:
        change = f"{printable(event['from'] or '-')} -> {printable(event['to'] or '-')}"
        print(f"  {when(event['at'])}  {printable(event['event'])}  {change}  {printable(event['actor'])}")
        print(f"    {printable(event['why'])}")
    if call["state"] == "in_doubt":
        _print_what_to_do(detail, place)
    elif call["state"] == "awaiting_approval":
        _print_what_is_asked(detail, place)


def _facts(detail: Json) -> list[tuple[str, object]]:
    call, request = detail["call"], detail["request"]
    return [
        ("call", call["id"]),
        ("state", _state(detail)),
        ("version", call["version"]),
        ("tool", f"{call['tool']} (upstream {call['upstream']}, rule {call['rule']})"),
        ("run", call["run"] and f"{call['run']}, attempt {call['attempt'] or '-'}, call {call['seq']}"),
        ("occurrence", call["occurrence"] if call["occurrence"] != 1 else None),
        ("request", request and f"{request['method']} {request['target']}"),
        ("arguments", _shortened(_compact(call["args"]))),
        ("created", when(call["created_at"])),
        ("sent", call["sent_at"] and f"{when(call['sent_at'])}, {_times(call['sends'])}"),
        ("settled", call["settled_at"] and when(call["settled_at"])),
        ("kept until", None if _is_past(call) else _kept_until(call)),
        ("answer", _answer(detail["answer"])),
        # Counted under the call's name: answers that were forgotten since are among them.
        ("replayed", f"{_times(call['replays'])} in all" if call["replays"] else None),
    ]


def _is_past(call: Json) -> bool:
    """Forgotten, or its time to live is over: either way it is as good as never made."""
    try:
        return datetime.fromisoformat(call["expires_at"]) <= datetime.now(UTC)
    except (TypeError, ValueError):  # null, or not a moment
        return False


def _state(detail: Json) -> str:
    call, events = detail["call"], detail["events"]
    if not _is_past(call):
        return str(call["state"])
    why = "forgotten" if events and events[-1]["event"] == FORGOTTEN else "its time is over"
    return f"{call['state']}, {why}: the next identical call is sent"


def _kept_until(call: Json) -> str | None:
    if call["expires_at"] is not None:
        return when(call["expires_at"])
    return None if call["settled_at"] is None else "it is forgotten"


def _answer(answer: Json | None) -> str:
    if answer is None:
        return ""
    if answer["unavailable"] is not None:
        status = "" if answer["status_code"] is None else f"{answer['status_code']}; "
        return f"{status}it cannot be given: {answer['unavailable']}"
    return f"{answer['status_code']}, {answer['size']} bytes ({answer['place']})"


def _print_headers(headers: list[list[str]]) -> None:
    for name, value in headers:
        print(f"  {printable(name)}: {printable(value)}")


def _print_what_to_do(detail: Json, place: str) -> None:
    call, doubt = detail["call"], detail["doubt"]
    print()
    print("What is known")
    print(f"  It was sent to {printable(call['upstream'])}, or perhaps sent, {_times(call['sends'])}.")
    print(f"  In doubt since {when(doubt['since'])}: {printable(doubt['reason'])}.")
    if doubt["upstream_status"] is not None:
        print(f"  The upstream answered {printable(doubt['upstream_status'])}.")
    if doubt["excerpt"]:
        print(f"  Its words: {printable(doubt['excerpt'])}")
    then = _BY_ITSELF.get(detail["settled_by"], "Identical calls are held; nothing is sent again.")
    print(f"  Whether it took effect, nobody here knows. {then}")
    print()
    print("Find out at the upstream, then settle it with one of these")
    call_id, version = (printable(shlex.quote(str(call[name]))) for name in ("id", "version"))
    command = f"  semel calls resolve {call_id}{place} --version {version}"
    print("  it happened; with the answer that identical calls will get (or without --body-file):")
    print(f"  {command} --as executed --body-file FILE --reason '…'")
    print("  it did not happen; the next identical call is sent:")
    print(f"  {command} --as not-executed --reason '…'")
    if detail["settled_by"] == "probe":
        print("  let the proxy ask the upstream, by the rule's probe:")
        print(f"    semel calls probe {call_id}{place} --version {version} --reason '…'")


# What the rule does when the call is made again.
_BY_ITSELF = {
    "resend": "When the call is made again, semel sends it again under its upstream key, while that is safe.",
    "probe": "When the call is made again, semel asks the upstream first, by the rule's probe.",
}


def _print_what_is_asked(detail: Json, place: str) -> None:
    """All that is approved with it, also what does not name the call."""
    call, request = detail["call"], detail["request"]
    print()
    print("A person has to permit it; nothing was sent. What is permitted is exactly this request")
    if request is None or request["body"] is None:
        print("  Its body cannot be shown: it is no text, or too long.")
    elif request["body"]:
        print(f"  {_shortened(printable(request['body']))}")
    print()
    call_id, version = (printable(shlex.quote(str(call[name]))) for name in ("id", "version"))
    for how, then in (("approve", "made again, it goes out once"), ("deny", "whoever makes it is told why")):
        print(f"  {then}:")
        print(f"    semel calls {how} {call_id}{place} --version {version} --reason '…'")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{printable(number)} times"


def _compact(arguments: object) -> str:
    return "cannot be read" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_ARGUMENTS:
        return text
    return f"{text[:LONGEST_ARGUMENTS]}… ({len(text)} characters; --json has all)"


def when(moment: str | None) -> str:
    """Null: the record has a number there that no calendar has."""
    return "at no known time" if moment is None else printable(f"{moment[:10]} {moment[11:19]}Z")


def harmless(body: bytes) -> str:
    """Text with its lines, every other control character escaped."""
    lines = body.decode("utf-8", "backslashreplace").replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(printable(cell) for cell in line.split("\t")) for line in lines)
