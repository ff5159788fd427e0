"""What a commit carried is told: each write is counted in one commit, and those that wait share one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.store.opening import Place, open_store
from tests import ambient
from tests.stores import calls

pytestmark = pytest.mark.usefixtures("any_store")

MANY = 100


async def test_commits_say_how_many_writes_they_carried(tmp_path: Path) -> None:
    """A hundred claims at once: a hundred writes in fewer commits. What only reads is not counted."""
    sizes: list[int] = []
    place = Place(store=ambient.store(), state=tmp_path / "state")
    store = await open_store(replace(place, batched=sizes.append))
    try:
        made = [calls.claim(store.owner) for _ in range(MANY)]
        sizes.clear()
        await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in made))
        assert sum(sizes) == MANY
        assert len(sizes) < MANY / 2
        await asyncio.gather(*(store.get(call.key) for call, _ in made))
        assert sum(sizes) == MANY
    finally:
        await store.close()
