"""The same calls on every store: what is left of the embedded store's rate, and what a second worker adds.

PostgreSQL and Valkey run beside semel on this machine, on whichever core is free, with durable commits
(`fsync=on`, `appendfsync always`); so they share two cores with everything else that is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.valkey import valkey

# Starts a program on one core, or on all of them (None), and gives its port.
Serving = Callable[[list[str], int | None, Path], AbstractContextManager[int]]
# Port, path, kind, number, connections, seed: requests per second.
Load = Callable[[int, str, str, int, int, str], float]


@contextmanager
def databases(work: Path) -> Iterator[dict[str, str]]:
    """By name: the address of a store."""
    server = PostgresServer()
    try:
        server.start()
        with valkey(work / "valkey") as redis:
            yield {
                "embedded": "embedded",
                "PostgreSQL": server.url(server.new_database()),
                "Valkey": redis.url,
            }
    finally:
        server.remove()


def measure_stores(
    serving: Serving, load: Load, rounds: int, total: int, connections: int, work: Path
) -> dict[str, list[float]]:
    """Requests per second by `once on STORE` and `replays by N workers`, one figure a round."""
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        origin = stack.enter_context(
            serving(["-m", "benchmarks.servers", "origin"], None, work / "origin.log")
        )
        policy = work / "stores.yaml"
        policy.write_text(
            f"upstream: bench\nbase_url: http://127.0.0.1:{origin}\n"
            "rules:\n  - {name: pay, match: {method: POST, path: /pay}}\n"
        )

        def semel(name: str, *options: str) -> int:
            words = ["-m", "proxy.cli", "serve", "--listen", "127.0.0.1:0", "--policies", str(policy)]
            state = ["--state-dir", str(work / name)]
            return stack.enter_context(serving([*words, *state, *options], None, work / f"{name}.log"))

        stores = stack.enter_context(databases(work))
        ports = {name: semel(name, "--store", address) for name, address in stores.items()}
        workers = {n: semel(f"workers-{n}", "--workers", str(n)) for n in (1, 2)}
        for number in range(rounds):
            for name, port in ports.items():
                print(f"round {number + 1} of {rounds}: once on {name}", file=sys.stderr, flush=True)
                rate = load(port, "/bench/pay", "unique", total, connections, f"r{number}")
                found.setdefault(f"once on {name}", []).append(rate)
            for n, port in workers.items():
                print(f"round {number + 1} of {rounds}: {n} workers", file=sys.stderr, flush=True)
                rate = load(port, "/bench/pay", "same", total, connections, "same")
                found.setdefault(f"replays by {n} worker{'s' * (n > 1)}", []).append(rate)
    return found
