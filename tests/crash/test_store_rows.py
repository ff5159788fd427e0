"""A store that fails, before the intent and after the send: nothing is sent without an intent, no answer ends
without a record, and when the store is back everything is settled."""

from __future__ import annotations

import asyncio
import resource
import signal
from pathlib import Path

import pytest

from proxy import ledger
from proxy.faults import Point
from tests import ambient
from tests.crash.scene import (
    KINDS,
    Kind,
    ask,
    policy,
    states,
    states_left,
    store_failing,
    told,
    until,
    until_states,
    write_policy,
)
from tests.inside import request_bytes, semel
from tests.origin import READ_ALL, Origin, Script, Wait, answer
from tests.process import SemelProcess

pytestmark = pytest.mark.usefixtures("some_store")

OK: Script = (*READ_ALL, answer(200, b"fine"))


async def refused_until_executed(port: int, kind: Kind) -> int:
    """A claim whose fate is not known is taken back first, which may need a moment after the store is back;
    callers are told the same meanwhile. How often that was."""
    for refused in range(400):
        answer_ = await ask(port, kind)
        if told(answer_) == "executed 200":
            return refused
        assert told(answer_) == ("passed 200" if kind.safe else "store-unavailable 503")
        await asyncio.sleep(0.02)
    raise AssertionError("the store is back, and calls do not work")


# ---- before the intent ----


@pytest.mark.parametrize("point", [Point.COMMIT_BEGUN, Point.COMMITTED])
@pytest.mark.parametrize("kind", KINDS)
async def test_store_down_before_the_intent(kind: Kind, point: Point, tmp_path: Path) -> None:
    """Safe: forwarded, `passed`. Effects: 503, nothing sent, also where the claim landed in secret."""
    async with Origin(OK) as origin, semel(tmp_path, policy(origin.port)) as app:
        async with store_failing(point):
            for _ in range(2):
                down = await ask(app.address.port, kind)
                assert told(down) == ("passed 200" if kind.safe else "store-unavailable 503")
                assert down.get("Semel-Call") is None or not kind.safe
            passed = origin.started
            assert passed == (2 if kind.safe else 0)
        refused = await refused_until_executed(app.address.port, kind)
        passed += refused if kind.safe else 0
        assert told(await ask(app.address.port, kind)) == "replayed 200"
        assert origin.started == passed + 1
        assert await states(app) == ["done"]


# ---- after the send ----


@pytest.mark.parametrize("kind", KINDS)
async def test_store_fails_after_the_send_and_comes_back(kind: Kind, tmp_path: Path) -> None:
    """The end is withheld meanwhile; with the store it comes, and the record has it."""
    go = asyncio.Event()
    words = answer(200, b"hello")
    script = (*READ_ALL, words[:-1], Wait(go), words[-1:])
    async with Origin(script) as origin, semel(tmp_path, policy(origin.port)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", kind.target, {"Content-Type": "application/json"}, b'{"n": 1}'))
        await reader.readuntil(b"hell")
        failed = asyncio.Event()
        async with store_failing(failed=failed):
            go.set()
            await failed.wait()
            last = asyncio.create_task(reader.readexactly(1))
            for _ in range(20):  # as often as the event loop turns, the last byte stays away
                await asyncio.sleep(0)
            assert not last.done()
        assert await asyncio.wait_for(last, 15) == b"o"
        writer.close()
        assert await states(app) == ["done"]
        assert told(await ask(app.address.port, kind)) == "replayed 200"
        assert origin.started == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_store_fails_after_the_send_for_longer_than_the_deadline(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is cut off without the end; the call is settled when the store is back."""
    monkeypatch.setattr(ledger, "LONGEST_PAUSE", 0.1)
    gate = asyncio.Event()
    script = (*READ_ALL, Wait(gate), answer(200, b"fine"))
    async with Origin(script) as origin, semel(tmp_path, policy(origin.port, idle="1s", total="1s")) as app:
        asking = asyncio.create_task(ask(app.address.port, kind))
        await until(lambda: origin.started)
        async with store_failing():
            gate.set()
            assert told(await asking) == "a break"
            assert await states(app) == ["pending"]
        await until_states(app, ["done"])
        again = await ask(app.address.port, kind)
        assert (told(again), again.body) == ("replayed 200", b"fine")
        assert origin.started == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_store_fails_after_the_send_and_the_proxy_dies(kind: Kind, tmp_path: Path) -> None:
    """After the crash nobody knows: a safe call runs again, one with effects is in doubt."""
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        faults = {str(Point.COMMIT_BEGUN): {"action": "fail", "after": 1}}  # the claim is let through
        async with SemelProcess(tmp_path / "state", policies, faults) as doomed:
            asking = asyncio.create_task(ask(doomed.port, kind))
            await until(lambda: '"doing":"settle"' in doomed.log)
            doomed.send(signal.SIGKILL)
            assert await doomed.died() == -signal.SIGKILL
            assert told(await asking) == "a break"
        assert await states_left(tmp_path / "state") == ["pending"]
        async with semel(tmp_path, policy(origin.port)) as app:
            assert told(await ask(app.address.port, kind)) == (
                "executed 200" if kind.safe else "in-doubt 409"
            )
            assert origin.started == (2 if kind.safe else 1)


# ---- a disk that is full, for a process of its own ----


@pytest.mark.parametrize("some_store", [ambient.EMBEDDED], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_files_that_may_not_grow(kind: Kind, tmp_path: Path) -> None:
    """The kernel refuses every write: as a store that is down; when it allows them again, calls work. The
    files are SQLite's: other stores have none here."""
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with SemelProcess(tmp_path / "state", policies) as semel_:
            assert told(await ask(semel_.port, kind, b'{"n": 0}')) == "executed 200"
            soft, hard = resource.prlimit(semel_.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(semel_.pid, resource.RLIMIT_FSIZE, (1024, hard))
            for _ in range(3):
                full = await ask(semel_.port, kind)
                assert told(full) == ("passed 200" if kind.safe else "store-unavailable 503")
            assert origin.started == 1 + (3 if kind.safe else 0)
            assert told(await ask(semel_.port, kind, b'{"n": 0}')) == "replayed 200"  # reading still works
            resource.prlimit(semel_.pid, resource.RLIMIT_FSIZE, (soft, hard))
            refused = await refused_until_executed(semel_.port, kind)
            assert told(await ask(semel_.port, kind)) == "replayed 200"
            assert origin.started == 2 + (3 + refused if kind.safe else 0)
