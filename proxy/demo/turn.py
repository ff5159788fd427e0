"""One turn of a scripted model: what it was told, what it does next, under which number.

The number is in all that a client could look at, so that a second real call never looks like the first.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias

Document: TypeAlias = dict[str, Any]


class Message(NamedTuple):
    role: str  # system | user | assistant | tool
    text: str


class ToolCall(NamedTuple):
    name: str
    arguments: Document


class Step(NamedTuple):
    """What the model does next: says something, calls tools, or both."""

    text: str = ""
    tools: tuple[ToolCall, ...] = ()


class Turn(NamedTuple):
    number: int
    model: str
    step: Step
    prompt_tokens: int

    @property
    def text(self) -> str:
        return f"{self.step.text} [answer {self.number}]" if self.step.text else ""

    @property
    def output_tokens(self) -> int:
        return tokens(self.text) + sum(tokens(json.dumps(call.arguments)) for call in self.step.tools)

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Each tool call as (id, name, arguments as JSON)."""
        return [
            (f"call_{self.number}_{index}", call.name, json.dumps(call.arguments))
            for index, call in enumerate(self.step.tools)
        ]


def tokens(text: str) -> int:
    """Words will do."""
    return max(1, len(text.split()))


def pieces(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)
