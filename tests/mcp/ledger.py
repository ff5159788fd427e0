"""What the tools of a server really did: a file with one line per execution, which semel knows nothing of."""

from __future__ import annotations

import asyncio
import fcntl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Ledger:
    """While the file beside it is there, whoever has paid does not answer yet."""

    path: Path

    @property
    def hold(self) -> Path:
        return self.path.with_suffix(".hold")

    def write(self, line: str) -> int:
        """The number of this line among those of its kind: no two are given the same one."""
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # servers write from threads, and several servers do
            file.write(f"{line}\n")
            file.flush()
            return self.count(line.partition(" ")[0])

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def count(self, tool: str = "") -> int:
        """Executions of one tool, or of all."""
        named = [line.partition(" ")[0] for line in self.lines]
        return sum(name == tool if tool else name != CANCELLED for name in named)

    def clear(self) -> None:
        for path in (self.path, self.hold):
            path.unlink(missing_ok=True)

    # ---- for the test ----

    def holds(self) -> None:
        self.hold.touch()

    def lets_go(self) -> None:
        self.hold.unlink(missing_ok=True)

    # ---- for the server ----

    async def wait(self, seconds: float = 0.0) -> None:
        """Between the effect and the answer. That somebody called it off is a line too."""
        try:
            await asyncio.sleep(seconds)
            while self.hold.exists():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            with suppress(OSError):
                self.write(CANCELLED)
            raise
