"""LangGraph agents under `semel run`: what they are to do, where they are killed, what they say."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from tests.cli.test_run_process import run_to_end

Call: TypeAlias = tuple[str, Mapping[str, object]]  # a tool's name, and its arguments
Turn: TypeAlias = Sequence[Call]  # of the model: what it asks for at once

PAY: Call = ("pay", {"order": 7})
MAIL: Call = ("mail", {"to": "ann"})
BOOK: Call = ("book", {"seat": "12A"})  # a coroutine
REFUND: Call = ("refund", {"order": 7})  # told apart by the model's id of the call


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """`turns`: the model's, one after another; then it has done. Points are "inside pay", "after pay",
    "between nodes": at one it is killed (`dies`), and not before the tool `when_ended` has returned; at one
    it `stands` until it may go on."""

    ledger: Path
    turns: Sequence[Turn]
    style: str = "sync"
    checkpoints: Path | None = None  # without: it starts from the beginning
    dies: str = ""
    when_ended: str = ""
    stands: str = ""
    errors: str = "raised"  # or "to the model", "told"
    retries: bool = False  # LangGraph's own, of the tools' node
    at_a_time: int | None = None
    new_ids: bool = False  # the model's ids of its calls are others at every start
    resume: str = ""  # the answer to an `interrupt`

    @property
    def command(self) -> list[str]:
        plan = asdict(self) | {"ledger": str(self.ledger), "checkpoints": str(self.checkpoints or "")}
        return [sys.executable, "-m", "tests.tools.graph_agent", json.dumps(plan)]

    @property
    def done(self) -> list[str]:
        """What the tools of all attempts did, in this order."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


@dataclass(frozen=True, slots=True)
class Ended:
    """What an agent that was not killed says in the end."""

    told: Mapping[str, Any]

    @property
    def answers(self) -> list[str]:
        """What the model was given by the tools, in this order."""
        assert "answers" in self.told, self.told
        return list(self.told["answers"])

    @property
    def error(self) -> str:
        return str(self.told.get("error", ""))

    @property
    def resumed(self) -> bool:
        """It went on from a checkpoint."""
        return bool(self.told["resumed"])


def plan(at: Path, *turns: Turn, checkpointed: bool = False, **more: Any) -> GraphPlan:
    where = at / "checkpoints.sqlite" if checkpointed else None
    return GraphPlan(ledger=at / "ledger", turns=turns, checkpoints=where, **more)


def killed(at: Path, plan: GraphPlan) -> None:
    ran = run_to_end(at / "state", *plan.command, options=("--id", "task"))
    assert (ran.status, ran.out) == (-signal.SIGKILL, ""), ran.err


def start(at: Path, plan: GraphPlan, env: Mapping[str, str] | None = None) -> Ended:
    """Another attempt of the run, which nobody kills."""
    ran = run_to_end(at / "state", *replace(plan, dies="").command, options=("--id", "task"), env=env)
    assert ran.status in (0, 3), ran.err
    return Ended(json.loads(ran.out))
