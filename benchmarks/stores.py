"""The same calls on every store: what is left of the embedded store's rate, and what a second worker adds.

PostgreSQL and Valkey run beside semel on this machine, on whichever core is free, with durable commits
(`fsync=on`, `appendfsync always`); so they share two cores with everything else that is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import much
from benchmarks.judging import Found, Rates
from benchmarks.running import CORES, Plan, Stage, load, say
from tests.servers.postgres import postgres
from tests.servers.valkey import valkey

ONCE_CONNECTIONS, REPLAY_CONNECTIONS = 64, 32
CALLS, REPLAYS = much(3000), much(20_000)


@contextmanager
def databases(work: Path) -> Iterator[dict[str, str]]:
    """By name: the address of a store."""
    with postgres() as server, valkey(work / "valkey") as redis:
        yield {"embedded": "embedded", "PostgreSQL": server.url(server.new_database()), "Valkey": redis.url}


def measure(plan: Plan, found: Found) -> None:
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "stores", free=True)
        stores = stack.enter_context(databases(plan.work))
        on = {f"once on {name}": stage.semel(name, "--store", url).port for name, url in stores.items()}
        by = {
            f"replays by {n} worker{'s' * (n > 1)}": stage.semel(f"workers-{n}", "--workers", str(n)).port
            for n in (1, 2)
        }
        found.rates |= {name: Rates(ONCE_CONNECTIONS, CALLS, []) for name in on}
        found.rates |= {name: Rates(REPLAY_CONNECTIONS, REPLAYS, []) for name in by}
        for turn in range(plan.rounds):
            say(f"round {turn + 1} of {plan.rounds}: stores and workers")
            for name, port in on.items():
                rate = load(port, "/bench/pay", "unique", CALLS, ONCE_CONNECTIONS, f"r{turn}")
                found.rates[name].values.append(rate)
            for name, port in by.items():
                rate = load(port, "/bench/pay", "same", REPLAYS, REPLAY_CONNECTIONS, "same")
                found.rates[name].values.append(rate)
    for name in ("PostgreSQL", "Valkey"):
        left = found.ratio(f"once on {name}", "once on embedded")
        found.judge(f"once on {name} against the embedded store", left, "at least", 0.6)
    two = found.ratio("replays by 2 workers", "replays by 1 worker")
    if len(CORES) >= 4:
        found.judge("replays by two workers against one", two, "at least", 1.6)
    else:
        found.shown[f"replays by two workers against one, on {len(CORES)} cores"] = two
