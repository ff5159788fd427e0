"""`semel mcp` as a real process with a real server behind it: for the `mcp` package's client, and by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from proxy.store.base import Query
from tests import ambient
from tests.cli.test_run_process import alive, clean_environment
from tests.inside import until
from tests.mcp.clients import agree
from tests.mcp.ledger import Ledger
from tests.process import ROOT

PATIENCE = 30.0
OPEN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True)
class Scene:
    """A folder with the record and the ledger of one server. `more`: further lines of its policy."""

    at: Path
    server: str = "odd"
    more: str = ""
    words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.at / "ledger")

    @property
    def state(self) -> Path:
        return self.at / "state"

    def direct(self) -> list[str]:
        """The server's own command."""
        stdio = ("stdio",) if self.server == "shop" else ()
        return [sys.executable, "-m", f"tests.mcp.{self.server}", str(self.ledger.path), *stdio, *self.words]

    def command(self, run: str = "", server: Sequence[str] = ()) -> list[str]:
        words = [sys.executable, "-m", "proxy.cli", "mcp", "--state-dir", str(self.state)]
        words += [*ambient.options(), *self.options, *(["--run", run] if run else [])]
        if self.more:
            file = self.at / "shop.yaml"
            file.write_text(f"upstream: shop\nprotocol: mcp\n{self.more}\n")
            words += ["--upstream", "shop", "--policies", str(file)]
        return [*words, "--", *(server or self.direct())]

    def environment(self) -> dict[str, str]:
        return clean_environment(**ambient.environment(), **self.env)

    def parameters(self, run: str = "", server: Sequence[str] = ()) -> StdioServerParameters:
        program, *words = self.command(run, server)
        return StdioServerParameters(command=program, args=words, cwd=str(ROOT), env=self.environment())

    def client(self, era: str, run: str = "", **more: Any) -> Client:
        """The package's own, which starts a bridge, which starts a server."""
        given = {"read_timeout_seconds": PATIENCE, "elicitation_callback": agree, "cache": None, **more}
        return Client(self.parameters(run), mode=era, **given)

    def by_hand(self, run: str = "", server: Sequence[str] = (), **more: Any) -> Bridge:
        return Bridge(self.command(run, server), self.environment(), self.at / "stderr", **more)

    async def states(self) -> list[str]:
        return await ambient.states_in(self.state)

    async def used(self, times: int) -> None:
        """Until so many callers are served by the run's only call. A join is durable before its answer."""
        there = await ambient.opened(self.state)
        try:
            async with asyncio.timeout(PATIENCE):
                while [c.in_run.uses for c in (await there.find(Query())).calls if c.in_run] != [times]:
                    await asyncio.sleep(0.01)
        finally:
            await there.close()


@dataclass
class Bridge:
    """`async with scene.by_hand() as bridge`; lines in, lines out, until it is killed or ends."""

    command: Sequence[str]
    env: Mapping[str, str]
    stderr: Path
    sockets: bool = False  # as Node's clients have them
    reads: bool = True
    heard: list[bytes] = field(default_factory=list)  # lines, and what they say
    messages: list[Any] = field(default_factory=list)
    server: int = 0  # the process id of its server

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        child_in, self._in = _socketpair() if self.sockets else os.pipe()
        self._out, child_out = _socketpair() if self.sockets else os.pipe()
        with self.stderr.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self.command, cwd=ROOT, env=self.env, stdin=child_in, stdout=child_out, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        os.close(child_in)
        os.close(child_out)
        self.eof = asyncio.Event()
        os.set_blocking(self._out, False)
        if self.reads:
            loop.add_reader(self._out, self._read, bytearray())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self.server = self.server or next(iter(children(self.pid)), 0)
            self.signal(signal.SIGKILL)
        await self._process.wait()
        self.leave()
        self.stop_reading()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self.stderr.read_text()

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        if self._process.returncode is None:
            (os.killpg if group else os.kill)(self.pid, number)

    async def ended(self, within: float = PATIENCE) -> int:
        async with asyncio.timeout(within):
            return await self._process.wait()

    async def started(self) -> int:
        """The process id of the server."""
        await until(lambda: children(self.pid), within=PATIENCE)
        (self.server,) = children(self.pid)
        return self.server

    # ---- saying ----

    async def say(self, *messages: object) -> None:
        """Lines as they are, or messages."""
        for each in messages:
            line = each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n"
            await asyncio.to_thread(_write, self._in, line)

    async def ask(self, method: str, params: object = None, id: object = 1) -> dict[str, Any]:  # noqa: A002
        said = {"jsonrpc": "2.0", "id": id, "method": method}
        await self.say(said if params is None else {**said, "params": params})
        return await self.answer(id)

    async def call(self, tool: str, arguments: object = None, id: object = 1, **more: Any) -> dict[str, Any]:  # noqa: A002
        await self.say(call_of(tool, arguments, id, **more))
        return await self.answer(id)

    async def opened(self) -> Self:
        await self.ask("initialize", OPEN, "open")
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def leave(self) -> None:
        """Its stdin is closed."""
        if self._in >= 0:
            os.close(self._in)
            self._in = -1

    def stop_reading(self) -> None:
        if self._out >= 0:
            asyncio.get_running_loop().remove_reader(self._out)
            os.close(self._out)
            self._out = -1

    # ---- hearing ----

    def read_on(self) -> None:
        asyncio.get_running_loop().add_reader(self._out, self._read, bytearray())

    def _read(self, pending: bytearray) -> None:
        try:
            data = os.read(self._out, 2**20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._out)
            self.eof.set()
        pending += data
        *lines, rest = pending.split(b"\n") if b"\n" in data else (pending,)
        for line in map(bytes, lines):
            self.heard.append(line)
            self.messages.append(_message(line))
        pending[:] = bytes(rest)

    def answers(self, id_: object) -> list[dict[str, Any]]:
        return [
            each
            for each in self.messages
            if isinstance(each, dict)
            and "method" not in each
            and each.get("id") == id_
            and type(each.get("id")) is type(id_)
        ]

    async def answer(self, id_: object) -> dict[str, Any]:
        await self.until(lambda: bool(self.answers(id_)), f"an answer to {id_!r}")
        return self.answers(id_)[-1]

    async def request(self, method: str) -> dict[str, Any]:
        """What the server asks of the client."""

        def asked() -> list[dict[str, Any]]:
            return [each for each in self.messages if isinstance(each, dict) and each.get("method") == method]

        await self.until(lambda: bool(asked()), method)
        return asked()[-1]

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE
        while not holds():
            if self.eof.is_set() and not holds():
                raise AssertionError(f"{what} never came: {self.heard}\n{self.log}")
            assert asyncio.get_running_loop().time() < end, f"{what} did not come: {self.heard}\n{self.log}"
            await asyncio.sleep(0.005)


def _message(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def call_of(tool: str, arguments: object = None, id: object = 1, **params: Any) -> dict[str, Any]:  # noqa: A002
    said = {"name": tool, "arguments": arguments or {}, **params}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": said}


def cancel_of(id_: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}


def text_of(answer: Mapping[str, Any]) -> str:
    said: str = answer["result"]["content"][0]["text"]
    return said


def problem_in(answer: Mapping[str, Any]) -> str:
    """The name of semel's own problem."""
    assert answer["error"]["code"] == -32080, answer
    named: str = answer["error"]["data"]["type"]
    return named.removeprefix("urn:semel:")


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def left_behind(at: Path) -> list[int]:
    """Processes whose command names this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(f"{at}/") in words and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def _socketpair() -> tuple[int, int]:
    ends = socket.socketpair()
    return ends[0].detach(), ends[1].detach()


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
