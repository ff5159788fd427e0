"""The reference model: the same promises as every store, in a few dictionaries, gone with the process.

Several `MemoryStore`s on one `World` stand for several processes on one store, so that a test can run two
proxies, let one die, or take the store away from under one of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence

from proxy.core.budget import Account, Charge, Spent
from proxy.core.intent import SETTLED_STATES, Call, Entry, State, evolve, is_live
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from proxy.store.base import (
    BlobLost,
    BlobRef,
    Census,
    Collected,
    Orphans,
    Page,
    Query,
    Swap,
    changes_settled,
    takes_seq,
)
from proxy.store.memory_runs import MemoryRuns
from proxy.store.memory_world import World, size_of
from proxy.store.telling import TellsByTask

CHUNK = 256 * 1024


class MemoryStore(MemoryRuns, TellsByTask):
    """For tests: `unavailable` makes every call raise; `fail_after_swaps` lets so many swaps land and then
    raise all the same, as when the reply is lost; `kill` is the death of this process."""

    name = "memory"

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.owner = f"memory-{next(self.world.epochs)}-{secrets.token_hex(4)}"
        self.secret = self.world.secret
        self.unavailable = False
        self.fail_after_swaps = 0
        self._closed = False
        self._runs, self._calls = self.world.runs, self.world.calls
        self.world.living.add(self.owner)

    def kill(self) -> None:
        self._closed = True
        self.world.living.discard(self.owner)

    async def get(self, key: bytes, known: Call | None = None) -> Call | None:
        self._check()
        present = self.world.calls.get(key)
        same = known and present and (known.version, known.born) == (present.version, present.born)
        return known if same else present

    async def get_many(self, keys: Sequence[bytes]) -> list[Call]:
        self._check()
        return [self.world.calls[key] for key in keys if key in self.world.calls]

    def settled_stamp(self) -> int | None:
        return None if self._closed or self.unavailable else self.world.settled_stamp

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
        self._check()
        present = self.world.calls.get(call.key)
        if (present.version if present else 0) != expected or (present and present.born != call.born):
            return Swap(False, present)
        if takes_seq(call, entry) and self._is_expired(call.tenant, call.run):
            return Swap(False, present)  # nothing is begun in it any more
        if (exceeded := self.world.spending.exceeded(charge)) is not None:
            return Swap(False, exceeded=exceeded)
        if charge is not None:
            self.world.spending.apply(charge)
        self.world.settled_stamp += changes_settled(entry, expected)
        if present is None:
            self.world.numbers[call.key] = next(self.world.sights)
        if call.run:
            call = self._beat(call, entry, served)
        self.world.calls[call.key] = call
        self.world.events.setdefault(call.key, []).append(entry)
        self.world.watchers.row_changed(call.key, call.version)
        if self.fail_after_swaps:
            self.fail_after_swaps -= 1
            raise StoreUnavailable("the store is not available: the reply was lost")
        return Swap(True, seq=call.seq)

    def _beat(self, call: Call, entry: Entry, served: Serving | None) -> Call:
        """The run's side of a swap: the order of claims, the pulse, who is served."""
        claims = takes_seq(call, entry)
        run = self.world.runs.beat((call.tenant, call.run), entry.at, takes_seq=claims)
        self.world.runs.pulses[call.key] = run.pulse
        if served is not None:  # in a fork it is another run than the row's
            self._serve(served)
        return evolve(call, seq=run.last_seq) if claims else call

    async def spent(self, account: Account) -> list[Spent]:
        self._check()
        return self.world.spending.of(account)

    async def note(self, key: bytes, entry: Entry) -> None:
        self._check()
        if key in self.world.calls:  # history is kept with the call
            self.world.events[key].append(entry)

    async def history(self, key: bytes) -> list[Entry]:
        self._check()
        return list(self.world.events.get(key, ()))

    def mark_replayed(self, key: bytes, at: float) -> None:
        if key in self.world.calls:  # kept with the call
            self.world.replays[key] = self.world.replays.get(key, 0) + 1

    async def replays(self, key: bytes) -> int:
        self._check()
        return self.world.replays.get(key, 0)

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        self._check()
        present = self.world.calls.get(key)
        if (present.version if present else 0) != version:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.world.watchers.add(key, version, woken)
        try:
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            return False
        finally:
            self.world.watchers.remove(key, version, woken)
        self._check()
        return True

    async def clock_mark(self, now: float) -> float:
        self._check()
        self.world.latest = max(self.world.latest, now)
        return self.world.latest

    async def find(self, query: Query) -> Page:
        self._check()
        found = [
            (number, call)
            for number, call in ((self.world.numbers[key], call) for key, call in self.world.calls.items())
            if _fits(call, query) and (query.after is None or number < query.after)
        ][::-1]
        page = found[: query.limit]
        return Page(calls=[call for _, call in page], next=page[-1][0] if len(found) > len(page) else None)

    async def orphans(self) -> Orphans:
        self._check()
        living, calls = self.world.living, self.world.calls.values()
        return Orphans(calls=[c for c in calls if c.state is State.PENDING and c.owner not in living])

    def owns(self) -> bool:
        return not self._closed

    async def owner_is_dead(self, owner: str) -> bool:
        self._check()
        return owner not in self.world.living

    async def census(self) -> Census:
        self._check()
        return self.world.census()

    def evictions(self) -> int:
        return 0

    async def live_calls(self, upstream: str, rule: str, now: float) -> int:
        self._check()
        named = [call for call in self.world.calls.values() if (call.upstream, call.rule) == (upstream, rule)]
        return sum(is_live(call, now) for call in named)

    async def collect(
        self, now: float, *, limit: int = 500, dry_run: bool = False, runs_before: float = 0.0
    ) -> Collected:
        self._check()
        world = self.world
        over = [call for call in world.calls.values() if _is_over(call, now)]
        expired = sorted(over, key=lambda call: call.expires_at or 0.0)
        expired += self._calls_over(runs_before)
        ending = self._over(runs_before)
        going = expired if dry_run else expired[:limit]
        gone = {call.key for call in going}
        unnamed = world.unnamed_blobs([call for call in world.calls.values() if call.key not in gone])
        blobs = unnamed if dry_run else unnamed[:limit]
        collected = Collected(
            calls=len(going),
            blobs=len(blobs),
            bytes=sum(map(size_of, going)) + sum(len(world.blobs[digest]) for digest in blobs),
            more=len(expired) > len(going) or len(unnamed) > len(blobs),
            runs=len(ending),
        )
        if not dry_run:
            stale = [key for key, (_, until) in world.cache.items() if until <= world.clock()]
            for key in stale:
                del world.cache[key]
            self._expire(runs_before)  # first: what is half gone must not come to life again
            self._remove(going, blobs)
            world.spending.collect(now, self._expired())
        return collected

    def _remove(self, calls: list[Call], blobs: list[str]) -> None:
        world = self.world
        world.settled_stamp += any(call.state is State.DONE for call in calls)
        for call in calls:
            for kept in (world.calls, world.numbers, world.events, world.replays, world.runs.pulses):
                kept.pop(call.key, None)
            world.watchers.row_changed(call.key, 0)
        for digest in blobs:
            del world.blobs[digest], world.touched[digest]

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        self._check()
        content = b"".join(chunks)
        digest = hashlib.blake2b(content, digest_size=32).hexdigest()
        self.world.blobs[digest] = content
        self.world.touched[digest] = self.world.clock()
        return BlobRef(digest, len(content))

    async def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        self._check()
        content = self.world.blobs.get(ref.digest)
        if content is None or len(content) != ref.size:
            raise BlobLost(f"blob {ref.digest} is missing")
        damaged = hashlib.blake2b(content, digest_size=32).hexdigest() != ref.digest
        for start in range(0, ref.size, CHUNK):
            if damaged and start + CHUNK >= ref.size:
                raise BlobLost(f"blob {ref.digest} is damaged")
            yield content[start : start + CHUNK]

    async def cache_put(self, key: bytes, value: bytes, ttl: float) -> None:
        self._check()
        self.world.cache[key] = (value, self.world.clock() + ttl)

    async def swap_secret(self, old: bytes, new: bytes) -> bytes:
        self._check()
        if self.world.secret == old:
            self.world.secret = new
        self.secret = self.world.secret
        return self.secret

    async def scrub(self) -> str:
        self._check()
        self.world.cache.clear()
        return ""

    async def cache_get(self, key: bytes) -> bytes | None:
        self._check()
        value, until = self.world.cache.get(key, (None, 0.0))
        return value if self.world.clock() < until else None

    async def ping(self) -> None:
        self._check()

    async def close(self) -> None:
        self.kill()
        self.world.watchers.wake_all()

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self.unavailable:
            raise StoreUnavailable("the store is not available: a test took it away")


def _fits(call: Call, query: Query) -> bool:
    asked = (query.tenant, query.state, query.upstream, query.tool, query.run)
    has = (call.tenant, call.state, call.upstream, call.tool, call.run)
    return all(not wanted or wanted == found for wanted, found in zip(asked, has, strict=True))


def _is_over(call: Call, now: float) -> bool:
    """In a run only what a person forgot has a time; its number stays, and the row goes with the run."""
    timed = call.expires_at is not None and call.expires_at < now
    return call.state in SETTLED_STATES and timed and not call.run
