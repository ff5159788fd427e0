"""The part of the Redis store that is about single calls: reading, comparing and swapping, history, marks.

A swap is a part of one script (swaps.lua): the row, its history, its place in every index and in its run
change together or not at all. A crash of this process before the reply leaves the one or the other, and the
caller reads the row again. A crash of the server does too: a script is one entry of its log, and a torn one
is not played back. A swap that comes to the server after its caller has given up (held up on the way, or by a
server that stood still) is dropped there, by the server's clock: no claim lands that nobody knows of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from proxy.core.budget import Account, Charge, Spent
from proxy.core.intent import SETTLED_STATES, Call, Entry, Event
from proxy.core.run_record import Serving
from proxy.errors import StoreUnavailable
from proxy.store.base import Swap, takes_seq
from proxy.store.codec import DamagedRecord
from proxy.store.marks import Marks, ServedMarks
from proxy.store.redis_batch import Batch
from proxy.store.redis_pipe import Pipe, unavailable
from proxy.store.redis_rows import (
    account_id,
    read_call,
    read_entry,
    read_line,
    read_spent,
    run_id,
    write_call,
    write_charge,
    write_entry,
    write_serving,
)
from proxy.store.redis_watch import Wakes
from proxy.store.watchers import Watchers

# Marks are written this long after the first of them: seldom enough to coalesce, within the second promised.
MARKS_AFTER = 0.5
# The first line of a row is never longer.
LINE = 319
# Wake-ups by pub/sub may be lost with a connection: so often a watcher looks for itself.
LOOK_EVERY = 1.0
_NOT_DONE = {-1: "the run is not there", -2: "the swap came too late and was not done"}
_EXCEEDED = 2
_SENDS = (Event.CLAIM, Event.RESEND)


class RedisCalls:
    """What it takes for granted is RedisStore's."""

    _pipe: Pipe
    _batch: Batch
    _tag: str
    _closed: bool
    _watchers: Watchers
    _wakes: Wakes
    _marks: Marks
    _served: ServedMarks
    _marks_timer: asyncio.TimerHandle | None
    _flushing: asyncio.Lock
    unsafe: str | None
    _refuses: Callable[[], str | None]

    def _name(self, kind: str, key: bytes) -> bytes:
        return f"{self._tag}:{kind}:".encode() + key

    async def get(self, key: bytes, known: Call | None = None) -> Call | None:
        name = self._name("c", key)
        if known is not None:
            start = await self._pipe.ask("GETRANGE", name, 0, LINE)
            if start and _stands(start, known):
                return known
        stored = await self._pipe.ask("GET", name)
        return None if stored is None else readable(key, stored)

    async def get_many(self, keys: Sequence[bytes]) -> list[Call]:
        if not keys:
            self._refuse_if_closed()
            return []
        stored = await self._pipe.ask("MGET", *(self._name("c", key) for key in keys))
        found = []
        for key, value in zip(keys, stored, strict=True):
            with contextlib.suppress(StoreUnavailable):
                if value is not None:
                    found.append(readable(key, value))
        return found

    def settled_stamp(self) -> int | None:
        """Whoever changes a row on another machine cannot be heard of before it is told so."""
        return None

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
        args = _swap_args(call, entry, expected, served, charge)
        sends = not call.safe and entry.event in _SENDS
        size = len(call.request) + (len(call.answer.body) if call.answer else 0)
        won, *told = await self._batch.swap(args, size, self._refuses if sends else _sends_nothing)
        if won == 1:
            self._watchers.row_changed(call.key, call.version)
            return Swap(True, seq=told[0])
        if won == 0:
            present = told[0] if told else None
            return Swap(False, None if present is None else readable(call.key, present))
        if won == _EXCEEDED:
            return Swap(False, exceeded=tuple(read_spent(told[0])))
        raise unavailable(told[0].decode(errors="replace") if told else _NOT_DONE[won])

    async def spent(self, account: Account) -> list[Spent]:
        return read_spent(await self._pipe.ask("HGETALL", self._name("m", account_id(account))))

    async def note(self, key: bytes, entry: Entry) -> None:
        await self._pipe.run("note", key, write_entry(entry))

    async def history(self, key: bytes) -> list[Entry]:
        lines = await self._pipe.ask("LRANGE", self._name("e", key), 0, -1)
        try:
            return [read_entry(line) for line in lines]
        except (ValueError, KeyError, DamagedRecord) as error:
            raise unavailable(error) from error

    # --- marks ---------------------------------------------------------------------------------------

    def mark_replayed(self, key: bytes, at: float) -> None:
        self._marks.add(key, at)
        self._marks_come()

    def _marks_come(self) -> None:
        if self._marks_timer is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._marks_timer = loop.call_later(MARKS_AFTER, self._marks_are_due)

    def _marks_are_due(self) -> None:
        self._marks_timer = None
        if not self._closed:
            self._flush_soon()

    def _flush_soon(self) -> None:
        raise NotImplementedError

    async def _flush_marks(self) -> None:
        """All that have come. What cannot be written stays and goes with the next; a portion whose reply was
        lost may be counted twice, which only people see."""
        async with self._flushing:
            self._marks.gather()
            self._served.gather()
            while self._marks or self._served:
                marks, served = self._marks.take(), self._served.take()
                try:
                    if served:
                        await self._pipe.run("serve", *(word for s in served for word in write_serving(s)))
                        served = []
                    if marks:
                        await self._pipe.run("mark", *(word for key, n, _ in marks for word in (key, n)))
                        marks = []
                finally:
                    self._marks.put_back(marks)
                    self._served.put_back(served)

    async def replays(self, key: bytes) -> int:
        self._refuse_if_closed()
        with contextlib.suppress(StoreUnavailable):
            await self._flush_marks()
        return int(await self._pipe.ask("HGET", f"{self._tag}:replays", key) or 0)

    # --- waiting -------------------------------------------------------------------------------------

    async def changed(self, key: bytes, version: int, timeout: float) -> bool:
        self._refuse_if_closed()
        if await self._version(key) != version:  # however little time there is
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Watch first, then look: a change between the two wakes us, a change before is seen.
        self._watchers.add(key, version, woken)
        self._wakes.watch(key)
        try:
            async with asyncio.timeout(timeout):
                await self._wakes.heard(key)
                while not woken.done() and await self._version(key) == version:
                    looks = (woken, self._wakes.again)
                    await asyncio.wait(looks, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return False
        finally:
            self._watchers.remove(key, version, woken)
            self._wakes.leave(key)
        self._refuse_if_closed()
        return True

    async def _version(self, key: bytes) -> int:
        start = await self._pipe.ask("GETRANGE", self._name("c", key), 0, LINE)
        return int(start.split(b" ", 1)[0]) if start else 0

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")


def _swap_args(
    call: Call, entry: Entry, expected: int, served: Serving | None, charge: Charge | None
) -> tuple[bytes | str | int, ...]:
    """In the order in which swaps.lua takes them."""
    answer = call.answer
    try:
        small, large = write_call(call)
        line = write_entry(entry)
    except (TypeError, ValueError) as error:
        raise unavailable(error) from error
    size = len(call.request) + (len(answer.head) + len(answer.body) if answer else 0)
    expires = call.expires_at if call.state in SETTLED_STATES and not call.run else None
    return (
        call.key, expected, repr(float(call.born)), call.version, call.state.value, call.owner, size, small,
        large, line, "" if expires is None else repr(expires),
        repr(call.doubt.since) if call.doubt else "", call.request_blob or "-",
        (answer.blob if answer else "") or "-", repr(entry.at),
        run_id(call.tenant, call.run) if call.run else "", "1" if takes_seq(call, entry) else "0", call.seq,
        *(write_serving(served) if served is not None and call.run else ("", "", "", "")),
        b"" if charge is None else write_charge(charge),
    )  # fmt: skip


def _sends_nothing() -> str | None:
    return None


def _stands(start: bytes, known: Call) -> bool:
    with contextlib.suppress(DamagedRecord):
        line, _ = read_line(start)
        return line.version == known.version and line.born == repr(float(known.born))
    return False


def readable(key: bytes, stored: bytes) -> Call:
    try:
        return read_call(key, stored)
    except DamagedRecord as error:
        raise unavailable(error) from error
