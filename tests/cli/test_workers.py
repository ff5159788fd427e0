"""Several workers on one address: who dies is replaced, all count together, signals reach everybody."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from proxy.cli import workers
from tests.http.streaming import JSON, policy_of
from tests.inside import Answer, call, until
from tests.origin import OK, READ_ALL, Origin, Wait, answer
from tests.process import ROOT, SemelProcess

# Connections are spread over the workers by chance: with so many, each has some.
MANY = 40


def serving(tmp_path: Path, origin: Origin, workers: int = 2) -> SemelProcess:
    policies = tmp_path / "up.yaml"
    policies.write_text(policy_of(origin))
    return SemelProcess(tmp_path / "state", policies, options=("--workers", str(workers)))


def children(pid: int) -> list[int]:
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def ask(port: int, n: int, target: str = "/up/hold") -> Answer:
    return await call(port, "POST", target, JSON, b'{"n": %d}' % n)


async def counted(port: int, metric: str = "semel_calls_total", **labels: str) -> float:
    """The sum over all series with these labels, as somebody tells it."""
    body = (await call(port, "GET", "/metrics")).body.decode()
    lines = [line for line in body.splitlines() if line.startswith(metric + "{")]
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(one in line for one in wanted))


@pytest.mark.usefixtures("any_store")
async def test_a_call_happens_once_whoever_is_asked(tmp_path: Path) -> None:
    """Identical calls at once, over all workers: one goes out, all get its answer."""
    async with Origin(OK) as origin, serving(tmp_path, origin, 3) as semel:
        assert len(children(semel.pid)) == 3
        answers = await asyncio.gather(*(ask(semel.port, 1) for _ in range(MANY)))
        assert {(one.status, one.body) for one in answers} == {(200, b"ok")}
        assert len(origin.requests) == 1
        assert await semel.stop() == 0


@pytest.mark.usefixtures("any_store")
async def test_whoever_is_asked_tells_what_all_have_counted(tmp_path: Path) -> None:
    """Every scrape, by whichever worker, is the sum; and it never falls, though one is killed."""
    async with Origin(OK) as origin, serving(tmp_path, origin) as semel:
        await asyncio.gather(*(ask(semel.port, n) for n in range(MANY)))
        totals = [await counted(semel.port, status="executed") for _ in range(20)]
        assert totals == [MANY] * 20
        assert await counted(semel.port, "semel_call_seconds_count", status="executed") == MANY
        first = children(semel.pid)
        os.kill(first[0], signal.SIGKILL)
        await until(lambda: len(children(semel.pid)) == 2 and set(children(semel.pid)) != set(first))
        assert [await counted(semel.port, status="executed") for _ in range(20)] == [MANY] * 20
        await asyncio.gather(*(ask(semel.port, n) for n in range(MANY, 2 * MANY)))
        assert await counted(semel.port, status="executed") == 2 * MANY
        assert re.search(r'"event":"worker-died".*"how":"signal 9"', semel.log)


@pytest.mark.usefixtures("any_store")
async def test_a_worker_that_is_killed_is_replaced_and_its_call_recovered(tmp_path: Path) -> None:
    """The call that it had sent is in doubt, not sent again; everything else goes on."""
    go = asyncio.Event()
    async with Origin((*READ_ALL, Wait(go), answer(200)), OK) as origin, serving(tmp_path, origin) as semel:
        held = asyncio.create_task(ask(semel.port, 1))
        await until(lambda: origin.requests and origin.requests[0].complete)
        before = children(semel.pid)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert not (await held).complete
        await until(lambda: len(children(semel.pid)) == 2 and not set(children(semel.pid)) & set(before))
        retried = await answered(semel.port, 1)
        assert (retried.status, retried.get("content-type")) == (409, "application/problem+json")
        assert b"in-doubt" in retried.body
        assert (await answered(semel.port, 2)).semel == "executed"
        assert len(origin.requests) == 2
        assert await semel.stop() == 0


async def answered(port: int, n: int) -> Answer:
    """A worker that is being replaced may not listen yet."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await ask(port, n)
            except ConnectionError:
                await asyncio.sleep(0.01)


async def test_stopping_lets_calls_finish(tmp_path: Path) -> None:
    """SIGTERM to the supervisor: the caller gets its answer, then all are gone."""
    go = asyncio.Event()
    async with (
        Origin((*READ_ALL, Wait(go), answer(200, b"late"))) as origin,
        serving(tmp_path, origin) as semel,
    ):
        workers = children(semel.pid)
        held = asyncio.create_task(ask(semel.port, 1))
        await until(lambda: origin.requests)
        semel.send(signal.SIGTERM)
        await until(lambda: sum(map(is_alive, workers)) == 1)  # who has nothing to do leaves
        go.set()
        assert (await held).body == b"late"
        assert await semel.died() == 0
        assert not any(map(is_alive, workers))


async def test_ctrl_c_is_no_hurry(tmp_path: Path) -> None:
    """A terminal sends it to every process; the workers leave it to the supervisor."""
    go = asyncio.Event()
    async with (
        Origin((*READ_ALL, Wait(go), answer(200, b"late"))) as origin,
        serving(tmp_path, origin) as semel,
    ):
        held = asyncio.create_task(ask(semel.port, 1))
        await until(lambda: origin.requests)
        for pid in (*children(semel.pid), semel.pid):
            os.kill(pid, signal.SIGINT)
        await until(lambda: len(children(semel.pid)) == 1)
        go.set()
        assert (await held).body == b"late"
        assert await semel.died() == 0


async def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    """Killed, it cannot tell them; they see that it is gone."""
    async with Origin(OK) as origin, serving(tmp_path, origin) as semel:
        workers = children(semel.pid)
        assert (await ask(semel.port, 1)).status == 200
        semel.send(signal.SIGKILL)
        await until(lambda: not any(map(is_alive, workers)))


async def refused(tmp_path: Path, *options: str, policy: str = "upstream: up\nbase_url: http://h\n") -> str:
    """What is said by a `serve` that must not start."""
    policies = tmp_path / "p.yaml"
    policies.write_text(policy)
    words = ["serve", "--state-dir", str(tmp_path / "s"), "--policies", str(policies), "--workers", "2"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", *words, *options, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        _, told = await process.communicate()
    assert process.returncode == 2
    return told.decode()


async def test_what_cannot_start_is_said_once(tmp_path: Path) -> None:
    """A store that workers cannot share, an address that is taken, a state directory that is none."""
    assert "need a store that they share" in await refused(tmp_path, "--store", "memory")
    (tmp_path / "s").write_text("a file")
    told = await refused(tmp_path, "--listen", "127.0.0.1:0")
    assert len(told.strip().splitlines()) == 1
    assert str(tmp_path / "s") in told


@pytest.mark.parametrize("shared", [False, True])
async def test_an_address_that_others_use_is_not_shared_with_them(tmp_path: Path, shared: bool) -> None:
    """Not even with those who would share it: they may have another store."""
    with socket.socket() as other:
        if shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        told = await refused(tmp_path, "--listen", f"127.0.0.1:{other.getsockname()[1]}")
        assert "cannot listen" in told
        assert "in use" in told


def test_a_worker_says_that_it_is_ready_though_its_supervisor_was_killed() -> None:
    """Found by the kill soak (embedded, seed 811). No defect to tell of: the lifeline ends it."""
    heard, ready = os.pipe()
    os.close(heard)
    workers._say(ready)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(ready)
