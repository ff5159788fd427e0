"""One semel before an origin whose n-th answer says n, and its replays from memory: `given` counts them."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proxy.admin.decision import Decision
from proxy.admin.desk import LocalDesk
from proxy.app import App
from proxy.clock import SystemClock
from proxy.front.recall import Recall
from proxy.store.base import Store
from proxy.store.codec import Codec
from tests.inside import Answer, call, semel
from tests.origin import READ_ALL, Origin, Script, answer

JSON = {"Content-Type": "application/json"}
BODY = b'{"a": 1}'
ONCE = "[{name: r, match: {path: /x}}]"
NUMBERED: tuple[Script, ...] = tuple((*READ_ALL, answer(200, b"answer %d" % n)) for n in range(1, 50))


@dataclass(frozen=True, slots=True)
class Place:
    origin: Origin
    app: App
    recall: Recall | None

    @property
    def port(self) -> int:
        return self.app.address.port

    @property
    def given(self) -> int:
        assert self.recall is not None
        return self.recall.given

    async def post(self, headers: Mapping[str, str] | None = None, body: bytes = BODY) -> Answer:
        return await call(self.port, "POST", "/up/x", {**JSON, **(headers or {})}, body)


@asynccontextmanager
async def place(
    tmp_path: Path,
    *scripts: Script,
    rules: str = ONCE,
    recall: bool = True,
    log: io.StringIO | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Place]:
    tmp_path.mkdir(exist_ok=True)
    async with Origin(*(scripts or NUMBERED)) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\nrules: {rules}\n"
        flags = {"recall": recall, **(settings or {})}
        async with semel(tmp_path, policy, settings=flags, log=log) as app:
            there = app._listener.recall
            assert there is None or isinstance(there, Recall)
            yield Place(origin, app, there)


async def warmed(there: Place) -> Answer:
    """A request that is known by now: executed, then read from the record, then recalled."""
    assert [(await there.post()).semel for _ in range(2)] == ["executed", "replayed"]
    before, got = there.given, await there.post()
    assert (there.given, got.semel) == (before + 1, "replayed")
    return got


def desk_on(store: Store) -> LocalDesk:
    return LocalDesk(store=store, codec=Codec(), clock=SystemClock(), lifetimes=lambda upstream, rule: None)


async def forget(there: Place, call_id: str) -> None:
    await desk_on(there.app.store).forget(call_id, Decision(by="me", reason="a test"))
