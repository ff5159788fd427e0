"""`semel completion`: the shell asks semel itself what could come next, and semel knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import COMMANDS
from proxy.cli.completion import LOADING
from proxy.policy_file.load import policy_files, presets_directory
from tests.cli.command import semel
from tests.process import ROOT

POLICY = "upstream: mail\nbase_url: http://mail.example\n"
PRESETS = [path.stem for path in policy_files(presets_directory())]


def _presets(beginning: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(beginning)]


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has `semel`, as an installation has it."""
    directory = tmp_path / "bin"
    directory.mkdir()
    script = directory / "semel"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m proxy.cli "$@"\n')
    script.chmod(0o755)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")},
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }


def completed(line: str, directory: Path, environment: dict[str, str]) -> list[str]:
    """Ask as the shell code does: the line in the environment, the answer on file descriptor 8."""
    reading, writing = os.pipe()
    try:
        script = f"exec semel 8>&{writing} 9>/dev/null"
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=directory,
            env={
                **environment,
                "_ARGCOMPLETE": "1",
                "_ARGCOMPLETE_IFS": "\n",
                "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
                "COMP_LINE": line,
                "COMP_POINT": str(len(line)),
                "COMP_TYPE": "9",
            },
            pass_fds=(writing,),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(writing)
        writing = -1
        with os.fdopen(reading) as answer:
            reading = -1
            found = answer.read().split("\n")
        assert process.wait(30) == 0
    finally:
        for fd in (reading, writing):
            if fd >= 0:
                os.close(fd)
    return sorted(word.strip() for word in found if word)


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@needs_bash
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("semel che", ["check"]),
        ("semel token n", ["new"]),
        ("semel token new --role ", ["agent", "metrics", "operator"]),
        ("semel token new --role o", ["operator"]),
        ("semel ca --p", ["--pem"]),
        ("semel completion ", ["bash", "fish", "zsh"]),
        ("semel policies show --ru", ["--rules"]),
        ("semel policies show ", sorted([*PRESETS, "mail", "other"])),
        ("semel policies show ma", sorted([*_presets("ma"), "mail"])),
        ("semel policies show --policies more.yaml m", sorted([*_presets("m"), "mine"])),
        ("semel doctor --prox", ["--proxy"]),
    ],
)
def test_what_could_come_next(
    line: str, wanted: list[str], tmp_path: Path, installed: dict[str, str]
) -> None:
    """Commands, flags, choices, and the names of policies: those configured here, and the presets."""
    (tmp_path / "semel.yaml").write_text("policies: [mail.yaml, other.yaml]\n")
    (tmp_path / "mail.yaml").write_text(POLICY)
    (tmp_path / "other.yaml").write_text(POLICY.replace("mail", "other"))
    (tmp_path / "more.yaml").write_text(POLICY.replace("mail", "mine"))
    found = completed(line, tmp_path, installed)
    # Where nothing has been typed yet, flags are offered beside the values.
    assert [word for word in found if not word.startswith("-") or line.rpartition(" ")[2]] == wanted


@needs_bash
def test_every_command_is_offered(tmp_path: Path, installed: dict[str, str]) -> None:
    found = completed("semel ", tmp_path, installed)
    assert {command.__name__.rpartition(".")[2] for command in COMMANDS} <= set(found)


@needs_bash
def test_a_broken_configuration_offers_nothing_and_breaks_nothing(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    """Whoever presses a key wants no error message in the middle of the line."""
    (tmp_path / "semel.yaml").write_text("policies: [gone.yaml]\n")
    assert completed("semel policies show m", tmp_path, installed) == []


# ---- the shell code ----


@pytest.mark.parametrize("shell", LOADING)
def test_the_code_says_how_to_load_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "completion", shell)
    assert (ran.status, ran.err) == (0, "")
    now, always = LOADING[shell]
    assert f"# Now: {now}\n" in ran.out
    assert f"# At every start: {always}\n" in ran.out
    assert "semel" in ran.out.split("# Now:")[0]


BASH = """
eval "$(semel completion bash)"
complete -p semel > /dev/null || exit 3
line="semel token new --role o"
COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMP_WORDS=($line) COMP_CWORD=4
_python_argcomplete semel o --role
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -U compinit && compinit -u
eval "$(semel completion zsh)"
(( $+functions[_python_argcomplete] )) && print "${_comps[semel]}"
"""
FISH = 'semel completion fish | source; complete -C "semel token new --role o"'


@needs_bash
def test_bash_completes_with_it(tmp_path: Path, installed: dict[str, str]) -> None:
    """A real bash loads the code and calls the function that it registered."""
    ran = subprocess.run(
        ["bash", "--norc", "-c", BASH],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "operator"), ran.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_loads_it(tmp_path: Path, installed: dict[str, str]) -> None:
    ran = subprocess.run(
        ["zsh", "-f", "-c", ZSH], cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "_python_argcomplete"), ran.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_with_it(tmp_path: Path, installed: dict[str, str]) -> None:
    ran = subprocess.run(
        ["fish", "--no-config", "-c", FISH],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "operator"), ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (),
            "[-h] SHELL\nsemel completion: error: the following arguments are required: SHELL",
        ),
        (("tcsh",), "there is no 'tcsh': choose from bash, zsh, fish"),
    ],
)
def test_other_shells_are_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = semel(capsys, "completion", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
