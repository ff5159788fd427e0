"""Two attempts of a run, compared: what one asked and the other did not. Pure.

Calls of the same rule on both sides stand beside each other, in order, with the first argument in which they
differ: probably the same intention in other words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from proxy.cli.output import Refused

if TYPE_CHECKING:
    from proxy.admin.views import Json

# No value of JSON is this; people see the words.
_NOT_THERE = object()
ABSENT = "(absent)"
_SIDE: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "seq": {"type": "integer"},
                "call": {"type": "string"},
                "state": {"type": ["string", "null"]},
                "args": {},
            },
            "required": ["seq", "call", "state", "args"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}
_DIFFERENCE: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"field": {"type": "string"}, "first": {}, "second": {}},
            "required": ["field", "first", "second"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}
RUN_DIFF: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run": {"type": "string"},
        "first": {"type": "string"},
        "second": {"type": "string"},
        "both": {"type": "integer"},
        "differing": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "upstream": {"type": "string"},
                    "rule": {"type": "string"},
                    "tool": {"type": "string"},
                    "safe": {"type": "boolean"},
                    "first": _SIDE,
                    "second": _SIDE,
                    "difference": _DIFFERENCE,
                },
                "required": ["upstream", "rule", "tool", "safe", "first", "second", "difference"],
                "additionalProperties": False,
            },
        },
        "diverged": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["run", "first", "second", "both", "differing", "diverged"],
    "additionalProperties": False,
}


def sides(detail: Json, named: Sequence[str]) -> tuple[str, str]:
    """The two attempts to compare. Raises Refused."""
    known = [attempt["name"] for attempt in detail["attempts"] if attempt["name"]]
    if not named:
        if len(known) < 2:
            raise Refused(f"The run {detail['run']} has {len(known)} of the two attempts that a diff needs.")
        return known[-2], known[-1]
    if len(named) != 2:
        raise Refused("Name two attempts, or none for the two latest.")
    for name in named:
        if name not in known:
            has = ", ".join(known[-20:]) or "none"
            raise Refused(f"The run {detail['run']} has no attempt {name[:64]!r}: it has {has}.")
    return named[0], named[1]


def compared(detail: Json, first: str, second: str, arguments: Mapping[str, object]) -> Json:
    steps = detail["steps"]
    both = sum(first in step["asked_by"] and second in step["asked_by"] for step in steps)
    only_first = [step for step in steps if first in step["asked_by"] and second not in step["asked_by"]]
    only_second = [step for step in steps if second in step["asked_by"] and first not in step["asked_by"]]
    return {
        "run": detail["run"],
        "first": first,
        "second": second,
        "both": both,
        "differing": [_entry(one, other, arguments) for one, other in _paired(only_first, only_second)],
        "diverged": [event["why"] for event in detail["events"] if event["event"] == "diverged"],
    }


def _paired(ones: list[Json], others: list[Json]) -> Iterator[tuple[Json | None, Json | None]]:
    """The n-th of a rule on one side with the n-th on the other, in order of the steps."""
    waiting: dict[tuple[str, ...], list[Json]] = {}
    for other in others:
        waiting.setdefault(_kind(other), []).append(other)
    pairs: list[tuple[Json | None, Json | None]] = []
    for one in ones:
        alike = waiting.get(_kind(one))
        pairs.append((one, alike.pop(0) if alike else None))
    pairs += [(None, other) for alike in waiting.values() for other in alike]
    yield from sorted(pairs, key=lambda pair: min(step["seq"] for step in pair if step is not None))


def _kind(step: Json) -> tuple[str, ...]:
    """Without a rule the tool says what is asked: method and path."""
    return (step["upstream"], step["rule"], step["tool"])


def _entry(one: Json | None, other: Json | None, arguments: Mapping[str, object]) -> Json:
    step = one if one is not None else other
    assert step is not None
    difference = None
    if one is not None and other is not None:
        difference = first_difference(arguments.get(one["call"]), arguments.get(other["call"]))
    return {
        **{name: step[name] for name in ("upstream", "rule", "tool", "safe")},
        "first": _side(one, arguments),
        "second": _side(other, arguments),
        "difference": difference,
    }


def _side(step: Json | None, arguments: Mapping[str, object]) -> Json | None:
    if step is None:
        return None
    return {
        "seq": step["seq"],
        "call": step["call"],
        "state": step["state"],
        "args": arguments.get(step["call"]),
    }


def first_difference(one: object, other: object, field: str = "") -> Json | None:
    """The first place in which two documents differ, members by name, items by number."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [*one, *(name for name in other if name not in one)]
        paths = [f"{field}.{name}" if field else str(name) for name in names]
        left, right = [[side.get(name, _NOT_THERE) for name in names] for side in (one, other)]
    elif isinstance(one, list) and isinstance(other, list):
        most = max(len(one), len(other))
        left, right = [[*side, *[_NOT_THERE] * (most - len(side))] for side in (one, other)]
        paths = [f"{field}[{n}]" for n in range(most)]
    else:
        same = one == other and isinstance(one, bool) == isinstance(other, bool)
        return None if same else {"field": field or "arguments", "first": _told(one), "second": _told(other)}
    found = (first_difference(a, b, path) for path, a, b in zip(paths, left, right, strict=True))
    return next((difference for difference in found if difference is not None), None)


def _told(value: object) -> object:
    return ABSENT if value is _NOT_THERE else value
