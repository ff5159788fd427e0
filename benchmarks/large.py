"""A large answer through a `once` rule: what semel's memory grows by at its highest, while it is recorded and
handed on, after ordinary calls have warmed it up."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import much
from benchmarks.asking import Client
from benchmarks.bodies import body
from benchmarks.judging import Found
from benchmarks.running import LOAD_CORE, Plan, Stage, pinned, say
from tests.proof.hostile.memory import Marked

MIB = 1024 * 1024
SIZE = much(100) * MIB
WARM_UP = much(500)
TIMES = much(3)
MEGABYTE = 1_000_000
RULES = '  - {name: fetch, match: {method: POST, path: "/large/*"}}\n'


def measure(plan: Plan, found: Found) -> None:
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "large", upstream="sized", rules=RULES)
        semel = stage.semel("semel")
        stack.enter_context(pinned(LOAD_CORE))
        client = stack.enter_context(Client(semel.port))
        for number in range(WARM_UP):
            client.ask("/bench/large/450", body("warm", number))
        grew: dict[str, list[float]] = {"made": [], "replayed": []}
        for number in range(TIMES):
            for kind, growths in grew.items():
                say(f"an answer of {SIZE // MIB} MiB, {kind}")
                before = Marked.now(semel.pid)
                told = client.ask(f"/bench/large/{SIZE}", body("large", number))
                if told.size != SIZE:
                    raise RuntimeError(f"an answer of {SIZE} bytes came to {told.size}")
                growths.append(before.growth() / MEGABYTE)
    # The highest of all: what was taken once was taken.
    label = f"resident memory grew during an answer of {SIZE // MIB} MiB, MB"
    found.judge(label, max(grew["made"]), "at most", 32)
    found.shown[f"resident memory grew while {SIZE // MIB} MiB were replayed, MB"] = max(grew["replayed"])
