"""Statements are prepared once: preparing the longest of them takes longer than carrying it out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.store.database import PATIENCE, READ_PRAGMAS, Database, Patience
from proxy.store.embedded import EmbeddedStore
from tests.stores import calls


def prepared_anew(store: EmbeddedStore) -> int:
    connection = store._writer._connection
    assert connection is not None
    return int(connection.cache_stats()["misses"])


@pytest.mark.parametrize("together", [1, 30, 60, 100])
async def test_batches_of_any_size_prepare_nothing_anew(tmp_path: Path, together: int) -> None:
    """Also the statements that begin and end them: between two uses of these are two hundred of others."""
    store = await EmbeddedStore.open(tmp_path / "state")
    try:
        told: list[int] = []
        for _ in range(4):
            made = [calls.claim(store.owner) for _ in range(together)]
            await asyncio.gather(*(store.swap(*each, expected=0) for each in made))
            settled = [calls.settle(call) for call, _ in made]
            await asyncio.gather(*(store.swap(*each, expected=1) for each in settled))
            told.append(prepared_anew(store))
        assert told[0] > 0
        assert len(set(told)) == 1
    finally:
        await store.close()


@pytest.mark.parametrize("reading", [False, True])
def test_a_plan_does_not_hang_on_the_values(tmp_path: Path, reading: bool) -> None:
    """SQLite may plan a statement anew for each value that it is given. Ours mean what they say."""
    path = tmp_path / "ledger.sqlite"
    path.touch()
    connection = Database(path=path).connect(Patience(PATIENCE), reading=reading)
    try:
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
        wanted: dict[str, Any] = READ_PRAGMAS if reading else {"synchronous": 2}
        assert all(connection.pragma(name) == value for name, value in wanted.items())
    finally:
        connection.close()
