"""Large bodies as rows of the database, in parts.

The parts are written first, under a number of their own; then the name that leads to them, which is the
digest; then, by the caller, the row of the call that names it. So what is named is whole. A name that is
there already is led to the new parts, which renews it and mends it if it was damaged. A reader never takes a
damaged blob for a whole one: the last chunk is withheld until the digest fits.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from proxy.errors import StoreUnavailable
from proxy.faults import Point, reach
from proxy.store.base import BlobLost, BlobRef
from proxy.store.postgres_calls import UNNAMED_IN_ALL
from proxy.store.postgres_line import LONG, Lines
from proxy.store.unnamed import UNTOUCHED

PART = 256 * 1024
# At most so many digests of a round over the blobs are looked at in one step.
LOOK_AT = 5000
_DIGEST = re.compile(r"[0-9a-f]{64}")

BEGIN = "INSERT INTO semel.uploads DEFAULT VALUES RETURNING id"
WRITE = "INSERT INTO semel.parts (upload, n, content) VALUES ($1, $2, $3)"
NAME = "SELECT semel.name_blob($1, $2, $3)"
FIND = "SELECT upload, size FROM semel.blobs WHERE digest = $1"
READ = "SELECT content FROM semel.parts WHERE upload = $1 AND n = $2"
COLLECT = "SELECT blobs, bytes, last FROM semel.collect_blobs($1, $2, $3, $4::interval)"


class PostgresBlobs:
    def __init__(self, lines: Lines, refuse_if_closed: Callable[[], None]) -> None:
        self._lines = lines
        self._refuse_if_closed = refuse_if_closed
        self._after = ""  # how far the round over the blobs has come

    async def put(self, chunks: Iterable[bytes]) -> BlobRef:
        """A blob that no row names is collected later, and so are parts without a name."""
        self._refuse_if_closed()
        ((upload,),) = await self._lines.ask(BEGIN)
        digest, size, n = hashlib.blake2b(digest_size=32), 0, 0
        parts = _parts(chunks)
        while part := await asyncio.to_thread(next, parts, b""):
            digest.update(part)
            await self._lines.ask(WRITE, (upload, n, part))
            size, n = size + len(part), n + 1
        reach(Point.BLOB_WRITTEN)
        name = digest.hexdigest()
        ((named,),) = await self._lines.ask(NAME, (name, upload, size))
        if not named:
            raise StoreUnavailable("the store is not available: writing a body took more than an hour")
        reach(Point.BLOB_RENAMED)
        return BlobRef(name, size)

    async def read(self, ref: BlobRef) -> AsyncIterator[bytes]:
        self._refuse_if_closed()
        if not _DIGEST.fullmatch(ref.digest):
            raise BlobLost("not the name of a blob")
        found = await self._lines.ask(FIND, (ref.digest,), again=True)
        if not found:
            raise BlobLost(f"blob {ref.digest} is missing")
        ((upload, size),) = found
        if size != ref.size:
            raise BlobLost(f"blob {ref.digest} has the wrong size")
        digest, left, n = hashlib.blake2b(digest_size=32), ref.size, 0
        while left:
            part = await self._lines.ask(READ, (upload, n), again=True)
            content: bytes = part[0][0] if part else b""
            digest.update(content)
            left, n = left - len(content), n + 1
            if not content or left < 0 or (not left and digest.hexdigest() != ref.digest):
                raise BlobLost(f"blob {ref.digest} is damaged")
            yield content
        if not ref.size and digest.hexdigest() != ref.digest:
            raise BlobLost(f"blob {ref.digest} is damaged")

    async def collect(self, limit: int) -> tuple[int, int, bool]:
        """How many, their bytes, and whether the round goes on."""
        untouched = f"{UNTOUCHED} s"
        rows = await self._lines.ask(COLLECT, (self._after, limit, LOOK_AT, untouched), patience=LONG)
        ((blobs, size, last),) = rows
        self._after = last or ""
        return blobs, int(size), last is not None

    async def count(self, now: float, runs_before: float) -> tuple[int, int]:
        """What no row will name when those are gone whose time is over."""
        values = (runs_before, now, f"{UNTOUCHED} s")
        ((blobs, size),) = await self._lines.ask(UNNAMED_IN_ALL, values, again=True, patience=LONG)
        return blobs, size


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of one size. Read in a thread: they may lie in a file."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PART:
            yield bytes(held[:PART])
            del held[:PART]
    if held:
        yield bytes(held)
