"""The beats of owners in Redis, for heartbeats.py: a hash of epochs. Each has its beat and for how long it
may be silent, or the word dead."""

from __future__ import annotations

from proxy.store.heartbeats import Beat
from proxy.store.redis_pipe import Pipe
from proxy.store.redis_wire import Reply

DEAD = b"dead"


class RedisBeats:
    def __init__(self, pipe: Pipe, tag: str) -> None:
        self._pipe = pipe
        self._name = f"{tag}:beats"

    async def enroll(self, epoch: str, patience: float) -> None:
        await self._pipe.ask("HSET", self._name, epoch, f"1 {patience!r}")

    async def beat(self, epoch: str) -> list[Beat]:
        return _read(await self._pipe.run("beat", epoch))

    async def all(self) -> list[Beat]:
        return _read(await self._pipe.ask("HGETALL", self._name))

    async def bury(self, beat: Beat) -> bool:
        return bool(await self._pipe.run("bury", beat.epoch, beat.count))

    async def leave(self, epoch: str) -> None:
        await self._pipe.ask("HDEL", self._name, epoch)

    async def clock_mark(self, now: float) -> float:
        return float(await self._pipe.run("clock", repr(now)))

    async def forget_dead(self) -> None:
        dead = [beat.epoch for beat in await self.all() if beat.dead]
        if dead:
            await self._pipe.run("forget_dead", *dead)


def _read(told: Reply) -> list[Beat]:
    pairs = zip(told[::2], told[1::2], strict=True)
    return [_beat(epoch.decode(errors="replace"), value) for epoch, value in pairs]


def _beat(epoch: str, value: bytes) -> Beat:
    if value == DEAD:
        return Beat(epoch, 0, dead=True)
    count, patience = value.split(b" ")
    return Beat(epoch, int(count), patience=float(patience))
