"""A polite end: what is under way may finish; with a second signal it is marked; nothing stays pending."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.crash.scene import JSON, KINDS, Kind, ask, policy, states_left, told, until, write_policy
from tests.inside import call, read_answer, request_bytes
from tests.origin import READ_ALL, Origin, Wait, answer
from tests.process import SemelProcess

pytestmark = pytest.mark.usefixtures("any_store")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def refuses_connections(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:  # refused, or reset in the backlog of the socket that is being closed
        return True
    writer.close()
    return False


async def until_it_listens_no_more(port: int) -> None:
    async with asyncio.timeout(10):
        while not await refuses_connections(port):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_call_under_way_finishes(number: signal.Signals, tmp_path: Path) -> None:
    """One signal: nothing new is accepted, the slow call of every kind is answered and recorded, exit 0."""
    go_on = asyncio.Event()
    async with Origin((*READ_ALL, Wait(go_on), answer(200, b"fine"))) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with SemelProcess(tmp_path / "state", policies) as semel:
            asking = [asyncio.create_task(ask(semel.port, kind)) for kind in KINDS]
            await until(lambda: origin.started == len(KINDS))
            semel.send(number)
            await until_it_listens_no_more(semel.port)
            assert semel.alive
            assert not any(task.done() for task in asking)
            go_on.set()
            answers = await asyncio.gather(*asking)
            assert [told(answer) for answer in answers] == ["executed 200"] * len(KINDS)
            assert await semel.died() == 0
        assert await states_left(tmp_path / "state") == ["done"] * len(KINDS)
        async with SemelProcess(tmp_path / "state", policies) as semel:
            for kind in KINDS:
                assert told(await ask(semel.port, kind)) == "replayed 200"
        assert origin.started == len(KINDS)


async def test_who_has_nothing_under_way_is_let_go_at_once(tmp_path: Path) -> None:
    """An idle connection does not wait for somebody else's slow call."""
    go_on = asyncio.Event()
    async with Origin((*READ_ALL, Wait(go_on), answer(200, b"fine"))) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with SemelProcess(tmp_path / "state", policies) as semel:
            idle, wrote = await asyncio.open_connection("127.0.0.1", semel.port)
            wrote.write(request_bytes("GET", "/healthz"))
            assert (await read_answer(idle)).status == 200
            asking = asyncio.create_task(ask(semel.port, Kind.D))
            await until(lambda: origin.started == 1)
            semel.send(signal.SIGTERM)
            async with asyncio.timeout(10):
                assert await idle.read() == b""
            assert not asking.done()
            wrote.close()
            go_on.set()
            assert told(await asking) == "executed 200"
            assert await semel.died() == 0
        assert origin.started == 1


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """What is under way is marked: effects in doubt, safe calls released; the callers are told; exit 0."""
    never = asyncio.Event()
    async with Origin((*READ_ALL, Wait(never))) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with SemelProcess(tmp_path / "state", policies) as semel:
            asking = [asyncio.create_task(ask(semel.port, kind)) for kind in KINDS]
            await until(lambda: origin.started == len(KINDS))
            semel.send(signal.SIGTERM)
            await until_it_listens_no_more(semel.port)
            began = time.monotonic()
            semel.send(signal.SIGTERM)
            answers = dict(zip(KINDS, await asyncio.gather(*asking), strict=True))
            assert await semel.died() == 0
            assert time.monotonic() - began < 5
        assert {kind: told(answer) for kind, answer in answers.items()} == {
            Kind.A: "upstream-unreachable 502",
            Kind.A_CACHE: "upstream-unreachable 502",
            Kind.D: "in-doubt 409",
        }
        assert sorted(await states_left(tmp_path / "state")) == ["in_doubt", "released", "released"]
        assert "3 calls were stopped" in semel.log


async def test_a_second_signal_while_an_answer_streams(tmp_path: Path) -> None:
    """A part was handed on: the caller is cut off, never given an end, and the call is in doubt."""
    never = asyncio.Event()
    words = answer(200, b"first half, second half")
    async with Origin((*READ_ALL, words[:-11], Wait(never))) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with SemelProcess(tmp_path / "state", policies) as semel:
            reader, writer = await asyncio.open_connection("127.0.0.1", semel.port)
            writer.write(request_bytes("POST", Kind.D.target, JSON, b'{"n": 1}'))
            await reader.readuntil(b"first half")
            semel.send(signal.SIGTERM)
            await until_it_listens_no_more(semel.port)
            semel.send(signal.SIGTERM)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.readuntil(b"second half"), 10)
            writer.close()
            assert await semel.died() == 0
        assert await states_left(tmp_path / "state") == ["in_doubt"]
        assert origin.started == 1


async def test_a_client_that_keeps_its_connection_open_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """An idle keep-alive connection is closed, and the process ends at once."""
    async with Origin() as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with SemelProcess(tmp_path / "state", policies) as semel:
            assert (await call(semel.port, "GET", "/healthz")).status == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", semel.port)
            writer.write(request_bytes("GET", "/healthz"))
            await reader.readuntil(b"ok\n")
            assert await semel.stop(within=10) == 0
            assert await reader.read() == b""
            writer.close()
