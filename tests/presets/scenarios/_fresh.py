"""Callers of APIs whose answers are kept in a shared cache (`mode: cache`)."""

from __future__ import annotations

import itertools

from tests.presets.cases import Asked

KEYS = itertools.count(1)


class FreshAsked(Asked):
    """Asked with another API key each time. In a run that does not count; a cache shares nothing between the
    two, so no case is answered with what another one was told."""

    __slots__ = ()

    @property
    def all_headers(self) -> dict[str, str]:
        plain = Asked(path=self.path, json=self.json, form=self.form, text=self.text, headers=self.headers)
        return plain.all_headers | {"Authorization": f"Bearer key-{next(KEYS)}"}
