"""The processes of a round: a world, one semel or two, the server of the record; each behind its wire.

Harm is given at once and mended in the background, so that other harm can come meanwhile; who is not yet
mended is waited for before new harm comes to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Protocol

from tests.inside import call
from tests.process import ROOT, SemelProcess
from tests.proof.kills.draw import SETTLE, STOP, TERM, TOTAL, Harm
from tests.proof.kills.wire import Wire
from tests.servers.postgres import children_of

POLICY = """\
upstream: up
base_url: http://127.0.0.1:{port}
timeout: {{connect: 1s, idle: 1500ms, total: {total}ms}}
rules:
  - {{name: a, match: {{method: POST, path: /a}}, safe: true, wait: 4s}}
  - {{name: a-same, match: {{method: POST, path: /a-same}}, safe: true, repeat: same, wait: 4s}}
  - name: b
    match: {{method: POST, path: /b}}
    wait: 4s
    upstream_key: {{header: Idempotency-Key, retention: 24h}}
  - name: c
    match: {{method: POST, path: /c}}
    wait: 4s
    probe:
      request: {{path: "/c?ref={{body.ref}}"}}
      found: "length(items) > `0`"
      result: items[0]
      settle: {settle}ms
  - {{name: d, match: {{method: POST, path: /d}}, wait: 4s}}
"""
START_WITHIN = 120.0


def write_policy(directory: Path, port: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    total, settle = int(TOTAL * 1000), int(SETTLE * 1000)
    (directory / "up.yaml").write_text(POLICY.format(port=port, total=total, settle=settle))
    return directory


class Server(Protocol):
    """What keeps the record, where that is not semel itself. Everything here may block."""

    @property
    def port(self) -> int: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def end(self) -> None:
        """As whoever shuts it down in a hurry."""

    def processes(self) -> list[int]: ...


class Player(ABC):
    """`well`: it is up, and answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.well = asyncio.Event()

    @abstractmethod
    def processes(self) -> list[int]: ...

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def end(self, number: signal.Signals) -> None:
        """The signal, and until it is gone."""

    @abstractmethod
    async def answers(self) -> None:
        """Until it does, after it stood still."""

    async def harm(self, harm: Harm) -> Callable[[], Coroutine[None, None, None]]:
        """What mends it."""
        await self.well.wait()
        self.well.clear()
        if harm.what == STOP:
            stopped = self.processes()
            _tell(stopped, signal.SIGSTOP)
            return lambda: self._wake(stopped, harm.seconds)
        ending = asyncio.ensure_future(self.end(signal.SIGTERM if harm.what == TERM else signal.SIGKILL))
        await asyncio.sleep(0)
        return lambda: self._again(ending)

    async def _wake(self, stopped: list[int], seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            _tell(stopped, signal.SIGCONT)
        await self.answers()
        self.well.set()

    async def _again(self, ending: asyncio.Future[None]) -> None:
        await ending
        await self.start()
        self.well.set()


def _tell(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class World(Player):
    def __init__(self, books: Path, seed: int, wire: Wire) -> None:
        super().__init__("world")
        self._books, self._seed, self._wire = books, seed, wire
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0

    def processes(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]

    async def start(self) -> None:
        self._seed += 1
        command = (sys.executable, "-S", "-m", "tests.proof.kills.world", str(self._books), str(self._seed))
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_WITHIN):
            self._port = int(await self._process.stdout.readline())
        self._wire.lead_to(self._port)

    async def end(self, number: signal.Signals) -> None:
        if self._process is not None:
            _tell([self._process.pid], number)
            self._wire.refuse()
            await self._process.wait()
            assert self._process.stdout is not None
            await self._process.stdout.read()

    async def answers(self) -> None:
        await call(self._port, "GET", "/ping?ref=nothing", within=START_WITHIN)


class Semel(Player):
    """`store`: it does not start without; whoever works with it must be up. Of one with workers, harm comes
    to all of them, or to a single worker."""

    def __init__(self, name: str, make: Callable[[], SemelProcess], wire: Wire, store: Store | None) -> None:
        super().__init__(name)
        self._make, self._wire, self._store = make, wire, store
        self.process: SemelProcess | None = None
        self._of_the_dead: list[str] = []

    def processes(self) -> list[int]:
        assert self.process is not None
        return [self.process.pid, *children_of(self.process.pid)]

    async def harm(self, harm: Harm) -> Callable[[], Coroutine[None, None, None]]:
        await self.well.wait()
        _, *workers = self.processes()
        worker = workers[harm.piece % len(workers) :][:1] if workers and harm.down else []
        if not worker:
            return await super().harm(harm)
        self.well.clear()
        if harm.what == STOP:
            _tell(worker, signal.SIGSTOP)
            return lambda: self._wake(worker, harm.seconds)
        _tell(worker, signal.SIGTERM if harm.what == TERM else signal.SIGKILL)
        return lambda: self._wake([], 0.0)  # it is started again by the one that started it

    @property
    def port(self) -> int:
        assert self.process is not None
        return self.process.port

    async def start(self) -> None:
        until = time.monotonic() + START_WITHIN
        while True:
            if self._store is not None:
                await self._store.well.wait()
            troubles = 0 if self._store is None else self._store.troubles
            process = self._make()
            try:
                await process.__aenter__()
            except BaseException as error:
                if process.alive:
                    await process.kill()
                came = self._store is not None and self._store.troubles != troubles
                excused = isinstance(error, TimeoutError) or (came and isinstance(error, RuntimeError))
                if not excused or time.monotonic() > until:
                    raise
            else:
                self.process = process
                break
        self._wire.lead_to(self.process.port)

    async def end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send(number)
        if number is signal.SIGKILL:
            self._wire.refuse()
        await self.process.died(within=START_WITHIN)
        self._wire.refuse()
        self._of_the_dead.append(self.process.log)

    def logs(self) -> list[str]:
        assert self.process is not None
        return [*self._of_the_dead, self.process.log]

    async def answers(self) -> None:
        """Of its workers at least one."""
        async with asyncio.timeout(START_WITHIN):
            while not await self._answered():
                await asyncio.sleep(0.02)

    async def _answered(self) -> bool:
        try:
            return (await call(self.port, "GET", "/healthz", within=START_WITHIN)).complete
        except ConnectionError:
            return False


class Store(Player):
    def __init__(self, server: Server, wire: Wire) -> None:
        super().__init__("store")
        self._server, self._wire = server, wire
        self._harmed = 0

    @property
    def troubles(self) -> int:
        return self._harmed + len(self._wire.struck)

    def processes(self) -> list[int]:
        return self._server.processes()

    async def harm(self, harm: Harm) -> Callable[[], Coroutine[None, None, None]]:
        mend = await super().harm(harm)
        self._harmed += 1
        return mend

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)
        self._wire.lead_to(self._server.port)

    async def end(self, number: signal.Signals) -> None:
        self._wire.refuse()
        await asyncio.to_thread(self._server.kill if number is signal.SIGKILL else self._server.end)

    async def answers(self) -> None:
        """It need not be asked: who works with it waits for it."""
