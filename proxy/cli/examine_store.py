"""For `semel doctor`: the server of a store over the network. It is asked, and nothing in it is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from proxy.app import place_of
from proxy.cli.examine import Finding, failure, ok, warning
from proxy.errors import ConfigurationError
from proxy.settings import Settings
from proxy.store.opening import look

ABOUT = "store"


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
