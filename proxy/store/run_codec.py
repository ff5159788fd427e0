"""Records of runs as JSON and as columns."""

from __future__ import annotations

from typing import Any, TypeAlias

import orjson

from proxy.core.intent import State
from proxy.core.run_record import (
    Attempt,
    End,
    Exchange,
    How,
    InRun,
    Parent,
    Receipt,
    Run,
    RunState,
    Step,
)

Row: TypeAlias = tuple[Any, ...]


def in_run_to_json(in_run: InRun) -> str:
    """What has its default is left out: nearly everything, nearly always."""
    said: dict[str, Any] = {"family": in_run.family.hex(), "group": in_run.group}
    if in_run.uses != 1:
        said["uses"] = in_run.uses
    if in_run.tries != 1:
        said["tries"] = in_run.tries
    if in_run.receipts:
        said["receipts"] = [(r.attempt, r.problem, r.position) for r in in_run.receipts]
    for name in ("numbered", "resolved", "retired", "orphaned", "shared"):
        if getattr(in_run, name):
            said[name] = getattr(in_run, name)
    return orjson.dumps(said).decode()


def in_run_from_json(text: str) -> InRun:
    said = orjson.loads(text)
    receipts = [
        Receipt(attempt=attempt, problem=problem, position=position)
        for attempt, problem, position in said.pop("receipts", ())
    ]
    family, group = bytes.fromhex(said.pop("family")), tuple(said.pop("group"))
    return InRun(family=family, group=group, receipts=tuple(receipts), **said)


# ---- runs ----

RUN_COLUMNS = ("tenant", "name", "created_at", "active_at", "state", "version", "pulse", "last_seq", "record")


def run_to_row(run: Run) -> Row:
    record: dict[str, Any] = {"attempts": [(attempt.name, attempt.first_at) for attempt in run.attempts]}
    if run.parent is not None:
        record["parent"] = (run.parent.run, run.parent.at, run.parent.resend)
    if run.origin:
        record["origin"] = run.origin
    if run.recipes:
        record["recipes"] = run.recipes
    if run.passed:
        record["passed"] = sorted(run.passed)
    if run.retired:
        record["retired"] = sorted(key.hex() for key in run.retired)
    return (
        run.tenant, run.name, run.created_at, run.active_at, run.state.value, run.version, run.pulse,
        run.last_seq, orjson.dumps(record).decode(),
    )  # fmt: skip


def row_to_run(row: Row) -> Run:
    tenant, name, created_at, active_at, state, version, pulse, last_seq, text = row
    record = orjson.loads(text)
    parent = record.get("parent")
    return Run(
        tenant=tenant,
        name=name,
        created_at=created_at,
        active_at=active_at,
        state=RunState(state),
        version=version,
        pulse=pulse,
        last_seq=last_seq,
        attempts=tuple(Attempt(name=name, first_at=at) for name, at in record["attempts"]),
        parent=None if parent is None else Parent(run=parent[0], at=parent[1], resend=parent[2]),
        origin=record.get("origin", ""),
        recipes=record.get("recipes", {}),
        passed=frozenset(record.get("passed", ())),
        retired=frozenset(bytes.fromhex(key) for key in record.get("retired", ())),
    )


# ---- exchanges ----

EXCHANGE_COLUMNS = (
    "number",
    "attempt",
    "fence",
    "owner",
    "end",
    "final",
    "credentials",
    "tokens",
    "how",
    "at",
)


_WORDING = "="


def exchange_to_row(exchange: Exchange) -> Row:
    return (
        exchange.number, exchange.attempt, exchange.fence, exchange.owner, exchange.end.value, exchange.final,
        exchange.credentials, _told(exchange), exchange.how.value, exchange.at,
    )  # fmt: skip


def _told(exchange: Exchange) -> str:
    """What the request said of itself, in one column; no token begins with the mark."""
    wording = [f"{_WORDING}{exchange.wording}"] if exchange.wording else []
    return " ".join([*sorted(exchange.tokens), *wording])


def row_to_exchange(row: Row) -> Exchange:
    number, attempt, fence, owner, end, final, credentials, told, how, at = row
    words = told.split()
    return Exchange(
        number=number,
        attempt=attempt,
        fence=fence,
        owner=owner,
        end=End(end),
        final=bool(final),
        credentials=credentials,
        tokens=frozenset(word for word in words if not word.startswith(_WORDING)),
        wording=next((word[1:] for word in words if word.startswith(_WORDING)), ""),
        how=How(how),
        at=at,
    )


# ---- steps ----

STEP_COLUMNS = (
    "key", "run", "attempt", "seq", "occurrence", "upstream", "rule", "tool", "safe", "state", "version",
    "fence", "owner", "created_at", "settled_at", "answer_status", "answer_size", "cost_usd", "in_run",
    "expires_at", "sent_at",
)  # fmt: skip


def row_to_step(row: Row) -> Step:
    (
        key, run, attempt, seq, occurrence, upstream, rule, tool, safe, state, version, fence, owner,
        created_at, settled_at, status, size, cost_usd, in_run, expires_at, sent_at,
    ) = row  # fmt: skip
    return Step(
        key=key,
        run=run,
        attempt=attempt,
        seq=seq,
        occurrence=occurrence,
        upstream=upstream,
        rule=rule,
        tool=tool,
        safe=bool(safe),
        # In a run nothing has a time of its own: what has one was forgotten.
        state=None if expires_at is not None else State(state),
        version=version,
        fence=fence,
        owner=owner,
        created_at=created_at,
        settled_at=settled_at,
        status=status,
        size=size or 0,
        cost_usd=cost_usd,
        in_run=in_run_from_json(in_run),
        sent_at=sent_at,
    )
