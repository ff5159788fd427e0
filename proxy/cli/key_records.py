"""For `semel keys`: the record of these settings, and the shadow's beside it, opened with their keys."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.cli.output import Refused
from proxy.cli.reach import has_record, opened_store, settings_of
from proxy.errors import ConfigurationError, NoRecord
from proxy.store.keyring import VARIABLE

if TYPE_CHECKING:
    from proxy.store.opening import Place
    from proxy.store.sealed import SealedStore


@asynccontextmanager
async def encrypted(options: argparse.Namespace, *, begin: bool = False) -> AsyncIterator[list[SealedStore]]:
    """`begin`: what is not encrypted yet becomes so."""
    from proxy.keeping import place_of

    settings = settings_of(options)
    if settings.encryption is None:
        raise ConfigurationError(
            "There is no key: say `encryption: {key_file: F}` in semel.yaml, SEMEL_ENCRYPTION_KEY_FILE or "
            f"{VARIABLE}. `semel keys new --key-file F` makes one."
        )
    async with AsyncExitStack() as stack:
        # Opened and closed as any other command does it: who has no record is told so.
        async with opened_store(options):
            pass
        places = (place_of(settings), place_of(settings).beside())
        stores = [await _opened(replace(place, make=False), stack, begin=begin) for place in places]
        yield [store for store in stores if store is not None]


async def _opened(place: Place, stack: AsyncExitStack, *, begin: bool) -> SealedStore | None:
    """None: there is none."""
    from proxy.store.opening import open_store
    from proxy.store.sealed import SealedStore

    if place.store == "embedded" and not has_record(place.state):
        return None
    with suppress(NoRecord):
        if begin:
            await _nobody_without_a_key(place)
        store = await open_store(replace(place, encrypts=begin))
        stack.push_async_callback(store.close)
        if not isinstance(store, SealedStore):
            raise Refused("The record is not encrypted yet: `semel keys rotate` encrypts it.")
        return store
    return None


async def _nobody_without_a_key(place: Place) -> None:
    """Whoever works with a record in the clear does not know that it is encrypted from now on."""
    from proxy.store.opening import used_in_the_clear

    if await used_in_the_clear(place):
        raise Refused(
            f"{place.shown} is in use by a semel that has no key, and could not read what is encrypted "
            "now. Stop it, start it again with the key, and rotate then. Nothing was changed."
        )
