"""Restate: a server from its package, and a service of one handler (restate/service.mjs) that it calls.

The agent calls the server's ingress with the call's name as `idempotency-key`. Either of the two is killed
and started again, which is all that its documentation asks for: the server calls the service again by itself.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

from benchmarks.peers.asking import LONGEST, Told, answered, failed, post
from benchmarks.peers.programs import ROOT, DidNotWork, Program
from benchmarks.peers.subjects import Subject, World, in_thread
from tests.servers.postgres import free_port

START_WITHIN = 60.0
SERVICE = ROOT / "benchmarks" / "peers" / "restate" / "service.mjs"


class Restate(Subject):
    def __init__(self, world: World, modules: Path, mode: str, killed: str) -> None:
        super().__init__(world)
        self._modules, self._mode, self._killed = modules, mode, killed
        self._ingress, self._admin, self._fabric, self._served = (free_port() for _ in range(4))
        self._work = world.work / f"restate-{mode}-{killed}"
        self._work.mkdir()

    def _server(self) -> Program:
        found = sorted(self._modules.glob("@restatedev/restate-server-*/bin/restate-server"))
        if not found:
            raise DidNotWork("there is no server for this machine in its package")
        env = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self._admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{self._fabric}",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
            "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "256MB",
        }
        words = [str(found[0]), "--base-dir", str(self._work / "data"), "--node-name", "peers", "--no-logo"]
        return Program(words, self._work / "server.log", env)

    def _service(self) -> Program:
        """Run where its modules are: that is how Node finds them."""
        place = self._modules.parent / SERVICE.name
        if not place.exists() or place.read_text() != SERVICE.read_text():
            place.write_text(SERVICE.read_text())
        path = "/keyed" if self._mode == "key" else "/plain"
        upstream = self.world.upstream.url
        words = ["node", str(place), str(self._served), self._mode, upstream + path, upstream]
        return Program(words, self._work / "service.log")

    async def begin(self) -> None:
        self._programs = {"service": self._service(), "server": self._server()}
        for name in self._programs:
            await self._start(name)
        registered = {"uri": f"http://127.0.0.1:{self._served}", "use_http_11": False}
        await self._admin_says("/deployments", registered)

    async def _start(self, name: str) -> None:
        program = self._programs[name]
        self.started.push_async_callback(program.kill)
        await program.start(says=name == "service")
        if name == "server":
            await self._admin_says("/health")

    async def _admin_says(self, path: str, said: dict[str, object] | None = None) -> None:
        """As soon as it answers."""
        data = None if said is None else json.dumps(said).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self._admin}{path}", data, {"Content-Type": "application/json"}
        )
        async with asyncio.timeout(START_WITHIN):
            while True:
                try:
                    await asyncio.to_thread(lambda: urllib.request.urlopen(asked, timeout=30).close())
                except OSError:
                    if not self._programs["server"].alive:
                        raise DidNotWork("the server ended while it started") from None
                    await asyncio.sleep(0.05)
                else:
                    return

    def _asked(self, call: str, patience: float) -> asyncio.Task[Told]:
        def ask() -> Told:
            try:
                return answered(post(f"http://127.0.0.1:{self._ingress}/tool/act", call, call))
            except urllib.error.HTTPError as error:
                return Told("error", f"status {error.code}: {_message(error.read())}"[:LONGEST])
            except OSError as error:
                return failed(getattr(error, "reason", error), "none")

        return in_thread(ask, patience)

    async def ask(
        self, call: str, patience: float = 0.0, *, setup: bool = False, recovering: bool = False
    ) -> asyncio.Task[Told]:
        return self._asked(call, patience)

    async def crash(self) -> None:
        await self._programs[self._killed].kill()

    async def recover(self) -> None:
        make = {"service": self._service, "server": self._server}[self._killed]
        self._programs[self._killed] = make()
        await self._start(self._killed)

    async def at_once(self, call: str, number: int) -> list[Told]:
        return list(await asyncio.gather(*(self._asked(call, 0.0) for _ in range(number))))


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
