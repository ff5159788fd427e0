"""`python -m tests.stores.copy_and_die FROM TO N before|after`: a copy that is killed at its n-th change of
the target, just before or just after it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from proxy.store import archive
from proxy.store.archive import Target
from proxy.store.copying import copy
from proxy.store.opening import Place, open_source, open_target

CHANGES = frozenset({"begin", "adopt", "write", "put_blob", "finish"})


class Dying:
    def __init__(self, target: Target, after: int, when: str) -> None:
        self._target = target
        self._left = after
        self._when = when

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._counted(found) if name in CHANGES else found

    def _counted(self, change: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def changed(*args: object) -> Any:
            self._left -= 1
            if not self._left and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = await change(*args)
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return changed


def place(given: str) -> Place:
    if "://" in given:
        return Place(store=given, state=Path())
    return Place(store="embedded", state=Path(given))


async def main(one: str, other: str, after: str, when: str) -> None:
    source, target = await open_source(place(one)), await open_target(place(other))
    await copy(source, Dying(target, int(after), when), lambda _: None)
    await target.close()
    await source.close()


if __name__ == "__main__":
    archive.MOST_BYTES = 4000
    asyncio.run(main(*sys.argv[1:]))
