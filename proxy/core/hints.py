"""What an MCP server says of its own tools (`annotations` in tools/list), and what follows from that.

Such hints are a stranger's word. They may make a rule stricter; only where the policy trusts the server do
they make a call safe, and never against a rule that says it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from proxy.core.policy import DEFAULT_NAME, Mode, OnDisconnect, Rule

# Of one list so many tools are remembered.
MOST_TOOLS = 5000


class Hints(NamedTuple):
    """None: the server does not say."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None

    @property
    def harmless(self) -> bool:
        """Repeating it does no harm, says the server."""
        return self.read_only is True or self.idempotent is True

    @property
    def harmful(self) -> bool:
        return not self.harmless and (self.destructive is True or self.read_only is False)


def hints_in(result: Any) -> Iterator[tuple[str, Hints]]:  # noqa: ANN401 (JSON)
    """Of the result of a tools/list, one page of it."""
    tools = result.get("tools") if isinstance(result, dict) else None
    for tool in (tools if isinstance(tools, list) else [])[:MOST_TOOLS]:
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            said = tool.get("annotations")
            yield tool["name"], _read(said if isinstance(said, dict) else {})


def _read(said: dict[str, Any]) -> Hints:
    read_only, destructive, idempotent = (
        value if isinstance(value := said.get(name), bool) else None
        for name in ("readOnlyHint", "destructiveHint", "idempotentHint")
    )
    return Hints(read_only, destructive, idempotent)


@lru_cache(maxsize=1024)
def as_hinted(rule: Rule, hints: Hints, *, trusted: bool) -> Rule:
    """The rule of a call to a tool of which the server says this."""
    if hints.harmful and (rule.safe or rule.mode is Mode.CACHE):
        mode = Mode.ONCE if rule.mode is Mode.CACHE else rule.mode
        return replace(rule, safe=False, mode=mode, on_disconnect=OnDisconnect.FINISH)
    silent = rule.safe is None or rule.name == DEFAULT_NAME
    if trusted and hints.harmless and silent and rule.mode is Mode.ONCE:
        return replace(rule, safe=True)
    return rule
