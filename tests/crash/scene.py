"""What the crash tests share: three rules, one per kind of call, and a look at the ledger as a file.

Kind a is a safe call, kept by a `once` rule or by a `cache` rule; kind d has effects and nothing that could
tell afterwards whether they happened.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import apsw

from proxy import faults
from proxy.app import App
from proxy.core.intent import State
from proxy.faults import Point
from tests import ambient
from tests.inside import Answer, call
from tests.stores.calls import in_state

JSON = {"Content-Type": "application/json"}


class Kind(StrEnum):
    A = "a"
    A_CACHE = "a-cache"
    A_CANCEL = "a-cancel"  # stops when its caller leaves
    D = "d"

    @property
    def safe(self) -> bool:
        return self is not Kind.D

    @property
    def target(self) -> str:
        return f"/api/{self}"


KINDS = (Kind.A, Kind.A_CACHE, Kind.D)
SAFE = (Kind.A, Kind.A_CACHE)

RULES = """
rules:
  - {name: a, match: {method: POST, path: /a}, safe: true, repeat: same, wait: WAIT}
  - {name: a-cache, match: {method: POST, path: /a-cache}, mode: cache, wait: WAIT}
  - {name: a-cancel, match: {method: POST, path: /a-cancel}, safe: true, repeat: same, on_disconnect: cancel}
  - {name: d, match: {method: POST, path: /d}, wait: WAIT}
"""


def policy(base_url: int | str, *, idle: str = "20s", total: str = "40s", wait: str = "20s") -> str:
    """One upstream `api`. A port stands for plain HTTP on loopback."""
    if isinstance(base_url, int):
        base_url = f"http://127.0.0.1:{base_url}"
    head = f"upstream: api\nbase_url: {base_url}\ntimeout: {{connect: 1s, idle: {idle}, total: {total}}}"
    return head + RULES.replace("WAIT", wait)


def write_policy(tmp_path: Path, text: str) -> Path:
    """Where tests.inside.semel keeps its policies too, so that a process and an inside one can take turns."""
    directory = tmp_path / "policies"
    directory.mkdir(exist_ok=True)
    (directory / "test.yaml").write_text(text)
    return directory


async def ask(port: int, kind: Kind, body: bytes = b'{"n": 1}', *, within: float = 30) -> Answer:
    return await call(port, "POST", kind.target, JSON, body, within=within)


def told(answer: Answer) -> str:
    """The essence of what a caller got: `executed 200`, `in-doubt 409`, `a break`."""
    if not answer.complete:
        return "a break"
    if answer.semel == "refused":
        return f"{str(problem(answer)['type']).removeprefix('urn:semel:')} {answer.status}"
    return f"{answer.semel} {answer.status}"


def problem(answer: Answer) -> Mapping[str, Any]:
    members: Mapping[str, Any] = json.loads(answer.body)
    return members


async def states_left(state: Path) -> list[str]:
    """The states of all calls, as a dead process left them."""
    if ambient.store() == ambient.EMBEDDED:
        return _states_on_disk(state)
    return await ambient.states_in(state)


def _states_on_disk(state: Path) -> list[str]:
    """Read from a copy: closing the files themselves would tidy up what the next semel has to find."""
    with tempfile.TemporaryDirectory() as copy:
        for path in state.glob("ledger.sqlite*"):
            if not path.name.endswith("-shm"):  # an index of the log, made anew from it
                shutil.copy(path, copy)
        connection = apsw.Connection(f"{copy}/ledger.sqlite", flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return [row[0] for row in connection.execute("SELECT state FROM calls ORDER BY id")]
        finally:
            connection.close()


async def states(app: App) -> list[str]:
    return [str(call.state) for state in State for call in await in_state(app.store, state)]


async def until(condition: Callable[[], object], *, within: float = 15) -> None:
    """For what cannot be awaited: another process, a file, a counter. Fails rather than hangs."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


async def until_states(app: App, wanted: list[str], *, within: float = 15) -> None:
    present: list[str] = []
    try:
        async with asyncio.timeout(within):
            while (present := await states(app)) != wanted:
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"the ledger has {present}, not {wanted}") from None


@asynccontextmanager
async def store_failing(
    point: Point = Point.COMMIT_BEGUN, *, failed: asyncio.Event | None = None
) -> AsyncIterator[None]:
    """Every commit of a semel inside this process fails meanwhile; at COMMITTED it lands and says it did not.
    `failed` is set by the first failure."""
    loop = asyncio.get_running_loop()

    def fail() -> None:
        if failed is not None:
            loop.call_soon_threadsafe(failed.set)
        raise apsw.IOError("armed by a test")

    faults.arm(point, fail)
    try:
        yield
    finally:
        faults.disarm_all()
