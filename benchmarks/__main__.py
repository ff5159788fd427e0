"""`make bench`: ratios in one run, rounds interleaved, medians; the requirement beside the measurement.

The server under test has one core for itself, load and upstream share the other. nginx is measured along
where it is installed. `--table FILE` writes the figures down with versions and settings.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import much, nginx
from benchmarks.growing import measure_growing
from benchmarks.million import Check, measure_store
from benchmarks.stores import measure_stores
from benchmarks.table import Figures, as_markdown
from proxy.store.keyring import new_key

ROOT = Path(__file__).parent.parent
CONNECTIONS = 64
NGINX = "nginx proxy_cache hit"
ENCRYPTED = "semel once, encrypted"
ONE_BY_ONE = "bare aiohttp.web.Server, one by one"
RUN_REPLAY = "semel replays a run, one by one"
COUNTED, UNCOUNTED = "semel replay, metrics on", "semel replay, metrics off"
TURNS = 4  # in each round
STEPS = much(1000)
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]


@contextmanager
def server(command: Sequence[str], core: int | None, log: Path) -> Iterator[int]:
    """On one core, or wherever there is room."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: os.sched_setaffinity(0, CORES if core is None else {core}),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if "http://" not in line:
                raise RuntimeError(f"{command} did not start: {log.read_text()}")
            yield int(line.rsplit(":", 1)[1])
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()  # type: ignore[union-attr]


def load(port: int, path: str, kind: str, total: int, connections: int, seed: str) -> float:
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        str(port),
        path,
        kind,
        str(total),
        str(connections),
        seed,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {LOAD_CORE}),
        timeout=400,
    )
    if done.returncode:
        raise RuntimeError(f"the load on port {port} failed: {done.stderr.decode()[-2000:]}")
    return float(done.stdout)


class Case(NamedTuple):
    """`unique`: every request of every round is another call; `steps`: of every round the same ones, in
    order; `same`: all ask for one."""

    which: str
    path: str
    kind: str
    number: int
    connections: int = CONNECTIONS

    def measure(self, ports: dict[str, int], round_name: str) -> float:
        seed = round_name if self.kind == "unique" else self.kind
        kind = "unique" if self.kind == "steps" else self.kind
        path = self.path.format(attempt=round_name)
        return load(ports[self.which], path, kind, self.number, self.connections, seed)


def measure_http(rounds: int, total: int, work: Path) -> dict[str, list[float]]:
    with ExitStack() as stack:
        origin = stack.enter_context(
            server(["-m", "benchmarks.servers", "origin"], LOAD_CORE, work / "origin.log")
        )
        policy = work / "bench.yaml"
        policy.write_text(
            f"upstream: bench\nbase_url: http://127.0.0.1:{origin}\n"
            "rules:\n  - {name: pay, match: {method: POST, path: /pay}}\n"
        )
        (work / "keys").write_text(new_key())
        (work / "encrypted.yaml").write_text(f"encryption: {{key_file: {work / 'keys'}}}\n")

        def semel(name: str, *options: str, module: str = "proxy.cli") -> int:
            words = ["-m", module, "serve", "--listen", "127.0.0.1:0", "--policies", str(policy)]
            words += ["--state-dir", str(work / name), *options]
            return stack.enter_context(server(words, SERVER_CORE, work / f"{name}.log"))

        target = f"http://127.0.0.1:{origin}"
        ports = {
            "constant": stack.enter_context(
                server(["-m", "benchmarks.servers", "constant"], SERVER_CORE, work / "constant.log")
            ),
            "forward": stack.enter_context(
                server(["-m", "benchmarks.servers", "forward", target], SERVER_CORE, work / "forward.log")
            ),
            "semel": semel("state"),
            COUNTED: semel("counted"),
            UNCOUNTED: semel("uncounted", module="benchmarks.uncounted"),
            "encrypted": semel("encrypted", "--config", str(work / "encrypted.yaml")),
        }
        cases = {
            "bare aiohttp.web.Server": Case("constant", "/pay", "unique", total),
            "semel replay": Case("semel", "/bench/pay", "same", total),
            "bare aiohttp reverse proxy": Case("forward", "/pay", "unique", total),
            "semel once": Case("semel", "/bench/pay", "unique", total),
            ENCRYPTED: Case("encrypted", "/bench/pay", "unique", total),
            ONE_BY_ONE: Case("constant", "/pay", "steps", STEPS, connections=1),
            RUN_REPLAY: Case("semel", "/@bench+{attempt}/bench/pay", "steps", STEPS, connections=1),
        }
        program = nginx.find()
        if program is None:
            print("nginx is not installed: measured without it", file=sys.stderr, flush=True)
        else:
            ports["nginx"] = stack.enter_context(nginx.serving(program, origin, SERVER_CORE, work))
            cases = {NGINX: Case("nginx", "/pay", "same", total), **cases}
        cases[RUN_REPLAY].measure(ports, "first")  # what is then replayed
        found: dict[str, list[float]] = {name: [] for name in (*cases, COUNTED, UNCOUNTED)}
        for round_number in range(rounds):
            for name, case in cases.items():
                print(f"round {round_number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                found[name].append(case.measure(ports, f"r{round_number}"))
            # A small difference, between servers that do nothing else: close together, each first as often.
            for turn in range(TURNS):
                for name in (COUNTED, UNCOUNTED) if turn % 2 else (UNCOUNTED, COUNTED):
                    found[name].append(Case(name, "/bench/pay", "same", total).measure(ports, ""))
        return found


def ratio(found: dict[str, list[float]], name: str, against: str) -> float:
    """Within each round, then the median: a slow minute of the machine hits both sides of a ratio."""
    return statistics.median(one / other for one, other in zip(found[name], found[against], strict=True))


def main() -> int:
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--requests", type=int, default=3000)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--only", choices=["http", "store", "stores"])
    options.add_argument("--json", action="store_true")
    options.add_argument("--table", type=Path, metavar="FILE", help="write the figures as Markdown")
    chosen = options.parse_args()
    rates: dict[str, float] = {}
    checks: list[Check] = []
    shown: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as folder:
        work = Path(folder)
        if chosen.only in (None, "http"):
            found = measure_http(chosen.rounds, chosen.requests, work)
            rates = {name: statistics.median(values) for name, values in found.items()}
            checks += [
                ("once against a bare reverse proxy",
                 ratio(found, "semel once", "bare aiohttp reverse proxy"), "at least", 0.5),
                ("replay against a bare aiohttp.web.Server",
                 ratio(found, "semel replay", "bare aiohttp.web.Server"), "at least", 0.6),
                (f"a run of {STEPS:,} steps replayed one by one against a bare server, times its time",
                 ratio(found, ONE_BY_ONE, RUN_REPLAY), "at most", 1.6),
                ("replay with metrics on against metrics off",
                 ratio(found, COUNTED, UNCOUNTED), "at least", 0.95),
            ]  # fmt: skip
            shown["once encrypted against once in the clear"] = ratio(found, ENCRYPTED, "semel once")
            if NGINX in found:
                shown["replay against an nginx proxy_cache hit"] = ratio(found, "semel replay", NGINX)
        if chosen.only in (None, "stores"):
            on_stores = measure_stores(server, load, chosen.rounds, chosen.requests, CONNECTIONS, work)
            rates |= {name: statistics.median(values) for name, values in on_stores.items()}
            for store in ("PostgreSQL", "Valkey"):
                against = f"once on {store} against the embedded store"
                checks.append(
                    (against, ratio(on_stores, f"once on {store}", "once on embedded"), "at least", 0.6)
                )
            two = ratio(on_stores, "replays by 2 workers", "replays by 1 worker")
            if len(CORES) >= 4:
                checks.append(("replays by two workers against one", two, "at least", 1.6))
            else:
                shown[f"replays by two workers against one, on {len(CORES)} cores"] = two
            checks += measure_growing(work, chosen.rows, chosen.rounds)
        if chosen.only in (None, "store"):
            judged, shown_too = measure_store(work, chosen.rows)
            checks += judged
            shown |= shown_too
    failed = [
        name
        for name, value, relation, bound in checks
        if (value < bound if relation == "at least" else value > bound)
    ]
    figures = Figures(
        rates=rates, checks=checks, shown=shown, failed=failed, rounds=chosen.rounds,
        requests=chosen.requests, connections=CONNECTIONS,
    )  # fmt: skip
    if chosen.table is not None:
        chosen.table.write_text(as_markdown(figures))
        print(f"written to {chosen.table}", file=sys.stderr)
    if chosen.json:
        print(json.dumps({"rates": rates, "checks": checks, "shown": shown, "failed": failed}, indent=2))
    else:
        for name, rate in rates.items():
            print(f"{name:45} {rate:10,.0f} requests/s")
        for name, value, relation, bound in checks:
            mark = "MISSED" if name in failed else "ok"
            print(f"{name:45} {value:10.2f}   {relation} {bound:g}   {mark}")
        for name, value in shown.items():
            print(f"{name:45} {value:10.2f}   not judged")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
