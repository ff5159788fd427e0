"""The Redis store as the source and as the target of a copy.

A page is one script, so it is there whole or not at all, with every index. Which bodies are named is kept in
memory while they are copied: a digest each, as the server does.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence

import orjson

from proxy.core.budget import Account
from proxy.errors import ConfigurationError, NoRecord, StoreUnavailable
from proxy.store.archive import (
    LINE,
    MARK,
    PORTION,
    RUN,
    BudgetDump,
    CallDump,
    Cursor,
    Dump,
    ExchangeDump,
    Kind,
    Portion,
    RunDump,
    Standing,
    Written,
    portions,
)
from proxy.store.copying import beating
from proxy.store.redis_beats import RedisBeats
from proxy.store.redis_blobs import RedisBlobs
from proxy.store.redis_dumps import WRITERS, buckets_of, call_of, exchange_of, field_of
from proxy.store.redis_pipe import Pipe
from proxy.store.redis_rows import account_id, read_line, run_id
from proxy.store.redis_safety import read_safety
from proxy.store.redis_store import LAYOUT
from proxy.store.redis_wire import Address, Part, Wire, read_url

# A page of large rows takes the server a moment: longer than a proxy would wait for a single call.
PATIENCE = 60.0
# An account has about sixty buckets for each of what it counts.
ACCOUNTS = 8


class RedisSource(RedisBlobs):
    def __init__(self, address: Address, note: Callable[..., None] | None = None) -> None:
        self._tag = f"{{{address.prefix}}}"
        self._note = note
        self._pipe = Pipe(address, self._tag, self._greet, patience=PATIENCE)
        self._digests: list[str] | None = None
        self._silent: dict[str, int] = {}
        self.shown = f"redis://{address}/{address.database}?prefix={address.prefix}"

    async def _greet(self, wire: Wire) -> None:
        unsafe = await read_safety(wire) if self._note is not None else None
        if unsafe is not None and self._note is not None:
            self._note("redis-unsafe", detail=unsafe)

    def _name(self, *words: str) -> str:
        return ":".join((self._tag, *words))

    async def get(self, name: str) -> bytes | None:
        value: bytes | None = await self._pipe.ask("GET", self._name(name))
        return value

    async def standing(self) -> Standing:
        mark = await self.get(MARK)
        cards = [await self._pipe.ask("ZCARD", self._name(index)) for index in ("all", "runs")]
        return Standing(
            secret=await self.get("secret") or b"",
            unfinished=None if mark is None else mark.decode(),
            empty=not any(cards),
        )

    async def living(self) -> int:
        return await beating(RedisBeats(self._pipe, self._tag).all, self._silent)

    async def tide(self) -> object:
        """Redis counts no changes of a part of its keys: what a change leaves in rows and runs is read."""
        digest = hashlib.blake2b(await self.get("n") or b"")
        beyond = 0
        while told := await self._pipe.run("page", "all", "up", beyond, PORTION):
            digest.update(b"\n".join(part or b"" for part in told))
            beyond = int(told[-3])
        for run in await self._pipe.ask("ZRANGE", self._name("runs"), 0, -1):
            digest.update(repr(await self._pipe.run("run_get", run)).encode())
        digest.update(repr(sorted(await self._pipe.ask("HVALS", self._name("replays")))).encode())
        return digest.hexdigest()

    async def totals(self) -> dict[Kind, int]:
        calls, runs = [await self._pipe.ask("ZCARD", self._name(index)) for index in ("all", "runs")]
        blobs = await self._pipe.ask("HLEN", self._name("named"))
        return {Kind.CALLS: calls, Kind.RUNS: runs, Kind.BLOBS: blobs}

    async def read(self, kind: Kind, after: Cursor) -> Portion:
        pages = {
            Kind.RUNS: self._run_page,
            Kind.EXCHANGES: self._exchange_page,
            Kind.BUDGETS: self._budget_page,
            Kind.CALLS: self._call_page,
        }
        return await pages[kind](after)

    # ---- calls ----

    async def _call_page(self, after: Cursor) -> Portion:
        told = await self._pipe.run("page", "all", "up", after[0] if after else 0, PORTION)
        found = list(zip(told[::3], told[1::3], told[2::3], strict=True))
        there = [(int(number), key, row) for number, key, row in found if row is not None]
        numbers = portions((number, len(row) + read_line(row)[0].size) for number, _, row in there)
        keys = [key for number, key, _ in there if not numbers or number <= numbers[-1]]
        more = len(numbers) < len(there) or len(found) == PORTION
        last = numbers[-1] if numbers else int(found[-1][0]) if found else 0
        return Portion([*await self.calls(keys)], (last,) if more else None)

    async def calls(self, keys: Sequence[bytes]) -> list[CallDump]:
        if not keys:
            return []
        rows, replays, *histories = await asyncio.gather(
            self._pipe.ask("MGET", *(self._key("c", key) for key in keys)),
            self._pipe.ask("HMGET", self._name("replays"), *keys),
            *(self._pipe.ask("LRANGE", self._key("e", key), 0, -1) for key in keys),
        )
        each = zip(keys, rows, replays, histories, strict=True)
        return [
            call_of(key, row, int(times or 0), lines) for key, row, times, lines in each if row is not None
        ]

    def _key(self, kind: str, key: bytes) -> bytes:
        return f"{self._tag}:{kind}:".encode() + key

    # ---- runs ----

    async def _run_page(self, after: Cursor) -> Portion:
        names = await self._run_names(after)
        dumps = await self.runs([name for _, name in names])
        return Portion([*dumps], (names[-1][0],) if len(names) == PORTION else None)

    async def _run_names(self, after: Cursor, many: int = PORTION) -> list[tuple[int, bytes]]:
        told = await self._pipe.ask(
            "ZRANGEBYSCORE", self._name("runs"), f"({after[0] if after else 0}", "+inf", "WITHSCORES",
            "LIMIT", 0, many,
        )  # fmt: skip
        return [(int(number), name) for name, number in zip(told[::2], told[1::2], strict=True)]

    async def runs(self, names: Sequence[bytes]) -> list[RunDump]:
        if not names:
            return []
        found, *rest = await asyncio.gather(
            self._pipe.run("run_get", *names),
            *(self._pipe.ask("LRANGE", self._name("re:").encode() + name, 0, -1) for name in names),
            *(self._pipe.ask("SISMEMBER", self._name("clear"), name) for name in names),
        )
        dumps = []
        for fields, lines, waits in zip(found, rest[: len(names)], rest[len(names) :], strict=True):
            if fields is None:
                continue
            row = RUN.of(field.decode() for field in fields[: len(RUN.names)])
            history = tuple(LINE.of(orjson.loads(line)) for line in lines)
            expired = row[RUN.names.index("state")] == "expired"
            dumps.append(RunDump(row, expired and not waits, history))
        return dumps

    # ---- exchanges ----

    async def _exchange_page(self, after: Cursor) -> Portion:
        """Run by run; of one from which place on. A page that comes out empty is not the last."""
        number, start = after or (0, 0)
        names = await self._run_names((number - 1,) if number else None, 1)
        if not names:
            return Portion([], None)
        ((number, name),) = names
        stop = start + PORTION - 1
        index, values = self._name("xp:").encode() + name, self._name("x:").encode() + name
        told = await self._pipe.ask("ZRANGE", index, start, stop, "WITHSCORES")
        fields = told[::2]
        stored = await self._pipe.ask("HMGET", values, *fields) if fields else []
        tenant, run = await self._pipe.ask("HMGET", self._name("r:").encode() + name, "tenant", "name")
        each = zip(stored, told[1::2], strict=True)
        dumps: list[Dump] = [
            exchange_of(tenant.decode(), run.decode(), value, int(pulse)) for value, pulse in each if value
        ]
        return Portion(dumps, (number, stop + 1) if len(fields) == PORTION else (number + 1, 0))

    # ---- budgets ----

    async def _budget_page(self, after: Cursor) -> Portion:
        start = b"(" + after[0] if after else b"-"
        index = self._name("accounts")
        names = await self._pipe.ask("ZRANGEBYLEX", index, start, "+", "LIMIT", 0, ACCOUNTS)
        held = await asyncio.gather(*(self._pipe.ask("HGETALL", self._key("m", name)) for name in names))
        dumps = [dump for name, each in zip(names, held, strict=True) for dump in buckets_of(name, each)]
        return Portion([*dumps], (names[-1],) if len(names) == ACCOUNTS else None)

    # ---- bodies ----

    async def blob_names(self, after: str) -> list[str]:
        if self._digests is None or not after:
            found: set[str] = set()
            cursor: Part = 0
            while True:
                cursor, told = await self._pipe.ask("HSCAN", self._name("named"), cursor, "COUNT", PORTION)
                found |= {digest.decode() for digest in told[::2]}
                if int(cursor) == 0:
                    break
            self._digests = sorted(found)
        return [digest for digest in self._digests if digest > after][:PORTION]

    async def blob_size(self, digest: str) -> int | None:
        known = await self._pipe.ask("HGET", self._name("blob"), digest)
        return None if known is None else int(known.split(b" ")[1])

    async def close(self) -> None:
        await self._pipe.close()


class RedisTarget(RedisSource):
    async def make(self) -> None:
        await self._pipe.ask("SET", self._name("layout"), LAYOUT, "NX")
        await self._pipe.ask("SET", self._name("secret"), secrets.token_bytes(32), "NX")

    async def begin(self, origin: str) -> None:
        await self._pipe.ask("SET", self._name(MARK), origin)

    async def adopt(self, secret: bytes) -> None:
        await self._pipe.ask("SET", self._name("secret"), secret)

    async def finish(self) -> None:
        await self._pipe.ask("DEL", self._name(MARK))

    async def write(self, kind: Kind, dumps: Sequence[Dump]) -> Written:
        script, words = WRITERS[kind]
        made = await self._pipe.run(script, *(word for dump in dumps for word in words(dump)))
        there = [dump for dump, new in zip(dumps, made, strict=True) if not new]
        return Written(len(dumps) - len(there), await self._present(there))

    async def _present(self, dumps: list[Dump]) -> list[Dump]:
        found: list[Dump] = [*await self.calls([dump.key for dump in dumps if isinstance(dump, CallDump)])]
        runs = [run_id(*dump.row[:2]).encode() for dump in dumps if isinstance(dump, RunDump)]
        found += await self.runs(runs)
        budgets = {dump.identity for dump in dumps if isinstance(dump, BudgetDump)}
        for account in sorted(
            {account_id(Account(*dump.row[:4])) for dump in dumps if isinstance(dump, BudgetDump)}
        ):
            held = await self._pipe.ask("HGETALL", self._key("m", account))
            found += [dump for dump in buckets_of(account, held) if dump.identity in budgets]
        for dump in dumps:
            if isinstance(dump, ExchangeDump):
                run, field = run_id(dump.tenant, dump.run), field_of(dump)
                value, pulse = await asyncio.gather(
                    self._pipe.ask("HGET", self._name("x", run), field),
                    self._pipe.ask("ZSCORE", self._name("xp", run), field),
                )
                found.append(exchange_of(dump.tenant, dump.run, value, int(float(pulse or 0))))
        return found


async def open_source(url: str) -> RedisSource:
    """ConfigurationError if there is no record, or one of another layout."""
    source = RedisSource(read_url(url))
    await _of_this_layout(source)
    return source


async def open_target(url: str, note: Callable[..., None]) -> RedisTarget:
    """Made if it is not there. `note` hears of settings under which the server may lose what it has."""
    target = RedisTarget(read_url(url), note)
    await _of_this_layout(target, target.make)
    return target


async def _of_this_layout(store: RedisSource, first: Callable[[], Awaitable[None]] | None = None) -> None:
    try:
        if first is not None:
            await first()
        layout = await store.get("layout")
    except BaseException as error:
        await store.close()
        if isinstance(error, StoreUnavailable):
            raise ConfigurationError(f"{store.shown} cannot be used: {error.detail}") from None
        raise
    if layout != LAYOUT:
        await store.close()
        if layout is None:
            raise NoRecord(f"There is no record in {store.shown}.")
        known = f"has layout {layout!r}, this semel knows {LAYOUT!r}: upgrade this process"
        raise ConfigurationError(f"{store.shown} {known}")
