"""A real semel process before an upstream that echoes what it is asked, and what that process takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.inside import call
from tests.origin import ECHO, Origin, Script
from tests.process import SemelProcess
from tests.proof.hostile.memory import Marked

MIB = 1024 * 1024
# What all of the hostile input together may cost, at any moment.
GROWTH = 100 * MIB
RULES = (
    "rules:\n"
    "  - {name: keyed, match: {path: /keyed}, key: {client_key: require}}\n"
    "  - {name: never, match: {path: /never}, mode: deny}\n"
)
# A defect in semel, in whatever words.
TROUBLE = ("Traceback", "unforeseen", "internal-error", "never retrieved", "Task was destroyed")


@dataclass(slots=True)
class Scene:
    semel: SemelProcess
    origin: Origin
    warm: Marked
    asked: int = 0

    @property
    def port(self) -> int:
        return self.semel.port

    def growth(self) -> int:
        """Bytes, at the highest since it was warm."""
        return self.warm.growth()

    async def still_works(self) -> None:
        """Alive, quiet, and there for the next caller, who is answered what he asked."""
        self.asked += 1
        body = b"healthy %d" % self.asked
        got = await call(self.port, "POST", "/pay/healthy", {}, body, within=20)
        assert (got.status, got.body) == (200, b"POST /healthy|" + body)
        assert self.semel.alive
        told = [line for line in self.semel.log.splitlines() if any(word in line for word in TROUBLE)]
        assert told == []


@asynccontextmanager
async def hostile_scene(
    tmp_path: Path, *scripts: Script, options: Sequence[str] = (), rules: str = RULES
) -> AsyncIterator[Scene]:
    policies = tmp_path / "policies"
    policies.mkdir()
    async with Origin(*(scripts or (ECHO,))) as origin:
        (policies / "pay.yaml").write_text(
            f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n{rules}"
        )
        async with SemelProcess(tmp_path / "state", policies, options=options) as semel:
            there = Scene(semel, origin, Marked.now(semel.pid))
            if not scripts:
                for _ in range(20):  # what is made once is made
                    await there.still_works()
            there.warm = Marked.now(semel.pid)
            yield there
