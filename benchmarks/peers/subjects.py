"""What the scenarios are played with: the upstream, and agents that call it in the way of a library.

A subject can be asked for a call, crashed while it works, recovered as its documentation says, and asked for
the same call by many at once. Who asks is always told something, within a bounded time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.peers.asking import Order, Told, persist
from benchmarks.peers.programs import Program
from tests.servers.postgres import PostgresServer, postgres
from tests.servers.valkey import valkey

GRACE = 30.0  # beyond an agent's own patience: then it hangs
EVENT_WITHIN = 30.0
CALLERS = ThreadPoolExecutor(64, thread_name_prefix="caller")


@dataclass(slots=True)
class Upstream:
    """The one that acts, asked and told what to do from here."""

    url: str

    async def _talk(self, path: str, said: dict[str, float] | None = None) -> dict[str, Any]:
        def talk() -> dict[str, Any]:
            data = None if said is None else json.dumps(said).encode()
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=10) as reply:
                figures: dict[str, Any] = json.load(reply)
                return figures

        return await asyncio.get_running_loop().run_in_executor(CALLERS, talk)

    async def arm(self, **plan: float) -> None:
        await self._talk("/_arm", plan)

    async def release(self) -> None:
        await self._talk("/_release", {})

    async def effects(self, call: str) -> int:
        return int((await self._talk(f"/_figures?ref={call}"))["effects"])

    async def until(self, what: str, call: str) -> None:
        """Until it has acted ("effects") for the call, or an agent has passed ("saved")."""
        async with asyncio.timeout(EVENT_WITHIN):
            while not (await self._talk(f"/_figures?ref={call}"))[what]:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.01)


@dataclass(slots=True)
class World:
    """What all subjects share. Servers are started when the first one wants them."""

    upstream: Upstream
    work: Path
    patience: float
    stack: ExitStack
    _started: dict[str, Any] = field(default_factory=dict)

    async def database(self) -> str:
        """The address of an empty one."""
        if "postgres" not in self._started:
            self._started["postgres"] = await asyncio.to_thread(self.stack.enter_context, postgres())
        server: PostgresServer = self._started["postgres"]
        return server.url(await asyncio.to_thread(server.new_database))

    async def valkey(self) -> str:
        if "valkey" not in self._started:
            made = valkey(self.work / "valkey")
            self._started["valkey"] = await asyncio.to_thread(self.stack.enter_context, made)
        return str(self._started["valkey"].url)


@asynccontextmanager
async def world(work: Path, patience: float) -> AsyncIterator[World]:
    words = [sys.executable, "-m", "benchmarks.peers.upstream"]
    with ExitStack() as stack:
        async with Program(words, work / "upstream.log") as program:
            yield World(Upstream(f"http://127.0.0.1:{program.said['port']}"), work, patience, stack)


class Subject(ABC):
    """One project in one setting. `async with` starts what it needs, and ends all of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self.begin()
        except BaseException:
            await self.started.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.started.aclose()

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def ask(
        self, call: str, patience: float = 0.0, *, setup: bool = False, recovering: bool = False
    ) -> asyncio.Task[Told]: ...

    @abstractmethod
    async def crash(self) -> None:
        """SIGKILL to what does the work."""

    @abstractmethod
    async def recover(self) -> None:
        """As its documentation says; where the next start recovers by itself, nothing."""

    @abstractmethod
    async def at_once(self, call: str, number: int) -> list[Told]: ...

    async def die_after_saving(self, call: str) -> None:
        """Killed where the library has given the result to the agent's code, and nothing came of it yet."""
        await self.world.upstream.arm(hold_saved=1)
        asked = await self.ask(call)
        await self.world.upstream.until("saved", call)
        await self.crash()
        await self.world.upstream.release()
        asked.cancel()


async def bounded(told: asyncio.Future[Told], patience: float) -> Told:
    try:
        async with asyncio.timeout(patience + GRACE):
            return await told
    except TimeoutError:
        return Told("none", f"nothing within {patience + GRACE:.0f} s")


def in_thread(ask: Callable[[], Told], patience: float) -> asyncio.Task[Told]:
    """A caller of a server: it needs no process of its own."""
    running = asyncio.get_running_loop().run_in_executor(CALLERS, persist, ask, patience)
    return asyncio.create_task(bounded(running, patience))


class Agents(Subject):
    """The library works in the agent's own process: that is what is killed, and started again."""

    def __init__(
        self, world: World, python: Path, module: str, mode: str, *,
        store: str = "", path: str = "/plain", processes: int = 20,
    ) -> None:  # fmt: skip
        super().__init__(world)
        self._python, self._module, self._mode = python, module, mode
        self._store, self._target, self._processes = store, world.upstream.url + path, processes
        self._programs: list[Program] = []

    async def begin(self) -> None:
        if self._store == "postgres":
            self._store = await self.world.database()
        elif self._store == "valkey":
            self._store = await self.world.valkey()
        elif self._store:
            self._store = str(self.world.work / f"{self._module}-{self._mode}-{self._store}")

    async def _start(self, order: Order) -> Program:
        words = [str(self._python), "-m", f"benchmarks.peers.{self._module}", json.dumps(order._asdict())]
        program = Program(words, self.world.work / f"{self._module}-{self._mode}.log")
        self._programs.append(program)
        return await self.started.enter_async_context(program)

    def _order(self, call: str) -> Order:
        return Order(self._mode, self._target, self.world.upstream.url, self._store, call)

    async def _told(self, program: Program, callers: int, patience: float) -> list[Told]:
        try:
            said = [await program.line(patience + GRACE) for _ in range(callers)]
        except TimeoutError:
            await program.kill()
            return [Told("none", f"nothing within {patience + GRACE:.0f} s")] * callers
        return [Told(one["kind"], one["words"]) if one else Told("none", "killed") for one in said]

    async def ask(
        self, call: str, patience: float = 0.0, *, setup: bool = False, recovering: bool = False
    ) -> asyncio.Task[Told]:
        order = self._order(call)._replace(patience=patience, setup=setup, recovering=recovering)
        program = await self._start(order)
        program.go()

        async def told() -> Told:
            return (await self._told(program, 1, patience))[0]

        return asyncio.create_task(told())

    async def crash(self) -> None:
        for program in self._programs:
            await program.kill()

    async def recover(self) -> None:
        """The next agent is a new process."""

    async def at_once(self, call: str, number: int) -> list[Told]:
        each = number // self._processes
        order = self._order(call)._replace(callers=each)
        orders = [order._replace(name=str(one)) for one in range(self._processes)]
        programs = await asyncio.gather(*map(self._start, orders))
        for program in programs:  # all are ready by now
            program.go()
        told = await asyncio.gather(*(self._told(program, each, 0.0) for program in programs))
        return [one for several in told for one in several]
