"""`semel check`: every mistake as file:line:col, nothing else; silence about what is right."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from proxy import policy_file
from proxy.cli.check import SCHEMA
from proxy.policy_file.load import policy_files, presets_directory
from tests.cli.command import semel

ROOT = Path(__file__).parents[2]
MISTAKES = ROOT / "tests" / "policies" / "mistakes"
EXAMPLE = ROOT / "docs" / "example.yaml"
MARK = re.compile(r"^#! (\d+):(\d+) (.+)$", re.MULTILINE)
GOOD = "upstream: one\nbase_url: http://one.example\nrules: [{name: a, match: {method: POST}}]\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No semel.yaml here but one that a test writes; the broken files extend the example."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def _extending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files in mistakes/ extend docs/example.yaml as if it were a preset."""
    monkeypatch.setattr(policy_file, "presets_directory", lambda: EXAMPLE.parent)


def wanted(file: Path) -> list[tuple[str, int, int, str]]:
    """What a file says about itself: `#! line:col beginning of the message`."""
    found = MARK.findall(file.read_text())
    return sorted((str(file), int(line), int(col), message) for line, col, message in found)


def split(line: str) -> tuple[str, int, int, str]:
    found = re.fullmatch(r"(.+?):(\d+):(\d+): (.+)", line)
    assert found, f"not a place and a message: {line!r}"
    return found[1], int(found[2]), int(found[3]), found[4]


def assert_same(found: list[tuple[str, int, int, str]], expected: list[tuple[str, int, int, str]]) -> None:
    """Place for place and in order; of the message the beginning."""
    assert [one[:3] for one in found] == [one[:3] for one in expected]
    left = list(expected)
    for one in found:
        match = next((each for each in left if each[:3] == one[:3] and one[3].startswith(each[3])), None)
        assert match is not None, one
        left.remove(match)
    assert not left


# A pair that is a mistake only together is checked in the test of the whole directory.
ALONE = [file for file in sorted(MISTAKES.glob("*.yaml")) if not file.name.startswith("twin-")]


@pytest.mark.usefixtures("_extending")
@pytest.mark.parametrize("file", ALONE, ids=lambda file: file.name)
def test_a_broken_file_is_told_with_exactly_its_places(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each mistake, in order, on stderr; not a word more; exit status 2."""
    ran = semel(capsys, "check", file)
    assert (ran.status, ran.out) == (2, "")
    assert_same([split(line) for line in ran.err.splitlines()], wanted(file))


@pytest.mark.usefixtures("_extending")
def test_a_directory_is_told_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """All files, all mistakes, the same in text and in JSON."""
    expected = [one for file in sorted(MISTAKES.glob("*.yaml")) for one in wanted(file)]
    assert len(expected) >= 90
    ran = semel(capsys, "check", MISTAKES)
    assert (ran.status, ran.out) == (2, "")
    told = [split(line) for line in ran.err.splitlines()]
    assert_same(told, expected)
    ran = semel(capsys, "check", "--json", MISTAKES)
    assert (ran.status, ran.err) == (2, "")
    mistakes = ran.document(SCHEMA)["mistakes"]
    assert [(one["file"], one["line"], one["column"], one["message"]) for one in mistakes] == told


# One slip each, in an otherwise good file, with the exact place of the slip.
BROKEN = {
    "upstream: One\nbase_url: http://a\n": (1, 11),
    "upstream: one\n": (1, 1),
    "base_url: http://a\n": (1, 1),
    "upstream: one\nbase_url: a.example\n": (2, 11),
    "upstream: one\nbase_url: http://a\nbase_url: http://b\n": (3, 1),
    "upstream: one\nbase_url: http://a\nrule: []\n": (3, 1),
    "upstream: one\nbase_url: http://a\nrules: {}\n": (3, 8),
    "upstream: one\nbase_url: http://a\nrules: [{nam: a}]\n": (3, 10),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    mode: onec\n": (5, 11),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    ttl: 5\n": (5, 10),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    wait: soon\n": (5, 11),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    match: {path: v1}\n": (5, 19),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    match: {path: /a*}\n": (5, 19),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    match: {methods: GET}\n": (5, 13),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    match: {method: GET}\n  - name: a\n": (
        6,
        11,
    ),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    safe: maybe\n": (5, 11),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    key: {includes: [x]}\n": (5, 11),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    outcome: {final: [99]}\n": (5, 23),
    "upstream: one\nbase_url: http://a\nrules:\n  - name: a\n    tool: 5\n": (5, 11),
    "upstream: one\nbase_url: http://a\ntimeout: {connect: 0}\n": (3, 20),
    "upstream: one\nbase_url: http://a\ntimeout: 5s\n": (3, 10),
    "upstream: one\nbase_url: http://a\ncredentials: [a b]\n": (3, 15),
    "upstream: one\nbase_url: http://a\nextends: nothing\n": (3, 10),
    "upstream: one\nbase_url: http://a\nrules: [\n": (4, 1),
    "upstream: metrics\nbase_url: http://a\n": (1, 11),
    "- upstream: one\n": (1, 1),
    "upstream:\tone\n\tbase_url: x\n": (2, 1),
}


@pytest.mark.parametrize(("text", "place"), BROKEN.items(), ids=range(len(BROKEN)))
def test_one_slip_is_told_at_its_very_place(
    text: str, place: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """And nowhere else."""
    Path("one.yaml").write_text(text)
    ran = semel(capsys, "check", "one.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert [split(line)[:3] for line in ran.err.splitlines()] == [("one.yaml", *place)]


def test_there_are_25_broken_files() -> None:
    assert len(BROKEN) >= 25


# ---- what is right ----


@pytest.mark.parametrize("file", [EXAMPLE, *policy_files(presets_directory())], ids=lambda file: file.name)
def test_what_ships_is_without_mistakes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file by itself: nothing on stderr, exit status 0."""
    ran = semel(capsys, "check", file)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("no mistakes (upstreams: 1, rules: ")


def test_without_files_and_settings_the_presets_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    presets = len(policy_files(presets_directory()))
    ran = semel(capsys, "check", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.document(SCHEMA)["upstreams"] == presets


def test_counts_are_those_of_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text(GOOD)
    ran = semel(capsys, "check", "--json", "one.yaml", EXAMPLE)
    assert (ran.status, ran.err) == (0, "")
    assert ran.document(SCHEMA) == {"mistakes": [], "warnings": [], "upstreams": 2, "rules": 7}
    assert semel(capsys, "check", "one.yaml").out == "no mistakes (upstreams: 1, rules: 1)\n"


# ---- semel.yaml ----


def test_the_policies_of_semel_yaml_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Found here or named with --config; relative paths count from the file."""
    Path("deploy").mkdir()
    Path("deploy/one.yaml").write_text(GOOD)
    Path("deploy/semel.yaml").write_text("policies: [one.yaml]\n")
    ran = semel(capsys, "check", "--config", "deploy/semel.yaml")
    assert (ran.status, ran.out) == (0, "no mistakes (upstreams: 1, rules: 1)\n")
    Path("semel.yaml").write_text("policies: [deploy/one.yaml, gone.yaml]\n")
    ran = semel(capsys, "check")
    assert (ran.status, ran.out) == (2, "")
    assert split(ran.err.rstrip())[:3] == ("gone.yaml", 1, 1)


def test_mistakes_of_semel_yaml_and_of_files_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("semel.yaml").write_text("listen: 127.0.0.1:8080\nlimit: {}\n")
    Path("one.yaml").write_text("upstream: one\nbase_url: no\n")
    ran = semel(capsys, "check", "one.yaml")
    assert (ran.status, ran.out) == (2, "")
    told = [split(line) for line in ran.err.splitlines()]
    assert [one[:3] for one in told] == [("one.yaml", 2, 11), ("semel.yaml", 2, 1)]
    assert "did you mean 'limits'?" in told[1][3]


def test_a_wrong_variable_is_told_by_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `semel serve` would say it; in JSON it has no line."""
    monkeypatch.setenv("SEMEL_LISTN", "127.0.0.1:1")
    ran = semel(capsys, "check")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "SEMEL_LISTN: unknown variable: did you mean 'SEMEL_LISTEN'?\n"
    (mistake,) = semel(capsys, "check", "--json").document(SCHEMA)["mistakes"]
    assert (mistake["file"], mistake["line"], mistake["column"]) == ("SEMEL_LISTN", 0, 0)


# ---- what cannot be read ----


def test_what_is_no_policy_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, not a file, below a file, an empty directory, binary: each with a place and a reason."""
    Path("empty").mkdir()
    Path("file").write_text("")
    os.mkfifo("pipe.yaml")
    Path("binary.yaml").write_bytes(b"\x00\xff\xfe" * 100)
    reasons = {
        "gone.yaml": "there is no such file or directory: correct the path",
        "empty": "the directory has no *.yaml or *.yml file",
        "pipe.yaml": "this is not a regular file",
        "file/below.yaml": "the file cannot be read: Not a directory",
        "binary.yaml": "",
    }
    for path, reason in reasons.items():
        ran = semel(capsys, "check", path)
        assert (ran.status, ran.out) == (2, "")
        file, line, _, message = split(ran.err.rstrip())
        assert (file, line) == (path, 1)
        assert message.startswith(reason)
    config = semel(capsys, "check", "--config", "gone.yaml")
    assert (config.status, split(config.err.rstrip())[:3]) == (2, ("gone.yaml", 1, 1))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text(GOOD)
    Path("one.yaml").chmod(0)
    ran = semel(capsys, "check", "one.yaml")
    assert ran.status == 2
    assert "one.yaml:1:1: the file cannot be read: Permission denied" in ran.err


def test_control_characters_in_a_files_name_or_text_stay_off_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("one\x1b[31m.yaml").write_text('upstream: "\\e[31m"\nbase_url: http://a\n')
    ran = semel(capsys, "check", "one\x1b[31m.yaml")
    assert ran.status == 2
    assert "\x1b" not in ran.err


INJECTING = "upstream: one\nbase_url: http://one.example\ninject: {header: X-Key, value_env: ONE_KEY}\n"


def test_a_credential_that_is_not_set_here_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are checked where no secrets are; what to set is said, and the exit status is 0."""
    Path("one.yaml").write_text(INJECTING)
    monkeypatch.delenv("ONE_KEY", raising=False)
    ran = semel(capsys, "check", "one.yaml")
    assert (ran.status, ran.out) == (0, "no mistakes (upstreams: 1, rules: 0)\n")
    assert ran.err.startswith("warning: one.yaml:3:36: the variable ONE_KEY is not set: set it")
    (warned,) = semel(capsys, "check", "--json", "one.yaml").document(SCHEMA)["warnings"]
    assert (warned["line"], warned["column"]) == (3, 36)


def test_a_credential_that_cannot_be_sent_is_a_mistake_and_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value is at hand and wrong: exit status 2, without a word of it."""
    Path("one.yaml").write_text(INJECTING)
    monkeypatch.setenv("ONE_KEY", "geheim\n")
    ran = semel(capsys, "check", "one.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert "one.yaml:3:36: the value of ONE_KEY has a line break" in ran.err
    assert "geheim" not in ran.err
    monkeypatch.setenv("ONE_KEY", "geheim")
    assert semel(capsys, "check", "one.yaml").err == ""
