"""Where these settings keep the record, and with which keys; and the first look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.ledger import Ledger
from proxy.observe import Observer
from proxy.recovery import sweep_once
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


async def first_sweep(
    store: Store, ledger: Ledger, observer: Observer, unreadable: set[str], settings: Settings
) -> int:
    """Before anything is served. A store that cannot even do this is for a person to mend."""
    try:
        return await sweep_once(store, ledger, observer, unreadable)
    except StoreUnavailable as error:
        if settings.store == "embedded":
            mend = (
                "restore the directory from a backup; with another --state-dir the calls recorded here are "
                "unknown to semel"
            )
        else:
            mend = "start again when it is there"
        raise ConfigurationError(
            f"{place_of(settings).shown} cannot be used to keep the record: {error.detail}. Mend that, or "
            f"{mend}."
        ) from error
