"""For `semel doctor`: the server of a store over the network, and the keys of an encrypted record.

They are looked at, and nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from proxy.cli.examine import Finding, failure, ok, warning
from proxy.errors import ConfigurationError
from proxy.keeping import place_of
from proxy.settings import Settings
from proxy.store.keyring import FileKeys, open_to_others
from proxy.store.opening import look

ABOUT = "store"


def key_findings(settings: Settings) -> Iterator[Finding]:
    if settings.encryption is None:
        return
    try:
        keys = place_of(settings).keys
    except ConfigurationError as error:
        found, _, do = str(error).partition(". ")
        yield failure("encryption", f"{found}.", do or "Mend the file, or name another.")
        return
    assert keys is not None
    number = len(keys.ring)
    told = f"{keys.shown}: {number} key{'' if number == 1 else 's'}, {keys.current().name} encrypts"
    yield ok("encryption", told)
    if isinstance(keys, FileKeys) and open_to_others(keys.path):
        yield warning("encryption", f"others may read {keys.path}", f"Close it: chmod 600 {keys.path}")


def store_findings(settings: Settings) -> Iterator[Finding]:
    if "://" not in settings.store:
        return
    notes: list[str] = []

    def note(event: str, **fields: object) -> None:
        notes.append(f"{event}: {fields.get('detail') or fields.get('why')}")

    try:
        told = asyncio.run(look(place_of(settings, note=note)))
    except ConfigurationError as error:
        yield failure(ABOUT, str(error), "Start the server, or correct `store:`.")
        return
    yield ok(ABOUT, told)
    for each in notes:
        yield warning(ABOUT, each, "See docs/stores.md.")
