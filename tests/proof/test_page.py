"""docs/proof.md says what the runs reported, and the runs did what was asked of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.proof import page
from tests.proof.report import commit_of, report
from tests.proof.simulation.planted import FOUND_BEFORE, PLANTED

PEAK = "peak memory growth MB"
KILLS = {"embedded": 2_000, "postgres": 500, "valkey": 500}


def test_the_page_says_what_was_measured() -> None:
    """A table edited by hand, or a new report without its page, is noticed."""
    assert page.PAGE.read_text() == page.rewritten(page.PAGE.read_text(), page.tables(page.read(page.REPORT)))


def test_an_edited_figure_would_be_noticed() -> None:
    """The comparison above can fail."""
    drawn = page.tables(page.read(page.REPORT))
    text = page.PAGE.read_text()
    edited = text.replace("| second effects | 0 |", "| second effects | 1 |")
    assert edited != text
    assert page.rewritten(edited, drawn) == text


def test_the_runs_were_as_long_as_they_had_to_be() -> None:
    """The counts of the long versions, and nothing that did not hold."""
    measured = page.read(page.REPORT)
    for store, cycles in KILLS.items():
        figures = measured["kills"][store]
        assert figures["cycles"] == cycles
        assert (figures["second_effects"], figures["answers_lost"]) == (0, 0)
        assert figures["result"] == "held"
    played = [told for name, told in measured["simulation"].items() if name.startswith("from ")]
    assert sum(int(str(told["seeds"])) for told in played) >= 100_000
    assert {told["violations"] for told in played} == {0}
    assert {f"planted: {name}" for name in (*PLANTED, *FOUND_BEFORE)} <= measured["simulation"].keys()
    assert {told["desynchronised"] for told in measured["hostile"].values() if "desynchronised" in told} == {
        0
    }
    mutants = measured["mutation"]["core"]
    assert float(str(mutants["score"])) >= 85
    assert mutants["listed"] == mutants["survived"]
    peaks = [told[PEAK] for told in measured["hostile"].values() if PEAK in told]
    assert peaks
    assert all(isinstance(peak, int | float) and peak < 100 for peak in peaks)


def test_the_last_line_of_a_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is run again replaces what it said before; every kind of figure can be told."""
    file = tmp_path / "report.jsonl"
    monkeypatch.setenv("SEMEL_REPORT", str(file))
    report("kills", "embedded", {"cycles": 1})
    report("kills", "embedded", {"cycles": 2_000, "by": {"SIGKILL": 3, "SIGSTOP": 1_000}, "seconds": 1.5})
    report("kills", "valkey", {"cycles": 500, "seeds": ["1", "2"], "store": "a|b"})
    (drawn,) = page.tables(page.read(file)).values()
    assert "|  | embedded | valkey |" in drawn
    assert "| harms | 2,000 | 500 |" in drawn
    assert "| by | SIGKILL 3, SIGSTOP 1,000 |  |" in drawn
    assert r"| store |  | a\|b |" in drawn


def test_the_commit_is_told_once_and_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line has it; those that were written before lines had it can be drawn, too."""
    file = tmp_path / "report.jsonl"
    file.write_text(
        '{"part": "kills", "name": "valkey", "at": 0, "cycles": 1, "by_victim": {"a SIGKILL": 3}}\n'
    )
    assert page.tables(page.read(file))["kills"].endswith("Measured on 1970-01-01. Commit: not noted.")
    monkeypatch.setenv("SEMEL_REPORT", str(file))
    monkeypatch.setattr("tests.proof.report.COMMIT", "abc1234+")
    report("kills", "embedded", {"cycles": 2})
    report("hostile", "words", {"requests": 2})
    drawn = page.tables(page.read(file))
    assert drawn["kills"].endswith("Commit: abc1234+, not noted.")
    assert drawn["hostile"].endswith("Commit: abc1234+.")
    assert all(table.count("abc1234") == 1 for table in drawn.values())
    assert "| SIGKILLs | 3 |  |" in drawn["kills"]


def test_a_commit_is_named_with_a_plus_where_files_were_changed(tmp_path: Path) -> None:
    """Those that git knows; and a directory within another repository has none of its own."""

    def git(*words: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(("git", "-C", str(tmp_path), *who, *words), check=True, capture_output=True)

    assert commit_of(tmp_path) == "unknown"
    git("init")
    file = tmp_path / "file"
    file.write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    (tmp_path / "unknown to git").mkdir()
    (tmp_path / "unknown to git" / "file").write_text("")
    clean = commit_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{7,}", clean)
    file.write_text("two")
    assert commit_of(tmp_path) == f"{clean}+"
    assert commit_of(tmp_path / "unknown to git") == "unknown"


def test_marks_without_figures_are_refused(tmp_path: Path) -> None:
    """A table that nobody measured must not stand empty, nor one be drawn that has no place."""
    text = "<!-- measured: kills -->\n<!-- /measured: kills -->\n"
    with pytest.raises(ValueError, match="no figure"):
        page.rewritten(text, {})
    with pytest.raises(ValueError, match="pair of marks for 'hostile'"):
        page.rewritten(text, {"hostile": "x"})
