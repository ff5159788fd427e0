"""The Redis store, for Redis and what speaks its protocol (Valkey): it only puts the parts together.

Everything lies under one hash tag, so in one slot, also on a cluster: a change of a call, its history, every
index and its run is one script that happens whole or not at all, and the place of a row follows from its key
alone. No index can be behind its rows, so none has to be repaired. The price: one node of a cluster holds a
store. docs/why/redis.md says what that means, and what Redis promises.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from typing import Any

import hiredis

from proxy.errors import ConfigurationError, NoRecord, StoreUnavailable
from proxy.store.archive import MARK, not_whole
from proxy.store.base import Batched, uncounted
from proxy.store.durability import Durability
from proxy.store.heartbeats import Heart
from proxy.store.keystone import TELLS_APART
from proxy.store.marks import Marks, ServedMarks
from proxy.store.redis_batch import Batch
from proxy.store.redis_beats import RedisBeats
from proxy.store.redis_blobs import RedisBlobs
from proxy.store.redis_calls import RedisCalls
from proxy.store.redis_index import RedisIndex
from proxy.store.redis_pipe import PATIENCE, Pipe
from proxy.store.redis_runs import RedisRuns
from proxy.store.redis_safety import read_safety, told_as
from proxy.store.redis_watch import Wakes
from proxy.store.redis_wire import Address, Wire, read_url
from proxy.store.telling import TellsByTask
from proxy.store.watchers import Watchers

# How the keys are laid out. A store of another layout is not touched.
LAYOUT = b"1"
GONE = (
    "calls with effects are refused: the record that semel was started with is no longer in the Redis "
    "server; it was emptied, or is another server. Restore the record, or restart semel to begin a new one."
)

SCANNED = 1000  # names looked at in one step

Note = Callable[..., None]  # what happened, and facts about it


class RedisStore(RedisCalls, RedisRuns, RedisIndex, RedisBlobs, TellsByTask):
    """`unsafe`: why calls with effects are refused, or would be without `durability: best-effort`."""

    def __init__(
        self,
        address: Address,
        *,
        heartbeat: float,
        dead_after: float,
        durability: Durability,
        patience: float,
        note: Note,
        batched: Batched = uncounted,
    ) -> None:
        self._tag = f"{{{address.prefix}}}"
        self.durability = durability
        self.unsafe: str | None = None
        self._gone: str | None = None
        self._note = note
        self._pipe = Pipe(address, self._tag, self._greet, patience=patience)
        self._batch = Batch(self._pipe, batched)
        self._watchers = Watchers()
        self._wakes = Wakes(self._pipe, self._tag, self._watchers, patience)
        self._marks, self._served = Marks(), ServedMarks()
        self._marks_timer: asyncio.TimerHandle | None = None
        self._flushing, self._collecting = asyncio.Lock(), asyncio.Lock()
        self._beats = RedisBeats(self._pipe, self._tag)
        self._heart = Heart(
            self._beats, heartbeat=heartbeat, dead_after=dead_after, each=self._tend, renewed=self._renewed
        )
        self._chores: set[asyncio.Task[None]] = set()
        self._closed = False
        self.secret = b""

    async def start(self, *, make: bool = True) -> None:
        if make:
            await self._pipe.ask("SET", f"{self._tag}:layout", LAYOUT, "NX")
        layout = await self._pipe.ask("GET", f"{self._tag}:layout")
        if layout is None:
            raise NoRecord(f"there is no record in {self._pipe.address} under {self._tag}")
        if layout != LAYOUT:
            raise ConfigurationError(
                f"the Redis store has layout {layout!r}, this semel knows {LAYOUT!r}: upgrade this process"
            )
        await self._pipe.ask("SET", f"{self._tag}:secret", secrets.token_bytes(32), "NX")
        self.secret = await self._pipe.ask("GET", f"{self._tag}:secret")
        await self._heart.start()
        # Again, when this process is to be seen among the living: a copy looks at them after its mark.
        self.secret, origin = await self._pipe.ask("MGET", f"{self._tag}:secret", f"{self._tag}:{MARK}")
        if origin is not None:
            raise not_whole(f"{self._pipe.address}", origin.decode())

    @property
    def name(self) -> str:
        """Told in semel_build_info, so that metrics show what calls with effects rest on."""
        return "redis-best-effort" if self.durability is Durability.BEST_EFFORT else "redis"

    # --- safety --------------------------------------------------------------------------------------

    async def _greet(self, wire: Wire) -> None:
        """A new connection may lead to a server with other settings, or with another record: it was
        restarted, or is another."""
        unsafe = await read_safety(wire)
        self._gone = await self._look_for_the_record(wire)
        self._judge(self._gone or unsafe)

    async def _look_for_the_record(self, wire: Wire) -> str | None:
        """Whether what was acknowledged is still there. A node of a cluster that is the wrong one says so."""
        if not self.secret:
            return None
        found = await wire.ask("GET", f"{self._tag}:secret")
        if isinstance(found, hiredis.ReplyError):
            return None
        # By what tells records apart: the rest of a keystone changes with its key.
        return None if found and found[:TELLS_APART] == self.secret[:TELLS_APART] else GONE

    def _judge(self, unsafe: str | None) -> None:
        if unsafe != self.unsafe:
            self.unsafe = unsafe
            told = "redis-safe" if unsafe is None else "redis-unsafe"
            self._note(told, durability=str(self.durability), why=told_as(unsafe or "", self.durability))

    def _refuses(self) -> str | None:
        return self._gone or (None if self.durability is Durability.BEST_EFFORT else self.unsafe)

    def _tend(self) -> None:
        """After every beat: settings that were changed are noticed."""
        if not self._closed:
            self._in_background(self._pipe.regreet())

    def _flush_soon(self) -> None:
        self._in_background(self._flush_marks())

    def _in_background(self, work: Any) -> None:  # noqa: ANN401 (a coroutine)
        task = asyncio.ensure_future(_quietly(work))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # --- owners --------------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        return self._heart.epoch

    def _renewed(self, buried: str, epoch: str) -> None:
        self._note(
            "owner-renewed", was=buried, now=epoch, detail="others took this process for dead: it begins anew"
        )

    def owns(self) -> bool:
        return not self._closed and self._heart.pulse.fresh()

    async def owner_is_dead(self, owner: str) -> bool:
        self._refuse_if_closed()
        return owner != self.owner and bool(await self._heart.dead_among([owner]))

    async def clock_mark(self, now: float) -> float:
        return await self._beats.clock_mark(now)

    async def _forget_dead(self) -> None:
        """Also those that died with nothing pending: nobody else would ever ask for them."""
        others = [beat.epoch for beat in await self._beats.all() if beat.epoch != self.owner]
        await self._heart.dead_among(others)
        await self._beats.forget_dead()

    # --- the rest ------------------------------------------------------------------------------------

    async def swap_secret(self, old: bytes, new: bytes) -> bytes:
        self.secret = await self._pipe.run("swap_secret", old, new)
        return self.secret

    async def scrub(self) -> str:
        cursor, cached = b"0", f"{_escaped(self._tag)}:k:*"
        while True:
            cursor, names = await self._pipe.ask("SCAN", cursor, "MATCH", cached, "COUNT", SCANNED)
            if names:
                await self._pipe.ask("UNLINK", *names)
            if cursor == b"0":
                break
        try:
            await self._pipe.ask("BGREWRITEAOF")
        except StoreUnavailable as error:  # it may be under way, or not be permitted
            return f"the server's log still has what was overwritten: BGREWRITEAOF ({error.detail})"
        return ""

    async def cache_put(self, key: bytes, value: bytes, ttl: float) -> None:
        name, milliseconds = self._name("k", key), int(ttl * 1000)
        if milliseconds > 0:
            await self._pipe.ask("SET", name, value, "PX", milliseconds)
        else:
            await self._pipe.ask("UNLINK", name)

    async def cache_get(self, key: bytes) -> bytes | None:
        value: bytes | None = await self._pipe.ask("GET", self._name("k", key))
        return value

    async def ping(self) -> None:
        """A beat is a write that is durable when it is answered."""
        self._refuse_if_closed()
        await self._heart.beat()
        if not self.owns():
            raise StoreUnavailable("nothing is sent now: the last sign of life in the store is too old")
        if why := self._refuses():
            raise StoreUnavailable(why)

    async def close(self) -> None:
        """What is under way is answered, marks are written, then the others are told."""
        if self._closed:
            return
        self._closed = True
        if self._marks_timer is not None:
            self._marks_timer.cancel()
        self._watchers.wake_all()
        await self._batch.close()
        await _quietly(self._flush_marks())
        await self._heart.stop()
        await asyncio.gather(*self._chores)
        await self._wakes.close()
        await self._pipe.close()


def _untold(event: str, **facts: object) -> None:
    """Nobody listens."""


async def open_redis(
    url: str,
    *,
    heartbeat: float = 5.0,
    dead_after: float = 15.0,
    durability: str = "",
    patience: float = PATIENCE,
    make: bool = True,
    note: Note = _untold,
    batched: Batched = uncounted,
) -> RedisStore:
    """ConfigurationError if the URL is wrong or the server cannot serve. `durability` may also stand in the
    URL. `make`: the store may be made there. `note` hears when the server's settings turn out to be unsafe,
    or safe again."""
    address = read_url(url)
    asked = durability or address.durability or Durability.STRICT
    try:
        chosen = Durability(asked)
    except ValueError:
        raise ConfigurationError(f"durability: {asked!r}; known are strict and best-effort") from None
    store = RedisStore(
        address,
        heartbeat=heartbeat,
        dead_after=dead_after,
        durability=chosen,
        patience=patience,
        note=note,
        batched=batched,
    )
    try:
        await store.start(make=make)
    except BaseException as error:
        await store.close()
        if isinstance(error, StoreUnavailable):
            raise ConfigurationError(f"store: {error.detail}") from error
        raise
    return store


async def _quietly(work: Any) -> None:  # noqa: ANN401 (a coroutine)
    """What fails here is tried again by itself."""
    try:
        await work
    except StoreUnavailable:
        return


def _escaped(text: str) -> str:
    """In a pattern of Redis: itself and nothing else."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", text)
