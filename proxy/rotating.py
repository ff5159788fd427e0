"""All of a record under the key that seals now, while others work with it.

Each row that is not yet so is read, and written back as it is, by the same compare-and-swap as any change:
who writes it meanwhile wins, and has sealed it with the new key already. What is done is passed over, so a
rotation that was broken off is begun again and goes on where it was. Bodies stay where they are: their keys
lie in the rows. Only bodies from before there was encryption are written anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from proxy.clock import Clock
from proxy.core.intent import Call, Entry, evolve
from proxy.recorded import size_apart
from proxy.spool import Spool
from proxy.store import keystone
from proxy.store.base import BlobLost, BlobRef, Query
from proxy.store.codec import Codec, DamagedRecord
from proxy.store.keyring import LOOK_AGAIN
from proxy.store.keystone import Keystone
from proxy.store.sealed import SealedStore
from proxy.store.sealed_rows import is_bare, is_unreadable, keys_of

ACTOR = "operator:keys"
EVENT = "resealed"
PAGE = 500
TOGETHER = 64  # that a store may write in one commit
# Every process that reads the key file seals with the new key by the second pass. If there is still something
# to do after so many, somebody works with other keys.
PASSES = 10
IN_MEMORY = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """`left`: rows under another key still, `unreadable`: those that no key here opens, by id and why."""

    key: str
    calls: int
    resealed: int
    left: int
    unreadable: dict[str, str]
    to_do: str  # by whoever runs the store


Tell: TypeAlias = Callable[[int, int], None]  # how many rows of how many were looked at, in this pass


class Rotation:
    def __init__(self, store: SealedStore, clock: Clock, tell: Tell = lambda done, total: None) -> None:
        self._store = store
        self._clock = clock
        self._tell = tell
        self._key = store.keys.current()
        self._resealed = 0
        self._unreadable: dict[str, str] = {}

    async def rotate(self) -> Rotated:
        """Every step can be the last: what was done stays, and the next rotation does the rest."""
        await self._reseal_keystone(strict=False)
        await self._clock.sleep(2 * LOOK_AGAIN)  # by now whoever reads the key file has read it
        for _ in range(PASSES):
            looked_at, left = await self._pass()
            if not left:
                break
        if not left and not self._unreadable:
            await self._reseal_keystone(strict=True)
        to_do = await self._store.inner.scrub()
        return Rotated(
            key=self._key.name,
            calls=looked_at,
            resealed=self._resealed,
            left=left,
            unreadable=self._unreadable,
            to_do=to_do,
        )

    async def _reseal_keystone(self, *, strict: bool) -> None:
        """From now on the record opens with the new key, and no longer with the old one."""
        inner = self._store.inner
        while True:
            stored = inner.secret
            known = keystone.read(stored, self._store.keys, "this store")
            wanted = Keystone(known.secret, known.strict or strict)
            if keystone.sealed_with(stored) == self._key.id and wanted == known:
                return
            made = keystone.made(wanted, self._key)
            if await inner.swap_secret(stored, made) == made:
                self._store.rows.strict = wanted.strict
                return

    async def _pass(self) -> tuple[int, int]:
        """How many rows there are, and how many had to be written, or could not be."""
        looked_at, left, self._unreadable = 0, 0, {}
        total = sum((await self._store.inner.census()).by_state.values())
        async for page in self._pages():
            stale = [call for call in page if not self._is_done(call)]
            for start in range(0, len(stale), TOGETHER):
                done = await asyncio.gather(*map(self._reseal, stale[start : start + TOGETHER]))
                self._resealed += sum(done)
                left += len(done)
            looked_at += len(page)
            self._tell(looked_at, max(total, looked_at))
        return looked_at, left - len(self._unreadable)

    def _is_done(self, stored: Call) -> bool:
        rows = self._store.rows
        if not rows.is_current(stored):
            return False
        return rows.strict or not _has_bare_body(rows.opened(stored))

    async def _pages(self) -> AsyncIterator[list[Call]]:
        """Rows as the store below has them, newest first. Those that come meanwhile are sealed already."""
        after: int | None = None
        while True:
            page = await self._store.inner.find(Query(limit=PAGE, after=after))
            self._unreadable |= page.unreadable
            yield page.calls
            after = page.next
            if after is None:
                return

    async def _reseal(self, stored: Call) -> bool:
        """False: it is another row by now, or cannot be opened."""
        opened = self._store.rows.opened(stored)
        if is_unreadable(opened):
            self._unreadable[stored.id] = "it was changed, moved, or its key is not here"
            return False
        try:
            opened = await self._with_sealed_bodies(opened)
        except (BlobLost, DamagedRecord) as error:
            self._unreadable[stored.id] = str(error)
            return False
        entry = Entry(
            at=self._clock.now(),
            actor=ACTOR,
            event=EVENT,
            before=stored.state,
            after=stored.state,
            why=f"encrypted with the key {self._key.name}",
            fence=stored.fence,
        )
        written = evolve(opened, version=stored.version + 1)
        return (await self._store.swap(written, entry, expected=stored.version)).won

    async def _with_sealed_bodies(self, call: Call) -> Call:
        """Raises BlobLost, or DamagedRecord."""
        answer = call.answer
        if is_bare(call.request_blob):
            stored = Codec().open_request(call.request)
            size = size_apart(stored.whole or stored)
            call = evolve(call, request_blob=await self._sealed_body(BlobRef(call.request_blob, size)))
        if answer is not None and is_bare(answer.blob):
            blob = await self._sealed_body(BlobRef(answer.blob, answer.size))
            call = evolve(call, answer=replace(answer, blob=blob))
        return call

    async def _sealed_body(self, ref: BlobRef) -> str:
        spool = Spool(IN_MEMORY)
        async for chunk in self._store.inner.read_blob(ref):
            spool.append(chunk)
        return (await self._store.put_blob(spool.chunks())).digest


def _has_bare_body(opened: Call) -> bool:
    return is_bare(opened.request_blob) or (opened.answer is not None and is_bare(opened.answer.blob))


def together(parts: Sequence[Rotated]) -> Rotated:
    """Several records under one key."""
    return Rotated(
        key=parts[0].key,
        calls=sum(part.calls for part in parts),
        resealed=sum(part.resealed for part in parts),
        left=sum(part.left for part in parts),
        unreadable={call: why for part in parts for call, why in part.unreadable.items()},
        to_do="; ".join(dict.fromkeys(part.to_do for part in parts if part.to_do)),
    )


async def counted_by_key(store: SealedStore) -> dict[str, int]:
    """How many rows have something under which key; "": something that is not encrypted."""
    counts: dict[str, int] = {}
    after: int | None = None
    while True:
        page = await store.inner.find(Query(limit=PAGE, after=after))
        for call in page.calls:
            for name in keys_of(call):
                counts[name] = counts.get(name, 0) + 1
        after = page.next
        if after is None:
            return counts
