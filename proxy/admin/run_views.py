"""Runs as the documents of run_schemas.py: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.admin import redact
from proxy.admin.views import Json, moment
from proxy.core.intent import State
from proxy.core.run_record import How, Run, RunEntry, RunState, Step, Tally

# The label of hosts that no upstream names, and the name that stands for all of them.
UNLISTED, UNLISTED_HOST = "unlisted", "unlisted.invalid"
# What was given without being sent.
_SAVING = (How.REPLAYED, How.JOINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run as it was looked at: `steps` in order of seq, those it inherited among them."""

    run: Run
    state: RunState
    steps: Sequence[Step]
    tallies: Sequence[Tally]
    history: Sequence[RunEntry]
    now: float


def run(record: Run, state: RunState) -> Json:
    return _about(record, state) | {
        "attempts": len(record.attempts),
        "latest_attempt": record.attempts[-1].name if record.attempts else None,
    }


def _about(record: Run, state: RunState) -> Json:
    parent = record.parent
    return {
        "run": record.name,
        "tenant": record.tenant,
        "state": state.value,
        "created_at": moment(record.created_at),
        "active_at": moment(record.active_at),
        "version": record.version,
        "last_seq": record.last_seq,
        "parent": parent and {"run": parent.run, "at": parent.at, "resend": parent.resend},
    }


def detail(seen: Seen) -> Json:
    steps = steps_of(seen)
    return _about(seen.run, seen.state) | {
        "attempts": _attempts(seen),
        "steps": steps,
        "in_doubt": [step["call"] for step in steps if step["state"] == State.IN_DOUBT],
        "awaiting_approval": [step["call"] for step in steps if step["state"] == State.AWAITING_APPROVAL],
        "diverged": diverged(seen.run, seen.history),
        "passed": sorted(seen.run.passed),
        "unlisted": _unlisted(seen.steps),
        **_figures(seen),
        "events": [
            {"at": moment(entry.at), "actor": entry.actor, "event": entry.event, "why": entry.why}
            for entry in seen.history
        ],
    }


def label(step: Step) -> str:
    """What people call it. Where no rule gave a name, its method and path, and the host if no policy names
    it: in a run that is the group by which it is compared."""
    group = step.in_run.group
    if group[0] != "call" or step.tool != f"{group[1]} *":
        return step.tool
    _, method, host, path = group
    return f"{method} {host if step.upstream == UNLISTED else ''}{redact.path(path)}"


def diverged(run: Run, history: Iterable[RunEntry]) -> int:
    """How often the latest attempt was held since a person last let it go on: what is over is no warning."""
    attempts = run.attempts
    held = 0
    for entry in history:
        if entry.event == "allowed":
            held = 0
        elif entry.event == "diverged" and entry.why.startswith("held"):
            held += not attempts or entry.at >= attempts[-1].first_at
    return held


def steps_of(seen: Seen) -> list[Json]:
    asked: dict[bytes, set[str]] = {}
    for tally in seen.tallies:
        asked.setdefault(tally.key, set()).add(tally.attempt)
    order = {name: at for at, name in enumerate(seen.run.attempt_names)}
    return [_step(step, seen, _asked_by(step, seen, asked, order)) for step in seen.steps]


def _step(step: Step, seen: Seen, asked_by: list[str]) -> Json:
    in_run, settled = step.in_run, step.settled_at
    return {
        "seq": step.seq,
        "call": step.id,
        "run": step.run,
        "inherited": step.run != seen.run.name,
        "occurrence": step.occurrence,
        "upstream": step.upstream,
        "rule": step.rule,
        "tool": label(step),
        "safe": step.safe,
        "state": None if step.state is None else step.state.value,
        "status_code": step.status or None,  # 0: a person settled it without knowing the answer
        "size": step.size,
        "attempt": step.attempt,
        "asked_by": asked_by,
        "uses": in_run.uses,
        "cost_usd": step.cost_usd,
        "created_at": moment(step.created_at),
        "settled_at": moment(settled),
        "seconds": _duration(step),
        "age": None if settled is None or step.status is None else round(max(0.0, seen.now - settled), 3),
        "retired": in_run.retired or step.key in seen.run.retired,
        "received": [{"attempt": r.attempt, "problem": r.problem} for r in in_run.receipts],
    }


def retired(step: Step) -> Json:
    return {
        "call": step.id,
        "seq": step.seq,
        "tool": label(step),
        "upstream": step.upstream,
        "state": None if step.state is None else step.state.value,
    }


def _asked_by(step: Step, seen: Seen, asked: Mapping[bytes, set[str]], order: Mapping[str, int]) -> list[str]:
    # Who claimed it has asked it. A parent's attempts may have the same names, and are others.
    by = asked.get(step.key, set()) | ({step.attempt} if step.run == seen.run.name else set())
    return sorted(by, key=lambda name: (order.get(name, -1), name))


def _attempts(seen: Seen) -> list[Json]:
    """In order of their first use; what was asked without an attempt comes first."""
    counts: dict[str, Counter[How]] = {}
    last: dict[str, float] = {}
    for tally in seen.tallies:
        counts.setdefault(tally.attempt, Counter())[tally.how] += tally.times
        last[tally.attempt] = max(tally.last_at, last.get(tally.attempt, tally.last_at))
    first: Mapping[str, float] = {attempt.name: attempt.first_at for attempt in seen.run.attempts}
    names = [*sorted(counts.keys() - first.keys()), *first]
    return [
        {
            "name": name,
            "first_at": moment(first.get(name)),
            "last_at": moment(last.get(name)),
            **{how.value: counts.get(name, Counter())[how] for how in How},
        }
        for name in names
    ]


def _unlisted(steps: Iterable[Step]) -> list[str]:
    """Without a rule a call's group is its method, host and path."""
    groups = [step.in_run.group for step in steps if step.upstream == UNLISTED]
    hosts = {group[2] for group in groups if group[0] == "call" and len(group) == 4}
    return sorted(hosts - {UNLISTED_HOST})


def _duration(step: Step) -> float | None:
    if step.sent_at is None or step.settled_at is None or step.status is None:
        return None
    return round(max(0.0, step.settled_at - step.sent_at), 3)


def _figures(seen: Seen) -> Json:
    """Nothing that is not known counts as nothing: without any price or duration the sum is null."""
    prices = {step.key: step.cost_usd for step in seen.steps if step.cost_usd is not None}
    spans = {step.key: span for step in seen.steps if (span := _duration(step)) is not None}
    own = [step.cost_usd for step in seen.steps if step.run == seen.run.name and step.cost_usd is not None]
    saving = [tally for tally in seen.tallies if tally.how in _SAVING]
    replayed = [tally for tally in seen.tallies if tally.how is How.REPLAYED]
    return {
        "spent_usd": round(sum(own), 9) if own else None,
        "saved_usd": _sum(saving, prices, 9) if prices else None,
        "saved_seconds": _sum(replayed, spans, 3),
    }


def _sum(tallies: Sequence[Tally], worth: Mapping[bytes, float], digits: int) -> float | None:
    known = [tally.times * worth[tally.key] for tally in tallies if tally.key in worth]
    return round(sum(known), digits) if known or not tallies else None
