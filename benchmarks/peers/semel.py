"""semel: a proxy that is killed and started again, or an agent behind it that is.

Calls are made outside a run: the same request is the same call, as the same id is for the others. Kind d has
neither a key nor a probe, b an upstream that honours a key, c one that can be asked.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers import with_nothing
from benchmarks.peers.asking import Order, Told
from benchmarks.peers.subjects import Agents, Subject, World, in_thread
from proxy.faults import Point
from tests.process import SemelProcess, kill_at

POLICY = """\
upstream: api
base_url: {url}
timeout: {{connect: 5s, idle: 20s, total: 40s}}
rules:
  - name: b
    match: {{method: POST, path: /keyed}}
    upstream_key: {{header: Idempotency-Key, retention: 24h}}
  - name: c
    match: {{method: POST, path: /asked}}
    probe: {{request: {{path: "/acts?ref={{body.ref}}"}}, found: "length(items) > `0`", result: "items[0]"}}
  - {{name: d, match: {{method: POST, path: /plain}}}}
"""
PATHS = {"b": "/keyed", "c": "/asked", "d": "/plain"}


async def started(stack: AsyncExitStack, proxy: SemelProcess) -> SemelProcess:
    """Ended with the stack, and also by a Ctrl-C that comes while it starts."""
    try:
        return await stack.enter_async_context(proxy)
    except BaseException:
        if proxy.alive:
            await proxy.kill()
        raise


class Proxy(Subject):
    """The proxy is killed. Twenty at once come through two proxies on one record."""

    def __init__(self, world: World, kind: str) -> None:
        super().__init__(world)
        self._path = PATHS[kind]
        self._state = world.work / f"semel-{kind}"
        self._policies = self._state.with_suffix(".yaml")
        self._policies.write_text(POLICY.format(url=world.upstream.url))
        self._proxies: list[SemelProcess] = []

    async def begin(self) -> None:
        self._proxies = [await self._start()]

    async def _start(self, point: Point | None = None) -> SemelProcess:
        faults = None if point is None else kill_at(point)
        return await started(self.started, SemelProcess(self._state, self._policies, faults))

    def _asked(self, proxy: SemelProcess, call: str, patience: float = 0.0) -> asyncio.Task[Told]:
        target = f"{proxy.url}/api{self._path}"
        order = Order("", target, self.world.upstream.url, "", call)
        return in_thread(with_nothing.prepare(order), patience)

    async def ask(
        self, call: str, patience: float = 0.0, *, setup: bool = False, recovering: bool = False
    ) -> asyncio.Task[Told]:
        return self._asked(self._proxies[0], call, patience)

    async def crash(self) -> None:
        for proxy in self._proxies:
            await proxy.kill()

    async def recover(self) -> None:
        self._proxies = [await self._start()]

    async def die_after_saving(self, call: str) -> None:
        """Where the answer is durable, and the caller has seen nothing of it."""
        await self.crash()
        self._proxies = [await self._start(Point.SETTLED)]
        await (await self.ask(call))
        await self._proxies[0].died()

    async def at_once(self, call: str, number: int) -> list[Told]:
        self._proxies.append(await self._start())
        asked = [self._asked(self._proxies[one % 2], call) for one in range(number)]
        return list(await asyncio.gather(*asked))


class BehindProxy(Agents):
    """The agent is killed, the proxy lives."""

    def __init__(self, world: World, kind: str) -> None:
        super().__init__(world, Path(sys.executable), "with_nothing", f"semel-{kind}")
        self._path = PATHS[kind]

    async def begin(self) -> None:
        state = self.world.work / "semel-agents"
        policies = state.with_suffix(".yaml")
        policies.write_text(POLICY.format(url=self.world.upstream.url))
        proxy = await started(self.started, SemelProcess(state, policies))
        self._target = f"{proxy.url}/api{self._path}"
