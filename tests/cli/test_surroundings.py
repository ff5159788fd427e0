"""Commands where the surroundings are hostile: closed doors and streams, bytes that are no text, locales
without the letters, files that are no record. Each is told in a sentence, and nothing is made by looking.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.store.database import FILE_NAME
from tests.admin.scene import CHARGED, FINE, LOST, scene
from tests.cli.command import semel
from tests.origin import READ_ALL, Close, Origin, answer
from tests.process import ROOT

SEMEL = [sys.executable, "-m", "proxy.cli"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
ID = "0" * 32
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
LOOKING = {
    "calls list": ["calls", "list"],
    "calls show": ["calls", "show", ID],
    "stats": ["stats"],
    "gc": ["gc"],
    "explain": ["explain", "GET", "http://127.0.0.1:8080/x/y"],
}


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def shell(line: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """`semel` followed by what a shell makes of the line."""
    return subprocess.run(
        ["bash", "-c", f"exec {shlex.join(SEMEL)} {line}"],
        cwd=cwd, env=PLAIN | {"PYTHONPATH": str(ROOT)} | variables, capture_output=True, timeout=60,
    )  # fmt: skip


# ---- doors ----


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that may not be entered. For root there is none: the system's answer is put on."""
    door = tmp_path / "closed"
    door.mkdir(mode=0o000)
    if os.geteuid() == 0:
        real = os.stat

        def refusing(path: str | Path | int, *given: object, **named: object) -> os.stat_result:
            if isinstance(path, (str, Path)) and str(path).startswith(f"{door}{os.sep}"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *given, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "stat", refusing)
        monkeypatch.setattr(os, "access", lambda path, _: path != door)
    yield door
    door.chmod(0o700)


@pytest.mark.parametrize("name", LOOKING)
def test_a_record_behind_a_closed_door_is_told(
    name: str, closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the path, and with what to do."""
    state = closed / "state"
    ran = semel(capsys, *LOOKING[name], "--state-dir", state)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"{state / FILE_NAME} cannot be read: Permission denied. Run this as the user")
    assert "--state-dir DIR" in ran.err


def test_doctor_reports_a_closed_door(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As one of its findings: the others are still told. With tokens in the settings nobody looks for those
    of a first start, and the state directory itself is found out."""
    state = closed / "state"
    ran = semel(capsys, "doctor", "--state-dir", state)
    assert (ran.status, ran.err) == (1, "")
    assert f"{state / 'tokens.json'} cannot be looked for: Permission denied." in ran.out
    config = closed.parent / "semel.yaml"
    config.write_text(f"auth: {{tokens: [{{sha256: '{'0' * 64}', tenant: acme, role: operator}}]}}")
    ran = semel(capsys, "doctor", "--state-dir", state, "--config", config)
    assert (ran.status, ran.err) == (1, "")
    assert "Name another with --state-dir, or mend this one." in ran.out


def test_tokens_that_cannot_be_seen_are_not_taken_for_none(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = semel(capsys, "serve", "--state-dir", closed / "state")
    assert (ran.status, ran.out) == (2, "")
    assert "tokens.json cannot be looked for: Permission denied." in ran.err


def test_a_working_directory_that_may_not_be_entered_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether there is a semel.yaml is not known, so it is not taken for none."""
    real = Path.is_file

    def refusing(path: Path) -> bool:
        if str(path) == "semel.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", refusing)
    for command in (["check"], *LOOKING.values()):
        ran = semel(capsys, *command)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith(
            "semel.yaml: cannot be looked for: Permission denied. Change to a directory"
        )
        assert "--config FILE" in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_a_sentence(tmp_path: Path) -> None:
    """A real process of a real other user, before a directory of mode 700."""
    door = tmp_path / "door"
    door.mkdir(mode=0o700)
    probe = [*NOBODY, sys.executable, "-c", "import proxy.cli"]
    if subprocess.run(probe, cwd="/", env=PLAIN | {"PYTHONPATH": str(ROOT)}, capture_output=True).returncode:
        pytest.skip("the other user cannot read the sources")
    for command in LOOKING.values():
        ran = subprocess.run(
            [*NOBODY, *SEMEL, *command, "--state-dir", str(door / "state")],
            cwd="/", env=PLAIN | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "cannot be read: Permission denied" in ran.stderr


# ---- streams ----


def test_closed_streams_are_told(tmp_path: Path) -> None:
    """What was to be read from or written to them cannot be; nothing is decided."""

    async def run() -> None:
        async with scene(tmp_path, LOST, FINE) as world:
            doubtful, done = await world.charged(1), await world.charged(2)
            place = f"--proxy {world.url}"
            for line, status, said in (
                (f"calls show {done} --body {place} >&-", 1, "Standard output is closed: "),
                (
                    f"calls resolve {doubtful} --as executed --body-file - --reason r {place} <&-",
                    2,
                    "--body-file -: standard input is closed.",
                ),
                ("explain POST /x/y -d @- <&-", 2, "-d @-: standard input is closed."),
            ):
                ran = await asyncio.to_thread(shell, line, tmp_path)
                assert (ran.returncode, ran.stdout) == (status, b""), ran.stderr
                assert ran.stderr.decode().startswith(said)
            shown = await asyncio.to_thread(shell, f"calls show {doubtful} {place} --json", tmp_path)
            assert b'"state": "in_doubt"' in shown.stdout
            printed = await asyncio.to_thread(shell, f"calls show {done} --body {place}", tmp_path)
            assert printed.stdout == CHARGED

    asyncio.run(run())


# ---- bytes that are no text ----

NO_TEXT = {
    "a filter": ["calls", "list", "--proxy", "http://127.0.0.1:1", "--tool", "\udcff"],
    "a header": ["explain", "GET", "/x", "-H", "X: \udcff"],
    "a tenant": ["explain", "GET", "/x", "--tenant", "\udcff"],
    "a body": ["explain", "POST", "/x", "-d", "\udcff"],
    "a reason": ["calls", "forget", ID, "--reason", "\udcff"],
    "an address": ["doctor", "--proxy", "http://\udcff"],
    "a token": ["stats", "--token", "secret\udcff"],
    "a directory": ["gc", "--state-dir", "\udcff"],
    "a command": ["\udcff"],
}


@pytest.mark.parametrize("name", NO_TEXT)
def test_bytes_that_are_no_text_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By their place, without a word of them: it may be a secret."""
    words = NO_TEXT[name]
    place = next(at for at, word in enumerate(words, start=1) if "\udcff" in word)
    ran = semel(capsys, *words)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"Argument {place} is not UTF-8 text. ")
    assert "secret" not in ran.err


def test_a_shell_s_bytes_are_refused_too(tmp_path: Path) -> None:
    ran = shell(r"explain GET /x -H $'X: \xff'", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"Argument 5 is not UTF-8 text. ")


async def test_a_login_name_that_is_no_text_decides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stand in the history."""
    monkeypatch.setenv("LOGNAME", "\udcff")
    async with scene(tmp_path, FINE) as world:
        done = await world.charged(1)
        words = ["calls", "forget", done, "--reason", "r", "--proxy", world.url]
        ran = await asyncio.to_thread(semel, capsys, *words)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == "The login name is not UTF-8 text: set LOGNAME to a name that is.\n"


@pytest.mark.parametrize("url", ["http://a..b:80", "http://h/ä", "http://a b", "http://h:x"])
@pytest.mark.parametrize("command", [["calls", "list"], ["stats"], ["doctor"]])
def test_an_address_that_cannot_be_one_is_refused(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = semel(capsys, *command, "--proxy", url)
    assert (ran.status, ran.out) == (2, "")
    assert f"{url!r} is not the address of a proxy: write it as http://HOST:PORT." in ran.err


@pytest.mark.parametrize("body", [b"{}", b"[" * 100_000], ids=["other", "deep"])
async def test_another_server_at_the_proxy_s_address_is_told(
    body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (*READ_ALL, answer(200, body, (b"Content-Type", b"application/json")), Close())
    async with Origin(script) as origin:
        for command in (["calls", "list"], ["calls", "show", ID], ["stats"]):
            words = [*command, "--proxy", f"http://127.0.0.1:{origin.port}"]
            ran = await asyncio.to_thread(semel, capsys, *words)
            assert (ran.status, ran.out) == (1, "")
            assert "is not a semel, or another version of it (HTTP 200, application/json)" in ran.err


# ---- locales ----

POLICY = "upstream: a\nbase_url: http://127.0.0.1:1\n# Zoë, 雪\n"
LOCALES = {
    "utf-8": ({"PYTHONIOENCODING": "utf-8"}, "Zoë, 雪".encode()),
    "latin-1": ({"PYTHONIOENCODING": "latin-1"}, b"Zo\xeb, \\u96ea"),
    "C": ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, b"Zo\\xeb, \\u96ea"),
}


@pytest.mark.parametrize("name", LOCALES)
def test_letters_that_the_locale_does_not_have_are_escaped(name: str, tmp_path: Path) -> None:
    """What it has is printed as it is."""
    (tmp_path / "a.yaml").write_text(POLICY, encoding="utf-8")
    variables, printed = LOCALES[name]
    ran = shell("policies show a --policies a.yaml", tmp_path, **variables)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert printed in ran.stdout


# ---- what is no record ----


def seen(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Names, modes and contents."""
    return {
        str(path.relative_to(directory)): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [directory, *directory.rglob("*")]
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"X", b"SQLite format 3", b"SQLite format 4\0" * 99],
    ids=["empty", "short", "cut", "other"],
)
@pytest.mark.parametrize("name", LOOKING)
def test_looking_makes_no_record(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is no database stays what it is, and so does its directory."""
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    (state / FILE_NAME).write_bytes(content)
    (state / FILE_NAME).chmod(0o644)
    before = seen(state)
    words = [*LOOKING[name], *(["--like", ID] if name == "explain" else [])]
    ran = semel(capsys, *words, "--state-dir", state)
    assert (ran.status, ran.out) == (2, "")
    said = f"{state / FILE_NAME} is not a record. " if content else f"There is no record in {state}"
    assert ran.err.startswith(said)
    assert seen(state) == before
