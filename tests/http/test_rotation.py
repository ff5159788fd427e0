"""Keys are rotated while agents work: no call fails, and afterwards nothing is left under the old key.

Two proxies on one record, callers that make new calls and ask old ones again, in rows, in blobs, in the cache
and in runs; `semel keys rotate` is a third process, as an operator would start it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from proxy.app import App
from proxy.core.intent import Entry, evolve
from proxy.errors import ConfigurationError
from proxy.rotating import Rotation, counted_by_key
from proxy.store import keystone
from proxy.store.base import Query
from proxy.store.keyring import FileKeys, GivenKeys, new_key
from proxy.store.sealed import SealedStore
from proxy.store.sealed_rows import is_bare
from tests import ambient
from tests.counts import count
from tests.http.numbered import JSON
from tests.http.test_encryption import files_in, key_settings, sealed
from tests.inside import call, semel

pytestmark = pytest.mark.usefixtures("any_store")

CALLERS = 8
ROOT = Path(__file__).parents[2]
POLICY = """\
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: cached, match: {{path: /cached}}, mode: cache}}
"""
SIZES = {"small": 100, "large": 70_000, "cached": 200}


def expected(kind: str, body: bytes) -> bytes:
    return (hashlib.sha256(body).hexdigest() * (SIZES[kind] // 64 + 1)).encode()


@dataclass
class Echo:
    """An upstream whose answer follows from what it was asked, and that counts."""

    port: int = 0
    asked: Counter[bytes] = field(default_factory=Counter)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.asked[body] += 1
        return web.Response(body=expected(request.path.strip("/"), body))


@asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    made = Echo()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()


class Callers:
    """Each asks something new, or something that somebody asked before, of either proxy, until it is over."""

    def __init__(self, apps: list[App], seed: int) -> None:
        self._apps = apps
        self._dice = random.Random(seed)
        self._over = asyncio.Event()
        self.asked: list[tuple[str, bytes, str]] = []
        self.replayed = 0
        self._tasks = [asyncio.create_task(self._go_on(n)) for n in range(CALLERS)]

    async def _go_on(self, n: int) -> None:
        number = 0
        while not self._over.is_set():
            if self.asked and self._dice.random() < 0.5:
                kind, body, run = self._dice.choice(self.asked)
                await self.ask(kind, body, run)
            else:
                number += 1
                kind = self._dice.choice(list(SIZES))
                run = self._dice.choice(["", f"run-{n}"])
                body = json.dumps({"caller": n, "number": number, "run": run}).encode()
                await self.ask(kind, body, run)
                self.asked.append((kind, body, run))

    async def ask(self, kind: str, body: bytes, run: str) -> None:
        app = self._dice.choice(self._apps)
        # In a run without an attempt a call with effects is the same one each time.
        headers = {**JSON, **({"Semel-Run": run} if run else {})}
        got = await call(app.address.port, "POST", f"/up/{kind}", headers, body)
        assert (got.status, got.complete) == (200, True), got
        assert got.body == expected(kind, body)
        self.replayed += got.semel == "replayed"

    async def more(self, than: int, within: float = 90.0) -> None:
        """Until so many more calls were made; whoever failed is heard of."""
        wanted = len(self.asked) + than
        async with asyncio.timeout(within):
            while len(self.asked) < wanted:
                self._raise_failures()
                await asyncio.sleep(0.01)

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)


async def keys(*words: str, key_file: Path, state: Path, status: int = 0) -> str:
    """`semel keys …`, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "keys", *words, "--state-dir", str(state), *ambient.options(),
        cwd=ROOT,
        env={**os.environ, **ambient.environment(), "SEMEL_ENCRYPTION_KEY_FILE": str(key_file)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == status, (out, err)
    return out.decode()


async def everything_is_under(app: App, key: GivenKeys) -> None:
    """By the rows as the store has them, and by what opens the record at all."""
    store = sealed(app)
    assert set(await counted_by_key(store)) == {key.current().name}
    page = await store.inner.find(Query(limit=1000))
    assert page.calls
    stone = await store.inner.swap_secret(b"", b"")  # what stands there
    assert keystone.sealed_with(stone) == key.current().id


async def test_rotation_beside_callers(tmp_path: Path) -> None:
    """Time after time; each time the key before opens nothing any more, and is dropped."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    path, state = tmp_path / "keys", tmp_path / "state"
    path.write_text(new_key())
    settings = key_settings(tmp_path)
    async with echo() as upstream:
        policy = POLICY.format(port=upstream.port)
        async with (
            semel(tmp_path, policy, settings=settings) as one,
            semel(tmp_path, policy, settings=settings) as two,
        ):
            callers = Callers([one, two], seed)
            await callers.more(30)
            for _ in range(count(test=1, soak=10)):
                old = GivenKeys(path.read_text())
                rotated = json.loads(await keys("rotate", "--new", "--json", key_file=path, state=state))
                assert (rotated["left"], rotated["unreadable"]) == (0, {})
                assert rotated["resealed"] > 0
                new = FileKeys(path)
                assert len(new.ring) == 2
                await everything_is_under(one, GivenKeys(path.read_text().split()[0]))
                with pytest.raises(ConfigurationError, match="cannot be opened"):
                    keystone.read(one.store.inner.secret, old, "the store")  # type: ignore[attr-defined]
                await keys("drop", old.current().name, key_file=path, state=state)
                assert [key.name for key in FileKeys(path).ring] == [rotated["key"]]
                await callers.more(20)
                if ambient.store() == ambient.EMBEDDED:
                    no_file_has(old, state)
            await callers.stop()
            assert callers.replayed
            everything = list(callers.asked)
        # Effects: each was made once, whoever asked and whenever.
        cached = {body for kind, body, run in everything if kind == "cached"}
        twice = {body: n for body, n in upstream.asked.items() if n > 1 and body not in cached}
        assert not twice
        async with semel(tmp_path, policy, settings=settings) as last:
            before = upstream.asked.total()
            for kind, body, run in everything[:: max(1, len(everything) // 100)]:
                if kind != "cached":
                    headers = {**JSON, **({"Semel-Run": run} if run else {})}
                    got = await call(last.address.port, "POST", f"/up/{kind}", headers, body)
                    assert (got.semel, got.body) == ("replayed", expected(kind, body))
            assert upstream.asked.total() == before


def no_file_has(old: GivenKeys, state: Path) -> None:
    """Not even where a row once was: the id of its key stands in everything that a key has sealed."""
    assert old.current().id not in files_in(state)


async def test_a_rotation_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    """Wherever it ends: all can be read, with both keys; begun again it does the rest and no more."""
    path = tmp_path / "keys"
    path.write_text(new_key())
    async with (
        echo() as upstream,
        semel(tmp_path, POLICY.format(port=upstream.port), settings=key_settings(tmp_path)) as app,
    ):
        callers = Callers([app], 1)
        await callers.more(40)
        await callers.stop()
        path.write_text(f"{new_key()}\n{path.read_text()}")
        store = sealed(app)
        name, done = FileKeys(path).ring[0].name, 0
        for swaps in (0, 3, 11):
            breaking = _Breaking(store, swaps)
            with pytest.raises(_Broken):
                await _rotation(breaking).rotate()
            before, done = done, (await counted_by_key(store)).get(name, 0)
            assert done == before + swaps
            for kind, body, run in callers.asked[:10]:
                await callers.ask(kind, body, run)
            done = (await counted_by_key(store)).get(name, 0)  # some of them count who is served by them
        total = len((await store.inner.find(Query(limit=1000))).calls)
        rotated = await _rotation(store).rotate()
        assert (rotated.resealed, rotated.left, rotated.unreadable) == (total - done, 0, {})
        assert (await _rotation(store).rotate()).resealed == 0


async def write_on(app: App) -> None:
    """Rows from before that are changed for another reason: sealed now, their bodies still in the clear."""
    page = await app.store.find(Query(limit=1000))
    changed = 0
    for row in page.calls:
        if row.answer is not None and is_bare(row.answer.blob):
            entry = Entry(1.0, "somebody", "evidence", row.state, row.state, "", row.fence)
            written = evolve(row, version=row.version + 1)
            changed += (await app.store.swap(written, entry, expected=row.version)).won
    assert changed, "there was no body from before"


class _Broken(Exception):
    """The process ended here."""


class _Breaking(SealedStore):
    """Of which some swaps succeed, one at a time, and then none."""

    def __init__(self, store: SealedStore, swaps: int) -> None:
        stone = keystone.read(store.inner.secret, store.keys, "the store")
        super().__init__(store.inner, store.keys, stone, lambda event, **fields: None)
        self._left = swaps
        self._lock = asyncio.Lock()

    async def swap(self, *args: object, **more: object) -> object:  # type: ignore[override]
        async with self._lock:
            if not self._left:
                raise _Broken
            self._left -= 1
            return await super().swap(*args, **more)  # type: ignore[arg-type]


class _NoTime:
    """A clock whose sleep is over at once: the keys that this store has are known to be new."""

    def __init__(self, keys: FileKeys) -> None:
        self._keys = keys

    def now(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, seconds: float) -> None:
        self._keys._look()


def _rotation(store: SealedStore) -> Rotation:
    assert isinstance(store.keys, FileKeys)
    store.keys._look()
    return Rotation(store, _NoTime(store.keys))  # type: ignore[arg-type]


async def test_a_record_from_before_is_encrypted_by_a_rotation(tmp_path: Path) -> None:
    """Rows, and bodies of rows; from then on what is not encrypted was put there by somebody else."""
    if ambient.store() == "memory":
        pytest.skip("a memory store is never opened twice")
    path, state = tmp_path / "keys", tmp_path / "state"
    async with echo() as upstream:
        policy = POLICY.format(port=upstream.port)
        async with semel(tmp_path, policy) as app:
            callers = Callers([app], 2)
            await callers.more(30)
            await callers.stop()
        path.write_text(new_key())
        async with semel(tmp_path, policy, settings=key_settings(tmp_path)) as app:
            later = Callers([app], 3)
            later.asked = callers.asked
            await later.more(10)
            await later.stop()
            assert "" in await counted_by_key(sealed(app)), "nothing was left from before"
            await write_on(app)
            listed = json.loads(await keys("list", "--json", key_file=path, state=state))["keys"]
            assert "not encrypted" in [row["use"] for row in listed]
            await keys("rotate", key_file=path, state=state)
            await everything_is_under(app, GivenKeys(path.read_text()))
            await app.store.clock_mark(0.0)  # as every few seconds
            assert sealed(app).rows.strict, "who was there before goes on accepting what is in the clear"
        bodies = upstream.asked.total()
        async with semel(tmp_path, policy, settings=key_settings(tmp_path)) as app:
            assert sealed(app).rows.strict
            again = Callers([app], 4)
            await again.stop()
            for kind, body, run in later.asked:
                if kind != "cached":
                    await again.ask(kind, body, run)
        assert upstream.asked.total() - bodies <= CALLERS, "something was sent again"
