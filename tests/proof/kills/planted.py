"""`semel serve` with a defect in it: whether the checks of the kill soak find it.

python -m tests.proof.kills.planted '{"orphans are released": {}}' serve …
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from proxy.admin.desk import LocalDesk
from proxy.answers import Answers, Produced
from proxy.cli import main
from proxy.core import decide
from proxy.core.intent import Call, Event
from proxy.ledger import Ledger
from proxy.stream import Capture


def _orphans_are_released() -> None:
    """What a dead proxy was sending is taken for not sent."""

    def released(call: Call) -> decide.Settlement:
        return decide.Settlement(event=Event.NOT_SENT, why="planted", ttl=None if call.run else 60.0)

    decide.orphaned = released


def _handed_on_before_the_commit() -> None:
    """The caller has all of an answer a moment before it is on disk."""
    begin, settle = Capture.__init__, Ledger.settle

    def in_a_hurry(self: Capture, **more: Any) -> None:
        begin(self, **(more | {"hold_end": False}))

    async def slowly(self: Ledger, *args: Any) -> Call | None:
        await asyncio.sleep(0.2)
        return await settle(self, *args)

    Capture.__init__ = in_a_hurry  # type: ignore[method-assign]
    Ledger.settle = slowly  # type: ignore[method-assign, assignment]


def _another_answer_is_replayed() -> None:
    produce = Answers.produce

    async def another(self: Answers, call: Call, answer: Any) -> Produced | None:
        produced = await produce(self, call, answer)
        if produced is None or not isinstance(produced.body, bytes):
            return produced
        return produced._replace(body=produced.body[:-1] + b"]")

    Answers.produce = another  # type: ignore[method-assign]


def _answers_are_rewritten() -> None:
    """For the caller and the record alike: semel agrees with itself."""
    data = Capture.data

    async def other(self: Capture, chunk: bytes) -> None:
        await data(self, chunk.replace(b'"pad"', b'"dap"'))

    Capture.data = other  # type: ignore[method-assign]


def _doubt_is_hidden() -> None:
    calls = LocalDesk.calls

    async def others(self: LocalDesk, query: Any) -> dict[str, Any]:
        whole = await calls(self, query)
        return whole | {"calls": [call for call in whole["calls"] if call["state"] != "in_doubt"]}

    LocalDesk.calls = others  # type: ignore[method-assign]


def _young_doubt_is_hidden() -> None:
    """For a while only: in the end all of it is listed."""
    calls = LocalDesk.calls

    def is_shown(call: dict[str, Any]) -> bool:
        if call["state"] != "in_doubt":
            return True
        sent_at = datetime.fromisoformat(call["sent_at"] or call["created_at"])
        return time.time() - sent_at.timestamp() > 4

    async def others(self: LocalDesk, query: Any) -> dict[str, Any]:
        whole = await calls(self, query)
        return whole | {"calls": [call for call in whole["calls"] if is_shown(call)]}

    LocalDesk.calls = others  # type: ignore[method-assign]


DEFECTS: dict[str, Callable[[], None]] = {
    "orphans are released": _orphans_are_released,
    "handed on before the commit": _handed_on_before_the_commit,
    "another answer is replayed": _another_answer_is_replayed,
    "answers are rewritten": _answers_are_rewritten,
    "doubt is hidden": _doubt_is_hidden,
    "young doubt is hidden": _young_doubt_is_hidden,
}


if __name__ == "__main__":
    for defect in json.loads(sys.argv[1]):
        DEFECTS[defect]()
    sys.exit(main(sys.argv[2:]))
