"""The PostgreSQL store: many machines, one record. This file only puts the parts together.

postgres_batch.py gathers swaps and reads, postgres_line.py speaks with the server, postgres_wakes.py wakes
who waits, heartbeats.py knows who lives; postgres.sql holds the tables and what is done in one step.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from proxy.core.budget import Account, Charge, Spent
from proxy.core.intent import Call, Entry
from proxy.core.run_record import Serving
from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.store import postgres_calls as statements
from proxy.store.base import Batched, BlobRef, Census, Collected, Orphans, Page, Query, Swap, uncounted
from proxy.store.heartbeats import Heart
from proxy.store.postgres_batch import Batches
from proxy.store.postgres_blobs import PostgresBlobs
from proxy.store.postgres_cache import PostgresCache
from proxy.store.postgres_collecting import Collector
from proxy.store.postgres_lazily import Lazily
from proxy.store.postgres_line import LONG, PATIENCE, Address, Line, Lines, Row
from proxy.store.postgres_owners import PostgresBeats
from proxy.store.postgres_runs import PostgresRuns
from proxy.store.postgres_schema import STANDBYS, move_in, secret_of, standby_warning
from proxy.store.postgres_secret import PostgresSecret
from proxy.store.postgres_swaps import Reads, Swaps, SwapsSoon
from proxy.store.postgres_wakes import Wakes
from proxy.store.watchers import Watchers

CACHE_LIMIT = 1024 * 1024 * 1024
# A cache that answers later than this is no use.
CACHE_PATIENCE = 1.0
HOUSEKEEPING = 30.0


def _untold(event: str, **fields: object) -> None:
    """Nobody listens."""


class PostgresStore(PostgresRuns, PostgresSecret, SwapsSoon):
    name = "postgres"

    def __init__(
        self,
        address: Address,
        secret: bytes,
        *,
        heartbeat: float,
        dead_after: float,
        cache_limit: int = CACHE_LIMIT,
        note: Callable[..., None] = _untold,
        patience: float = PATIENCE,
        batched: Batched = uncounted,
    ) -> None:
        self.secret = secret
        self._note = note
        self._writing, self._reading, self._beating = (Line(address, patience=patience) for _ in range(3))
        self._lines = Lines(address, 3, patience=patience)
        self._watchers = Watchers()
        self._wakes = Wakes(address, self._watchers, note, patience)
        self._swaps = Batches(
            Swaps(self._writing, self._wrote).perform,
            key=lambda job: job.call.key,
            size=lambda job: job.size,
            batched=batched,
        )
        reads = Reads(self._reading)
        self._gets, self._versions = Batches(reads.get), Batches(reads.versions)
        self._blobs = PostgresBlobs(self._lines, self._refuse_if_closed)
        self._cache = PostgresCache(Line(address, patience=CACHE_PATIENCE), cache_limit)
        self._beats = PostgresBeats(self._beating)
        self._heart = Heart(
            self._beats,
            heartbeat=heartbeat,
            dead_after=dead_after,
            each=self._keep_house,
            renewed=self._renewed,
        )
        self._lazily = Lazily(self._lines)
        self._collector = Collector(self._lines, self._blobs, self._removed)
        self._kept_house_at = 0.0
        self._standby_warning = ""  # the last one that was told
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        heartbeat: float = 5.0,
        dead_after: float = 15.0,
        cache_limit: int = CACHE_LIMIT,
        note: Callable[..., None] = _untold,
        patience: float = PATIENCE,
        make: bool = True,
        batched: Batched = uncounted,
    ) -> PostgresStore:
        """ConfigurationError if the server cannot serve."""
        address = Address(url)
        secret = await move_in(address, note, make=make)
        store = cls(
            address,
            secret,
            heartbeat=heartbeat,
            dead_after=dead_after,
            cache_limit=cache_limit,
            note=note,
            patience=patience,
            batched=batched,
        )
        try:
            ahead = await store._beats.clock_mark(time.time()) - time.time()
            if ahead > dead_after:
                note(
                    "clock-behind",
                    seconds=round(ahead),
                    detail="this machine's clock was set back, or another's forward",
                )
            await store._heart.start()
            store.secret = await secret_of(store._reading, address.shown)
        except BaseException as error:
            await store.close()
            if isinstance(error, StoreUnavailable):  # it went away just now
                raise ConfigurationError(
                    f"{address.shown} cannot be used to keep the record: {error.detail}."
                ) from None
            raise
        store._wakes.start()
        return store

    # ---- calls ----

    async def get(self, key: bytes, known: Call | None = None) -> Call | None:
        if known is not None and await self._versions.submit(key) == (known.version, known.born):
            return known
        row: Row | None = await self._gets.submit(key)
        return None if row is None else statements.readable(row)

    async def get_many(self, keys: Sequence[bytes]) -> list[Call]:
        self._refuse_if_closed()
        if not keys:
            return []
        rows = {
            statements.key_of(row): row
            for row in await self._reading.ask(statements.GET, (list(keys),), again=True)
        }
        return statements.readable_among(rows[key] for key in keys if key in rows)[0]

    def settled_stamp(self) -> int | None:
        return None  # what other processes do is not known without asking

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
        swap: Swap = await self._swaps.submit(statements.SwapJob(call, entry, served, charge))
        return swap

    async def spent(self, account: Account) -> list[Spent]:
        self._refuse_if_closed()
        values = statements.account_values(account)
        return [Spent(*row) for row in await self._reading.ask(statements.SPENT, values, again=True)]

    def _wrote(self, changed: Sequence[tuple[bytes, int]]) -> None:
        """Durable: waiters of this process are woken by the commit itself, the others by a message."""
        for key, version in changed:
            self._watchers.row_changed(key, version)
        self._wakes.changed(key for key, _ in changed)

    def _removed(self, keys: Sequence[bytes]) -> None:
        self._lazily.forget(keys)  # a call of the same name that comes later is another
        self._wrote([(key, 0) for key in keys])

    async def note(self, key: bytes, entry: Entry) -> None:
        await self._write(statements.NOTE, (key, *statements.line_values(entry)))

    async def _write(self, text: str, values: Sequence[object]) -> list[Row]:
        """One that is not a swap of a call."""
        self._refuse_if_closed()
        return await self._lines.ask(text, values)

    async def history(self, key: bytes) -> list[Entry]:
        self._refuse_if_closed()
        rows = await self._reading.ask(statements.HISTORY, (key,), again=True)
        return [statements.entry_of(row) for row in rows]

    def mark_replayed(self, key: bytes, at: float) -> None:
        self._lazily.marks.add(key, at)
        self._lazily.come()

    async def replays(self, key: bytes) -> int:
        await self._lazily.flush()
        rows = await self._ask(statements.REPLAYS, (key,))
        return int(rows[0][0]) if rows else 0

    async def _ask(self, text: str, values: Sequence[object] = ()) -> list[Row]:
        """Nobody's call waits for it, and it waits for nobody's."""
        self._refuse_if_closed()
        return await self._lines.ask(text, values, again=True, patience=LONG)

    # ---- watching and listing ----

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        self._refuse_if_closed()
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Watch first, then look: a change between the two wakes us, a change before is seen.
        self._watchers.add(key, version, woken)
        self._wakes.watching()
        try:
            present = await self._versions.submit(key)
            if (present[0] if present else 0) != version:
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
        rows = await self._ask(*statements.find(query))
        found, unreadable = statements.readable_among(row[1:] for row in rows[: query.limit])
        more = len(rows) > query.limit
        return Page(calls=found, next=rows[query.limit - 1][0] if more else None, unreadable=unreadable)

    # ---- owners ----

    @property
    def owner(self) -> str:
        return self._heart.epoch

    def _renewed(self, buried: str, epoch: str) -> None:
        self._note(
            "owner-renewed", was=buried, now=epoch, detail="others took this process for dead: it begins anew"
        )

    async def orphans(self) -> Orphans:
        owners = [owner for (owner,) in await self._ask(statements.PENDING_OWNERS)]
        dead = await self._heart.dead_among([owner for owner in owners if owner != self.owner])
        if not dead:
            return Orphans(calls=[])
        calls, unreadable = statements.readable_among(await self._ask(statements.PENDING_OF, (dead,)))
        return Orphans(calls=calls, unreadable=unreadable)

    def owns(self) -> bool:
        return not self._closed and self._heart.pulse.fresh()

    async def owner_is_dead(self, owner: str) -> bool:
        self._refuse_if_closed()
        return owner != self.owner and bool(await self._heart.dead_among([owner]))

    async def clock_mark(self, now: float) -> float:
        return await self._beats.clock_mark(now)

    # ---- the rest ----

    async def census(self) -> Census:
        self._refuse_if_closed()
        told = await self._lines.line().ask_all([(text, ()) for text in statements.CENSUS], again=True)
        return statements.census(*told, owners=await self._heart.living())

    def evictions(self) -> int:
        return self._cache.evictions

    async def live_calls(self, upstream: str, rule: str, now: float) -> int:
        ((number,),) = await self._ask(statements.LIVE_CALLS, (upstream, rule, now))
        return int(number)

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        self._refuse_if_closed()
        if dry_run:
            return await self._collector.count(now, runs_before)
        return await self._collector.collect(now, limit, runs_before)

    async def _clean(self) -> None:
        """Now and then, by whoever beats."""
        with contextlib.suppress(StoreUnavailable):
            await self._lines.ask(statements.FOLD, patience=LONG)
            await self._beats.forget()
            await self._cache.trim()
            warning = standby_warning(*(await self._lines.ask(STANDBYS, again=True))[0])
            if warning and warning != self._standby_warning:
                self._note("asynchronous-standby", detail=warning)
            self._standby_warning = warning

    def _keep_house(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._kept_house_at > HOUSEKEEPING and not self._closed:
            self._kept_house_at = loop.time()
            self._lazily.aside(self._clean())

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

    async def ping(self) -> None:
        self._refuse_if_closed()
        await self._heart.beat()
        if not self._heart.pulse.fresh():
            raise StoreUnavailable("nothing is sent now: the store answers too slowly to know who lives")
        await self._reading.ask(statements.PING, again=True)

    async def close(self) -> None:
        """Queued writes and marks are done first."""
        if self._closed:
            return
        self._closed = True
        self._watchers.wake_all()
        for batches in (self._swaps, self._gets, self._versions):
            await batches.close()
        await self._lazily.close()
        await self._heart.stop()
        await self._wakes.close()
        for line in (self._writing, self._reading, self._beating, self._lines, self._cache):
            await line.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
