"""The comparison with peers: semel's own rows, the page, and rows that could not be tried.

What the others do is measured by `make peers`, and here only in `make soak`, of those that are installed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.peers import installing, page, scenarios
from benchmarks.peers.installing import NotInstalled
from benchmarks.peers.programs import DidNotWork, Program
from benchmarks.peers.rows import DBOS, EFFECT_LEDGER, PEERS, RESTATE, SEMEL, Peer, Row
from benchmarks.peers.scenarios import SCENARIOS, Outcome
from benchmarks.peers.subjects import Subject, World, world
from benchmarks.peers.trying import Result, try_peer
from tests.not_installing import WORDS, no_packages
from tests.proof.report import report

HERE = Path(installing.__file__).parent


def said_nowhere(line: str) -> None:
    """Progress is for people."""


async def test_semel_killed_or_asked_by_twenty_comes_to_one_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make peers` does it, for the kind that has neither a key nor a probe: held, never sent twice."""
    monkeypatch.setattr(scenarios, "ANSWERS_AFTER", 0.2)
    kind_d = SEMEL._replace(rows=SEMEL.rows[:1])
    short = {name: SCENARIOS[name] for name in ("crash", "at once")}
    async with world(tmp_path, patience=0.0) as shared:
        (result,) = await try_peer(shared, kind_d, said_nowhere, scenarios=short)
    assert result.why_not == ""
    assert result.outcomes == {
        "crash": [Outcome(1, {"409 in-doubt": 1})],
        "at once": [Outcome(1, {"answer 1": 20})],
    }


def made_up() -> list[Result]:
    twice = Result(DBOS, DBOS.rows[0], version="1.2.3")
    twice.outcomes = {
        "crash": [Outcome(2, {"answer 2": 1}), Outcome(1, {"Error: a | b": 1})],
        "at once": [Outcome(1, {"wait": 19, "answer 1": 1})],
        "reset": [Outcome(20, {f"answer {number}": 1 for number in range(20)})],
    }
    return [twice, Result(RESTATE, RESTATE.rows[0], why_not="not installed: there is no npm")]


def test_the_page_says_what_was_counted_and_what_was_told() -> None:
    """Counts that differed are all there, a row that was not tried says why, and no cell breaks its table."""
    text = page.as_markdown(made_up(), times=2, patience=30)
    assert "Every line was measured 2 times" in text
    crash, rest = text.split("## Killed after the effect")[1].split("## Killed after the result")
    assert "| DBOS, step | 1 or 2 | answer 2 / Error: a \\| b |" in crash
    assert "| Restate, service killed | | not installed: there is no npm |" in crash
    assert "| DBOS, step | 1 | 19 of 20: wait; 1 of 20: answer 1 |" in rest
    assert "| DBOS, step | 20 | 20 different answers |" in rest
    assert "| DBOS, step | | not tried |" in rest  # after the result was saved
    assert "| DBOS, step | 1.2.3 | PostgreSQL;" in rest
    assert f"| [DBOS]({DBOS.where}) | {DBOS.says} |" in rest
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4), line


def test_figures_are_told_for_the_proof() -> None:
    """One line for each row, with what was counted, or why nothing was."""
    twice, missing = made_up()
    assert page.figures(twice)["crash"] == "1 or 2"
    assert page.figures(missing)["why not"] == "not installed: there is no npm"


async def test_a_peer_that_cannot_be_installed_has_a_row_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the installer's own words; nothing is left that would be taken for an installation."""
    no_packages(tmp_path, monkeypatch)
    results = await try_peer(_nowhere(tmp_path), EFFECT_LEDGER, said_nowhere)
    assert [result.row for result in results] == list(EFFECT_LEDGER.rows)
    assert {result.why_not for result in results} == {f"not installed: {WORDS}"}
    assert not installing.installed("effect-ledger")


async def test_without_node_restate_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match="there is no node on this machine"):
        await installing.node("restate")


async def test_a_peer_that_fails_at_the_start_has_a_row_that_says_so(tmp_path: Path) -> None:
    """Here: one whose rows cannot be made at all. The next row is tried all the same."""

    def fails(world: World, place: Path) -> Subject:
        raise DidNotWork("it ended while it started")

    async def here(name: str) -> Path:
        return tmp_path

    peer = Peer("x", "X", (), "", "", here, (Row("one", "", fails), Row("two", "", fails)))
    results = await try_peer(_nowhere(tmp_path), peer, said_nowhere)
    assert [result.why_not for result in results] == ["did not work: it ended while it started"] * 2


async def test_a_program_is_ended_even_while_it_starts(tmp_path: Path) -> None:
    """As by a Ctrl-C before it has said that it is ready."""
    program = Program([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
    starting = asyncio.create_task(program.__aenter__())
    async with asyncio.timeout(20):
        while not program.alive:
            await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not program.alive


def _nowhere(tmp_path: Path) -> World:
    """One that nobody comes to."""
    return World(None, tmp_path, 0.0, None)  # type: ignore[arg-type]


def test_every_version_is_pinned() -> None:
    """To one version, from wherever packages come on this machine."""
    files = sorted((HERE / "requirements").glob("*.txt"))
    assert {file.stem for file in files} == {"agent-ledger", "dbos", "effect-ledger", "powertools"}
    for file in files:
        assert all(re.fullmatch(r"[\w.-]+==[\w.!+-]+", line) for line in file.read_text().split()), file
    wanted = json.loads((HERE / "restate" / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())


@pytest.mark.soak
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
async def test_peers_that_are_installed(peer: Peer, tmp_path: Path) -> None:
    """All of `make peers`: every row of every one is tried; of semel's, every count is one."""
    if peer.packages and not installing.installed(peer.name):
        pytest.skip("not installed: `make peers` does that")
    async with world(tmp_path, patience=30.0) as shared:
        results = await try_peer(shared, peer, lambda line: print(line, file=sys.stderr))
    for result in results:
        report("peers", result.row.label, page.figures(result))
        assert not result.why_not, result.row.label
        if peer is SEMEL:
            assert {one.effects for outcomes in result.outcomes.values() for one in outcomes} == {1}
