"""`semel notify test`: one notification now, and what came back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.cli.notify import SCHEMA
from tests.cli.command import Ran
from tests.cli.command import semel as run_semel
from tests.notifying.scene import SECRET, TAKEN, verified
from tests.origin import READ_ALL, Origin, Script, answer


def tried(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, script: Script, *more: str
) -> tuple[Ran, Origin]:
    async def scenario() -> tuple[Ran, Origin]:
        async with Origin(script) as receiver:
            file = tmp_path / "semel.yaml"
            file.write_text(
                f"notify: {{url: 'http://127.0.0.1:{receiver.port}/x?key=geheim', timeout: 5s}}\n"
            )
            ran = await asyncio.to_thread(run_semel, capsys, "notify", "test", "--config", str(file), *more)
            return ran, receiver

    return asyncio.run(scenario())


def test_a_receiver_that_takes_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets a signed notification of the type "test", of no call."""
    monkeypatch.setenv("SEMEL_NOTIFY_SECRET", SECRET)
    ran, receiver = tried(capsys, tmp_path, TAKEN)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(f"http://127.0.0.1:{receiver.port}: delivered, status 204 (semel_")
    (seen,) = receiver.requests
    told = verified(seen)
    assert (told["type"], told["call"]) == ("test", None)
    assert "geheim" not in ran.out


def test_one_that_does_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1, and why; in JSON too."""
    monkeypatch.setenv("SEMEL_NOTIFY_SECRET", SECRET)
    ran, receiver = tried(capsys, tmp_path, (*READ_ALL, answer(401)), "--json")
    assert ran.status == 1
    told = ran.document(SCHEMA)
    assert (told["delivered"], told["answer"], told["to"]) == (
        False,
        "status 401",
        f"http://127.0.0.1:{receiver.port}",
    )


def test_nobody_and_no_secret_are_mistakes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 2, and what to write."""
    monkeypatch.chdir(tmp_path)
    ran = run_semel(capsys, "notify", "test")
    assert (ran.status, "name somebody under 'notify'" in ran.err) == (2, True)
    monkeypatch.delenv("SEMEL_NOTIFY_SECRET", raising=False)
    ran, receiver = tried(capsys, tmp_path, TAKEN)
    assert (ran.status, receiver.started) == (2, 0)
    assert "SEMEL_NOTIFY_SECRET is not set" in ran.err
