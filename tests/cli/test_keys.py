"""`semel keys`: made, listed, rotated, dropped; a key that is needed is never taken away."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.cli.key_files import add_key
from proxy.cli.keys import SCHEMA
from proxy.store.embedded import EmbeddedStore
from proxy.store.keyring import GivenKeys, new_key, parse
from tests.cli.command import semel
from tests.stores import calls

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of three calls that is not encrypted, and a place for keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY_FILE", str(tmp_path / "keys"))

    asyncio.run(fill(tmp_path / "state", 3))
    return tmp_path / "state"


async def fill(directory: Path, number: int) -> None:
    store = await EmbeddedStore.open(directory)
    for _ in range(number):
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        await store.swap(*calls.settle(call), expected=1)
    await store.close()


def names(tmp_path: Path) -> list[str]:
    return [key.name for key in parse((tmp_path / "keys").read_text(), "keys")]


def test_a_new_key_is_printed_or_put_first(tmp_path: Path, capsys: Capsys) -> None:
    """In a file that nobody else may read; what was there stays behind it."""
    printed = semel(capsys, "keys", "new")
    assert printed.status == 0
    assert len(GivenKeys(printed.out).ring) == 1
    made = semel(capsys, "keys", "new", "--json").document(SCHEMA)
    assert GivenKeys(made["key"]).current().name == made["id"]
    path = tmp_path / "keys"
    first = semel(capsys, "keys", "new", "--key-file", path)
    assert first.status == 0
    assert f"encryption: {{key_file: {path}}}" in first.out
    assert path.stat().st_mode & 0o777 == 0o600
    (before,) = names(tmp_path)
    second = semel(capsys, "keys", "new", "--key-file", path, "--json").document(SCHEMA)
    assert second == {"id": names(tmp_path)[0], "file": str(path)}
    assert names(tmp_path)[1:] == [before]
    assert path.read_text().split()[0] not in first.out
    assert list(tmp_path.iterdir()) == [path]


def test_from_a_record_in_the_clear_to_the_second_key(tmp_path: Path, state: Path, capsys: Capsys) -> None:
    """Each step says what comes next, and says no where it would cost the record."""
    missing = semel(capsys, "keys", "list", "--state-dir", state)
    assert (missing.status, "semel keys new --key-file" in missing.err) == (2, True)
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")
    (first,) = names(tmp_path)
    early = semel(capsys, "keys", "list", "--state-dir", state)
    assert (early.status, "`semel keys rotate` encrypts it" in early.err) == (1, True)
    rotated = semel(capsys, "keys", "rotate", "--state-dir", state, "--json").document(SCHEMA)
    assert rotated == {"key": first, "calls": 3, "resealed": 3, "left": 0, "unreadable": {}, "to_do": ""}
    for wrong in ("drop", first), ("drop", "0" * 16):
        refused = semel(capsys, "keys", *wrong, "--state-dir", state)
        assert refused.status == 1, refused
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")
    needed = semel(capsys, "keys", "drop", first, "--state-dir", state)
    assert (needed.status, "run `semel keys rotate` first" in needed.err) == (1, True)
    assert len(names(tmp_path)) == 2
    again = semel(capsys, "keys", "rotate", "--state-dir", state)
    assert again.status == 0
    assert "3 of 3 calls encrypted anew" in again.out
    second = names(tmp_path)[0]
    listed = semel(capsys, "keys", "list", "--state-dir", state, "--json").document(SCHEMA)["keys"]
    assert listed == [
        {"id": second, "use": "seals", "calls": 3},
        {"id": first, "use": "opens", "calls": 0},
    ]
    assert first in semel(capsys, "keys", "list", "--state-dir", state).out
    assert semel(capsys, "keys", "drop", first, "--state-dir", state).status == 0
    assert names(tmp_path) == [second]
    assert semel(capsys, "calls", "list", "--state-dir", state).status == 0
    (tmp_path / "keys").write_text("nonsense")
    assert semel(capsys, "calls", "list", "--state-dir", state).status == 2


def test_without_its_key_no_command_opens_the_record(
    tmp_path: Path, state: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each says where a key may be named."""
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")
    semel(capsys, "keys", "rotate", "--state-dir", state)
    monkeypatch.delenv("SEMEL_ENCRYPTION_KEY_FILE")
    for command in (["calls", "list"], ["gc"], ["stats"], ["runs", "list"]):
        ran = semel(capsys, *command, "--state-dir", state)
        assert ran.status == 2, ran
        assert "SEMEL_ENCRYPTION_KEY" in ran.err


def test_keys_of_the_environment_are_not_changed(
    tmp_path: Path, state: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no file to write into; with two of them there the rotation itself works."""
    monkeypatch.delenv("SEMEL_ENCRYPTION_KEY_FILE")
    old, new = (semel(capsys, "keys", "new").out.strip() for _ in range(2))
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY", old)
    assert semel(capsys, "keys", "rotate", "--state-dir", state).status == 0
    refused = semel(capsys, "keys", "rotate", "--new", "--state-dir", state)
    assert (refused.status, "no key file" in refused.err) == (2, True)
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY", f"{new},{old}")
    assert semel(capsys, "keys", "rotate", "--state-dir", state).status == 0
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY", new)
    assert semel(capsys, "calls", "list", "--state-dir", state).status == 0
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY", old)
    assert semel(capsys, "calls", "list", "--state-dir", state).status == 2


def test_the_doctor_looks_at_the_keys(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many there are and which encrypts; a file that others may read; one that is not there."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "keys"
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY_FILE", str(path))
    looked = semel(capsys, "doctor", "--state-dir", tmp_path / "state")
    assert looked.status == 1
    assert "cannot be read" in looked.out
    semel(capsys, "keys", "new", "--key-file", path)
    path.chmod(0o644)
    told = semel(capsys, "doctor", "--state-dir", tmp_path / "state").out
    assert f"{names(tmp_path)[0]} encrypts" in told
    assert f"chmod 600 {path}" in told
    assert path.read_text().strip() not in told


def test_a_copy_is_opened_by_the_same_key(
    tmp_path: Path, state: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied as it is: whoever copies needs no key, and gets nothing to read."""
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")
    semel(capsys, "keys", "rotate", "--state-dir", state)
    monkeypatch.delenv("SEMEL_ENCRYPTION_KEY_FILE")
    copied = semel(capsys, "store", "copy", state, tmp_path / "copy", "--quiet")
    assert copied.status == 0, copied
    assert semel(capsys, "calls", "list", "--state-dir", tmp_path / "copy").status == 2
    monkeypatch.setenv("SEMEL_ENCRYPTION_KEY_FILE", str(tmp_path / "keys"))
    listed = semel(capsys, "calls", "list", "--state-dir", tmp_path / "copy")
    assert listed.status == 0, listed


def test_the_shadow_s_record_is_rotated_along(tmp_path: Path, state: Path, capsys: Capsys) -> None:
    """It holds calls as the other does, and a key that it needs is not dropped."""
    asyncio.run(fill(state / "shadow", 2))
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")
    rotated = semel(capsys, "keys", "rotate", "--state-dir", state, "--json").document(SCHEMA)
    assert (rotated["calls"], rotated["resealed"]) == (5, 5)
    (first,) = names(tmp_path)
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")
    alone = semel(capsys, "keys", "rotate", "--state-dir", state / "shadow", "--json").document(SCHEMA)
    assert alone["resealed"] == 2
    assert semel(capsys, "keys", "drop", first, "--state-dir", state).status == 1
    assert semel(capsys, "keys", "rotate", "--state-dir", state, "--json").document(SCHEMA)["resealed"] == 3
    assert semel(capsys, "keys", "drop", first, "--state-dir", state).status == 0


def test_a_record_in_use_without_a_key_is_not_encrypted_under_its_user(
    tmp_path: Path, state: Path, capsys: Capsys
) -> None:
    """Who works with it could not read it any more."""
    semel(capsys, "keys", "new", "--key-file", tmp_path / "keys")

    async def beside() -> None:
        store = await EmbeddedStore.open(state)
        try:
            ran = await asyncio.to_thread(semel, capsys, "keys", "rotate", "--state-dir", state)
            assert (ran.status, "Stop it" in ran.err) == (1, True)
            assert len(store.secret) == 32
        finally:
            await store.close()

    asyncio.run(beside())
    assert semel(capsys, "keys", "rotate", "--state-dir", state).status == 0


def test_of_two_keys_in_a_line_one_is_removed(tmp_path: Path, state: Path, capsys: Capsys) -> None:
    """As SEMEL_ENCRYPTION_KEY has them: a key that is needed does not go with the one beside it."""
    old, new = new_key(), new_key()
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{new},{old} # the second is from May\n")
    first, second = names(tmp_path)
    assert semel(capsys, "keys", "rotate", "--state-dir", state).status == 0
    assert semel(capsys, "keys", "drop", second, "--state-dir", state).status == 0
    assert names(tmp_path) == [first]
    assert path.read_text() == f"# ours\n{new} # the second is from May\n"
    assert semel(capsys, "keys", "list", "--state-dir", state).status == 0


def test_of_keys_that_are_added_at_once_none_is_lost(tmp_path: Path) -> None:
    """Two rotations at once: each encrypts with its own, so a file that has only one of them loses calls."""
    path, many = tmp_path / "keys", 16
    with ThreadPoolExecutor(many) as threads:
        added = [name for name, _ in threads.map(lambda _: add_key(path), range(many))]
    assert sorted(names(tmp_path)) == sorted(added)
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_file_stays_its_owner_s_and_where_it_is(tmp_path: Path) -> None:
    """Who rotates as root must not take the keys away from the semel that reads them; nor is a link to them
    made a file of its own."""
    path, link = tmp_path / "kept", tmp_path / "keys"
    path.write_text(new_key() + "\n")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
    before = path.stat()
    link.symlink_to(path)
    add_key(link)
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert link.is_symlink()
    assert len(names(tmp_path)) == 2
