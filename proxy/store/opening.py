"""Which store is meant by `store:` and `--store`, and how each is opened. One table.

A store's driver is imported when that store is asked for: nobody needs the others installed. A password in
an address is for the driver alone: `shown` is what people, logs and errors get to see.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from proxy.errors import ConfigurationError, NoRecord, StoreUnavailable
from proxy.store.archive import Kind, Source, Target
from proxy.store.base import Batched, Store, uncounted
from proxy.store.durability import Durability
from proxy.store.keyring import FileKeys, Keys, open_to_others

Note: TypeAlias = Callable[..., None]  # an event and its fields

# In a query: what libpq and redis clients take there.
_SECRET = ("password", "sslpassword", "passfile", "auth")


# What a record beside another is called.
SHADOW = "shadow"
# By scheme: how an address says which of several records is meant, what it means without that, and what comes
# between that name and the one for the record beside it.
_NAMESPACES = (("postgres", "schema", "semel", "_"), ("redis", "prefix", "semel", "-"))


def _with(address: str, option: str, name: str, mark: str) -> str:
    parts = urlsplit(address)
    query = parse_qsl(parts.query)
    name = dict(query).get(option, name)
    others = [pair for pair in query if pair[0] != option]
    return urlunsplit(parts._replace(query=urlencode([*others, (option, f"{name}{mark}{SHADOW}")])))


# How often, and how many seconds apart, a record in the clear is looked at that somebody works with.
LOOKS, BETWEEN_LOOKS = 20, 0.1


def _untold(event: str, **fields: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the record is kept. `make`: it may be made there; who only looks makes nothing."""

    store: str
    state: Path
    heartbeat: float = 5.0
    dead_after: float = 15.0
    durability: Durability = Durability.STRICT  # an address may say best-effort too
    make: bool = True
    note: Note = _untold
    batched: Batched = uncounted
    keys: Keys | None = None  # where it is encrypted
    encrypts: bool = False  # a record in the clear becomes encrypted; whoever may make one does that too

    def beside(self) -> Place:
        """A record of its own in the same store: another directory, schema, prefix."""
        if self.store == "embedded":
            return replace(self, state=self.state / SHADOW)
        for scheme, option, name, mark in _NAMESPACES:
            if self.store.startswith(scheme):
                return replace(self, store=_with(self.store, option, name, mark))
        return self  # memory: each is opened apart

    @property
    def shown(self) -> str:
        return str(self.state) if self.store == "embedded" else shown(self.store)


async def _embedded(place: Place) -> Store:
    from proxy.store.embedded import EmbeddedStore

    # What is overwritten or removed of an encrypted record shall be gone from its file as well.
    pragmas: dict[str, str | int] = {} if place.keys is None else {"secure_delete": 1}
    return await EmbeddedStore.open(place.state, pragmas=pragmas, batched=place.batched)


async def _memory(_: Place) -> Store:
    from proxy.store.memory import MemoryStore

    return MemoryStore()


async def _postgres(place: Place) -> Store:
    module = _driver("proxy.store.postgres", "psycopg", "postgres")
    store: Store = await module.PostgresStore.open(
        place.store,
        heartbeat=place.heartbeat,
        dead_after=place.dead_after,
        make=place.make,
        note=place.note,
        batched=place.batched,
    )
    return store


async def _redis(place: Place) -> Store:
    module = _driver("proxy.store.redis_store", "hiredis", "redis")
    store: Store = await module.open_redis(
        place.store,
        durability="" if place.durability is Durability.STRICT else place.durability,
        heartbeat=place.heartbeat,
        dead_after=place.dead_after,
        make=place.make,
        note=place.note,
        batched=place.batched,
    )
    return store


_OPENERS: dict[str, Callable[[Place], Awaitable[Store]]] = {
    "embedded": _embedded,
    "memory": _memory,
    "postgres": _postgres,
    "postgresql": _postgres,
    "redis": _redis,
    "rediss": _redis,
}
# Those that are named by an address, and not by a word.
SCHEMES = tuple(name for name in _OPENERS if name not in ("embedded", "memory"))


async def open_source(place: Place) -> Source:
    """To be read through, and not changed. ConfigurationError if there is nothing to read."""
    if place.store == "embedded":
        from proxy.store import embedded_source

        return await embedded_source.open_source(place.state)
    source: Source = await _archive(place, "source").open_source(place.store)
    return source


async def open_target(place: Place) -> Target:
    """To be filled; made if it is not there."""
    if place.store == "embedded":
        from proxy.store import embedded_target

        return await embedded_target.open_target(place.state)
    target: Target = await _archive(place, "target").open_target(place.store, place.note)
    return target


def _archive(place: Place, part: str) -> Any:  # noqa: ANN401 (a module, known by its name only)
    if place.store.startswith("redis"):
        return _driver("proxy.store.redis_copying", "hiredis", "redis")
    return _driver(f"proxy.store.postgres_{part}", "psycopg", "postgres")


async def look(place: Place) -> str:
    """What can be said of a store over the network without changing anything in it."""
    if place.store.startswith("redis"):
        return await _look_at_redis(place)
    schema = _driver("proxy.store.postgres_schema", "psycopg", "postgres")
    told: str = await schema.look(place.store, place.note)
    return told


async def _look_at_redis(place: Place) -> str:
    """As one more process that makes nothing; what is unsafe is noted while it is opened."""
    try:
        store: Store = await _redis(replace(place, make=False))
    except NoRecord:
        return f"{place.shown}, no record yet"
    await store.close()
    return f"{place.shown}, reached"


async def used_in_the_clear(place: Place, *, without_calls: bool = False) -> bool:
    """Whether somebody works with this record who has no key, and would not know that it is encrypted from
    now on. Who is just opening it with a key is waited for. `without_calls`: no matter if it has some."""
    from proxy.store.keystone import is_keystone

    if place.store == "memory":
        return False
    source = await open_source(place)
    try:
        for _ in range(LOOKS):
            if is_keystone((await source.standing()).secret):
                return False
            if without_calls and (await source.read(Kind.CALLS, None)).dumps:
                return False
            if not await source.living():
                return False
            await asyncio.sleep(BETWEEN_LOOKS)
        return True
    finally:
        await source.close()


async def _refuse_another_secret(place: Place) -> None:
    """An empty record gets a new secret with its first key: whoever works with it already goes on with the
    old one, gives calls other names, and would send what this process has sent."""
    try:
        used = await used_in_the_clear(place, without_calls=True)
    except (ConfigurationError, StoreUnavailable):
        return  # none yet, of an older version, or out of reach: whoever opens it now sees to that
    if used:
        raise ConfigurationError(
            f"{place.shown} is in use by a semel that has no key. Stop it, and start it again with the key "
            "too. Nothing was changed."
        )


async def open_store(place: Place) -> Store:
    """ConfigurationError for what a person must mend."""
    from proxy.store.sealed import with_keys  # brings ciphers along, which --help does not need

    if place.keys is not None and (place.make or place.encrypts):
        await _refuse_another_secret(place)
    store = await _OPENERS[place.store.partition("://")[0]](place)
    try:
        if isinstance(place.keys, FileKeys) and open_to_others(place.keys.path) and place.make:
            place.note("key-file-readable", detail=f"others may read {place.keys.path}: chmod 600")
        begin = place.make or place.encrypts
        return await with_keys(store, place.keys, place.shown, place.note, begin=begin)
    except BaseException as error:
        await store.close()
        if isinstance(error, StoreUnavailable):  # it went away just now
            raise ConfigurationError(
                f"{place.shown} cannot be used to keep the record: {error.detail}."
            ) from None
        raise


def _driver(module: str, package: str, extra: str) -> Any:  # noqa: ANN401 (a module, known by its name only)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
    except ImportError as error:  # psycopg without a libpq
        if package not in str(error):
            raise
    raise ConfigurationError(
        f"A {extra} store needs the package {package}, which is not installed. In semel's checkout: "
        f"pip install '.[{extra}]'"
    ) from None


def shown(store: str) -> str:
    """Without what only the driver may know."""
    if "://" not in store:
        return store
    scheme = store.partition("://")[0]
    try:
        parts = urlsplit(store)
        userinfo, at, host = parts.netloc.rpartition("@")
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRET]
    except ValueError:
        return f"{scheme}://…"
    # Not encoded as it should be: who knows where the password ends.
    if "@" in userinfo or "@" in parts.path + parts.query + parts.fragment:
        return f"{scheme}://…"
    user = userinfo.partition(":")[0]
    rest = f"?{urlencode(query)}" if query else ""
    return f"{scheme}://{user}{at if user else ''}{host}{parts.path}{rest}"
