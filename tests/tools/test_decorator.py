"""`@semel.tool` in real agents against a real semel, either of which is killed.

What a function did is counted in a file that semel knows nothing of.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import semel as command
from tests.cli.test_run_process import Ran, run_to_end
from tests.inside import raw_call, request_bytes, until
from tests.process import SemelProcess, kill_at
from tests.tools.agents import Agent, Plan, one_attempt
from tests.tools.workers import HASTY, JSON, PATIENT

POLICY = "upstream: other\nbase_url: http://127.0.0.1:9\n"
DONE = ["pay order 7"]
STYLES = pytest.mark.parametrize("style", ["sync", "async"])
RUNS_AND_STYLES = pytest.mark.parametrize(("run", "style"), [("", "sync"), ("night", "async")])


def variables(lease: dict[str, str]) -> dict[str, str]:
    return {f"SEMEL_{name.replace('.', '_').upper()}": value for name, value in lease.items()}


def process(
    at: Path,
    lease: dict[str, str] = PATIENT,
    *,
    port: int = 0,
    faults: dict[str, dict[str, object]] | None = None,
) -> SemelProcess:
    policy = at / "other.yaml"
    policy.write_text(POLICY)
    listen = ("--listen", f"127.0.0.1:{port}")
    return SemelProcess(at / "state", policy, faults, options=listen, env=variables(lease))


def plan(at: Path, **more: Any) -> Plan:
    return Plan(effects=at / "effects", **more)


def result_of(told: dict[str, Any]) -> dict[str, object]:
    assert told.keys() == {"result"}, told
    result: dict[str, object] = told["result"]
    return result


# ---- an agent dies ----


@pytest.mark.parametrize(
    ("run", "style", "settled"),
    [
        ("", "sync", "executed"),
        ("night", "async", "executed"),
        ("", "async", "not_executed"),
        ("night", "sync", "not_executed"),
    ],
)
async def test_killed_inside_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: str, style: str, settled: str
) -> None:
    """Nobody knows, so nobody runs it: the next attempt is told so. What a person says then counts: the
    result that they give is given, or the function runs."""
    async with process(tmp_path, HASTY) as semel:
        async with Agent(plan(tmp_path, style=style, stands=["inside pay"]), semel.url, run) as agent:
            await agent.stands("inside pay")
            await agent.kill()
        later = plan(tmp_path, style=style)
        held = await one_attempt(later, semel.url, run, "a2")
        assert held["error"] == "InDoubt"
        assert "no sign of life" in held["message"]
        assert later.done == DONE
        if settled == "executed":
            answer = tmp_path / "answer.json"
            answer.write_text('{"result": "paid by hand"}')
            words = ("calls", "resolve", held["call"], "--as", "executed", "--body-file", answer)
            proxy = ("--reason", "seen in the books", "--proxy", semel.url)
            ran = await asyncio.to_thread(command, capsys, *words, *proxy)
            assert ran.status == 0, ran.err
            assert await one_attempt(later, semel.url, run, "a3") == {"result": "paid by hand"}
            assert later.done == DONE
        else:
            said = json.dumps({"as": "not_executed", "reason": "not in the books"}).encode()
            target = f"/_semel/calls/{held['call']}/resolve"
            resolve = request_bytes("POST", target, JSON, said, host="127.0.0.1")
            assert (await raw_call(semel.port, resolve)).status == 200
            assert result_of(await one_attempt(later, semel.url, run, "a3"))["tool"] == "pay"
            assert later.done == DONE * 2


@RUNS_AND_STYLES
async def test_killed_after_the_function_had_returned(tmp_path: Path, run: str, style: str) -> None:
    """What the agent had in hand is given to the next attempt, by the next semel: it does not run again."""
    async with process(tmp_path) as semel:
        agent = Agent(plan(tmp_path, style=style, stands=["after pay"]), semel.url, run)
        async with agent:
            await agent.stands("after pay")
            await semel.kill()
    async with process(tmp_path) as semel:
        given = result_of(await one_attempt(plan(tmp_path, style=style), semel.url, run, "a2"))
    assert given == {"tool": "pay", "about": "order 7", "pid": agent.pid}
    assert plan(tmp_path).done == DONE


# ---- semel dies ----


@pytest.mark.parametrize(("run", "returns"), [("", "while it is down"), ("night", "when it is back")])
async def test_semel_is_killed_while_the_function_runs(tmp_path: Path, run: str, returns: str) -> None:
    """The function goes on, and its result is recorded by the semel that comes after."""
    async with AsyncExitStack() as later:
        async with process(tmp_path) as semel:
            agent = Agent(plan(tmp_path, stands=["inside pay"]), semel.url, run)
            await later.enter_async_context(agent)
            await agent.stands("inside pay")
            await semel.kill()
        if returns == "while it is down":
            agent.go_on()
        again = await later.enter_async_context(process(tmp_path, port=semel.port))
        agent.go_on()
        result = result_of(await agent.told())
        assert result_of(await one_attempt(plan(tmp_path), again.url, run, "a2")) == result
    assert plan(tmp_path).done == DONE


@pytest.mark.parametrize(("run", "point"), [("", "settled"), ("night", "answer_complete")])
async def test_semel_is_killed_as_it_records_the_result(tmp_path: Path, run: str, point: str) -> None:
    """The agent goes on when its result is durable, and not before: until then it reports."""
    async with AsyncExitStack() as later:
        async with process(tmp_path, faults=kill_at(point)) as semel:
            agent = Agent(plan(tmp_path, stands=["inside pay", "after pay"]), semel.url, run)
            await later.enter_async_context(agent)
            await agent.stands("inside pay")
            agent.go_on()
            await semel.died()
        again = await later.enter_async_context(process(tmp_path, port=semel.port))
        await agent.stands("after pay")
        result = result_of(await agent.told())
        assert result_of(await one_attempt(plan(tmp_path), again.url, run, "a2")) == result
    assert plan(tmp_path).done == DONE


async def test_semel_is_killed_as_it_hands_the_call_out(tmp_path: Path) -> None:
    """Claimed, and the agent has not heard of it: it does not run, and the agent is told that it is held."""
    async with AsyncExitStack() as later:
        async with process(tmp_path, faults=kill_at("claimed")) as semel:
            agent = await later.enter_async_context(Agent(plan(tmp_path), semel.url))
            await semel.died()
        await later.enter_async_context(process(tmp_path, port=semel.port))
        assert (await agent.told())["error"] == "InDoubt"
    assert plan(tmp_path).done == []


# ---- many at once ----


def connections(port: int) -> int:
    """Clients that are connected to this port of the loopback, as Linux sees it."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2] == f"0100007F:{port:04X}" and row[3] == "01" for row in rows)


@STYLES
async def test_of_many_processes_one_runs_it(tmp_path: Path, style: str) -> None:
    """Outside a run an identical call is one call: whoever comes first runs it, and all have its result."""
    processes, each = 4, 50
    together = plan(tmp_path, style=style, stands=["inside pay"], at_once=each)
    async with process(tmp_path) as semel, AsyncExitStack() as all_of_them:
        agents = [await all_of_them.enter_async_context(Agent(together, semel.url)) for _ in range(processes)]
        await until(lambda: together.done and connections(semel.port) >= processes * each, within=60)
        for agent in agents:
            agent.go_on()
        told = [one for agent in agents for one in await agent.results()]
    assert len(told) == processes * each
    assert together.done == DONE
    assert {json.dumps(one) for one in told} == {json.dumps(told[0])}


# ---- under `semel run` ----


def said(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


@STYLES
def test_an_agent_that_ends_in_the_middle_is_run_again(tmp_path: Path, style: str) -> None:
    """The steps that were done are answered from the record, the others are done: each of them once."""
    calls, options = ("look", "pay", "mail"), ("--id", "task-7")
    first, second = (plan(tmp_path, style=style, calls=calls, exits=at) for at in ("after pay", ""))
    ended = run_to_end(tmp_path / "state", *first.command, options=options)
    assert ended.status == 17, ended.err
    assert first.done == ["look order 7", "pay order 7"]
    again = run_to_end(tmp_path / "state", *second.command, options=options)
    assert again.status == 0, again.err
    assert second.done == ["look order 7", "pay order 7", "mail order 7"]
    (looked,), results = said(ended), [result_of(one) for one in said(again)]
    assert results[0] == result_of(looked)
    pids = [one["pid"] for one in results]
    assert pids[0] == pids[1] != pids[2]


def test_an_agent_that_ends_inside_a_function_is_told_so(tmp_path: Path) -> None:
    """What was done before is given again; the function that it died in is held."""
    calls, options, lease = ("look", "pay"), ("--id", "task-7"), variables(HASTY)
    first, second = (plan(tmp_path, calls=calls, exits=at) for at in ("inside pay", ""))
    ended = run_to_end(tmp_path / "state", *first.command, options=options, env=lease)
    assert ended.status == 17, ended.err
    again = run_to_end(tmp_path / "state", *second.command, options=options, env=lease)
    assert again.status == 3, again.err
    looked, paid = said(again)
    assert result_of(looked) == result_of(said(ended)[0])
    assert paid["error"] == "InDoubt"
    assert second.done == ["look order 7", "pay order 7"]


# ---- a function raises ----


@RUNS_AND_STYLES
async def test_what_a_function_raised_is_raised_again(tmp_path: Path, run: str, style: str) -> None:
    """It may have had an effect: the next attempt sees how it failed, and does not run it."""
    async with process(tmp_path) as semel:
        failing = plan(tmp_path, style=style, raises="Declined")
        first = await one_attempt(failing, semel.url, run)
        assert (first["error"], first["message"]) == ("Declined", "no money")
        second = await one_attempt(plan(tmp_path, style=style), semel.url, run, "a2")
    assert (second["error"], second["message"]) == ("ToolFailed", "Declined: no money")
    assert failing.done == DONE


@RUNS_AND_STYLES
async def test_what_was_not_executed_runs_again(tmp_path: Path, run: str, style: str) -> None:
    """The function said that nothing happened: the next attempt runs it, and the one after has its result."""
    async with process(tmp_path) as semel:
        closed = plan(tmp_path, style=style, raises="NotExecuted")
        first = await one_attempt(closed, semel.url, run)
        assert (first["error"], first["message"]) == ("NotExecuted", "the bank is closed")
        assert closed.done == []
        second = await one_attempt(plan(tmp_path, style=style), semel.url, run, "a2")
        third = await one_attempt(plan(tmp_path, style=style), semel.url, run, "a3")
    assert result_of(second) == result_of(third)
    assert closed.done == DONE
