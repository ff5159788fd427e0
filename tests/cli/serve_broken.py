"""`semel serve` with one guarantee broken on purpose, to see that what should notice does.

python -m tests.cli.serve_broken intent_after_the_send serve --listen …
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from proxy.cli import main
from proxy.core import decide
from proxy.core.budget import Charge
from proxy.core.intent import Call, Entry, Event, State
from proxy.core.run_record import Serving
from proxy.front.naming import Named, Namer
from proxy.store.base import Swap
from proxy.store.embedded import EmbeddedStore
from proxy.store.telling import TellsByTask


def intent_after_the_send() -> None:
    """A claim is written together with what came of it, not before the first byte goes out."""
    write = EmbeddedStore.swap
    claims: dict[bytes, tuple[Call, Entry, int]] = {}

    async def swap(
        self: EmbeddedStore,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        if call.state is State.PENDING:
            claims[call.key] = (call, entry, expected)
            return Swap(True)
        if call.key in claims:
            claim, line, before = claims.pop(call.key)
            await write(self, claim, line, expected=before)
        return await write(self, call, entry, expected=expected)

    EmbeddedStore.swap = swap  # type: ignore[method-assign]
    EmbeddedStore.swap_soon = TellsByTask.swap_soon  # type: ignore[method-assign, assignment]


def no_call_recognised() -> None:
    """Every call has another name, so that none is ever found in the record."""
    name = Namer.name

    async def renamed(self: Namer, *args: Any) -> Named:
        named = await name(self, *args)
        if named.identity is None:
            return named
        return named._replace(identity=named.identity._replace(key=os.urandom(16)))

    Namer.name = renamed  # type: ignore[method-assign, assignment]


def doubt_released() -> None:
    """What a dead process left behind is taken for not executed: a guess, where semel must not guess."""
    right = decide.orphaned

    def guessed(call: Call) -> decide.Settlement:
        return right(call)._replace(event=Event.NOT_SENT)

    decide.orphaned = guessed


BREAKS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (intent_after_the_send, no_call_recognised, doubt_released)
}

if __name__ == "__main__":
    BREAKS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
