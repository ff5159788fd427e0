"""In which arguments two requests differ, by the names that policies have for them.

Compared is the canonical form, after the rule has taken its pick: `body.items[].id` is told once, however
many items differ. What has no name in a policy is told by the nearest thing around it that has one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from proxy.admin import redact
from proxy.core.redaction import sounds_secret
from proxy.explaining.parts import Difference, Part, cut

Json: TypeAlias = Any

ROOTS = ("path", "query", "body")
# What a step of a name in `include` and `exclude` may look like.
_STEP = re.compile(r"[^.\[\]*\s\x00-\x1f]+")


_NUMBER = re.compile(r"(-?)([0-9]+)e(-?[0-9]{1,3})")
# A number that would be longer than this as a plain decimal stays as the canonical form has it.
LONGEST_PLAIN = 40


class Number(NamedTuple):
    """A number as the canonical form spells it: 1 is not true, and nothing is rounded."""

    text: str


class _Absent:
    """Differs from null."""


_ABSENT = _Absent()


def argument_differences(here: bytes, there: bytes) -> list[Difference]:
    """Of two canonical forms."""
    (kind, mine), (other_kind, yours) = parsed(here), parsed(there)
    if kind != other_kind:
        why = "the bodies are of different kinds"
        return [Difference(part=Part.ARGUMENT, field="body", here=kind, there=other_kind, fixed=why)]
    found: dict[str, Difference] = {}
    if "include" in mine or "include" in yours:
        compared = _included(mine.get("include"), yours.get("include"), kind)
    else:
        compared = _walk(kind, (), mine, yours)
    for one in compared:
        found.setdefault(one.field, one)  # items[].id differs once, however many items do
    return list(found.values())


def parsed(arguments: bytes) -> tuple[str, Json]:
    """Kind and value of a canonical form."""
    kind, value = json.loads(arguments, parse_int=Number, parse_float=Number)
    return kind, value


def _included(mine: Json, yours: Json, kind: str) -> Iterator[Difference]:
    """Under `include` the canonical form lists what was found for each name. Where nothing at all was found
    there is no such list, and everything counts instead."""
    for name in mine if mine is not None else yours:
        one, other = (mine or {}).get(name, []), (yours or {}).get(name, [])
        if mine is not None and yours is not None and "[]" not in name and len(one) == len(other) == 1:
            yield from _walk(kind, (name,), one[0], other[0])
        elif one != other:
            yield _argument(kind, (name,), _found(name, one), _found(name, other))


def _found(name: str, values: Json) -> Json:
    return values if "[]" in name else values[0] if values else _ABSENT


def _walk(kind: str, steps: tuple[str, ...], mine: Json, yours: Json) -> Iterator[Difference]:
    if mine == yours:
        return
    if isinstance(mine, dict) and isinstance(yours, dict):
        for key in sorted(mine.keys() | yours.keys()):
            # A query on one side only is told by what is in it.
            absent: Json = {} if not steps and (mine.get(key) or yours.get(key)) else _ABSENT
            one, other = mine.get(key, absent), yours.get(key, absent)
            yield from _walk(kind, (*steps, key), one, other)
    elif _are_arrays(kind, steps, mine, yours):
        for one, other in zip(mine, yours, strict=True):
            yield from _walk(kind, (*steps, "[]"), one, other)
    else:
        yield _argument(kind, steps, mine, yours)


def _are_arrays(kind: str, steps: tuple[str, ...], mine: Json, yours: Json) -> bool:
    """JSON arrays of one length are compared item by item. Those of queries and forms hold the values of one
    name; those of multipart bodies no policy can reach into."""
    if not isinstance(mine, list) or not isinstance(yours, list) or len(mine) != len(yours):
        return False
    return kind == "json" and steps[0] != "query" and not steps[0].startswith("query.")


def _argument(kind: str, steps: tuple[str, ...], mine: Json, yours: Json) -> Difference:
    name, field = name_of(steps), field_of(steps, kind)
    return Difference(
        part=Part.ARGUMENT,
        field=field,
        here=_value(field, mine),
        there=_value(field, yours),
        name=name,
        fixed="" if name else _why_nameless(steps, mine, yours),
    )


def _why_nameless(steps: tuple[str, ...], mine: Json, yours: Json) -> str:
    if {} in (mine, yours):
        return f"one has a {steps[0]} and the other has none, and that counts even when nothing in it does"
    if len(steps) == 1:
        return f"the {steps[0]} differs as a whole, and a policy names only what is inside it"
    return "its name holds characters that a policy file has no way to write"


def name_of(steps: tuple[str, ...]) -> str:
    """What a policy calls it, or the nearest thing around it that has a name there; empty: nothing has."""
    rooted = steps[0] in ROOTS
    usable = list(steps[:1])
    for step in steps[1:]:
        if step != "[]" and _STEP.fullmatch(step) is None:
            break
        usable.append(step)
    while len(usable) > 2 and usable[-1] == "[]":  # without its items an array is best left out whole
        usable.pop()
    if rooted and len(usable) == 1:
        return ""
    if steps[0] == "body" and usable[1] not in (*ROOTS, "[]"):
        usable.pop(0)
    return _joined(usable)


def field_of(steps: tuple[str, ...], kind: str) -> str:
    """With its source in front, as people read it."""
    joined = _joined(steps)
    if steps[0].split(".")[0].split("[")[0] in ROOTS:
        return joined
    return ("body." if kind in ("json", "form") else "query.") + joined


def _joined(steps: tuple[str, ...] | list[str]) -> str:
    return "".join(step if step == "[]" or not at else f".{step}" for at, step in enumerate(steps))


def _value(field: str, value: Json) -> str | None:
    """As `calls show` has it: what sounds secret in an address is not told. That it differs is."""
    if isinstance(value, _Absent):
        return None
    if field.startswith(("query", "path")):
        if sounds_secret(field):
            return redact.HIDDEN
        if isinstance(value, dict):  # beside a query that has no single meaning
            value = redact.values(value)
        value = redact.pairs(value) if isinstance(value, str) else redact.texts(value)
    return cut(value_text(value))


def value_text(value: Json) -> str:
    """As JSON, numbers as people write them."""
    if isinstance(value, Number):
        return _plain(value.text)
    if isinstance(value, dict):
        inner = (f"{json.dumps(key, ensure_ascii=False)}: {value_text(item)}" for key, item in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _plain(canonical: str) -> str:
    """17948113979897454e-7 as 1794811397.9897454: exactly, digit by digit."""
    found = _NUMBER.fullmatch(canonical)
    if found is None:
        return canonical
    sign, digits, exponent = found[1], found[2], int(found[3])
    if exponent >= 0:
        plain = digits + "0" * exponent
    else:
        digits = digits.rjust(1 - exponent, "0")
        plain = f"{digits[:exponent]}.{digits[exponent:]}"
    return sign + plain if len(plain) <= LONGEST_PLAIN else canonical
