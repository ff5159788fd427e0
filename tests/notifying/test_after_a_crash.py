"""A process dies between doubt and notification: the next one tells it, under the same id, and only then."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.inside import Answer, call, until
from tests.notifying.scene import LOSES, SECRET, TAKEN, verified
from tests.origin import READ_ALL, Origin, Script, Stall, answer
from tests.process import SemelProcess, kill_at

pytestmark = pytest.mark.usefixtures("any_store")

HANGS: Script = (*READ_ALL, Stall())


def process(tmp_path: Path, origin: Origin, receiver: Origin, *options: str, **more: Any) -> SemelProcess:
    file = tmp_path / "up.yaml"
    file.write_text(f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n")
    env = {
        "SEMEL_NOTIFY_URL": f"http://127.0.0.1:{receiver.port}/hook",
        "SEMEL_NOTIFY_SECRET": SECRET,
        "SEMEL_NOTIFY_PUBLIC_URL": "https://semel.example",
    }
    return SemelProcess(tmp_path / "state", file, env=env, options=options, **more)


def complete(receiver: Origin) -> list[dict[str, Any]]:
    return [verified(one) for one in receiver.requests if one.complete]


def delivered(one: SemelProcess) -> Callable[[], bool]:
    return lambda: "notification-delivered" in one.log


async def post(one: SemelProcess, number: int = 0) -> Answer:
    return await call(one.port, "POST", "/up/send", {}, b'{"number": %d}' % number)


async def test_killed_between_doubt_and_delivery(tmp_path: Path) -> None:
    """The receiver had it in hand and never answered: told again after the restart, as the same."""
    async with Origin(LOSES) as origin, Origin(HANGS, TAKEN) as receiver:
        async with process(tmp_path, origin, receiver) as first:
            name = (await post(first)).get("Semel-Call")
            await until(lambda: len(complete(receiver)) == 1)
            await first.kill()
        async with process(tmp_path, origin, receiver) as second:
            await until(delivered(second))
            told = complete(receiver)
            assert [one["call"]["id"] for one in told] == [name, name]
            assert told[0] == told[1]
            assert told[0]["resolve"] == f"https://semel.example/_semel/calls/{name}/resolve"


async def test_killed_before_the_receiver_was_there(tmp_path: Path) -> None:
    """Nobody listened at all: refused connections, then a kill, then a receiver."""
    async with Origin(LOSES) as origin:
        async with Origin() as reserved:
            port = reserved.port
        async with process(tmp_path, origin, Origin(port=port)) as first:
            names = {(await post(first, number)).get("Semel-Call") for number in range(3)}
            await until(lambda: "notification-failed" in first.log)
            assert "in-the-query" not in first.log
            await first.kill()
        async with Origin(TAKEN, port=port) as receiver, process(tmp_path, origin, receiver):
            await until(lambda: len(complete(receiver)) >= 3)
            assert {one["call"]["id"] for one in complete(receiver)} == names


async def test_what_was_told_is_not_told_again_by_the_next_process(tmp_path: Path) -> None:
    """The history says so. What came into doubt later is told."""
    async with Origin(LOSES) as origin, Origin(TAKEN) as receiver:
        async with process(tmp_path, origin, receiver) as first:
            await post(first)
            await until(delivered(first))
            await first.kill()
        async with process(tmp_path, origin, receiver) as second:
            await post(second, 2)
            await until(delivered(second))
        assert [one["call"]["version"] for one in complete(receiver)] == [2, 2]
        assert len({one["id"] for one in complete(receiver)}) == 2


async def test_what_recovery_puts_in_doubt_is_told(tmp_path: Path) -> None:
    """Killed with the request out and no answer: nobody was there to see the doubt begin."""
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin, Origin(TAKEN) as receiver:
        async with process(tmp_path, origin, receiver, faults=kill_at("request_sent")) as first:
            await post(first)
            await first.died()
        assert not complete(receiver)
        async with process(tmp_path, origin, receiver) as second:
            await until(delivered(second))
            (told,) = complete(receiver)
            assert told["type"] == "in_doubt"
            assert "died" in told["call"]["reason"] or "ended" in told["call"]["reason"]


async def test_of_several_workers_one_looks_back_and_each_is_survived(tmp_path: Path) -> None:
    """Two workers start on three calls that nobody was told of: each is told once. Then all workers are
    killed while one has a notification in hand, and what it had to tell is told by those in their places."""
    async with Origin(LOSES) as origin:
        async with Origin(HANGS) as nobody, process(tmp_path, origin, nobody) as first:
            for number in range(3):
                await post(first, number)
            await until(lambda: len(complete(nobody)) == 1)
            await first.kill()
        async with (
            Origin(TAKEN, TAKEN, TAKEN, HANGS, TAKEN) as receiver,
            process(tmp_path, origin, receiver, "--workers", "2") as second,
        ):
            await until(lambda: second.log.count("notification-delivered") == 3)
            assert len({one["id"] for one in complete(receiver)}) == 3
            await post(second, 9)
            await until(lambda: len(complete(receiver)) == 4)
            for worker in children_of(second.pid):
                os.kill(worker, signal.SIGKILL)
            await until(lambda: len(complete(receiver)) >= 5)
            again = complete(receiver)[3:]
            assert len({one["id"] for one in again}) == 1
            await second.stop()


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("needs /proc")
    return [int(one) for one in listed.read_text().split()]


async def test_without_a_secret_semel_does_not_start(tmp_path: Path) -> None:
    """And says what to set, and how to make one."""
    async with Origin() as origin, Origin() as receiver:
        one = process(tmp_path, origin, receiver)
        one.env = {**(one.env or {}), "SEMEL_NOTIFY_SECRET": ""}
        with pytest.raises(RuntimeError, match="SEMEL_NOTIFY_SECRET is"):
            async with one:
                await asyncio.sleep(0)
