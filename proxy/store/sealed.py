"""A store whose sealed fields are encrypted: one layer over any store, so there is one for all of them.

What goes down is sealed with the key that seals now, whatever it was read with; what comes up is opened.
Nobody above or below it knows.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from proxy.core.budget import Charge
from proxy.core.intent import Call, Entry
from proxy.core.run_record import Serving
from proxy.errors import ConfigurationError
from proxy.store import keystone
from proxy.store.base import BlobLost, BlobRef, Orphans, Page, Query, Store, Swap, Told
from proxy.store.keyring import Keys
from proxy.store.keystone import Keystone
from proxy.store.sealed_rows import BODY_KEY, Note, SealedRows, keys_of
from proxy.store.sealing import (
    Unsealable,
    bound_to,
    seal,
    sealed_body,
    sealed_size,
    unseal,
    unsealed_body,
)

# What has nothing to seal goes straight to the store below. A test sees that nothing is forgotten.
STRAIGHT = (
    "settled_stamp", "note", "history", "mark_replayed", "replays", "open_run", "runs_stamp", "get_run",
    "swap_run", "run_changes", "mark_served", "note_run", "run_history", "list_runs", "run_sums", "run_asked",
    "run_tallies", "tenants_of", "changed", "collect", "owns", "owner_is_dead", "census", "evictions",
    "live_calls", "ping", "close", "swap_secret", "scrub", "spent",
)  # fmt: skip


# So many of the latest calls are looked at before a record is encrypted for the first time.
RECENT = 100
# A blob's name, and behind it the key of the body.
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})")


class SealedStore:
    def __init__(self, inner: Store, keys: Keys, stone: Keystone, note: Note) -> None:
        self.inner = inner
        self.keys = keys
        self.secret = stone.secret
        self.rows = SealedRows(keys, strict=stone.strict, note=note)
        for name in STRAIGHT:
            setattr(self, name, getattr(inner, name))

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def owner(self) -> str:
        return self.inner.owner

    async def clock_mark(self, now: float) -> float:
        """Asked every few seconds: a good time to learn that a rotation has left nothing in the clear."""
        if not self.rows.strict:
            stands = await self.inner.swap_secret(self.inner.secret, self.inner.secret)
            with contextlib.suppress(ConfigurationError):  # under a key that is not here: nothing is known
                self.rows.strict = keystone.read(stands, self.keys, "this store").strict
        return await self.inner.clock_mark(now)

    # ---- calls ----

    async def get(self, key: bytes, known: Call | None = None) -> Call | None:
        call = await self.inner.get(key, known)
        return call if call is None or call is known else self.rows.opened(call)

    async def get_many(self, keys: Sequence[bytes]) -> list[Call]:
        return self._opened(await self.inner.get_many(keys))

    async def swap(
        self,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        sealed = self.rows.sealed(call)
        swap = await self.inner.swap(sealed, entry, expected=expected, served=served, charge=charge)
        return swap if swap.present is None else replace(swap, present=self.rows.opened(swap.present))

    def swap_soon(self, call: Call, entry: Entry, *, expected: int, told: Told) -> None:
        sealed = self.rows.sealed(call)
        self.inner.swap_soon(sealed, entry, expected=expected, told=_Opened(told, self.rows))

    async def find(self, query: Query) -> Page:
        page = await self.inner.find(query)
        return replace(page, calls=self._opened(page.calls))

    async def orphans(self) -> Orphans:
        found = await self.inner.orphans()
        return replace(found, calls=self._opened(found.calls))

    def _opened(self, calls: list[Call]) -> list[Call]:
        return [self.rows.opened(call) for call in calls]

    # ---- bodies ----

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        secret, counted = secrets.token_bytes(BODY_KEY), _Counted(chunks)
        ref = await self.inner.put_blob(sealed_body(secret, counted))
        return BlobRef(f"{ref.digest}.{secret.hex()}", counted.size)

    async def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        named = _NAME.fullmatch(ref.digest)
        if named is None:
            if self.rows.strict:
                raise BlobLost(f"blob {ref.digest} cannot be decrypted: its row does not have its key")
            async for chunk in self.inner.read_blob(ref):  # from the time before
                yield chunk
            return
        digest, secret = named.groups()
        sealed = self.inner.read_blob(BlobRef(digest, sealed_size(ref.size)))
        try:
            async for chunk in unsealed_body(bytes.fromhex(secret), sealed):
                yield chunk
        except Unsealable as error:
            raise BlobLost(f"blob {digest} cannot be decrypted: {error}") from None

    # ---- the shared cache ----

    async def cache_put(self, key: bytes, value: bytes, ttl: float) -> None:
        await self.inner.cache_put(key, seal(self.keys.current(), value, bound_to(b"cached", key)), ttl)

    async def cache_get(self, key: bytes) -> bytes | None:
        value = await self.inner.cache_get(key)
        try:
            return None if value is None else unseal(self.keys, value, bound_to(b"cached", key))
        except Unsealable:
            return None  # it may be lost


class _Opened:
    """Told of what the store below tells, in the clear."""

    __slots__ = ("_rows", "_told", "done", "set_exception")

    def __init__(self, told: Told, rows: SealedRows) -> None:
        self._told, self._rows = told, rows
        self.done, self.set_exception = told.done, told.set_exception

    def set_result(self, swap: Swap) -> None:
        if swap.present is not None:
            try:
                swap = replace(swap, present=self._rows.opened(swap.present))
            except Exception as error:
                self.set_exception(error)
                return
        self._told.set_result(swap)


class _Counted:
    """Whoever reads it through knows how long it was."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            yield chunk


async def with_keys(inner: Store, keys: Keys | None, shown: str, note: Note, *, begin: bool) -> Store:
    """The store as these keys open it. ConfigurationError with the wrong ones, or with none where it is
    encrypted. `begin`: a record that is not encrypted becomes so from now on; who looks changes nothing."""
    stored = inner.secret
    if keys is None:
        if keystone.is_keystone(stored):
            raise keystone.encrypted_without_key(shown)
        return inner
    if not keystone.is_keystone(stored):
        if not begin:
            return inner
        stored = await _begin(inner, keys, note)
    return cast("Store", SealedStore(inner, keys, keystone.read(stored, keys, shown), note))


async def _begin(inner: Store, keys: Keys, note: Note) -> bytes:
    """An empty record is encrypted from its first call, under a secret that never lay in the clear. One that
    has encrypted calls has begun before: somebody has taken its keystone away."""
    if any(keys_of(call) - {""} for call in (await inner.find(Query(limit=RECENT))).calls):
        raise ConfigurationError(
            "the record has encrypted calls, and its secret lies in the clear: that was not semel. Restore "
            "the record from a backup. Nothing was changed."
        )
    census = await inner.census()
    empty = not any(census.by_state.values())
    secret = secrets.token_bytes(keystone.SECRET) if empty else inner.secret
    stone = keystone.made(Keystone(secret, strict=empty), keys.current())
    stands = await inner.swap_secret(inner.secret, stone)
    if not keystone.is_keystone(stands):
        raise ConfigurationError("the record's secret was changed while it was opened: start again.")
    if stands == stone and not empty:
        note(
            "encryption-begun",
            detail="what is written from now on is encrypted; `semel keys rotate` encrypts what is there",
        )
    return stands
