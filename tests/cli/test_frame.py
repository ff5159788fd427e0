"""What all commands have in common: help with examples, slips answered, a light start, a clean end."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import proxy
from proxy import cli, errors
from proxy.cli import COMMANDS, output
from proxy.cli.output import Refused
from tests.cli.command import semel
from tests.process import ROOT

SEMEL = [sys.executable, "-m", "proxy.cli"]
# Unbuffered, Python drops what did not fit into a pipe without a word.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that does something: `semel check`, `semel token new`, …"""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for command in action.choices.values():
            yield from leaves(command)


LEAVES = {leaf.prog: leaf for leaf in leaves(cli.parser())}


def module_of(leaf: argparse.ArgumentParser) -> Any:
    name = leaf.prog.split()[1]
    return next(command for command in COMMANDS if command.__name__ == f"proxy.cli.{name}")


def takes_json(leaf: argparse.ArgumentParser) -> bool:
    return "--json" in leaf._option_string_actions


# ---- help ----


def test_semel_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, as bad usage: a script that forgot the command must not take help for output."""
    ran = semel(capsys)
    assert (ran.status, ran.out) == (2, "")
    for command in COMMANDS:
        assert re.search(rf"^    {command.__name__.rpartition('.')[2]}\s", ran.err, re.MULTILINE)
    assert semel(capsys, "--help").out == ran.err


def test_every_command_has_a_file_and_is_there() -> None:
    commands = {prog.split()[1] for prog in LEAVES}
    assert commands == {command.__name__.rpartition(".")[2] for command in COMMANDS}


@pytest.mark.parametrize("prog", LEAVES)
def test_every_command_says_what_it_does_and_shows_examples(
    prog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    leaf = LEAVES[prog]
    ran = semel(capsys, *prog.split()[1:], "--help")
    assert (ran.status, ran.err) == (0, "")
    assert leaf.description
    assert len(leaf.description) > 20
    assert "\nexamples:\n" in ran.out
    for action in leaf._actions:
        assert action.help, f"{action.option_strings or action.dest} is not explained"


@pytest.mark.parametrize("prog", LEAVES)
def test_every_example_is_taken_by_the_parser(prog: str) -> None:
    """Examples that no longer work are worse than none."""
    lines = [line.strip() for line in (LEAVES[prog].epilog or "").splitlines()[1:] if line.startswith("  ")]
    found = [
        words
        for line in lines
        for words in [shlex.split(line.replace('eval "$(', "").replace(')"', ""), comments=True)]
        if "semel" in words
    ]
    assert found, f"no example of {prog}"
    for words in found:
        words = words[words.index("semel") + 1 :]
        end = next((at for at, word in enumerate(words) if word in ("|", ">", "&&", "&", "<")), len(words))
        options = cli.parser().parse_args(words[:end])
        assert callable(options.run)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "--version")
    assert (ran.status, ran.out, ran.err) == (0, f"semel {proxy.__version__}\n", "")


# ---- slips ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek"], "there is no 'chek': did you mean 'check'?"),
        (["doktor"], "there is no 'doktor': did you mean 'doctor'?"),
        (["frobnicate"], "there is no 'frobnicate': choose from serve, "),
        (["--verson"], "unknown argument '--verson': did you mean '--version'?"),
        (["check", "--jsn"], "unknown argument '--jsn': did you mean '--json'?"),
        (["check", "--jsn=secret"], "unknown argument '--jsn': did you mean '--json'?"),
        (["check", "--js"], "unknown argument '--js': did you mean '--json'?"),
        (["ca", "extra"], "unknown argument 'extra'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, with the usage of the command that did not understand. Flags are not guessed from
    their beginnings."""
    ran = semel(capsys, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert "secret" not in ran.err
    command = f"semel {arguments[0]}" if arguments[0] in ("check", "ca") else "semel"
    assert ran.err.startswith(f"usage: {command} ")


# ---- how a command ends ----


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (Refused("Not found. Look elsewhere."), 1, "Not found. Look elsewhere.\n"),
        (errors.NotFound("no such call"), 1, "no such call\n"),
        (errors.StoreUnavailable("the disk is full"), 1, "the disk is full\n"),
        (errors.ConfigurationError("a.yaml:1:1: no\nb.yaml:1:1: no"), 2, "a.yaml:1:1: no\nb.yaml:1:1: no\n"),
        (errors.ConfigurationError("bad \x1b[31m file"), 2, "bad \\x1b[31m file\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_a_message_and_an_exit_status(
    error: BaseException,
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One message on stderr, free of control characters; no traceback."""

    def fail(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("proxy.cli.check.run", fail)
    ran = semel(capsys, "check")
    assert (ran.status, ran.out, ran.err) == (status, "", said)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), OSError(5, "Input/output error")])
def test_a_defect_is_one_line_and_shows_its_place_when_asked(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person gets a sentence; whoever has to find it sets SEMEL_DEBUG."""

    def fail(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("proxy.cli.check.run", fail)
    monkeypatch.delenv("SEMEL_DEBUG", raising=False)
    told = (
        f"semel failed: {type(error).__name__}: {error}. This is a defect; run with SEMEL_DEBUG=1 to see "
        "where.\n"
    )
    ran = semel(capsys, "check")
    assert (ran.status, ran.out, ran.err) == (1, "", told)
    monkeypatch.setenv("SEMEL_DEBUG", "1")
    ran = semel(capsys, "check")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("Traceback (most recent call last):\n")
    assert "in fail\n" in ran.err
    assert ran.err.endswith(told)


def test_who_ends_a_command_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """SystemExit is no defect."""

    def leave(_: argparse.Namespace) -> int:
        raise SystemExit(7)

    monkeypatch.setattr("proxy.cli.check.run", leave)
    with pytest.raises(SystemExit, match="7"):
        cli.main(["check"])


INTERRUPTED = """
import signal, socket, sys
from proxy import cli
from proxy.cli import check
def wait(options):
    ours, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())  # also by a signal that comes before the wait
    print("waiting", flush=True)
    ours.recv(1)
check.run = wait
sys.exit(cli.main(["check"]))
"""


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    """A real process and a real SIGINT: exit status 130, as shells have it."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (130, "")
    finally:
        process.kill()
        process.wait()


def test_a_reader_who_has_seen_enough_is_no_error_message(tmp_path: Path) -> None:
    """`semel policies show NAME | head -1`: output larger than a pipe holds, nobody reads it."""
    big = tmp_path / "big.yaml"
    big.write_text("upstream: big\nbase_url: http://a\n" + "# padding\n" * 50_000)
    process = subprocess.Popen(
        [*SEMEL, "policies", "show", "big", "--policies", str(big)],
        cwd=ROOT,
        env=BUFFERED,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "upstream: big\n"
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (1, "")
    finally:
        process.kill()
        process.wait()


def test_a_closed_stdout_is_no_traceback() -> None:
    """Nothing can be printed, and that is what was asked for."""
    ran = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(SEMEL)} check docs/example.yaml >&-"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_the_output_is_told() -> None:
    """Half an output must not look like success."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*SEMEL, "check", "docs/example.yaml"],
            cwd=ROOT, env=BUFFERED, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (1, "The output could not be written: no space is left.\n")


# ---- a light start ----

HEAVY = ("aiohttp", "uvloop", "apsw", "cryptography", "prometheus_client", "diskcache", "httptools")
LOADED = "import json, sys; from proxy import cli; cli.parser(); print(json.dumps(sorted(sys.modules)))"


def test_help_and_completion_do_not_load_what_serving_needs() -> None:
    """Imports of these take most of the time that `--help` would take; they belong into `run`."""
    ran = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = json.loads(ran.stdout)
    assert "proxy.cli.serve" in loaded
    assert [module for module in HEAVY if module in loaded] == []


# ---- --json ----


def test_commands_that_report_take_json() -> None:
    """All but those whose output is no report: that of `semel mcp` is the protocol's."""
    without = {prog for prog, leaf in LEAVES.items() if not takes_json(leaf)}
    assert without <= {"semel serve", "semel mcp", "semel completion"}


@pytest.mark.parametrize("prog", [prog for prog, leaf in LEAVES.items() if takes_json(leaf)])
def test_json_has_a_schema_that_is_one(prog: str) -> None:
    """A JSON Schema in the command's module, valid itself, that does not take just anything."""
    schema = module_of(LEAVES[prog]).SCHEMA
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    everything: tuple[object, ...] = (None, "text", 7, [], {"unheard of": True})
    for nonsense in everything:
        assert not validator.is_valid(nonsense), f"{prog}: {nonsense!r} fits"


# ---- what is printed ----


def test_tables_are_as_wide_as_their_cells_and_free_of_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(("A", "LONGER"), [("one\x1b[2J", None), ("é", 7)])
    assert capsys.readouterr().out == "A           LONGER\none\\x1b[2J\né           7\n"


def test_json_is_one_document_with_the_letters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": "Zoë"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "Zoë"}
    assert "Zoë" in out


def test_the_module_is_the_command() -> None:
    """`python -m proxy.cli` and `semel` are one."""
    ran = subprocess.run([*SEMEL, "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, f"semel {proxy.__version__}\n")
