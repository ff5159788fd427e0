"""Every project and setting that is tried, and what its own documentation says of such a crash."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import installing
from benchmarks.peers.restate import Restate
from benchmarks.peers.semel import BehindProxy, Proxy
from benchmarks.peers.subjects import Agents, Subject, World


class Row(NamedTuple):
    """One setting. `make` is given where the project is installed."""

    label: str
    setting: str
    make: Callable[[World, Path], Subject]


class Peer(NamedTuple):
    """`says` is from its documentation, at `where`. The versions of `packages` are told."""

    name: str
    title: str
    packages: tuple[str, ...]
    says: str
    where: str
    install: Callable[[str], Awaitable[Path]]
    rows: tuple[Row, ...]


def _agents(module: str, mode: str, store: str, processes: int = 20) -> Callable[[World, Path], Subject]:
    path = "/keyed" if mode == "key" else "/plain"
    return lambda world, python: Agents(
        world, python, module, mode, store=store, path=path, processes=processes
    )


def _restate(mode: str, killed: str) -> Callable[[World, Path], Subject]:
    return lambda world, modules: Restate(world, modules, mode, killed)


def _proxy(kind: str) -> Callable[[World, Path], Subject]:
    return lambda world, _: Proxy(world, kind)


async def _here(_: str) -> Path:
    return Path(sys.executable)


KEYED = "an upstream that honours an idempotency key"

NOTHING = Peer(
    "nothing", "no library", (), "", "", _here,
    (Row("no library", "a plain HTTP client", _agents("with_nothing", "plain", "")),),
)  # fmt: skip

SEMEL = Peer(
    "semel", "semel", (),
    "At most one send, unless repeating the call is safe. […] Where nobody can know whether a call took "
    "effect, the answer is `in-doubt`",
    "guarantees.md", _here,
    (
        Row("semel, proxy killed", "kind d: neither key nor probe", _proxy("d")),
        Row("semel, agent killed", "kind d; the proxy lives", lambda world, _: BehindProxy(world, "d")),
        Row("semel with `upstream_key`, proxy killed", f"kind b: {KEYED}", _proxy("b")),
        Row("semel with `probe`, proxy killed", "kind c: an upstream that can be asked", _proxy("c")),
    ),
)  # fmt: skip

DBOS = Peer(
    "dbos", "DBOS", ("dbos",),
    "Steps are tried at least once but are never re-executed after they complete.",
    "https://docs.dbos.dev/python/tutorials/workflow-tutorial", installing.python,
    (
        Row("DBOS, step",
            "PostgreSQL; the call in a step without retries (the default); the call's name as workflow id; "
            "recovered by `DBOS.launch()`",
            _agents("with_dbos", "step", "postgres", 2)),
        Row("DBOS, transaction",
            "the call inside a transaction of a datasource, which is meant for its database alone",
            _agents("with_dbos", "transaction", "postgres", 2)),
        Row("DBOS, no recovery", "`max_recovery_attempts=0`: what was begun and not finished is set aside",
            _agents("with_dbos", "no-recovery", "postgres", 2)),
        Row("DBOS, step with key", f"the workflow's id as key; {KEYED}",
            _agents("with_dbos", "key", "postgres", 2)),
    ),
)  # fmt: skip

RESTATE = Peer(
    "restate", "Restate", ("@restatedev/restate-server", "@restatedev/restate-sdk"),
    "There is a small window where an action may be re-run, if a failure occurred between a successful run "
    "and persisting the result. (the SDK's comment on `ctx.run`)",
    "https://docs.restate.dev/develop/ts/durable-steps", installing.node,
    (
        Row("Restate, service killed", "the call in `ctx.run`; the call's name as `idempotency-key`",
            _restate("run", "service")),
        Row("Restate, server killed", "the same", _restate("run", "server")),
        Row("Restate, one attempt, service killed", "`maxRetryAttempts: 1` for `ctx.run`",
            _restate("once", "service")),
        Row("Restate with key, service killed", f"`ctx.rand.uuidv4()` as key; {KEYED}",
            _restate("key", "service")),
    ),
)  # fmt: skip

AGENT_LEDGER = Peer(
    "agent-ledger", "agent-ledger", ("agent-ledger",),
    "Exactly-once execution: Depends on your handler being idempotent or the downstream API supporting "
    "idempotency keys.",
    "https://github.com/rune0-dev/agent-ledger#readme", installing.python,
    (
        Row("agent-ledger", "PostgreSQL; no takeover of stale effects (the default); `effect_timeout_s=10`",
            _agents("with_agent_ledger", "default", "postgres")),
        Row("agent-ledger, recovery", "`StaleOptions(after_ms=5000)`",
            _agents("with_agent_ledger", "recovery", "postgres")),
        Row("agent-ledger, recovery with key", f"the same, `effect.idem_key` as key; {KEYED}",
            _agents("with_agent_ledger", "key", "postgres")),
    ),
)  # fmt: skip

EFFECT_LEDGER = Peer(
    "effect-ledger", "effect-ledger", ("effect-ledger",),
    "An attempt whose outcome was never recorded stops as `unresolved` and waits for a person. Nothing is "
    "retried on a guess.",
    "https://github.com/donggyun112/effect-ledger#readme", installing.python,
    (
        Row("effect-ledger", "SQLite; no recovery policy: a person resolves",
            _agents("with_effect_ledger", "default", "effects.sqlite")),
        Row("effect-ledger, policy that looks", "a recovery policy that asks the upstream, run after a crash",
            _agents("with_effect_ledger", "lookup", "effects.sqlite")),
        Row("effect-ledger, policy with key",
            f"a recovery policy that retries under `provider_key`; {KEYED}",
            _agents("with_effect_ledger", "key", "effects.sqlite")),
    ),
)  # fmt: skip

POWERTOOLS = Peer(
    "powertools", "Powertools for AWS Lambda", ("aws-lambda-powertools",),
    "If a second invocation happens after this timestamp, and the record is marked as `INPROGRESS`, we will "
    "run the invocation again as if it was in the `EXPIRED` state.",
    "https://docs.aws.amazon.com/powertools/python/latest/utilities/idempotency/", installing.python,
    (
        Row("Powertools", "Valkey; `@idempotent`, 5 s left in the Lambda context",
            _agents("with_powertools", "context", "valkey")),
        Row("Powertools, no context",
            "`@idempotent_function` without a context: locked for an hour (the default), then run again",
            _agents("with_powertools", "no-context", "valkey")),
        Row("Powertools with key", f"`@idempotent`, the event's own id as key; {KEYED}",
            _agents("with_powertools", "key", "valkey")),
    ),
)  # fmt: skip

PEERS = (NOTHING, SEMEL, DBOS, RESTATE, AGENT_LEDGER, EFFECT_LEDGER, POWERTOOLS)
