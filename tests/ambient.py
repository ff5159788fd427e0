"""The store that a semel of the tests keeps its record in, where a test does not say which.

A test that uses the fixture `any_store` runs once on each: what semel promises does not depend on where it
keeps its record. Owners' hearts beat fast, so that a death is noticed while a test waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proxy.store.base import Query, RunQuery, Store
from proxy.store.opening import Place, open_store

EMBEDDED = "embedded"
# The whole suite runs with `SEMEL_RECALL=false` too; a process of its own has it from its environment.
RECALL = os.environ.get("SEMEL_RECALL") or "true"
HEARTBEAT, DEAD_AFTER = 0.1, 0.5
OWNERS = {"owners.heartbeat": f"{HEARTBEAT * 1000:.0f}ms", "owners.dead_after": f"{DEAD_AFTER * 1000:.0f}ms"}

_present = [EMBEDDED]


def store() -> str:
    return _present[-1]


@contextmanager
def kept_in(address: str) -> Iterator[None]:
    _present.append(address)
    try:
        yield
    finally:
        _present.pop()


def settings() -> Mapping[str, object]:
    """As flags, for a semel inside the test's own process."""
    return {"store": store()} | (OWNERS if store() != EMBEDDED else {})


def options() -> list[str]:
    """For a process of its own."""
    return [] if store() == EMBEDDED else ["--store", store()]


def environment() -> dict[str, str]:
    if store() == EMBEDDED:
        return {}
    return {f"SEMEL_{name.replace('.', '_').upper()}": value for name, value in OWNERS.items()}


async def opened(state: Path) -> Store:
    """One more process's hand on the record."""
    place = Place(store=store(), state=state, heartbeat=HEARTBEAT, dead_after=DEAD_AFTER)
    return await open_store(place)


async def states_in(state: Path) -> list[str]:
    """The states of all calls, in the order in which they were first claimed."""
    there = await opened(state)
    try:
        page = await there.find(Query(limit=1000))
        return [str(call.state) for call in reversed(page.calls)]
    finally:
        await there.close()


async def everything_in(state: Path) -> bytes:
    """All that is kept, as far as it can be read: to look for what must not be there."""
    files = b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())
    if store() == EMBEDDED:
        return files
    there = await opened(state)
    try:
        calls = (await there.find(Query(limit=1000))).calls
        histories = [await there.history(call.key) for call in calls]
        runs = (await there.list_runs(RunQuery(limit=1000))).runs
        return files + repr((calls, histories, runs)).encode()
    finally:
        await there.close()
