"""`semel demo --act 2`: an agent killed at random steps does everything once; the demo says so when not."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.cli import demo, main
from proxy.demo import act_two
from proxy.demo.scene import RUN, Commands
from tests.cli.test_demo import given, room
from tests.process import ROOT

__all__ = ["room"]  # a fixture

PATIENCE = 240  # seconds; it takes about ten where nothing else runs
ONCE = {"model": 4, "search": 1, "charge": 1, "email": 1}


@contextlib.contextmanager
def started(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """As a person starts it, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", "demo", "--act", "2", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def processes_in(directory: Path) -> list[str]:
    """Whoever works there, in whatever session: the proxies of `semel run` have one of their own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(directory):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], commands: Commands
) -> tuple[dict[str, Any], str]:
    """The demo with something broken: what it reports, and what it ends with."""
    given(monkeypatch, commands)
    assert main(["demo", "--act", "2", "--seed", "3", "--json"]) == 1
    said = capsys.readouterr()
    report: dict[str, Any] = json.loads(said.out)
    jsonschema.validate(report, demo.SCHEMA)
    assert report["ok"] is False
    return report["act_two"], said.err


def test_everything_happens_once_however_it_is_killed(room: Path) -> None:
    """Real processes, real kills, a new seed each time; the APIs' own counts. Beside it: all is doubled."""
    with started("--json") as process:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
    report = json.loads(out)
    jsonschema.validate(report, demo.SCHEMA)
    act = report["act_two"]
    assert report["act_one"] == []
    assert act["with"]["counts"] == act["promised"] == ONCE, act
    assert all(act["without"]["counts"][name] > once for name, once in ONCE.items()), act
    first, *_, last = act["with"]["starts"]
    assert first["killed"] is not None
    assert first["replayed"] == 0
    assert last["killed"] is None
    assert last["done"] == 7
    assert last["replayed"] + last["executed"] == 7
    assert last["replayed"] > 0
    assert processes_in(room) == []
    assert list(room.iterdir()) == []


def test_for_people_each_start_and_a_table(room: Path) -> None:
    """Without a terminal too; the seed is shown, and the same seed kills at the same steps."""
    with started("--seed", "11") as process:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
    assert "semel demo --act 2 --seed 11" in out
    starts = re.findall(r"^    start (\d): (killed|finished)", out, re.MULTILINE)
    assert starts.count(("1", "killed")) == 2
    assert [how for _, how in starts].count("finished") == 2
    assert re.search(r"^    start \d: finished +\d replayed, \d executed$", out, re.MULTILINE)
    assert re.search(r"^with semel +\d +4 +1 +1 +1$", out, re.MULTILINE)
    assert re.search(r"^without semel +4 +\d+ +\d +\d +\d$", out, re.MULTILINE)
    assert [line for line in out.splitlines() if len(line) >= 80 and str(room) not in line] == []


@pytest.mark.soak
def test_a_record_that_dies_with_its_proxy_is_noticed(
    room: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then every start begins anew: the counts show it, the statement says it, the exit status is 1."""
    forgetful = ("env", "SEMEL_STORE=memory", *RUN)
    act, said = refused(monkeypatch, capsys, Commands(run=forgetful))
    assert all(act["with"]["counts"][name] > once for name, once in ONCE.items())
    assert said.startswith("This is not what semel promises:\n  with semel: model: ")
    assert "promised: 4\n" in said
    assert re.search(r"^  with semel: charge: [234], promised: 1$", said, re.MULTILINE)
    assert list(room.iterdir()) == []


def test_an_agent_that_goes_past_semel_is_noticed(
    room: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever only starts the command records nothing."""
    past = (sys.executable, "-c", "import os, sys; os.execvp(sys.argv[-2], sys.argv[-2:])")
    act, _ = refused(monkeypatch, capsys, Commands(run=past))
    assert all(act["with"]["counts"][name] > once for name, once in ONCE.items()), act
    assert [start["replayed"] for start in act["with"]["starts"]] == [None] * 4


def test_an_agent_that_does_not_finish_is_noticed(
    room: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal by semel is not success, though nothing happened twice."""
    monkeypatch.setattr(act_two, "POLICIES", {**act_two.POLICIES, "tools.yaml": DENIED})
    _, said = refused(monkeypatch, capsys, Commands())
    assert "with semel: the agent did not finish" in said


DENIED = """\
upstream: tools
base_url: {tools}
rules:
  - {{name: all, match: {{path: /**}}, mode: deny}}
"""


@pytest.mark.parametrize("moment", ["  Without semel:", "  With semel:", "    start 1: killed"])
def test_ctrl_c_leaves_no_process_and_no_directory(moment: str, room: Path) -> None:
    """Neither the agent, nor the proxy of `semel run` in its own session, nor the record."""
    with started() as process:
        assert process.stdout is not None
        seen = ""
        while moment not in seen or (moment.endswith("killed") and "With semel" not in seen):
            line = process.stdout.readline()
            assert line, seen
            seen += line
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "")
    assert processes_in(room) == []
    assert list(room.iterdir()) == []


def test_the_agent_knows_nothing_of_semel() -> None:
    """It is what a user would write: the standard library, and not a word of us in its code."""
    text = act_two.AGENT.read_text(encoding="utf-8")
    tree = ast.parse(text)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    code = "\n".join(ast.unparse(node) for node in tree.body[1:])
    assert "semel" not in code.lower()


@pytest.mark.parametrize("seed", ["-1", "x", "1234567890", ""])
def test_a_seed_that_is_none_is_refused(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is played."""
    with pytest.raises(SystemExit, match="2"):
        main(["demo", f"--seed={seed}"])
    assert "a whole number from 0 on" in capsys.readouterr().err
