"""Recorded answers given again: against nginx's cache, against a bare server, and a whole run step by step.

Judged is one recorded POST. Beside it stand 2,000 different ones asked for in turn, and the same without
`recall`, where every request is read and named anew.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import much, nginx
from benchmarks.bodies import MANY
from benchmarks.judging import Found, Rates, Unmeasured
from benchmarks.running import SERVER_CORE, Plan, Stage, load, say

CONNECTIONS = 32
REPLAYS, SLOWER = much(25_000), much(8_000)  # in one round: half a second, or some more
STEPS = much(1000)
TURNS = 4  # in each round, where a small difference is looked for
RUN_TURNS = 2

NGINX = "nginx proxy_cache hits"
BARE = "bare aiohttp.web.Server"
REPLAY = "semel replays, one recorded POST"
MANY_REPLAYS = f"semel replays, {MANY:,} recorded POSTs in turn"
UNRECALLED = "semel replays, `recall: false`"
COUNTED, UNCOUNTED = "semel replays, metrics on", "semel replays, metrics off"
ONE_BY_ONE = "bare aiohttp.web.Server, one by one"
RUN_REPLAY = "semel replays a run, one by one"

AGAINST_NGINX = "replays of a recorded POST against nginx proxy_cache hits"


def measure(plan: Plan, found: Found) -> None:
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "replaying")
        constant, semel = stage.bare("constant"), stage.semel("semel").port
        unrecalled = stage.semel("unrecalled", env={"SEMEL_RECALL": "false"}).port
        asked = {
            BARE: (constant, "/pay", "same", SLOWER),
            REPLAY: (semel, "/bench/pay", "same", REPLAYS),
            MANY_REPLAYS: (semel, "/bench/pay", "many", REPLAYS),
            UNRECALLED: (unrecalled, "/bench/pay", "same", SLOWER),
        }
        program = nginx.find()
        if program is not None:
            port = stack.enter_context(nginx.serving(program, stage.origin, SERVER_CORE, plan.work))
            asked = {NGINX: (port, "/pay", "same", REPLAYS), **asked}
            found.versions.append(f"nginx {nginx.version(program)}")
        for name, (port, path, kind, number) in asked.items():
            load(port, path, kind, MANY, CONNECTIONS, "r")  # what is then replayed
            found.rates[name] = Rates(CONNECTIONS, number, [])
        for turn in range(plan.rounds):
            for name, (port, path, kind, number) in asked.items():
                say(f"round {turn + 1} of {plan.rounds}: {name}")
                found.rates[name].values.append(load(port, path, kind, number, CONNECTIONS, "r"))
        if program is None:
            found.unmeasured.append(Unmeasured(AGAINST_NGINX, "at least", 1.0, "nginx is not installed"))
        else:
            found.judge(AGAINST_NGINX, found.ratio(REPLAY, NGINX), "at least", 1.0)
        bare = "replays of a recorded POST against a bare aiohttp.web.Server"
        found.judge(bare, found.ratio(REPLAY, BARE), "at least", 2.5)
        _runs(plan, found, constant, semel)


def _runs(plan: Plan, found: Found, constant: int, semel: int) -> None:
    """One client that asks for one step after another, on one connection; every time as another attempt."""

    def one(name: str, attempt: str) -> float:
        port, path = (constant, "/pay") if name == ONE_BY_ONE else (semel, f"/@bench+{attempt}/bench/pay")
        return load(port, path, "unique", STEPS, 1, "steps")

    one(RUN_REPLAY, "first")  # what is then replayed
    for name in (ONE_BY_ONE, RUN_REPLAY):
        found.rates[name] = Rates(1, STEPS, [])
    for turn in range(plan.rounds * RUN_TURNS):
        say(f"turn {turn + 1} of {plan.rounds * RUN_TURNS}: a run one by one")
        for name in (ONE_BY_ONE, RUN_REPLAY) if turn % 2 else (RUN_REPLAY, ONE_BY_ONE):
            found.rates[name].values.append(one(name, f"a{turn}"))
    times = found.ratio(ONE_BY_ONE, RUN_REPLAY)
    label = f"a run of {STEPS:,} steps replayed one by one against a bare aiohttp.web.Server, times its time"
    found.judge(label, times, "at most", 1.0)


def measure_metrics(plan: Plan, found: Found) -> None:
    """A small difference, between servers that do nothing else: close together, each first as often."""
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "metrics")
        ports = {
            COUNTED: stage.semel("counted").port,
            UNCOUNTED: stage.semel("uncounted", module="benchmarks.uncounted").port,
        }
        for name in ports:
            found.rates[name] = Rates(CONNECTIONS, REPLAYS, [])
        for turn in range(plan.rounds * TURNS):
            say(f"turn {turn + 1} of {plan.rounds * TURNS}: metrics on and off")
            for name in (COUNTED, UNCOUNTED) if turn % 2 else (UNCOUNTED, COUNTED):
                rate = load(ports[name], "/bench/pay", "same", REPLAYS, CONNECTIONS, "same")
                found.rates[name].values.append(rate)
    found.judge(
        "replays with metrics on against metrics off", found.ratio(COUNTED, UNCOUNTED), "at least", 0.95
    )
