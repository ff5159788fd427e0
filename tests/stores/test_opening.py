"""Which store an address means, what is said when it cannot be opened, and what is shown of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.errors import ConfigurationError
from proxy.settings_schema import STORES
from proxy.store.opening import SCHEMES, Place, open_store, shown
from proxy.store.postgres_line import Address


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
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[postgres\]'"):
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


@pytest.mark.parametrize(
    ("store", "beside"),
    [
        ("embedded", "embedded"),
        ("memory", "memory"),
        ("postgres://u:p%40@h:5/db", "postgres://u:p%40@h:5/db?schema=semel_shadow"),
        ("postgres://h/db?sslmode=require&schema=x", "postgres://h/db?sslmode=require&schema=x_shadow"),
        ("redis://h:6379/2", "redis://h:6379/2?prefix=semel-shadow"),
        ("rediss://h?prefix=a&verify=none", "rediss://h?verify=none&prefix=a-shadow"),
    ],
)
def test_a_record_beside_another_has_a_name_of_its_own(tmp_path: Path, store: str, beside: str) -> None:
    """In the same store: another directory, schema or prefix; everything else of the address stays."""
    place = Place(store=store, state=tmp_path)
    found = place.beside()
    assert found.store == beside
    assert found.state == (tmp_path / "shadow" if store == "embedded" else tmp_path)


def test_a_schema_is_a_plain_name() -> None:
    """It becomes a part of statements."""
    assert Address("postgres://h/db?schema=other").schema == "other"
    assert Address("postgres://h/db?sslmode=disable").schema == "semel"
    for wrong in ("", "a-b", 'a"b', "a.b", "A", "a;b", "x" * 60):
        with pytest.raises(ConfigurationError, match="schema"):
            Address(f"postgres://h/db?schema={wrong}")
