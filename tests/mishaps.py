"""What may befall a record from outside, in whatever store it is kept: owners buried, blobs and caches lost,
writes that wait.

Done past the store: by a file that is removed or changed, by a row, by a key.
"""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis
import psycopg

from proxy.store.base import Store


class Damage(Enum):
    """To the one blob there is: gone; shorter by a byte; of the right size, its last bit another."""

    REMOVED = "removed"
    SHORTENED = "shortened"
    FLIPPED = "flipped"


def damage_blob(address: str, state: Path, damage: Damage) -> None:
    match address.partition(":")[0]:
        case "postgres":
            _damage_rows(address, damage)
        case "redis":
            _damage_keys(address, damage)
        case _:
            _damage_file(state, damage)


async def bury(store: Store, owner: str, state: Path) -> None:
    """As the others do after a long silence. An embedded owner's lock cannot be lost, only its file."""
    beats = getattr(getattr(store, "_heart", None), "_beats", None)
    if beats is None:
        (state / "owners" / f"{owner}.lock").unlink()
        return
    (beat,) = [beat for beat in await beats.all() if beat.epoch == owner]
    assert await beats.bury(beat)


def lose_blobs(address: str, state: Path) -> None:
    match address.partition(":")[0]:
        case "postgres":
            execute(address, "DELETE FROM semel.blobs")
        case "redis":
            command(address, "DEL", "{semel}:blob")
        case _:
            for blob in _files(state):
                blob.unlink()


def lose_cache(address: str, state: Path) -> None:
    match address.partition(":")[0]:
        case "postgres":
            execute(address, "TRUNCATE semel.cache")
        case "redis":
            kept: Any = command(address, "KEYS", "{semel}:k:*")
            command(address, "DEL", *kept)
        case _:
            with closing(sqlite3.connect(state / "cache" / "cache.db", isolation_level=None)) as cache:
                cache.execute("DELETE FROM Cache")


@contextmanager
def writes_held(address: str) -> Iterator[None]:
    """The server answers what is read; what changes a call waits."""
    if address.startswith("postgres"):
        with psycopg.connect(address) as connection:
            connection.execute("LOCK TABLE semel.calls IN EXCLUSIVE MODE")
            yield
        return
    command(address, "CLIENT", "PAUSE", 30_000, "WRITE")
    try:
        yield
    finally:
        command(address, "CLIENT", "UNPAUSE")


def execute(address: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def command(address: str, *words: str | bytes | int) -> object:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        select = ("SELECT", parts.path.lstrip("/") or "0")
        connection.sendall(hiredis.pack_command(select) + hiredis.pack_command(words))  # type: ignore[arg-type]
        reader, replies = hiredis.Reader(), list[object]()
        while len(replies) < 2:
            reader.feed(connection.recv(65536))
            while (reply := reader.gets()) is not False:
                assert not isinstance(reply, hiredis.ReplyError), reply
                replies.append(reply)
        return replies[1]


def _files(state: Path) -> list[Path]:
    return [path for path in (state / "blobs").rglob("*") if path.is_file()]


def _changed(content: bytes, damage: Damage) -> bytes:
    return content[:-1] if damage is Damage.SHORTENED else content[:-1] + bytes([content[-1] ^ 1])


def _damage_file(state: Path, damage: Damage) -> None:
    (file,) = _files(state)
    if damage is Damage.REMOVED:
        file.unlink()
    else:
        file.write_bytes(_changed(file.read_bytes(), damage))


def _damage_rows(address: str, damage: Damage) -> None:
    if damage is Damage.REMOVED:
        execute(address, "DELETE FROM semel.blobs")
        return
    ((upload,),) = execute(address, "SELECT upload FROM semel.blobs")
    last = "WHERE upload = %s ORDER BY n DESC LIMIT 1"
    ((n, content),) = execute(address, f"SELECT n, content FROM semel.parts {last}", upload)
    changed = _changed(content, damage)
    execute(address, "UPDATE semel.parts SET content = %s WHERE upload = %s AND n = %s", changed, upload, n)
    execute(address, "UPDATE semel.blobs SET size = size - %s", len(content) - len(changed))


def _damage_keys(address: str, damage: Damage) -> None:
    named: Any = command(address, "HGETALL", "{semel}:blob")
    digest, value = named
    if damage is Damage.REMOVED:
        command(address, "HDEL", "{semel}:blob", digest)
        return
    place, size, pieces = value.decode().split(" ")
    last = f"{{semel}}:b:{place}:{pieces}"
    content: Any = command(address, "GET", last)
    changed = _changed(content, damage)
    command(address, "SET", last, changed)
    shorter = int(size) - len(content) + len(changed)
    command(address, "HSET", "{semel}:blob", digest, f"{place} {shorter} {pieces}")
