"""What was acknowledged survives the loss of power at any moment."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import apsw
import pytest

from proxy.core.intent import Call
from proxy.store import checkpoints
from proxy.store.database import FILE_NAME
from proxy.store.embedded import EmbeddedStore
from tests.stores import calls
from tests.stores.power_loss_vfs import faulty_disk

SEEDS = 1000 if os.environ.get("SEMEL_SOAK") else 50
PAIRS = 24
# About as many writes and syncs as the workload makes, so that losses fall everywhere in it.
OPERATIONS = 300


async def work_until_the_power_goes(
    tmp_path: Path, seed: int, pragmas: dict[str, str | int]
) -> tuple[dict[bytes, Call], Path]:
    """Claims and settles on a disk that loses its power somewhere in between. What had been acknowledged at
    that moment, and a directory with what the disk then held."""
    coin = random.Random(seed)
    acknowledged: dict[bytes, Call] = {}
    at_the_loss: dict[bytes, Call] = {}
    left = tmp_path / f"left-{seed}"
    left.mkdir(mode=0o700)
    with faulty_disk(f"power-{seed}") as disk:

        def power_loss() -> None:
            at_the_loss.update(acknowledged)
            for name, content in disk.after_power_loss(coin).items():
                (left / name).write_bytes(content)

        async def one() -> None:
            for _ in range(PAIRS // 4):
                call, entry = calls.claim(store.owner, coin.randbytes(16))
                assert (await store.swap(call, entry, expected=0)).won
                acknowledged[call.key] = call
                done, entry = calls.settle(call, coin.randbytes(coin.choice((10, 3000))))
                assert (await store.swap(done, entry, expected=1)).won
                acknowledged[call.key] = done

        store = await EmbeddedStore.open(tmp_path / f"state-{seed}", vfs=f"power-{seed}", pragmas=pragmas)
        try:
            disk.on_power_loss = power_loss
            disk.lose_power_at = disk.operations + coin.randrange(1, OPERATIONS)
            await asyncio.gather(*(one() for _ in range(4)))
            if disk.operations < disk.lose_power_at:  # it survived the workload: the power goes now
                disk.lose_power_at = None
                power_loss()
        finally:
            await store.close()
    return at_the_loss, left


def _at_least(found: Call, acknowledged: Call, lines: int) -> bool:
    """The row as it was acknowledged, or a later one; with a line of history for each version."""
    same = found == acknowledged if found.version == acknowledged.version else True
    return same and found.version >= acknowledged.version and lines == found.version


async def lost_after_power_loss(tmp_path: Path, seed: int, pragmas: dict[str, str | int]) -> list[bytes]:
    acknowledged, left = await work_until_the_power_goes(tmp_path, seed, pragmas)
    store = await EmbeddedStore.open(left)
    try:
        lost = []
        for key, call in acknowledged.items():
            found = await store.get(key)
            if found is None or not _at_least(found, call, len(await store.history(key))):
                lost.append(key)
    finally:
        await store.close()
    connection = apsw.Connection(str(left / FILE_NAME))
    try:
        assert connection.pragma("integrity_check") == "ok"
    finally:
        connection.close()
    return lost


@pytest.fixture(autouse=True)
def _frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the power also goes while the log is copied into the database."""
    monkeypatch.setattr(checkpoints, "PAGES", 30)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_acknowledged_intents_and_answers_survive_a_power_loss(tmp_path: Path, seed: int) -> None:
    """Unsynced writes are dropped or torn at random; nothing that was acknowledged is missing."""
    print(f"seed {seed}")
    assert await lost_after_power_loss(tmp_path, seed, {}) == []


async def test_without_full_sync_something_is_lost(tmp_path: Path) -> None:
    """The test of the test: with synchronous=NORMAL the same workload loses acknowledged calls."""
    lost = 0
    for seed in range(10):
        lost += len(await lost_after_power_loss(tmp_path, seed, {"synchronous": "NORMAL"}))
    assert lost > 0
