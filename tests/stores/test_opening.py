"""Which store an address means, what is said when it cannot be opened, and what is shown of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.errors import ConfigurationError
from proxy.settings_schema import STORES
from proxy.store.opening import SCHEMES, Place, open_store, shown


def test_the_settings_know_the_same_stores() -> None:
    """Two lists, in two layers, of the same thing."""
    assert SCHEMES == STORES


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
async def test_a_store_without_its_driver_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Nothing else of semel needs it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith(("proxy.store.postgres", "psycopg."))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigurationError, match=r"pip install 'semel\[postgres\]'"):
        await open_store(Place(store=f"{scheme}://u:hunter@host/db", state=tmp_path))


@pytest.mark.parametrize("word", ["embedded", "memory"])
async def test_a_word_opens_what_it_names(tmp_path: Path, word: str) -> None:
    """The embedded store in its directory, the other nowhere."""
    store = await open_store(Place(store=word, state=tmp_path / "state"))
    try:
        assert store.name == word
        assert (tmp_path / "state").exists() == (word == "embedded")
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("embedded", "embedded"),
        ("postgres://u:hunter@h:1/db", "postgres://u@h:1/db"),
        ("postgres://:hunter@h/db", "postgres://h/db"),
        ("postgres://h/db?sslmode=require&password=hunter", "postgres://h/db?sslmode=require"),
        ("redis://:hunter@h:6379/0", "redis://h:6379/0"),
        ("postgres://u:hun@ter@h/db", "postgres://…"),
        ("postgres://u:hun/ter@h/db", "postgres://…"),
        ("postgres://[hunter", "postgres://…"),
        ("postgres:///db", "postgres:///db"),
    ],
)
def test_what_is_shown_has_no_password(given: str, wanted: str) -> None:
    """Only the driver needs it."""
    assert shown(given) == wanted
    assert "hun" not in shown(given)
