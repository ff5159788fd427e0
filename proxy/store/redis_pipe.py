"""How the store asks the server: a connection that comes back by itself, and scripts by their names.

Whatever goes wrong is StoreUnavailable. A command whose reply was lost may have been done; it is not sent
again here, whoever asked reads the row again. Only what the server says it has not done goes out once more:
a script that it does not know, a slot that has moved to another node.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hiredis

from proxy.errors import StoreUnavailable
from proxy.store.redis_wire import Address, Broken, Part, Reply, Wire, connect, introduction

# No answer for so long: the connection is given up. A caller waits no longer than this and a connecting.
PATIENCE = 5.0
# A server drops what comes so much before the caller's patience ends: no swap lands when nobody listens.
MARGIN = 0.5
# After a connecting that failed, so long until the next: meanwhile the answer is known.
PAUSE = 0.05

_LUA = Path(__file__).parent / "lua"
_COMMON = (_LUA / "common.lua").read_text()
SCRIPTS = {
    path.stem: f"{_COMMON}\n{path.read_text()}"
    for path in sorted(_LUA.glob("*.lua"))
    if path.stem != "common"
}
SHAS = {
    name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in SCRIPTS.items()
}
# The server says that it is the wrong one, or not yet ready: another connection may find the right one.
_ELSEWHERE = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
_ADVICE = {
    "READONLY": "the server is a read-only replica; name the primary in the store's URL",
    "LOADING": "the server is reading its data, this passes",
    "OOM": "the server's memory is used up; raise maxmemory",
    "NOAUTH": "the server wants a password; put it into the store's URL",
    "WRONGPASS": "the server does not accept the user or the password of the store's URL",
    "NOPERM": "the server's ACL forbids the user a command, a key or a channel that semel needs",
    "MISCONF": "the server cannot write to its disk",
}


UNAVAILABLE = "the store is not available: "


def unavailable(reason: object) -> StoreUnavailable:
    return StoreUnavailable(f"{UNAVAILABLE}{reason}")


def refused(error: hiredis.ReplyError) -> StoreUnavailable:
    """What the server said, without what was said to it: that may hold a password."""
    text = str(error).split(", with args beginning", 1)[0]
    code = text.split(" ", 1)[0]
    return unavailable(_ADVICE.get(code, text))


class Pipe:
    """`greet` is done on every new connection before anybody else may use it."""

    def __init__(
        self,
        address: Address,
        tag: str,
        greet: Callable[[Wire], Awaitable[None]],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._home = address
        self._tag = tag
        self._greet = greet
        self._patience = patience
        self.address = address  # where the slot is now
        self._wire: Wire | None = None
        self._opening: asyncio.Task[Wire] | None = None
        self._failure: tuple[float, str] = (0.0, "")  # until when it stands
        self._ahead = 0.0  # the server's clock less our monotonic one
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def ask(self, *command: Part) -> Reply:
        return await self._ask(lambda: command, "")

    async def run(self, script: str, *args: Part) -> Reply:
        return await self._ask(lambda: args, script)

    async def run_in_time(self, script: str, args: Callable[[], tuple[Part, ...]]) -> Reply:
        """Its first argument is until when it may be begun. The others are asked for when there is a
        connection, so after its greeting."""
        return await self._ask(lambda: (self._deadline(), *args()), script)

    def _deadline(self) -> str:
        """By the server's clock: until when a command that is sent now may be begun."""
        return f"{time.monotonic() + self._ahead + self._patience - min(MARGIN, self._patience / 2):.6f}"

    async def _ask(self, args: Callable[[], tuple[Part, ...]], script: str) -> Reply:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._under_way += 1
        self._idle.clear()
        call: tuple[Part, ...] = ("EVALSHA", SHAS[script], 1, self._tag) if script else ()
        try:
            # The first try is sent before anything is awaited: who is cancelled then has sent it.
            for _ in range(3):
                wire = self._ready() or await self._open()
                reply = await wire.ask(*call, *args())
                if not isinstance(reply, hiredis.ReplyError):
                    return reply
                code = str(reply).split(" ", 1)[0]
                if code == "NOSCRIPT":
                    call = ("EVAL", SCRIPTS[script], *call[2:])
                elif code == "MOVED":
                    self._move(str(reply))
                else:
                    if code in _ELSEWHERE:
                        wire.end("the server sent us away")
                    raise refused(reply)
            raise unavailable("the cluster sends us from node to node")
        except Broken as error:
            self.address = self._home
            raise unavailable(error) from None
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def _ready(self) -> Wire | None:
        return self._wire if self._wire is not None and self._wire.is_open else None

    def _move(self, reply: str) -> None:
        """MOVED 1234 host:port. The host may be empty: the one that we asked."""
        host, _, port = reply.rsplit(" ", 1)[1].rpartition(":")
        self.address = replace(self.address, host=host or self.address.host, port=int(port))
        if self._wire is not None:
            self._wire.end("the slot has moved")

    async def _open(self) -> Wire:
        until, why = self._failure
        if time.monotonic() < until:
            raise Broken(why)
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._connect())
            self._opening.add_done_callback(_look)
        return await asyncio.shield(self._opening)

    async def _connect(self) -> Wire:
        try:
            wire = await connect(self.address, self._patience)
            try:
                await self._introduce(wire)
                await self._greet(wire)
            except BaseException as error:
                wire.end("the greeting failed")
                if isinstance(error, StoreUnavailable):
                    raise Broken(error.detail.removeprefix(UNAVAILABLE)) from None
                if isinstance(error, TypeError | ValueError):
                    raise Broken("the server answers otherwise than Redis does") from error
                raise
        except Broken as error:
            self._failure = (time.monotonic() + PAUSE, str(error))
            raise
        if self._closed:
            wire.end("closed")
            raise Broken("the store is closed")
        self._wire = wire
        self._failure = (0.0, "")
        return wire

    async def _introduce(self, wire: Wire) -> None:
        told = [wire.ask(*command) for command in introduction(self.address)]
        told += [wire.ask("SCRIPT", "LOAD", text) for text in SCRIPTS.values()]
        for reply in await asyncio.gather(*told):
            if isinstance(reply, hiredis.ReplyError):
                raise refused(reply)
        await self._compare_clocks(wire)

    async def _compare_clocks(self, wire: Wire) -> None:
        asked = time.monotonic()
        told = await wire.ask("TIME")
        if isinstance(told, hiredis.ReplyError):
            raise refused(told)
        seconds, micros = told
        self._ahead = int(seconds) + int(micros) / 1e6 - (asked + time.monotonic()) / 2

    async def regreet(self) -> None:
        """For what may have changed on the server meanwhile, its clock too."""
        wire = self._ready()
        if wire is not None:
            with contextlib.suppress(Broken):
                await self._compare_clocks(wire)
                await self._greet(wire)

    async def close(self) -> None:
        """What is under way is answered first, or has waited long enough."""
        self._closed = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._idle.wait()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._wire is not None:
            self._wire.end("closed")


def _look(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
