"""Runs in words, for a person at a terminal.

The document may come from a proxy that means no good: no value of it reaches the terminal but through
`printable`, also where the schema says that it is a number.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from proxy.cli.calls_text import when
from proxy.cli.output import counted, print_table, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.admin.views import Json

LONGEST_VALUE = 48
# Lines of a run's history that are shown; --json has all.
LATEST_EVENTS = 20


def print_list(runs: Sequence[Json]) -> None:
    if not runs:
        print("no runs")
        return
    tenants = {run["tenant"] for run in runs}
    titles: tuple[str, ...] = ("run", "state", "steps", "attempts", "latest", "active", "forked from")
    rows = [_row(run) for run in runs]
    if len(tenants) > 1:
        titles = (*titles, "tenant")
        rows = [(*row, run["tenant"]) for row, run in zip(rows, runs, strict=True)]
    print_table(titles, rows)


def _row(run: Json) -> tuple[object, ...]:
    parent = run["parent"]
    return (
        run["run"], run["state"], run["last_seq"], run["attempts"], run["latest_attempt"],
        when(run["active_at"]), parent and f"{parent['run']} at {parent['at']}",
    )  # fmt: skip


def print_run(detail: Json, place: str) -> None:
    """`place` are the flags that lead to this record."""
    for label, value in _facts(detail):
        if value not in (None, ""):
            print(f"{label + ':':<13}{printable(value)}")
    if detail["attempts"]:
        print()
        counts = ("executed", "replayed", "joined", "refused")
        print_table(
            ("attempt", "first", "last", *counts), [_attempt(attempt) for attempt in detail["attempts"]]
        )
    if detail["steps"]:
        print()
        titles = ("step", "call", "tool", "upstream", "kind", "state", "status", "attempt", "asked by", "usd")
        print_table(titles, [_step(step, detail) for step in detail["steps"]])
    print()
    print("history:")
    events = detail["events"]
    if len(events) > LATEST_EVENTS:
        print(f"  … {counted(len(events) - LATEST_EVENTS, 'older line')}; --json has all")
    for event in events[-LATEST_EVENTS:]:
        print(f"  {when(event['at'])}  {printable(event['event'])}  {printable(event['actor'])}")
        print(f"    {printable(event['why'])}")
    for call in detail["in_doubt"]:
        print(f"In doubt: semel calls show {printable(call)}{place}")
    if detail["diverged"]:
        print(f"An attempt left the record: semel runs diff {printable(detail['run'])}{place}")


def _facts(detail: Json) -> list[tuple[str, object]]:
    parent = detail["parent"]
    return [
        ("run", detail["run"]),
        ("state", detail["state"]),
        ("forked from", parent and f"{parent['run']} at step {parent['at']}{_resend(parent)}"),
        ("created", when(detail["created_at"])),
        ("active", when(detail["active_at"])),
        ("in doubt", _calls(detail["in_doubt"])),
        ("awaiting", _calls(detail["awaiting_approval"])),
        ("saved", _saved(detail)),
        ("spent", None if detail["spent_usd"] is None else f"{detail['spent_usd']:.4f} USD"),
        ("unrecorded", ", ".join(detail["passed"])),
        ("unlisted", ", ".join(detail["unlisted"])),
    ]


def _calls(ids: Sequence[str]) -> str:
    return counted(len(ids), "call") if ids else ""


def _resend(parent: Json) -> str:
    return ", effects after it made again" if parent["resend"] else ""


def _saved(detail: Json) -> str:
    usd, seconds = detail["saved_usd"], detail["saved_seconds"]
    told = [] if not usd else [f"{usd:.4f} USD"]
    return ", ".join(told if not seconds else [*told, f"{seconds:.1f} seconds"])


def _attempt(attempt: Json) -> tuple[object, ...]:
    counts = [attempt[how] for how in ("executed", "replayed", "joined", "refused")]
    first, last = (moment and when(moment) for moment in (attempt["first_at"], attempt["last_at"]))
    return (attempt["name"] or "(none)", first, last, *counts)


def _step(step: Json, detail: Json) -> tuple[object, ...]:
    asked = step["asked_by"]
    everybody = len(asked) == len(detail["attempts"]) > 1
    number = f"{step['seq']} ({step['run']})" if step["inherited"] else step["seq"]
    state = step["state"] or "forgotten"
    cost = None if step["cost_usd"] is None else f"{step['cost_usd']:.4f}"
    return (
        number, step["call"][:12], step["tool"], step["upstream"], "read" if step["safe"] else "effect",
        f"{state} (retired)" if step["retired"] else state, step["status_code"], step["attempt"],
        "all" if everybody else ", ".join(name or "(none)" for name in asked), cost,
    )  # fmt: skip


# ---- what the other commands say ----


def print_diff(diff: Json, place: str) -> None:
    first, second = printable(diff["first"]), printable(diff["second"])
    print(f"Asked by both {first} and {second}: {counted(diff['both'], 'call')}.")
    if diff["differing"]:
        print()
        asked = (f"asked by {diff['first']}", f"asked by {diff['second']}")
        print_table(
            ("kind", "rule", "tool", *asked, "differs in"), [_differing(entry) for entry in diff["differing"]]
        )
    else:
        print("Neither asked anything that the other did not.")
    if diff["diverged"]:
        print()
        print("Held because they were not in the record:")
        for why in diff["diverged"]:
            print(f"  {printable(why)}")
        print("If the latest attempt is right to leave it:")
        print(f"  semel runs allow {printable(diff['run'])}{place} --reason '…'")


def _differing(entry: Json) -> tuple[object, ...]:
    difference = entry["difference"]
    kind = "read" if entry["safe"] else "effect"
    one = _value(entry["first"], None if difference is None else difference["first"])
    other = _value(entry["second"], None if difference is None else difference["second"])
    return (kind, entry["rule"], entry["tool"], one, other, difference and difference["field"])


def _value(side: Json | None, differs: object) -> str:
    if side is None:
        return "-"
    shown = side["args"] if differs is None else differs
    text = json.dumps(shown, ensure_ascii=False)
    return f"step {side['seq']}: {text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + '…'}"


def print_allowed(allowed: Json) -> None:
    if not allowed["retired"]:
        print("Nothing was unasked: the latest attempt holds to the record.")
        return
    print(f"Retired, so that {printable(allowed['attempt'])} may go on; they stay in the record:")
    for one in allowed["retired"]:
        told = f"step {one['seq']}  {one['call']}  {one['tool']} ({one['upstream']}), {one['state']}"
        print(f"  {printable(told)}")
