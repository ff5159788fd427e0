"""Large bodies in pieces, each a value of its own.

The pieces are written first, at a place that nobody knows, with a time after which they vanish: a put that
ends half-way leaves nothing for ever. Then one script (blob_put.lua) sees that all of them are there, takes
the time off, and gives the blob its name. Only then may a row name it. A piece without a time is never
evicted, and is removed only together with the name, in one script. A reader never takes a damaged blob for a
whole one: the last piece is withheld until the digest fits.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator

from proxy.faults import Point, reach
from proxy.store.base import BlobLost, BlobRef
from proxy.store.redis_pipe import Pipe, unavailable

PIECE = 256 * 1024
# Longer than any body takes to be written; what is left of a put that failed is gone after that.
UNFINISHED = 24 * 3600


class RedisBlobs:
    """What it takes for granted is RedisStore's."""

    _pipe: Pipe
    _tag: str

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef:
        place = secrets.token_hex(16)
        digest, size, pieces = hashlib.blake2b(digest_size=32), 0, 0
        content = _pieces(chunks)
        while (piece := await asyncio.to_thread(next, content, None)) is not None:
            digest.update(piece)
            size, pieces = size + len(piece), pieces + 1
            await self._pipe.ask("SET", f"{self._tag}:b:{place}:{pieces}", piece, "EX", UNFINISHED)
        reach(Point.BLOB_WRITTEN)
        named = digest.hexdigest()
        damaged = await self._damaged(BlobRef(named, size))
        if not await self._pipe.run("blob_put", named, place, size, pieces, damaged):
            raise unavailable("a part of a body that was just written is gone")
        reach(Point.BLOB_RENAMED)
        return BlobRef(named, size)

    async def _damaged(self, ref: BlobRef) -> bytes:
        """Where the blob of this name lies, if it is there and not whole: it is not kept instead of ours."""
        known: bytes | None = await self._pipe.ask("HGET", f"{self._tag}:blob", ref.digest)
        try:
            if known is not None:
                async for _ in self._read(known, ref):
                    pass
        except BlobLost:
            return known or b""
        return b""

    async def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        known = await self._pipe.ask("HGET", f"{self._tag}:blob", ref.digest)
        if known is None:
            raise BlobLost(f"blob {ref.digest} is missing")
        async for piece in self._read(known, ref):
            yield piece

    async def _read(self, known: bytes, ref: BlobRef) -> AsyncIterator[bytes]:
        place, size, pieces = known.decode().split(" ")
        if int(size) != ref.size:
            raise BlobLost(f"blob {ref.digest} has the wrong size")
        digest, left = hashlib.blake2b(digest_size=32), ref.size
        for number in range(1, int(pieces) + 1):
            piece = await self._pipe.ask("GET", f"{self._tag}:b:{place}:{number}")
            left -= len(piece or b"")
            digest.update(piece or b"")
            last = number == int(pieces)
            if piece is None or left < 0 or (last and (left or digest.hexdigest() != ref.digest)):
                raise BlobLost(f"blob {ref.digest} is damaged")
            yield piece
        if not ref.size and digest.hexdigest() != ref.digest:
            raise BlobLost(f"blob {ref.digest} is damaged")


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of one size."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PIECE:
            yield bytes(held[:PIECE])
            del held[:PIECE]
    if held:
        yield bytes(held)
