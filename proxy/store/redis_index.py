"""Listing, counting and collecting: the part of the Redis store that looks at many calls.

The indexes lie in the slot of the rows and are written by the script that writes the row, so they say at any
moment what the rows say. What another hand has put out of order is passed over here (an entry without a row)
and put in order by collecting. Whatever may be long is done in portions, each one moment of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from proxy.core.intent import OPEN_STATES, Call, State
from proxy.faults import Point, reach
from proxy.store.base import Census, Collected, Orphans, Page, Query
from proxy.store.codec import DamagedRecord
from proxy.store.heartbeats import Heart
from proxy.store.marks import Marks
from proxy.store.redis_pipe import Pipe
from proxy.store.redis_rows import Facts, read_call, read_facts, read_line, run_id
from proxy.store.redis_wire import Part
from proxy.store.unnamed import UNTOUCHED
from proxy.store.watchers import Watchers

# So many at a time: each time is one moment in which the server does nothing else.
PORTION = 400
# A script that removes calls keeps everybody waiting for as long as it takes.
MOST_BYTES = 4 * 1024 * 1024
# In seconds: so long a body that is collected can still be read by those who have begun to.
STILL_READ = 900
BEYOND = 2**53
# Calls on their way have an index of another kind than those that were put aside.
PENDING = "pending"
ASIDE = [state for state in State if state not in (State.DONE, State.PENDING)]


class RedisIndex:
    """What it takes for granted is RedisStore's."""

    _pipe: Pipe
    _tag: str
    _collecting: asyncio.Lock
    _marks: Marks
    _watchers: Watchers
    _heart: Heart
    _forget_dead: Callable[[], Awaitable[None]]
    tenants_of: Callable[[str], Awaitable[list[str]]]

    async def _walk(
        self, index: str, way: str, beyond: int, portion: int = PORTION
    ) -> AsyncIterator[tuple[int, bytes, bytes]]:
        """Number, key and row (its small part at least) of everything in an index, portion by portion."""
        if index == PENDING:
            pending = await self._pending()
            ahead = [(n, key) for n, key, _ in pending if (n > beyond if way == "up" else n < beyond)]
            for start in range(0, len(ahead), portion):
                some = ahead[:: 1 if way == "up" else -1][start : start + portion]
                rows = await self._pipe.ask("MGET", *(self._row(key) for _, key in some))
                for (number, key), row in zip(some, rows, strict=True):
                    if row is not None:
                        yield number, key, row
            return
        while True:
            told = await self._pipe.run("page", index, way, beyond, portion)
            for number, key, row in zip(told[::3], told[1::3], told[2::3], strict=True):
                beyond = int(number)
                if row is not None:
                    yield beyond, key, row
            if len(told) < 3 * portion:
                return

    async def _pending(self) -> list[tuple[int, bytes, str]]:
        """Number, key and owner, in the order of first sight. They are few: calls on their way."""
        told = await self._pipe.ask("HGETALL", f"{self._tag}:{PENDING}")
        found = [(key, *value.split(b" ", 1)) for key, value in zip(told[::2], told[1::2], strict=True)]
        return sorted((int(number), key, owner.decode(errors="replace")) for key, number, owner in found)

    async def find(self, query: Query) -> Page:
        """From the newest on; of what is looked through only the small part is read."""
        below = BEYOND if query.after is None else query.after
        fits: list[tuple[int, bytes]] = []
        unreadable: dict[str, str] = {}
        walk = self._walk_runs(query) if query.run else self._walk(_index(query.state), "down", below)
        async for number, key, row in walk:
            if number >= below:
                continue
            try:
                if _fits(read_facts(key, row), query):
                    fits.append((number, key))
            except DamagedRecord as error:
                unreadable[key.hex()] = str(error)
                fits.append((number, key))
            if len(fits) > query.limit:
                break
        page = fits[: query.limit]
        calls = await self._read_page(
            query, [key for _, key in page if key.hex() not in unreadable], unreadable
        )
        return Page(calls=calls, next=page[-1][0] if len(fits) > len(page) else None, unreadable=unreadable)

    async def _walk_runs(self, query: Query) -> AsyncIterator[tuple[int, bytes, bytes]]:
        """The same of the runs of one name, the newest first: their calls need not be looked for."""
        found: list[tuple[int, bytes, bytes]] = []
        for tenant in [query.tenant] if query.tenant else await self.tenants_of(query.run):
            steps = await self._pipe.ask("ZRANGE", f"{self._tag}:steps:{run_id(tenant, query.run)}", 0, -1)
            for start in range(0, len(steps), PORTION):
                keys = steps[start : start + PORTION]
                rows = await self._pipe.run("rows", *keys)
                found += [(_number(row), key, row) for key, row in zip(keys, rows, strict=True) if row]
        for each in sorted(found, reverse=True):
            yield each

    async def _read_page(self, query: Query, keys: list[bytes], unreadable: dict[str, str]) -> list[Call]:
        """What has changed since it was found, and no longer fits, is left out."""
        calls: list[Call] = []
        rows = await self._pipe.ask("MGET", *(self._row(key) for key in keys)) if keys else []
        for key, row in zip(keys, rows, strict=True):
            try:
                if row is not None and _fits(read_facts(key, row), query):
                    calls.append(read_call(key, row))
            except DamagedRecord as error:
                unreadable[key.hex()] = str(error)
        return calls

    def _row(self, key: bytes) -> bytes:
        return f"{self._tag}:c:".encode() + key

    async def orphans(self) -> Orphans:
        pending = await self._pending()
        dead = set(await self._heart.dead_among({owner for _, _, owner in pending}))
        await self._forget_dead()
        keys = [key for _, key, owner in pending if owner in dead]
        calls: list[Call] = []
        unreadable: dict[str, str] = {}
        for start in range(0, len(keys), PORTION):
            portion = keys[start : start + PORTION]
            rows = await self._pipe.ask("MGET", *(self._row(key) for key in portion))
            for key, row in zip(portion, rows, strict=True):
                try:
                    if row is not None and read_line(row)[0].state == State.PENDING:
                        calls.append(read_call(key, row))
                except DamagedRecord as error:
                    unreadable[key.hex()] = str(error)
        # Claimed by another since the owners were read: not the dead one's any more.
        return Orphans(calls=[call for call in calls if call.owner in dead], unreadable=unreadable)

    async def census(self) -> Census:
        (total, pending, *counts), oldest = await self._pipe.run("census", *(state.value for state in ASIDE))
        by_state = {State.PENDING: pending, **dict(zip(ASIDE, counts, strict=True))}
        return Census(
            by_state={state: by_state.get(state, total - sum(by_state.values())) for state in State},
            oldest_doubt_at=float(oldest) if oldest else None,
            oldest_question_at=await self._oldest_question(),
            bytes_used=_memory_used(await self._pipe.ask("INFO", "memory")),
            owners=await self._heart.living(),
        )

    async def _oldest_question(self) -> float | None:
        """Of those that can be read: figures are shown whatever else is damaged."""
        asked: list[float] = []
        async for _, key, row in self._walk(_index(State.AWAITING_APPROVAL), "up", 0):
            with contextlib.suppress(DamagedRecord):
                asked.append(read_facts(key, row).created_at)
        return min(asked, default=None)

    def evictions(self) -> int:
        return 0  # they have their time to live, and the server is to evict nothing

    async def live_calls(self, upstream: str, rule: str, now: float) -> int:
        number = 0
        async for _, key, row in self._walk("all", "up", 0):
            with contextlib.suppress(DamagedRecord):  # it cannot be told whose it is
                facts = read_facts(key, row)
                number += (facts.upstream, facts.rule) == (upstream, rule) and _is_live(facts, now)
        return number

    # --- collecting ----------------------------------------------------------------------------------

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        if dry_run:
            return await self._count_collectable(now, runs_before)
        async with self._collecting:
            keys, size, more = await self._pipe.run("collect", repr(now), limit, MOST_BYTES)
            runs = 0
            if not more and runs_before:
                # Without room for another call: whether there is one is seen the next time.
                room, more = limit - len(keys), 1
                if room:
                    of_runs, more_bytes, more, runs = await self._pipe.run(
                        "runs_collect", repr(runs_before), room, MOST_BYTES
                    )
                    keys, size = keys + of_runs, size + more_bytes
            self._marks.gather()
            self._marks.drop(keys)  # or they would be counted for a call that is made again
            for key in keys:
                self._watchers.row_changed(key, 0)
            reach(Point.CALLS_COLLECTED)
            blobs, freed = 0, 0
            if not more:
                more = await self._pipe.run("spending_collect", int(now * 1000), limit) == limit
            if not more:
                blobs, freed, more = await self._pipe.run("blobs_collect", repr(UNTOUCHED), limit, STILL_READ)
                if blobs:
                    reach(Point.BLOB_COLLECTED)
        return Collected(calls=len(keys), blobs=blobs, bytes=size + freed, more=bool(more), runs=runs)

    async def _in_portions(self, script: str, what: Part) -> list[Any]:
        """What a script tells of everything, a part at a time: it says first how many it has looked at."""
        told: list[Any] = []
        start = 0
        while True:
            looked, *some = await self._pipe.run(script, what, start, PORTION)
            told += some
            start += looked
            if looked < PORTION:
                return told

    async def _count_collectable(self, now: float, runs_before: float) -> Collected:
        going = await self._in_portions("expired", repr(now))
        ending: list[bytes] = []
        if runs_before:
            ending = await self._in_portions("runs_over", repr(runs_before))
            for run in [*ending, *await self._pipe.ask("SMEMBERS", f"{self._tag}:clear")]:
                going += await self._in_portions("run_going", run)
        names = Counter(blob for _, *blobs in going for blob in blobs if blob != b"-")
        named = [word for digest, times in names.items() for word in (digest, times)]
        blobs, size = await self._pipe.run("blobs_unnamed", repr(UNTOUCHED), *named)
        return Collected(
            calls=len(going),
            blobs=blobs,
            bytes=size + sum(int(each[0]) for each in going),
            more=False,
            runs=len(ending),
        )


def _number(row: bytes) -> int:
    """What cannot be read comes last."""
    with contextlib.suppress(DamagedRecord):
        return read_line(row)[0].number
    return 0


def _index(state: State | None) -> str:
    """Nearly every row is done, so all of them are its index."""
    if state in (None, State.DONE):
        return "all"
    return PENDING if state is State.PENDING else f"s:{state}"


def _fits(facts: Facts, query: Query) -> bool:
    asked = (query.tenant, query.state, query.upstream, query.tool, query.run)
    return all(not wanted or wanted == found for wanted, found in zip(asked, facts[:5], strict=True))


def _is_live(facts: Facts, now: float) -> bool:
    return facts.expires_at is None or facts.state in OPEN_STATES or now < facts.expires_at


def _memory_used(told: bytes) -> int:
    """Of the whole server: what else lies there fills the same memory."""
    for line in told.split(b"\r\n"):
        if line.startswith(b"used_memory:"):
            return int(line.partition(b":")[2])
    return 0
