"""What is counted can be other than nought, and is in the report of a test that failed too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof import page
from tests.proof.hostile import test_answers, test_requests
from tests.proof.hostile.answers import ANSWERS
from tests.proof.hostile.corpus import head, malformed
from tests.proof.hostile.scene import accounted, hostile_scene
from tests.proof.report import Figure


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "report.jsonl"
    monkeypatch.setenv("SEMEL_REPORT", str(file))
    return file


def _figures(file: Path, name: str) -> dict[str, Figure]:
    return page.read(file)["hostile"][name]


async def test_a_request_with_another_outcome_is_counted(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the corpus takes for malformed, and that is executed: once for each way to cut it."""
    fine = malformed(head(b"Content-Length: 4", body=b"body"))
    monkeypatch.setattr(test_requests, "REQUESTS", {"fine": fine})
    monkeypatch.setattr(test_requests, "cuttings", lambda data, *_, **__: [[data], [data[:9], data[9:]]])
    with pytest.raises(AssertionError, match="answered"):
        await test_requests.test_every_hostile_request_has_one_outcome(tmp_path, "base URL")
    figures = _figures(told, "corpus")
    assert (figures["requests"], figures["slicings"]) == (1, 1)
    assert (figures["desynchronised"], figures["crashes"]) == (2, 0)


async def test_a_second_send_is_counted(tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a rule that lets the call with effects go out again, as none of them may."""
    name = next(name for name, one in ANSWERS.items() if one.raw == b"" and one.closes)
    monkeypatch.setattr(test_answers, "ANSWERS", {name: ANSWERS[name]})
    monkeypatch.setattr(test_answers, "RULES", test_answers.RULES.replace("/safe", "/answered"))
    with pytest.raises(AssertionError, match="sent twice"):
        await test_answers.test_every_hostile_answer_is_one_answer_or_doubt(tmp_path)
    figures = _figures(told, "answers")
    assert (figures["answers"], figures["sent twice"], figures["answered twice"]) == (1, 1, 0)


async def test_a_process_that_ends_is_counted(tmp_path: Path, told: Path) -> None:
    """And what it took is not said to be little."""
    with pytest.raises(AssertionError, match="the process has ended"):
        async with hostile_scene(tmp_path) as there, accounted(there, "ended", lambda: {"so far": 3}):
            await there.semel.kill()
    figures = _figures(told, "ended")
    assert (figures["crashes"], figures["so far"]) == (1, 3)
    assert "peak memory growth MB" not in figures


async def test_a_test_that_fails_is_reported(tmp_path: Path, told: Path) -> None:
    """With what had been counted by then."""
    with pytest.raises(ZeroDivisionError):
        async with hostile_scene(tmp_path) as there, accounted(there, "failed", lambda: {"so far": 3}):
            raise ZeroDivisionError
    figures = _figures(told, "failed")
    assert (figures["crashes"], figures["so far"]) == (0, 3)
    assert "peak memory growth MB" in figures
