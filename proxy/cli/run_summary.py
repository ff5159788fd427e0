"""The last word of `semel run`: how the agent ended, what came from the record, what waits for a person."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxy.cli.output import counted
from proxy.cli.run_agent import Ending
from proxy.cli.run_figures import NOTHING_RECORDED, RunFigures

_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_ATTEMPT_COUNTS = ("replayed", "executed", "joined", "refused")
FIGURES: dict[str, Any] = {
    "steps": _COUNT,
    **dict.fromkeys(_ATTEMPT_COUNTS, _COUNT),
    "in_doubt": _TEXTS,
    "awaiting_approval": _TEXTS,
    "diverged": _COUNT,
    "unlisted": _TEXTS,
    "saved_usd": {"type": "number"},
    "saved_seconds": {"type": "number"},
}
SUMMARY: dict[str, Any] = {
    "run": {"type": "string", "minLength": 1},
    "attempt": {"type": "string", "minLength": 1},
    "attempts": {"type": "integer", "minimum": 1},  # starts of the command by this `semel run`
    "status": {"type": ["integer", "null"]},  # null: killed by a signal
    "signal": {"type": ["integer", "null"]},
    "complete": {"type": "boolean"},  # the run is marked so
    "seconds": {"type": "number", "minimum": 0},
    "proxy_restarts": _COUNT,
    "figures": {
        "type": ["object", "null"],  # null: the proxy does not tell
        "required": list(FIGURES),
        "additionalProperties": False,
        "properties": FIGURES,
    },
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": list(SUMMARY),
    "additionalProperties": False,
    "properties": SUMMARY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened. `figures` None: they are not to be had, and `why` says why."""

    run: str
    attempt: str
    attempts: int
    ending: Ending
    complete: bool
    seconds: float
    proxy_restarts: int = 0
    figures: RunFigures | None = None
    why: str = ""


def document(report: Report) -> dict[str, object]:
    ending = report.ending
    return {
        "run": report.run,
        "attempt": report.attempt,
        "attempts": report.attempts,
        "status": None if ending.signal else ending.status,
        "signal": ending.signal or None,
        "complete": report.complete,
        "seconds": round(report.seconds, 3),
        "proxy_restarts": report.proxy_restarts,
        "figures": _figures(report),
    }


def _figures(report: Report) -> dict[str, object] | None:
    figures = report.figures
    if figures is None:
        return None
    known = {**asdict(figures), **asdict(figures.of(report.attempt))}
    return {name: list(value) if isinstance(value := known[name], tuple) else value for name in FIGURES}


def lines(report: Report, place: str, again: Sequence[str]) -> list[str]:
    """`place`: flags that lead other commands to this record. `again`: the command that goes on with it."""
    which = f"run {report.run}, attempt {report.attempt}"
    told = [f"{which}: the command {report.ending} after {report.seconds:.1f} s."]
    nothing = report.figures is None and report.why == NOTHING_RECORDED
    if nothing:
        told.append(
            f"warning: {NOTHING_RECORDED}: nothing that it did went through semel, and another start does it "
            "again. A client may ignore HTTPS_PROXY and its base URL; an API on this machine is only reached "
            "through semel if a policy names it."
        )
    elif report.figures is None:
        told.append(f"no figures: {report.why or 'the proxy does not tell them'}.")
    else:
        told += _counts(report, report.figures)
        told += held(report.figures, place)
    if report.complete:
        told.append("the run is complete: another start of it is answered from the record.")
    elif not report.ending.is_success:
        what = "start it again" if nothing else "go on where it stopped"
        told.append(f"to {what}: {shlex.join(again)}")
    return told


def _counts(report: Report, figures: RunFigures) -> list[str]:
    of = figures.of(report.attempt)
    counts = ", ".join(f"{getattr(of, name)} {name}" for name in _ATTEMPT_COUNTS)
    saved = [f"${figures.saved_usd:.2f}"] if figures.saved_usd else []  # prices may not be known
    saved += [f"{figures.saved_seconds:.1f} s"] if figures.saved_seconds else []
    told = [f"{counts}; {counted(figures.steps, 'step')} on record{_list('; saved ', saved)}."]
    if figures.unlisted:
        told.append(f"hosts without a policy, recorded by default rules: {', '.join(figures.unlisted)}.")
    return told


def _list(before: str, words: list[str]) -> str:
    return before + " and ".join(words) if words else ""


def held(figures: RunFigures, place: str) -> list[str]:
    """What waits for a person, with the command that settles it."""
    told = [
        f"in doubt: {call}. What is known: semel calls show {call}{place}. If it took effect: semel calls "
        f"resolve {call} --as executed --body-file ANSWER --reason WHY{place} (without its answer the agent "
        f"cannot go on); if not: --as not-executed"
        for call in figures.in_doubt
    ]
    told += [
        f"awaiting approval: {call}. semel calls approve {call} --reason WHY{place}, or deny"
        for call in figures.awaiting_approval
    ]
    if figures.diverged:
        told.append(
            f"diverged: {counted(figures.diverged, 'call')} held, since the agent left its record. What it "
            f"has not asked: semel runs diff {figures.run}{place}; let it go on: semel runs allow "
            f"{figures.run} --reason WHY{place}"
        )
    return told
