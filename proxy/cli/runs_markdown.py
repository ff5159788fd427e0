"""A run in a page of Markdown, for whoever goes on with it, a person or a model: every effect, its outcome,
what is in doubt. Reads are summed up.

It is kept short by its level of detail, never by leaving out an effect. Names and arguments were written by
others: they stand in code spans, cut, without anything that could end the span or drive a terminal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from proxy.cli.output import counted, printable

if TYPE_CHECKING:
    from proxy.admin.views import Json

# What a model can be given in passing.
LARGEST = 8 * 1024
# Names of reads in one line.
MOST_NAMES = 4
OUTCOMES = {
    "in_doubt": "IN DOUBT, nobody knows whether it took effect; it is not sent again",
    "pending": "under way, no answer yet",
    "released": "did not take effect; asked again, it is sent",
    "awaiting_approval": "waits for a person's approval, not sent",
    "denied": "denied by a person, not sent",
}


class _Detail(NamedTuple):
    """How much of a name, and of the arguments, is shown."""

    name: int
    arguments: int


_LEVELS = (_Detail(60, 160), _Detail(60, 60), _Detail(40, 24), _Detail(32, 0), _Detail(16, 0))


def summary(detail: Json, arguments: Mapping[str, object]) -> str:
    """`arguments`: by call, of the calls with effects."""
    text = ""
    for level in _LEVELS:
        text = "".join(f"{line}\n" for line in _lines(detail, arguments, level))
        if len(text.encode()) < LARGEST:
            break
    return text


def _lines(detail: Json, arguments: Mapping[str, object], level: _Detail) -> Iterator[str]:
    steps = detail["steps"]
    yield f"# Run {code(detail['run'], 128)}"
    yield ""
    yield from _about(detail)
    doubts = [step for step in steps if step["state"] == "in_doubt"]
    if doubts:
        yield ""
        yield "## In doubt: find out at the upstream, then settle"
        yield ""
        for step in doubts:
            yield f"- step {_number(step['seq'])}: {_name(step, level)}, call {code(step['call'], 32)}"
    yield ""
    yield "## Steps"
    yield ""
    if not steps:
        yield "None is recorded."
    for safe, group in groupby(steps, key=lambda step: bool(step["safe"])):
        if safe:
            yield _reads(list(group), level)
        else:
            yield from (_effect(step, arguments.get(step["call"]), level) for step in group)
    yield ""
    yield (
        "Ask the same calls again in the same order: what is recorded here is answered from the record, and "
        "nothing is sent twice."
    )


def _about(detail: Json) -> Iterator[str]:
    attempts = detail["attempts"]
    effects = sum(not step["safe"] for step in detail["steps"])
    yield (
        f"State: {code(detail['state'], 20)}. {counted(len(attempts), 'attempt')}, "
        f"{counted(len(detail['steps']), 'step')}, {effects} of them with effects, "
        f"{len(detail['in_doubt'])} in doubt, {len(detail['awaiting_approval'])} awaiting approval."
    )
    if detail["parent"] is not None:
        parent = detail["parent"]
        yield f"Forked from {code(parent['run'], 128)} at step {_number(parent['at'])}."
    if attempts:
        latest = attempts[-1]
        counts = ", ".join(
            f"{_number(latest[how])} {how}" for how in ("executed", "replayed", "joined", "refused")
        )
        yield f"Latest attempt {code(latest['name'] or '(none)', 64)}: {counts}."
    if detail["diverged"]:
        yield f"Calls held because they were not in the record: {_number(detail['diverged'])}."
    if detail["passed"]:
        names = ", ".join(code(kind, 40) for kind in detail["passed"][:8])
        yield f"Not recorded, and made again by every attempt: {names}."


def _effect(step: Json, arguments: object, level: _Detail) -> str:
    outcome = _outcome(step)
    again = ", from the parent run" if step["inherited"] else ""
    shown = ""
    if level.arguments and arguments is not None:
        shown = f", asked with {code(json.dumps(arguments, ensure_ascii=False), level.arguments)}"
    return f"- step {_number(step['seq'])}: {_name(step, level)}: {outcome}{again}{shown}"


def _outcome(step: Json) -> str:
    state, status = step["state"], step["status_code"]
    if state is None:
        return "forgotten; asked again, it is sent"
    if state == "done":
        return "done, answer not known" if status is None else f"done, {_number(status)}"
    known = OUTCOMES.get(state)
    if known is None:
        return code(state, 20)
    return known if status is None else f"{known} (answered {_number(status)})"


def _reads(steps: list[Json], level: _Detail) -> str:
    first, last = _number(steps[0]["seq"]), _number(steps[-1]["seq"])
    where = f"step {first}" if len(steps) == 1 else f"steps {first}-{last}"
    names = Counter(step["tool"] for step in steps)
    told = [
        code(name, level.name) + (f" {number} times" if number > 1 else "")
        for name, number in names.most_common(MOST_NAMES)
    ]
    more = f" and {len(names) - MOST_NAMES} other kinds" if len(names) > MOST_NAMES else ""
    failed = sum(step["state"] != "done" for step in steps)
    lost = f"; {failed} without a final answer" if failed else ""
    return f"- {where}: {counted(len(steps), 'read')}: {', '.join(told)}{more}{lost}"


def _name(step: Json, level: _Detail) -> str:
    return f"{code(step['tool'], level.name)} of {code(step['upstream'], level.name)}"


def code(text: object, longest: int) -> str:
    """A code span that its content cannot leave."""
    shown = printable(text).replace("`", "'").strip()
    cut = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    return f"`{cut or ' '}`"


def _number(value: object) -> str:
    """Also what only claims to be one."""
    return str(value) if isinstance(value, int) else code(value, 20)
