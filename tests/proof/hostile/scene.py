"""A real semel process before an upstream that echoes what it is asked, and what that process takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.inside import call
from tests.origin import ECHO, Origin, Script
from tests.process import SemelProcess
from tests.proof.hostile.memory import Marked
from tests.proof.report import Figure, report

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

    def mark_warm(self) -> None:
        self.warm = Marked.now(self.semel.pid)

    def growth(self) -> int:
        """Bytes, at the highest since it was warm."""
        return self.warm.growth()

    async def crashes(self) -> list[str]:
        """Of the process, or of what it was doing, one by one. None, if it is alive, quiet, and there for the
        next caller, who is answered what he asked."""
        self.asked += 1
        body = b"healthy %d" % self.asked
        try:
            got = await call(self.port, "POST", "/pay/healthy", {}, body, within=20)
            served = (got.status, got.body) == (200, b"POST /healthy|" + body)
            told = "" if served else f"the next caller was answered {got}"
        except OSError as error:  # a timeout is one
            told = f"the next caller was not answered: {error!r}"
        ended = "" if self.semel.alive else "the process has ended"
        loud = [line for line in self.semel.log.splitlines() if any(word in line for word in TROUBLE)]
        return [*filter(None, [ended or told]), *loud]

    async def still_works(self) -> None:
        crashes = await self.crashes()
        assert crashes == [], crashes


@asynccontextmanager
async def accounted(
    there: Scene, name: str, counted: Callable[[], Mapping[str, Figure]]
) -> AsyncIterator[None]:
    """What was counted is reported whatever becomes of the test; a crash or too much memory fails it. Of a
    process that has ended nobody knows what it took: that figure is left out, and fails it as well."""
    grown: int | None = None
    try:
        yield
    finally:
        crashes = await there.crashes()
        figures = {**counted(), "crashes": len(crashes)}
        with suppress(ProcessLookupError):
            grown = there.growth()
            figures["peak memory growth MB"] = grown // MIB
        report("hostile", name, figures)
    assert crashes == [], crashes
    assert grown is not None, "a process below it has ended"
    assert grown < GROWTH, f"{grown // MIB} MB more at its highest"


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
            there.mark_warm()
            yield there
