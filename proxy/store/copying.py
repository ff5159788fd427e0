"""A whole ledger from one store into another. Knows neither of them: archive.py is what it sees.

Before the first record the target is marked as not whole, and nobody can work with it; the mark goes in the
last step, when all that was read from the source has been read again from the target and nobody has changed
the source meanwhile. So whatever ends the copy in between, the same command goes on with it: what is there
and equal is passed over, what is there and differs ends it and is never overwritten.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

from proxy.store.archive import PORTION, BlobDump, Dump, Kind, Source, Standing, Sums, Target, same
from proxy.store.base import BlobLost, BlobRef
from proxy.store.heartbeats import Beat, now

# Of owners that do not say how long they may be silent.
SILENCE = 15.0
LOOK_EVERY = 0.25
# A larger body goes through a file.
IN_MEMORY = 4 * 1024 * 1024
CHUNK = 256 * 1024
# So many are named; the rest is counted.
NAMED = 10


class CopyRefused(Exception):
    """The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    step: str  # copying, verifying
    kind: Kind
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """`fresh`: how many records were written now; the others were there. `lost`: bodies that the source does
    not have either."""

    counts: dict[Kind, int]
    digest: str
    fresh: int
    lost: tuple[str, ...]


Tell: TypeAlias = Callable[[Progress], None]


async def examine(source: Source) -> Standing:
    """Whether it can be copied now. Nothing is made or changed for that, nowhere."""
    standing = await source.standing()
    if standing.unfinished is not None:
        raise CopyRefused(
            f"{source.shown} is itself an unfinished copy, of {standing.unfinished}: finish that one first."
        )
    await _nobody_in(source)
    return standing


async def copy(source: Source, target: Target, tell: Tell, *, leave_lost: bool = False) -> Copied:
    """CopyRefused if it cannot be done, or has not come out right; the target then stays marked."""
    secret = (await examine(source)).secret
    before = await source.tide()
    standing = await target.standing()
    if not standing.empty and standing.secret != secret:
        raise CopyRefused(_of_its_own(target, standing))
    copying = _Copying(source, target, tell, leave_lost)
    await copying.measure()
    if not standing.empty and standing.unfinished is None:
        return await _compared(copying)  # whole, and of this origin: looked at, never written
    await target.begin(source.shown)
    # Whoever came before the mark is seen now; whoever comes after it sees the mark.
    try:
        await _nobody_in(target)
    except CopyRefused:
        if standing.unfinished is None:
            await target.finish()
        raise
    # Once more: another copy that came at the same moment, and has left, took the mark back with it.
    await target.begin(source.shown)
    if standing.secret != secret:
        await target.adopt(secret)
    sums = await copying.carry()
    await copying.verify(sums)
    await _nobody_in(source)
    if await source.tide() != before:
        raise CopyRefused(
            f"{source.shown} was changed while it was copied. Stop every semel that uses it, and run the "
            "same command again."
        )
    await target.finish()
    return copying.copied(sums)


def _of_its_own(target: Target, standing: Standing) -> str:
    if standing.unfinished is not None:
        return (
            f"{target.shown} is an unfinished copy of another store, {standing.unfinished}. Nothing was "
            "written. Name an empty store."
        )
    return (
        f"{target.shown} has calls of its own, named with another secret: two ledgers cannot become one. "
        "Nothing was written. Name an empty store."
    )


async def _compared(copying: _Copying) -> Copied:
    sums = await copying.look(copying.source, "copying")
    there = await copying.look(copying.target, "verifying")
    if there.digest != sums.digest:
        raise CopyRefused(
            f"{copying.target.shown} is a whole store that began as a copy of the same one, and the two now "
            "differ. Nothing was written. Go on with the one that was used last, or name an empty store."
        )
    return copying.copied(sums)


async def _nobody_in(store: Source) -> None:
    living = await store.living()
    if living:
        raise CopyRefused(
            f"{store.shown} is in use ({living} living). Stop every semel that uses it: what one records "
            "behind the copy would be missing in it, and be sent twice."
        )


class _Copying:
    def __init__(self, source: Source, target: Target, tell: Tell, leave_lost: bool) -> None:
        self.source = source
        self.target = target
        self._tell = tell
        self._leave_lost = leave_lost
        self._totals: dict[Kind, int] = {}
        self._fresh = 0
        self._lost: list[str] = []

    async def measure(self) -> None:
        self._totals = await self.source.totals()

    def copied(self, sums: Sums) -> Copied:
        return Copied(counts=sums.counts, digest=sums.digest, fresh=self._fresh, lost=tuple(self._lost))

    # ---- there ----

    async def carry(self) -> Sums:
        """All of it; what was read on the way is summed."""
        return await self._through(self.source, "copying", self._write, self._bring)

    async def _write(self, kind: Kind, dumps: list[Dump]) -> None:
        written = await self.target.write(kind, dumps)
        self._fresh += written.fresh
        given = {dump.identity: dump for dump in dumps} if written.present else {}
        for present in written.present:
            if not same(given[present.identity], present):
                raise CopyRefused(
                    f"{present.told} is in {self.target.shown} already and differs from the one in "
                    f"{self.source.shown}. Nothing was overwritten. Name an empty store."
                )

    async def _bring(self, digest: str) -> int | None:
        """Its size, when its content is in the target. None: the source has lost it."""
        size = await self.source.blob_size(digest)
        if size is not None and await self.target.blob_size(digest) == size:
            return size  # read to its end when the target is verified
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
            if not await _fetch(self.source, digest, size, spool):
                self._lost.append(digest)
                return None
            ref = await self.target.put_blob(_chunks(spool))
        if ref.digest != digest:
            raise CopyRefused(f"body {digest} did not arrive whole in {self.target.shown}: run this again.")
        self._fresh += 1
        return size

    def _refuse_lost(self) -> None:
        if self._lost and not self._leave_lost:
            named = ", ".join(self._lost[:NAMED])
            more = f" and {len(self._lost) - NAMED} more" if len(self._lost) > NAMED else ""
            raise CopyRefused(
                f"{self.source.shown} has lost or damaged bodies: {named}{more}. Restore them from a backup "
                "and run this again; or copy all the rest with --leave-lost-bodies: a call whose body is "
                "lost then answers 410 answer-unavailable, as it does now."
            )

    # ---- and back ----

    async def verify(self, sums: Sums) -> None:
        there = await self.look(self.target, "verifying")
        if there.counts != sums.counts:
            wrong = ", ".join(
                f"{kind.value} {there.counts[kind]} instead of {sums.counts[kind]}"
                for kind in Kind
                if there.counts[kind] != sums.counts[kind]
            )
            raise CopyRefused(f"{self.target.shown} is not what was copied: {wrong}. Name an empty store.")
        if there.digest != sums.digest:
            raise CopyRefused(
                f"{self.target.shown} is not what was copied: its records have the digest {there.digest}, "
                f"those of {self.source.shown} have {sums.digest}. Run this again: it names what differs."
            )

    async def look(self, store: Source, step: str) -> Sums:
        async def read(digest: str) -> int | None:
            size = await store.blob_size(digest)
            return size if await _fetch(store, digest, size, None) else None

        return await self._through(store, step, None, read)

    async def _through(
        self,
        store: Source,
        step: str,
        each: Callable[[Kind, list[Dump]], Awaitable[None]] | None,
        blob: Callable[[str], Awaitable[int | None]],
    ) -> Sums:
        sums = Sums()
        for kind in Kind:
            self._say(step, kind, sums)
            if kind is Kind.BLOBS:
                await self._through_blobs(store, step, sums, blob)
                if each is not None:
                    self._refuse_lost()
                continue
            async with aclosing(_pages(store, kind)) as pages:
                async for dumps in pages:
                    if each is not None:
                        await each(kind, dumps)
                    sums.add(kind, dumps)
                    self._say(step, kind, sums)
        return sums

    async def _through_blobs(
        self, store: Source, step: str, sums: Sums, blob: Callable[[str], Awaitable[int | None]]
    ) -> None:
        after = ""
        while names := await store.blob_names(after):
            for digest in names:
                sums.add(Kind.BLOBS, [BlobDump(digest, await blob(digest))])
                self._say(step, Kind.BLOBS, sums)
            after = names[-1]
            if len(names) < PORTION:
                return

    def _say(self, step: str, kind: Kind, sums: Sums) -> None:
        done = sums.counts[kind]
        self._tell(Progress(step=step, kind=kind, done=done, total=max(done, self._totals.get(kind, 0))))


async def _pages(store: Source, kind: Kind) -> AsyncGenerator[list[Dump], None]:
    """The next one is read while this one is written."""
    page = await store.read(kind, None)
    while page.after is not None:
        coming = asyncio.ensure_future(store.read(kind, page.after))
        coming.add_done_callback(_is_known)  # its failure counts if it is needed
        try:
            yield page.dumps
        finally:
            # Never left behind: whoever closes the store would meet it.
            await asyncio.wait({coming})
        page = coming.result()
    if page.dumps:
        yield page.dumps


def _is_known(page: asyncio.Future[Any]) -> None:
    """Also where nobody waits any more, because the copy was broken off."""
    if not page.cancelled():
        page.exception()


async def _fetch(store: Source, digest: str, size: int | None, spool: IO[bytes] | None) -> bool:
    """Whole and right, or not at all."""
    if size is None:
        return False
    try:
        async for chunk in store.read_blob(BlobRef(digest, size)):
            if spool is not None:
                spool.write(chunk)
    except BlobLost:
        return False
    return True


def _chunks(spool: IO[bytes]) -> Iterator[bytes]:
    spool.seek(0)
    while chunk := spool.read(CHUNK):
        yield chunk


async def beating(beats: Callable[[], Awaitable[list[Beat]]], silent: dict[str, int]) -> int:
    """How many owners live, where only their beats tell: whoever beats once more is alive, whoever has been
    silent for as long as it may be is not. `silent`: the last beats of these, to wait for nobody twice."""

    async def look() -> dict[str, Beat]:
        found = [beat for beat in await beats() if not beat.dead and silent.get(beat.epoch) != beat.count]
        return {beat.epoch: beat for beat in found}

    first = await look()
    until = now() + max((beat.patience or SILENCE for beat in first.values()), default=0.0)
    while first and now() < until:
        await asyncio.sleep(LOOK_EVERY)
        present = await look()
        moved = sum(epoch not in first or first[epoch].count != beat.count for epoch, beat in present.items())
        if moved:
            return moved
        first = present
    silent.update({epoch: beat.count for epoch, beat in first.items()})
    return 0
