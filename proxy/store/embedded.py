"""The embedded store: a SQLite ledger, blobs as files, a cache for what may be lost, all in one directory.

Several processes may share the directory. This file only puts the parts together: writer.py commits,
reader.py reads and watches, owners.py knows who lives; embedded_runs.py is the part about runs,
embedded_collecting.py what removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from proxy.core.budget import Account, Charge, Spent
from proxy.core.intent import Call, Entry
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from proxy.store import meta_statements, run_statements, spending_statements, statements
from proxy.store.base import (
    Batched,
    BlobRef,
    Census,
    Orphans,
    Page,
    Query,
    Swap,
    Told,
    changes_settled,
    takes_seq,
    uncounted,
)
from proxy.store.codec import call_to_row, entry_to_row
from proxy.store.database import Patience, close_quietly, unavailable
from proxy.store.embedded_collecting import EmbeddedCollecting
from proxy.store.embedded_runs import EmbeddedRuns
from proxy.store.premises import Premises, move_in
from proxy.store.reader import Reader
from proxy.store.scrubbing import scrub
from proxy.store.shared_cache import SharedCache
from proxy.store.unnamed import Unnamed
from proxy.store.watchers import Watchers
from proxy.store.writer import Writer

CACHE_LIMIT = 1024 * 1024 * 1024
# Marks are written this long after the first of them: seldom enough to coalesce, within the second promised.
MARKS_AFTER = 0.5
# The time is written down once in so many seconds, not at every look.
CLOCK_STEP = 60.0

T = TypeVar("T")


class EmbeddedStore(EmbeddedRuns, EmbeddedCollecting):
    name = "embedded"

    def __init__(
        self, premises: Premises, *, cache_limit: int, loop: asyncio.AbstractEventLoop, batched: Batched
    ) -> None:
        self._loop = loop
        self._database = premises.database
        self._owner = premises.owner
        self.owner = premises.owner.epoch
        self.secret = premises.secret
        self._watchers = Watchers()
        self._writer = Writer(
            premises.database,
            premises.writing,
            premises.patience,
            loop,
            premises.stamp,
            premises.runs_stamp,
            self._watchers,
            batched,
        )
        self._stamp = premises.stamp
        self._runs_stamp = premises.runs_stamp
        self._reader = Reader(premises.database, premises.reading, loop, self._watchers)
        self._blobs = premises.blobs
        self._unnamed = Unnamed(self._blobs.directory)
        self._collecting = asyncio.Lock()
        self._cache = SharedCache(premises.directory / "cache", cache_limit)
        self._marks_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._writer.start()
        self._reader.start()

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        cache_limit: int = CACHE_LIMIT,
        vfs: str | None = None,
        pragmas: dict[str, str | int] | None = None,
        batched: Batched = uncounted,
    ) -> EmbeddedStore:
        """ConfigurationError if the directory cannot serve. `vfs`, `pragmas`: for tests of durability."""
        loop = asyncio.get_running_loop()
        premises = await loop.run_in_executor(None, move_in, directory, vfs, pragmas or {})
        return cls(premises, cache_limit=cache_limit, loop=loop, batched=batched)

    # --- calls ---------------------------------------------------------------------------------------

    async def get(self, key: bytes, known: Call | None = None) -> Call | None:
        call: Call | None = await self._reader.submit(statements.get, key, known)
        return call

    def settled_stamp(self) -> int | None:
        return None if self._closed else self._stamp.read()

    async def swap(
        self,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        if call.version != expected + 1:
            raise ValueError("a swap writes the version after the expected one")
        settled = changes_settled(entry, expected)
        row, line = call_to_row(call), entry_to_row(entry)
        swap: Swap
        if call.run:
            in_run = run_statements.swap_in_run_settled if settled else run_statements.swap_in_run
            claims = takes_seq(call, entry)
            swap = await self._writer.submit(in_run, row, line, expected, entry.at, claims, served, charge)
        else:
            perform = statements.swap_settled if settled else statements.swap
            swap = await self._writer.submit(perform, row, line, expected, charge)
        return swap

    def swap_soon(self, call: Call, entry: Entry, *, expected: int, told: Told) -> None:
        perform = statements.swap_settled if changes_settled(entry, expected) else statements.swap
        self._writer.submit_for(told, perform, call_to_row(call), entry_to_row(entry), expected)

    async def spent(self, account: Account) -> list[Spent]:
        spent: list[Spent] = await self._reader.submit(spending_statements.spent, account)
        return spent

    async def note(self, key: bytes, entry: Entry) -> None:
        await self._writer.submit(statements.note, key, entry_to_row(entry))

    async def history(self, key: bytes) -> list[Entry]:
        entries: list[Entry] = await self._reader.submit(statements.history, key)
        return entries

    def mark_replayed(self, key: bytes, at: float) -> None:
        self._writer.marks.add(key, at)
        self._marks_come()

    def _marks_come(self) -> None:
        if self._marks_timer is None and not self._closed:
            self._marks_timer = self._loop.call_later(MARKS_AFTER, self._flush_marks)

    def _flush_marks(self) -> None:
        self._marks_timer = None
        if not self._closed:
            self._writer.flush_marks().add_done_callback(_forget_failure)

    async def replays(self, key: bytes) -> int:
        await self._flush_all_marks()
        number: int = await self._reader.submit(statements.replays, key)
        return number

    async def _flush_all_marks(self) -> None:
        with contextlib.suppress(StoreUnavailable):  # a disk that cannot be written can perhaps be read
            await self._writer.flush_marks()
            while self._writer.marks or self._writer.served:  # written in portions
                await self._writer.flush_marks()

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        self._refuse_if_closed()
        woken: asyncio.Future[None] = self._loop.create_future()
        # Watch first, then look: a change between the two wakes us, a change before is seen.
        self._watchers.add(key, version, woken)
        try:
            if await self._reader.submit(statements.version, key) != version:
                return True
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            return False
        finally:
            self._watchers.remove(key, version, woken)
        self._refuse_if_closed()
        return True

    async def find(self, query: Query) -> Page:
        return await self._apart(statements.find, query)

    async def get_many(self, keys: Sequence[bytes]) -> list[Call]:
        calls: list[Call] = await self._reader.submit(statements.get_many, keys)
        return calls

    # --- owners --------------------------------------------------------------------------------------

    async def orphans(self) -> Orphans:
        orphans: Orphans = await self._reader.submit(self._orphans)
        return orphans

    def _orphans(self, connection: apsw.Connection) -> Orphans:
        # What cannot be read is no epoch that this store ever gave: its owner is dead.
        owners = [(owner, owner.decode(errors="replace")) for owner in statements.pending_owners(connection)]
        dead = [owner for owner, epoch in owners if self._owner.is_dead(epoch)]
        self._owner.forget_dead(frozenset(epoch for _, epoch in owners))
        return statements.pending_of(connection, dead)

    def owns(self) -> bool:
        return not self._closed and self._owner.holds()

    async def owner_is_dead(self, owner: str) -> bool:
        if owner == self.owner:
            return self._closed or not self._owner.look()
        dead: bool = await self._reader.submit(lambda _: self._owner.is_dead(owner))
        return dead

    # --- the rest ------------------------------------------------------------------------------------

    async def census(self) -> Census:
        figures: statements.Figures = await self._reader.submit(statements.figures)
        parts = {
            "rows": figures.database_bytes - figures.free_bytes + self._database.log_size(),
            "unused": figures.free_bytes,
            "blobs": self._blobs.bytes_used(),
            "cache": await self._cache.bytes_used(),
        }
        return Census(
            by_state=figures.by_state,
            oldest_doubt_at=figures.oldest_doubt_at,
            oldest_question_at=figures.oldest_question_at,
            bytes_used=sum(parts.values()),
            parts=parts,
            owners=await self._reader.submit(lambda _: self._owner.living()),
        )

    def evictions(self) -> int:
        return self._cache.evictions

    async def live_calls(self, upstream: str, rule: str, now: float) -> int:
        return await self._apart(statements.live_calls, upstream, rule, now)

    async def _apart(self, perform: Callable[..., T], *args: object) -> T:
        """In a thread and on a connection of its own: walking the ledger keeps no other reader waiting."""
        self._refuse_if_closed()
        return await asyncio.to_thread(self._on_own_connection, perform, *args)

    def _on_own_connection(self, perform: Callable[..., T], *args: object) -> T:
        connection = None
        try:
            connection = self._database.connect(Patience(), reading=True)
            return perform(connection, *args)
        except Exception as error:  # as for the reader: its own trouble, or the disk's
            raise unavailable(error) from error
        finally:
            close_quietly(connection)

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        return await self._blobs.put(chunks)

    def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        return self._blobs.read(ref)

    async def cache_put(self, key: bytes, value: bytes, ttl: float) -> None:
        self._refuse_if_closed()
        await self._cache.put(key, value, ttl)

    async def cache_get(self, key: bytes) -> bytes | None:
        self._refuse_if_closed()
        return await self._cache.get(key)

    async def swap_secret(self, old: bytes, new: bytes) -> bytes:
        self.secret = await self._writer.submit(meta_statements.swap_secret, old, new)
        return self.secret

    async def scrub(self) -> str:
        await self._cache.clear()
        alone = not await asyncio.to_thread(self._owner.others_live)
        return await asyncio.to_thread(scrub, self._database, alone=alone)

    async def clock_mark(self, now: float) -> float:
        mark: float = await self._reader.submit(meta_statements.clock_mark)
        if now > mark + CLOCK_STEP:
            await self._writer.submit(meta_statements.raise_clock_mark, now)
        return max(mark, now)

    async def ping(self) -> None:
        self._refuse_if_closed()
        if not self._owner.look():
            raise StoreUnavailable(
                "nothing is sent any more, restart semel: its lock in owners/ was removed, and so other "
                "processes take this one for dead"
            )
        await self._writer.submit(meta_statements.touch, str(time.time()).encode())
        await self._reader.submit(statements.version, b"")

    async def close(self) -> None:
        """Queued writes and marks are done first. The reader goes before the writer, so that the writer's
        connection is the last of this process: SQLite then empties the log into the database."""
        self._closed = True
        if self._marks_timer is not None:
            self._marks_timer.cancel()
        self._watchers.wake_all()
        await self._reader.close()
        await self._writer.close()
        await self._blobs.close()
        await self._cache.close()
        self._owner.release()
        self._stamp.close()
        self._runs_stamp.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")


def _forget_failure(future: asyncio.Future[Any]) -> None:
    """Marks that could not be written stay in memory and go with the next batch."""
    if not future.cancelled():
        future.exception()
