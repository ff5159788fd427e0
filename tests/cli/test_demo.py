"""`semel demo --act 1`: what it shows is true, it says so when it is not, and it leaves nothing behind."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.cli import demo, main
from proxy.cli.output import Refused
from proxy.demo import stage
from proxy.demo.scene import SERVE, Commands

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 120  # seconds; the demo takes about four where nothing else runs
DEMO = (sys.executable, "-m", "proxy.cli", "demo", "--act", "1")
PYTHON = (sys.executable, "-c")
AS_JSON = argparse.Namespace(json=True, keep=False, act=1, seed=None)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo makes its directory; empty when it has cleaned up."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@contextlib.contextmanager
def started(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """The demo as a person starts it, in a process group of its own."""
    process = subprocess.Popen(
        [*DEMO, *flags],
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


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"the demo never said {text!r}")


def nobody_is_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def given(monkeypatch: pytest.MonkeyPatch, commands: Commands) -> None:
    """The command line, with other programs behind it."""
    run = demo.run
    monkeypatch.setattr(demo, "run", lambda options: run(options, commands))


def played(capsys: pytest.CaptureFixture[str], commands: Commands) -> tuple[dict[str, Any], str]:
    """The demo with something broken: what it reports, and the statement that it ends with."""
    with pytest.raises(Refused) as refused:
        demo.run(AS_JSON, commands)
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, demo.SCHEMA)
    assert report["ok"] is False
    return report, str(refused.value)


def charges(report: dict[str, Any]) -> list[int]:
    return [act["charges"] for act in report["act_one"]]


def statuses(report: dict[str, Any]) -> list[list[str]]:
    return [act["statuses"] for act in report["act_one"]]


def broken(how: str) -> Commands:
    return Commands(serve=(sys.executable, "-m", "tests.cli.serve_broken", how, "serve"))


# ---- what it shows ----


def test_two_charges_without_semel_one_with_it_and_one_when_the_proxy_is_killed_too(room: Path) -> None:
    """The demo is a test: real processes, real kills, the toy's own count."""
    with started("--json") as process:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
        assert nobody_is_left(process.pid)
    report = json.loads(out)
    jsonschema.validate(report, demo.SCHEMA)
    assert charges(report) == [2, 1, 1]
    assert statuses(report) == [
        ["charged", "charged"],
        ["executed", "replayed"],
        ["lost", "in-doubt", "replayed"],
    ]
    assert report["ok"] is True
    assert report["directory"] is None
    assert list(room.iterdir()) == []


def test_for_people_three_acts_a_table_and_the_command_that_settles(room: Path) -> None:
    """Plain text on whatever stdout is, narrow enough for a small terminal."""
    with started() as process:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
    assert re.findall(r"^Act 1, scene \d: (.+)$", out, re.MULTILINE) == [
        "without semel",
        "with semel",
        "the proxy killed too",
    ]
    assert re.search(r"^without semel +2 +charged +charged +[\d.]+ ms$", out, re.MULTILINE)
    assert re.search(r"^with semel +1 +executed +replayed +[\d.]+ ms$", out, re.MULTILINE)
    assert re.search(
        r"^the proxy killed too +1 +lost +in-doubt, then replayed +[\d.]+ ms$", out, re.MULTILINE
    )
    assert out.count("urn:semel:in-doubt") == 1
    assert "docs/guarantees.md" in out
    # The line that names the directory is as long as the directory's name.
    assert [line for line in out.splitlines() if len(line) >= 80 and str(room) not in line] == []


def test_kept_on_request_and_no_settings_of_the_user_play_a_part(
    room: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """--keep leaves records, notes and logs, and says where. Neither a semel.yaml where it is started, nor
    SEMEL_ variables, nor a proxy of the network is used."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "semel.yaml").write_text("listen: nowhere\n")
    (elsewhere / "json.py").write_text("raise SystemExit('not the json that was meant')\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("SEMEL_STORE", "memory")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert main(["demo", "--act", "1", "--keep"]) == 0
    out = capsys.readouterr().out
    (directory,) = room.iterdir()
    assert f"\nKept: {directory}\n" in out
    assert_the_commands_are_real(out, directory, monkeypatch, capsys)
    assert (directory / "act-1-scene-3" / "state" / "ledger.sqlite").is_file()
    assert (directory / "act-1-scene-2" / "notes.txt").read_text() == "inv-1001 paid by ch_1\n"
    assert (directory / "act-1-scene-1" / "notes.txt").read_text() == "inv-1001 paid by ch_2\n"


def assert_the_commands_are_real(
    out: str, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pasted, they find the very call: settled by now, as the second person is told who decides."""
    monkeypatch.delenv("SEMEL_STORE")
    monkeypatch.chdir(kept / "act-1-scene-3")
    resolve = re.search(r"^  \$ semel (calls resolve (?:.+\\\n)+.+)$", out, re.MULTILINE)
    assert resolve is not None
    assert main(shlex.split(resolve[1].replace("\\\n", " "))) == 1
    assert "The call is done" in capsys.readouterr().err
    listing = re.search(r"^  semel (calls list .+)$", out, re.MULTILINE)
    assert listing is not None
    assert main(shlex.split(listing[1])) == 0
    assert "charge_card" in capsys.readouterr().out


# ---- it says so when a guarantee is broken ----


def test_claims_that_do_not_survive_the_proxy_are_noticed(
    room: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store that dies with its process the card is charged again: the table shows it, the statement
    says it, the exit status is 1."""
    given(monkeypatch, Commands(serve=(*SERVE, "--store", "memory")))
    assert main(["demo", "--act", "1"]) == 1
    said = capsys.readouterr()
    assert re.search(r"^with semel +1 +executed +replayed", said.out, re.MULTILINE)
    assert re.search(r"^the proxy killed too +2 +lost +executed", said.out, re.MULTILINE)
    assert said.err.startswith(
        "This is not what semel promises:\n  the proxy killed too: charges: 2, promised: 1\n"
    )
    assert list(room.iterdir()) == []


def test_an_intent_that_is_written_after_the_send_is_noticed(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody remembers what was under way when the proxy died."""
    report, statement = played(capsys, broken("intent_after_the_send"))
    assert charges(report) == [2, 1, 2]
    assert "the proxy killed too: charges: 2, promised: 1" in statement


def test_a_guess_in_place_of_doubt_is_noticed(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Taking what a dead process left behind for not sent charges the card again."""
    report, statement = played(capsys, broken("doubt_released"))
    assert charges(report) == [2, 1, 2]
    assert "the proxy killed too: charges: 2, promised: 1" in statement


def test_calls_that_are_not_recognised_are_noticed(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each act with semel fails, and each says so."""
    report, statement = played(capsys, broken("no_call_recognised"))
    assert charges(report) == [2, 2, 2]
    assert statuses(report)[1] == ["executed", "executed"]
    assert "with semel: charges: 2, promised: 1" in statement
    assert "with semel: the charge was executed, executed; promised: executed, replayed" in statement


# ---- it says so when it cannot be played ----


@pytest.mark.parametrize(
    ("api", "statement"),
    [
        pytest.param(
            (*PYTHON, "import sys; sys.exit('no ports left')"),
            r"toy-api did not start: it ended with status 1\. It said:\nno ports left$",
            id="ends",
        ),
        pytest.param(
            (*PYTHON, "pass"),
            r"toy-api did not start: it ended with status 0\. It said nothing\.$",
            id="mute",
        ),
        pytest.param(
            ("/nowhere/api",), r"toy-api cannot be started \(/nowhere/api --hang 0\): ", id="missing"
        ),
        pytest.param(
            (*PYTHON, "print('the toy API is ready on http://127.0.0.1:9')"),
            r"The toy API does not tell its charges \(http://127\.0\.0\.1:9/v1/charges\): ",
            id="gone",
        ),
    ],
)  # fmt: skip
def test_a_toy_that_does_not_start(
    api: Sequence[str], statement: str, room: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Exit status 1, what did not start, and what it said."""
    given(monkeypatch, Commands(api=api))
    assert main(["demo", "--act", "1", "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.match(r"The demo could not be played\. " + statement, said.err.strip())
    assert list(room.iterdir()) == []


def test_a_proxy_that_does_not_start(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """semel's own words come through."""
    commands = Commands(serve=(*SERVE, "--workers", "many"))
    with pytest.raises(Refused, match=r"(?s)semel did not start: it ended with status 2\. It said:.*many"):
        demo.run(AS_JSON, commands)
    assert list(room.iterdir()) == []


def test_a_server_that_is_never_ready_is_waited_for_no_longer_than_that(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is ended."""
    monkeypatch.setattr(stage, "PATIENCE", 0.5)
    api = (*PYTHON, "import time; print('soon', flush=True); time.sleep(600)")
    with pytest.raises(Refused, match=r"toy-api did not start within 0 s\. It said nothing\."):
        demo.run(AS_JSON, Commands(api=api))
    assert list(room.iterdir()) == []


async def test_a_program_that_does_not_end_is_stopped(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that hangs does not hang the demo."""
    monkeypatch.setattr(stage, "PATIENCE", 0.5)
    said: list[str] = []
    command = (*PYTHON, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    with pytest.raises(stage.Mishap, match=r"the agent has not ended after 0 s; it was stopped\."):
        async with stage.new_stage(keep=False) as here:
            await here.run("the agent", command, here.directory, {}, said.append)
    with pytest.raises(ProcessLookupError):
        os.kill(int(said[0]), 0)


def test_no_place_for_its_directory(
    room: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1, and what to set."""

    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    assert main(["demo", "--act", "1"]) == 1
    assert re.search(r"No directory for the demo: .*No space.*TMPDIR", capsys.readouterr().err)


# ---- it leaves nothing behind ----

MOMENTS = [
    "Act 1, scene 1",
    "semel is ready",
    "agent: POST /v1/charges: 201, Semel-Status: executed",
    "What semel knows",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_leaves_no_process_and_no_directory(moment: str, room: Path) -> None:
    """A terminal sends SIGINT to the whole group; twice, because people do."""
    with started() as process:
        read_until(process, moment)
        assert len(list(room.iterdir())) == 1
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "")
        assert nobody_is_left(process.pid)
    assert list(room.iterdir()) == []


def test_a_second_signal_does_not_interrupt_the_clearing() -> None:
    """People press Ctrl-C again when the first one takes its time."""
    cleared = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(PATIENCE)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(100):  # turns of the loop, for the signal to be seen
                await asyncio.sleep(0)
            cleared.append(True)

    with pytest.raises(KeyboardInterrupt):
        stage.play(work())
    assert cleared == [True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_demo_alone_ends_all_of_it(number: signal.Signals, room: Path) -> None:
    """`kill`, a closed terminal: the servers did not get the signal, the demo ends them."""
    with started() as process:
        read_until(process, "semel is ready")
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert nobody_is_left(process.pid)
    assert list(room.iterdir()) == []


def test_a_reader_that_leaves_ends_it_too(room: Path) -> None:
    """`semel demo | head -1`."""
    with started() as process:
        read_until(process, "Act 1, scene 2")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=PATIENCE) == 1
        assert nobody_is_left(process.pid)
    assert list(room.iterdir()) == []
