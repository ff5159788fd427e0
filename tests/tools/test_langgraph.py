"""`@semel.tool` below LangChain's `@tool`: real LangGraph agents under `semel run`, killed where it hurts.

What the tools did is counted in a file that neither semel nor LangGraph knows of. The how-to's own agent is
pasted in tests/docs/test_pasted.py; here is what its text says besides.
"""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command import semel as command
from tests.cli.test_run_process import PATIENCE, clean_environment
from tests.inside import semel, until
from tests.process import ROOT
from tests.tools.agents import Agent
from tests.tools.graphs import BOOK, MAIL, PAY, REFUND, Call, Ended, Turn, killed, plan, start
from tests.tools.workers import PATIENT

POLICY = "upstream: other\nbase_url: http://127.0.0.1:9\n"
WITH_AND_WITHOUT = pytest.mark.parametrize("checkpointed", [False, True], ids=["from-the-start", "resumed"])


# ---- killed, and started again ----


@pytest.mark.parametrize(
    ("style", "dies", "checkpointed"),
    [
        ("sync", "after pay", False),
        ("sync", "after pay", True),
        ("async", "after pay", False),
        ("async", "after book", True),
        ("sync", "between nodes", False),
        ("async", "between nodes", True),
    ],
)
def test_killed_after_a_tool(tmp_path: Path, style: str, dies: str, checkpointed: bool) -> None:
    """Before LangGraph has noted the tool's answer, or when it has: every effect happens once, and the graph
    ends as if nothing had been."""
    turns: list[Turn] = [[PAY], [MAIL]] if style == "sync" else [[PAY], [BOOK], [MAIL]]
    done = ["pay 7", "mail ann"] if style == "sync" else ["pay 7", "book 12A", "mail ann"]
    first = plan(tmp_path, *turns, style=style, dies=dies, checkpointed=checkpointed)
    killed(tmp_path, first)
    ended = start(tmp_path, first)
    assert ended.resumed == checkpointed
    assert first.done == done
    pids = [json.loads(answer)["pid"] for answer in ended.answers]
    assert len(pids) == len(turns)
    assert pids[0] != pids[-1], "the first answer is that of the process that was killed"


@pytest.mark.parametrize(
    ("style", "tool", "done", "checkpointed"),
    [("sync", PAY, "pay 7", False), ("sync", PAY, "pay 7", True), ("async", BOOK, "book 12A", True)],
)
def test_killed_inside_a_tool(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    style: str,
    tool: Call,
    done: str,
    checkpointed: bool,
) -> None:
    """Nobody knows whether it took effect: the graph ends with `semel.InDoubt`, and the model is not asked.
    When a person has settled it the same command goes on."""
    inside = plan(tmp_path, [tool], [MAIL], style=style, dies=f"inside {tool[0]}", checkpointed=checkpointed)
    killed(tmp_path, inside)
    held = start(tmp_path, inside)
    assert held.error == "InDoubt"
    assert inside.done == [done]
    (tmp_path / "answer.json").write_text('{"result": "seen in the books"}')
    settled = ("calls", "resolve", held.told["call"], "--as", "executed", "--reason", "seen in the books")
    where = ("--body-file", tmp_path / "answer.json", "--state-dir", tmp_path / "state")
    ran = command(capsys, *settled, *where)
    assert ran.status == 0, ran.err
    ended = start(tmp_path, inside)
    assert ended.answers[0] == "seen in the books"
    assert inside.done == [done, "mail ann"]


@pytest.mark.parametrize(
    ("dies", "checkpointed"), [("after pay", False), ("after pay", True), ("inside pay", True)]
)
def test_without_semel_it_pays_twice(tmp_path: Path, dies: str, checkpointed: bool) -> None:
    """The same agent, the same kill. A checkpointer does not help: the node that was killed runs again."""
    alone = plan(tmp_path, [PAY], [MAIL], checkpointed=checkpointed)
    statuses = [
        subprocess.run(
            one.command,
            cwd=ROOT,
            env=clean_environment(SEMEL_OFF="1"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        ).returncode
        for one in (replace(alone, dies=dies), alone)
    ]
    assert statuses == [-signal.SIGKILL, 0]
    assert alone.done == ["pay 7", "pay 7", "mail ann"]


# ---- several tools at once ----


@pytest.mark.parametrize("style", ["sync", "async"])
def test_killed_in_one_of_several_tools(tmp_path: Path, style: str) -> None:
    """The model asks for all in one turn: what has ended is given again, what it was killed in is held."""
    turn: Turn = [PAY, MAIL] if style == "sync" else [PAY, BOOK, MAIL]
    inside = plan(tmp_path, turn, style=style, dies="inside mail", when_ended="pay", errors="to the model")
    killed(tmp_path, inside)
    answers = start(tmp_path, inside).answers
    assert json.loads(answers[0])["pay"] == 7
    assert "InDoubt" in answers[-1]
    assert len(inside.done) == len(set(inside.done)), "nothing was done twice"


async def test_identical_calls_at_the_same_time_are_one(tmp_path: Path) -> None:
    """The model asks for the same twice in a turn, and the second asks while the first runs: it is given the
    first one's answer, and so it is in the next attempt."""
    twice = plan(tmp_path, [PAY, PAY], stands="inside pay")
    async with semel(tmp_path, POLICY, settings=PATIENT) as app:
        url = f"http://127.0.0.1:{app.address.port}"
        async with Agent(twice, url, "task", "a1") as agent:
            await agent.stands("inside pay")
            (flight,) = app.flights.by_key.values()
            await until(lambda: flight.callers == 2)
            agent.go_on()
            first, second = Ended(await agent.told()).answers
            assert first == second
        async with Agent(twice, url, "task", "a2") as agent:
            assert Ended(await agent.told()).answers == [first, second]
    assert twice.done == ["pay 7"]


def test_identical_calls_one_after_the_other_are_two(tmp_path: Path) -> None:
    """The same turn of the model, only slower: so nobody should rely on the one or the other."""
    twice = plan(tmp_path, [PAY, PAY], at_a_time=1, dies="between nodes")
    killed(tmp_path, twice)
    assert len(start(tmp_path, twice).answers) == 2
    assert twice.done == ["pay 7", "pay 7"]


async def test_identical_calls_by_their_ids_are_two(tmp_path: Path) -> None:
    """The model's id of the call is an argument, and tells them apart also when they overlap."""
    twice = plan(tmp_path, [REFUND, REFUND], stands="inside refund")
    async with semel(tmp_path, POLICY, settings=PATIENT) as app:
        url = f"http://127.0.0.1:{app.address.port}"
        async with Agent(twice, url, "task", "a1") as agent:
            await agent.stands("inside refund")
            await agent.stands("inside refund")
            agent.go_on()
            first = Ended(await agent.told()).answers
        async with Agent(twice, url, "task", "a2") as agent:
            assert Ended(await agent.told()).answers == first
    assert twice.done == ["refund 7", "refund 7"]


# ---- a node that runs again in the same process, a graph that goes on in the middle ----


@pytest.mark.parametrize(("tool", "effects"), [(PAY, ["pay 7"] * 2), (REFUND, ["refund 7"])])
def test_a_node_that_langgraph_retries(tmp_path: Path, tool: Call, effects: list[str]) -> None:
    """Within one attempt a second identical call is a second call, unless its `key` says that it is not."""
    shaken = plan(tmp_path, [tool, ("shaky", {})], retries=True)
    assert start(tmp_path, shaken).answers[1] == "steady"
    assert shaken.done == effects


@WITH_AND_WITHOUT
def test_the_same_tool_behind_a_checkpoint(tmp_path: Path, checkpointed: bool) -> None:
    """An attempt that resumes does not ask for what came before, and semel holds what it does not know."""
    other = ("pay", {"order": 8})
    behind = plan(tmp_path, [PAY], [other], dies="between nodes", checkpointed=checkpointed)
    killed(tmp_path, behind)
    assert start(tmp_path, behind).error == ("Diverged" if checkpointed else "")
    assert behind.done == (["pay 7"] if checkpointed else ["pay 7", "pay 8"])


@pytest.mark.parametrize(("tool", "effects"), [(PAY, ["pay 7"]), (REFUND, ["refund 7"] * 2)])
def test_an_identical_call_behind_a_checkpoint(tmp_path: Path, tool: Call, effects: list[str]) -> None:
    """The model means a second one. By its id it is one; else it is the attempt's first: the recorded one."""
    behind = plan(tmp_path, [tool], [tool], dies="between nodes", checkpointed=True)
    killed(tmp_path, behind)
    ended = start(tmp_path, behind, {"SEMEL_RUNS_ON_DIVERGENCE": "allow"})
    assert ended.resumed
    assert behind.done == effects


def test_ids_that_do_not_come_back(tmp_path: Path) -> None:
    """The model was not recorded, and names its call anew: that is another call, which semel holds."""
    renamed = plan(tmp_path, [REFUND], dies="after refund", new_ids=True)
    killed(tmp_path, renamed)
    assert start(tmp_path, renamed).error == "Diverged"
    assert renamed.done == ["refund 7"]
