"""An encrypted store keeps the whole contract too, whichever it is, and nobody above it notices."""

from __future__ import annotations

import base64
import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from proxy.core.intent import evolve
from proxy.store.base import BlobRef, Store
from proxy.store.codec import Codec, DamagedRecord
from proxy.store.embedded import EmbeddedStore
from proxy.store.keyring import GivenKeys, new_key
from proxy.store.sealed import STRAIGHT, SealedStore, with_keys
from proxy.store.sealed_rows import SealedRows
from tests.stores import calls
from tests.stores.contract import StoreContract
from tests.stores.test_embedded import TestEmbedded as EmbeddedContract
from tests.stores.test_memory import TestMemory as MemoryContract
from tests.stores.test_postgres import TestPostgres as PostgresContract
from tests.stores.test_redis import TestRedis as RedisContract
from tests.stores.test_redis import server  # noqa: F401 (a fixture)

KEYS = GivenKeys(new_key())


class Sealed(StoreContract):
    """Before a store's own class: that one's store, with a layer over it."""

    async def open(self) -> Store:
        store = await super().open()
        return await with_keys(store, KEYS, "a test", lambda event, **fields: None, begin=True)

    async def die(self, store: Store) -> None:
        await super().die(cast("SealedStore", store).inner)

    async def age(self, blob: BlobRef) -> None:
        await super().age(BlobRef(blob.digest.partition(".")[0], blob.size))

    # An encrypted body has no name that follows from its content, and more bytes than that: what the contract
    # says of those is said here in other words.
    test_a_blob_comes_back_whole = None  # type: ignore[assignment]
    test_a_blob_that_is_put_again_is_safe_until_its_row_names_it = None  # type: ignore[assignment]
    test_a_blob_goes_when_no_row_names_it_and_nobody_touched_it = None  # type: ignore[assignment]
    test_a_call_past_its_time_goes_with_all_that_belongs_to_it = None  # type: ignore[assignment]
    test_a_closed_store_says_so = None  # type: ignore[assignment]
    test_who_has_begun_to_read_a_blob_reads_it_to_its_end = None  # type: ignore[assignment]

    @pytest.mark.parametrize("size", [0, 1, 64 * 1024, 1_000_000])
    async def test_a_body_comes_back_whole_and_twice_the_same_is_not_the_same(
        self, store: Store, other: Store, size: int
    ) -> None:
        """Read by another process that has its row's name for it; equal bodies cannot be told."""
        content = os.urandom(size)
        one, two = [await store.put_blob([content[:100], content[100:]]) for _ in range(2)]
        assert (one.size, two.size) == (size, size)
        assert one.digest[:64] != two.digest[:64]
        for ref in (one, two):
            assert b"".join([chunk async for chunk in other.read_blob(ref)]) == content

    async def test_a_body_goes_with_the_last_row_that_names_it(self, store: Store) -> None:
        """Named it stays, however old; the key behind its name in memory does not hide that."""
        call, entry = calls.claim(store.owner)
        blob = await store.put_blob([b"content"])
        await self.age(blob)
        await store.swap(replace(call, request_blob=blob.digest), entry, expected=0)
        assert (await store.collect(calls.NOW)).blobs == 0
        found = await store.get(call.key)
        assert found is not None
        assert found.request_blob == blob.digest
        released, entry = calls.release(found)
        await store.swap(released, entry, expected=1)
        later = calls.NOW + 10 * 86400
        removed = [await store.collect(later), await store.collect(later)]
        assert sum(portion.calls for portion in removed) == sum(portion.blobs for portion in removed) == 1


class TestSealedMemory(Sealed, MemoryContract):  # type: ignore[misc]
    """The model."""


class TestSealedEmbedded(Sealed, EmbeddedContract):  # type: ignore[misc]
    """SQLite and files."""


@pytest.mark.soak
class TestSealedPostgres(Sealed, PostgresContract):  # type: ignore[misc]
    """A server."""


@pytest.mark.soak
class TestSealedRedis(Sealed, RedisContract):  # type: ignore[misc]
    """The other one."""


def test_a_value_in_another_field_is_not_opened() -> None:
    """Of the very same call, whole and authentic: a head is no body, and a request no head."""
    told: list[str] = []
    rows = SealedRows(KEYS, strict=True, note=lambda event, **fields: told.append(str(fields["field"])))
    call, _ = calls.settle(calls.claim("somebody")[0])
    stored = rows.sealed(call)
    assert rows.opened(stored) == call
    assert stored.answer is not None
    moved = evolve(
        stored,
        request=stored.answer.body,
        answer=replace(stored.answer, head=stored.request, body=stored.answer.head),
    )
    opened = rows.opened(moved)
    assert opened.answer is not None
    for value in (opened.request, opened.answer.head, opened.answer.body):
        with pytest.raises(DamagedRecord, match="cannot be decrypted"):
            Codec().open_body(value)
    rows.opened(moved)
    assert told == ["request", "head", "body"], "each is told of once"
    assert rows.sealed(opened) == moved, "it is written back as it was found"


def test_words_that_look_encrypted_are_words() -> None:
    """An upstream says what it likes: sealed as any other, opened as it was."""
    rows = SealedRows(KEYS, strict=True, note=lambda event, **fields: None)
    call, _ = calls.lose(calls.claim("somebody")[0])
    assert call.doubt is not None
    spoken = "sealed:" + base64.b64encode(bytes([2]) + bytes(60)).decode()
    said = evolve(call, doubt=replace(call.doubt, excerpt=spoken))
    stored = rows.sealed(said)
    assert stored.doubt is not None
    assert spoken not in stored.doubt.excerpt
    assert rows.opened(stored) == said
    assert rows.is_current(stored)
    elsewhere = evolve(stored, key=bytes(16))
    assert rows.sealed(rows.opened(elsewhere)) == elsewhere, "it is written back as it was found"


async def test_what_was_overwritten_leaves_the_ledger_s_file(tmp_path: Path) -> None:
    """Also what SQLite itself would leave lying in it."""
    store = await EmbeddedStore.open(tmp_path / "state")
    mark = b"overwritten-4711"
    for _ in range(20):
        call, entry = calls.claim(store.owner)
        await store.swap(replace(call, request=mark * 50), entry, expected=0)
        released, entry = calls.release(replace(call, request=b"short"))
        await store.swap(released, entry, expected=1)
    await store.close()
    ledger = tmp_path / "state" / "ledger.sqlite"
    assert mark in ledger.read_bytes(), "SQLite left nothing, so this shows nothing"
    store = await EmbeddedStore.open(tmp_path / "state")
    assert await store.scrub() == ""
    await store.close()
    assert mark not in ledger.read_bytes()


def test_nothing_that_a_store_does_is_forgotten() -> None:
    """What is new in the seam has to be sealed, or be said to have nothing to seal."""
    seam = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    own = {name for name in vars(SealedStore) if not name.startswith("_")} | {"secret"}
    assert own.isdisjoint(STRAIGHT)
    assert seam == own | set(STRAIGHT)
