"""What `semel run` says: on stderr, each line begins with `semel: `, so that it is not taken for the agent's.

Nobody need be listening: a closed stderr is no reason to leave an agent alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from proxy.cli.output import printable

PREFIX = "semel: "
# What a proxy of our own logs, and nobody needs to read here: a line for every call; what `semel serve` says
# to people who have no policies, though any host is recorded here without one.
UNTOLD_EVENTS = frozenset({"call", "policies-reloaded"})
UNTOLD_LINES = ("no upstream is configured",)


@dataclass(frozen=True, slots=True)
class Teller:
    quiet: bool = False

    def say(self, text: str) -> None:
        """What is good to know."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """What must be known."""
        lines = "".join(f"{PREFIX}{printable(line)}\n" for line in text.split("\n"))
        self._write(lines)

    def document(self, document: Mapping[str, object]) -> None:
        """One line of JSON and nothing else in it, for programs."""
        self._write(json.dumps(document) + "\n")

    def of_proxy(self, line: str) -> None:
        """A line of our own proxy's log."""
        if told := worth_telling(line):
            self.say(f"proxy: {told}")

    @staticmethod
    def _write(text: str) -> None:
        if sys.stderr is not None:  # None: started with a closed one
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except OSError:
                # Nobody listens. What is still buffered must not fail again when Python ends, which would
                # put another exit status in the place of the agent's.
                with suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def worth_telling(line: str) -> str:
    """Empty: nothing. JSON lines are events; others are sentences."""
    line = line.strip()
    try:
        event = json.loads(line)
    except ValueError:
        return "" if line.startswith(UNTOLD_LINES) else line
    if not isinstance(event, dict):
        return line
    name = event.pop("event", "")
    event.pop("at", None)
    if name in UNTOLD_EVENTS:
        return ""
    return ": ".join(filter(None, (str(name), ", ".join(f"{key} {value}" for key, value in event.items()))))
