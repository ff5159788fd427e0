"""Two processes on one state: one winner, the other waits; what happens when the winner dies, or sleeps.

With the embedded store an owner lives as long as it holds the lock on its file, so a process that merely
stands still is never taken for dead. "Taken for dead" is made there by removing that file, which is what a
person would do who believes it. With the others it is enough to sleep for longer than a heart may pause. The
sleeper must then not send when it wakes up.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from proxy.faults import Point
from tests import ambient
from tests.crash.scene import (
    KINDS,
    Kind,
    ask,
    policy,
    states,
    states_left,
    told,
    until,
    until_states,
    write_policy,
)
from tests.inside import semel
from tests.origin import READ_ALL, Origin, Script, Wait, answer
from tests.process import SemelProcess

pytestmark = pytest.mark.usefixtures("any_store")

OK: Script = (*READ_ALL, answer(200, b"fine"))


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has taken hold of it."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def take_for_dead(state: Path, pid: int) -> None:
    """It stands still; where hearts beat, the other process sees by itself that this one's does not."""
    if ambient.store() == ambient.EMBEDDED:
        (lock,) = (path for path in (state / "owners").iterdir() if path.name.split("-")[1] == str(pid))
        lock.unlink()


def pause_once(point: Point) -> dict[str, dict[str, object]]:
    return {point: {"action": "pause", "times": 1}}


need_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="needs /proc to see a process stand"
)


@pytest.mark.parametrize("kind", KINDS)
async def test_two_proxies_one_key(kind: Kind, tmp_path: Path) -> None:
    """Twenty identical calls through two processes: one is sent, all get its answer."""
    go_on = asyncio.Event()
    async with Origin((*READ_ALL, Wait(go_on), answer(200, b"fine"))) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with (
            SemelProcess(tmp_path / "state", policies) as one,
            SemelProcess(tmp_path / "state", policies) as other,
        ):
            asking = [asyncio.create_task(ask(port, kind)) for port in (one.port, other.port) * 10]
            await until(lambda: origin.started)
            await asyncio.sleep(0.1)  # time to do harm in
            assert not any(task.done() for task in asking)
            go_on.set()
            answers = await asyncio.gather(*asking)
            assert {answer.body for answer in answers} == {b"fine"}
            assert [told(answer) for answer in answers].count("executed 200") == 1
            assert {told(answer) for answer in answers} <= {"executed 200", "joined 200", "replayed 200"}
            assert origin.started == 1
    assert await states_left(tmp_path / "state") == ["done"]


async def test_the_winner_dies_while_the_other_waits(tmp_path: Path) -> None:
    """The one who waits is told: effects in doubt; a safe call it makes itself."""
    never = asyncio.Event()
    async with Origin(*[(*READ_ALL, Wait(never))] * len(KINDS), OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with (
            SemelProcess(tmp_path / "state", policies) as winner,
            semel(tmp_path, policy(origin.port)) as app,
        ):
            first = [asyncio.create_task(ask(winner.port, kind)) for kind in KINDS]
            await until(lambda: origin.started == len(KINDS))
            waiting = [asyncio.create_task(ask(app.address.port, kind)) for kind in KINDS]
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in waiting)
            winner.send(signal.SIGKILL)
            assert {told(answer) for answer in await asyncio.gather(*first)} == {"a break"}
            answers = dict(zip(KINDS, await asyncio.gather(*waiting), strict=True))
            assert {kind: told(answer) for kind, answer in answers.items()} == {
                Kind.A: "executed 200",
                Kind.A_CACHE: "executed 200",
                Kind.D: "in-doubt 409",
            }
            assert origin.started == len(KINDS) + 2
            assert sorted(await states(app)) == ["done", "done", "in_doubt"]


@need_proc
@pytest.mark.parametrize("kind", KINDS)
async def test_an_owner_that_stands_still_is_not_dead(kind: Kind, tmp_path: Path) -> None:
    """Asleep between intent and first byte, not for too long: others wait, then are told in-progress; awake,
    it goes on."""
    patient, setting = {"SEMEL_OWNERS_DEAD_AFTER": "60s"}, {"owners.dead_after": "60s"}
    async with Origin(OK) as origin:
        text = policy(origin.port, wait="300ms")
        policies = write_policy(tmp_path, text)
        faults = pause_once(Point.BEFORE_FIRST_BYTE)
        async with (
            SemelProcess(tmp_path / "state", policies, faults, env=patient) as sleeper,
            semel(tmp_path, text, settings=setting) as app,
        ):
            asking = asyncio.create_task(ask(sleeper.port, kind))
            await until(lambda: is_stopped(sleeper.pid))
            assert told(await ask(app.address.port, kind)) == "in-progress 409"
            assert (origin.started, await states(app)) == (0, ["pending"])
            sleeper.send(signal.SIGCONT)
            assert told(await asking) == "executed 200"
            assert told(await ask(app.address.port, kind)) == "replayed 200"
            assert origin.started == 1


@need_proc
@pytest.mark.parametrize("kind", KINDS)
async def test_taken_for_dead_before_the_first_byte(kind: Kind, tmp_path: Path) -> None:
    """It wakes up, sees that it is not the owner any more, and sends nothing."""
    async with Origin(OK) as origin:
        text = policy(origin.port)
        policies = write_policy(tmp_path, text)
        faults = pause_once(Point.BEFORE_FIRST_BYTE)
        async with (
            SemelProcess(tmp_path / "state", policies, faults) as sleeper,
            semel(tmp_path, text) as app,
        ):
            asking = asyncio.create_task(ask(sleeper.port, kind))
            await until(lambda: is_stopped(sleeper.pid))
            take_for_dead(tmp_path / "state", sleeper.pid)
            second = await ask(app.address.port, kind)
            assert told(second) == ("executed 200" if kind.safe else "in-doubt 409")
            before = origin.started
            assert before == (1 if kind.safe else 0)
            sleeper.send(signal.SIGCONT)
            late = await asking
            assert told(late) == ("replayed 200" if kind.safe else "in-doubt 409")
            assert origin.started == before
            assert await states(app) == ["done" if kind.safe else "in_doubt"]


@need_proc
@pytest.mark.parametrize("kind", KINDS)
async def test_taken_for_dead_with_the_answer_in_hand(kind: Kind, tmp_path: Path) -> None:
    """Its late answer settles the doubt; where the call was made again meanwhile, it is kept as evidence."""
    async with Origin((*READ_ALL, answer(200, b"late")), OK) as origin:
        text = policy(origin.port)
        policies = write_policy(tmp_path, text)
        faults = pause_once(Point.ANSWER_COMPLETE)
        async with (
            SemelProcess(tmp_path / "state", policies, faults) as sleeper,
            semel(tmp_path, text) as app,
        ):
            asking = asyncio.create_task(ask(sleeper.port, kind))
            await until(lambda: is_stopped(sleeper.pid))
            take_for_dead(tmp_path / "state", sleeper.pid)
            second = await ask(app.address.port, kind)
            assert told(second) == ("executed 200" if kind.safe else "in-doubt 409")
            sleeper.send(signal.SIGCONT)
            late = await asking
            await until_states(app, ["done"])
            third = await ask(app.address.port, kind)
            assert told(third) == "replayed 200"
            assert third.body == late.body == (b"fine" if kind.safe else b"late")
            assert origin.started == (2 if kind.safe else 1)
            if kind.safe:
                call = str(second.get("Semel-Call"))
                history = await app.store.history(bytes.fromhex(call))
                assert [entry.event for entry in history][-1] == "evidence"
