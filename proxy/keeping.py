"""Where these settings keep the record, and with which keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.settings import Encryption, Settings
from proxy.store import opening
from proxy.store.base import Store
from proxy.store.keyring import FileKeys, GivenKeys, Keys


async def open_store(settings: Settings, **more: Any) -> Store:  # noqa: ANN401 (fields of a Place)
    return await opening.open_store(place_of(settings, **more))


def place_of(settings: Settings, **more: Any) -> opening.Place:  # noqa: ANN401 (fields of a Place)
    """Where these settings keep the record."""
    owners = settings.owners
    return opening.Place(
        store=settings.store,
        state=settings.state,
        heartbeat=owners.heartbeat,
        dead_after=owners.dead_after,
        durability=settings.durability,
        keys=_keys(settings.encryption),
        **more,
    )


def _keys(encryption: Encryption | None) -> Keys | None:
    if encryption is None:
        return None
    return GivenKeys(encryption.key) if encryption.key else FileKeys(Path(encryption.key_file))
