"""Who waits for which row to change. Kept by the event loop; the reader's thread only looks at the list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson


class Watchers:
    def __init__(self) -> None:
        # By key, then by the version that the watcher has seen; in the order in which they came, for in that
        # they are woken.
        self._waiting: dict[bytes, dict[int, dict[asyncio.Future[None], None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, key: bytes, version: int, future: asyncio.Future[None]) -> None:
        self._waiting.setdefault(key, {}).setdefault(version, {})[future] = None

    def remove(self, key: bytes, version: int, future: asyncio.Future[None]) -> None:
        versions = self._waiting[key]
        versions[version].pop(future, None)
        if not versions[version]:
            del versions[version]
        if not versions:
            del self._waiting[key]

    def watches(self, key: bytes) -> bool:
        return key in self._waiting

    def keys(self) -> set[bytes]:
        return set(self._waiting)

    def pairs(self) -> list[tuple[bytes, int]]:
        """Each row with a version that somebody has seen. To list a dict is one step of the interpreter, so
        the loop may go on adding meanwhile."""
        return [(key, version) for key, versions in list(self._waiting.items()) for version in list(versions)]

    def as_json(self) -> str:
        """For one statement that compares them all."""
        return orjson.dumps([(key.hex(), version) for key, version in self.pairs()]).decode()

    def wake(self, changed: Iterable[tuple[bytes, int]]) -> None:
        """Those who watch these rows and have seen these versions."""
        for key, version in changed:
            _wake(self._waiting.get(key, {}).get(version, ()))

    def row_changed(self, key: bytes, version: int) -> None:
        """This process wrote the row: whoever saw another version is woken."""
        for seen, futures in self._waiting.get(key, {}).items():
            if seen != version:
                _wake(futures)

    def wake_all(self) -> None:
        for versions in self._waiting.values():
            for futures in versions.values():
                _wake(futures)


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
