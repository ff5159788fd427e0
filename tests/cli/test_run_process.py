"""`semel run` as a real process: its exit status, its streams, its words; and the process for other tests."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import jsonschema
import pytest

from proxy.cli.run import SCHEMA
from tests.process import ROOT

PATIENCE = 30.0
RUN = [sys.executable, "-m", "proxy.cli", "run"]


def clean_environment(**more: str) -> dict[str, str]:
    """Nobody's settings, proxies or certificates play a part."""
    ours = ("SEMEL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT", "NODE_", "OPENAI_", "ANTHROPIC_")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(ours) and "CA_BUNDLE" not in name and "CERT" not in name
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, f"{what} did not come"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """A process that is dead and not yet collected is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def proxies_of(run_pid: int) -> list[int]:
    """Process ids of the proxies that this `semel run` has started."""
    children = Path(f"/proc/{run_pid}/task/{run_pid}/children").read_text().split()
    return [pid for pid in map(int, children) if b"run_lifeline" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def own(self) -> list[str]:
        """What semel said, without what begins every line."""
        return [line.removeprefix("semel: ") for line in self.err.splitlines() if line.startswith("semel: ")]


def run_to_end(
    state: Path,
    *command: str,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    launcher: Sequence[str] = RUN,
) -> Ran:
    ran = subprocess.run(
        [*launcher, "--state-dir", str(state), *options, "--", *command],
        cwd=cwd or state.parent,
        env=clean_environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@dataclass
class Running:
    """`with Running(state, "python", …) as run:`. On a terminal, stdin, stdout and stderr are one."""

    state: Path
    command: Sequence[str]
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    terminal: bool = False
    prefix: Sequence[str] = ()
    said: str = ""

    def __enter__(self) -> Self:
        options = ["--id", "t", "--state-dir", str(self.state), *self.options]
        words = [*self.prefix, *RUN, *options, "--", *self.command]
        self._master = -1
        if self.terminal:
            self._master, slave = pty.openpty()
            # A session of its own whose controlling terminal is the new one, as a login has it.
            self.process = subprocess.Popen(
                words,
                cwd=self.state.parent,
                env=clean_environment(**self.env),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
            os.close(slave)
            self._reading = self._master
        else:
            self.process = subprocess.Popen(
                words,
                cwd=self.state.parent,
                env=clean_environment(**self.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert self.process.stdout is not None
            self._reading = self.process.stdout.fileno()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Killing semel ends its proxy and its agent; a test that proves otherwise must not leave them behind.
        left = self._descendants()
        self.process.kill()
        self.process.wait()
        for pid in left:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        if self._master >= 0:
            os.close(self._master)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _descendants(self) -> list[int]:
        found: list[int] = []
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += map(int, children)
            waiting += map(int, children)
        return found

    @property
    def pid(self) -> int:
        return self.process.pid

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read_until(self, words: str) -> str:
        """All that was said up to here, which holds these words."""
        self.read_match(f"({re.escape(words)})")
        return self.said

    def read_match(self, pattern: str) -> str:
        """What the pattern's group is, as soon as something fits."""
        until = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.said, re.MULTILINE)) is None:
            readable, _, _ = select.select([self._reading], [], [], max(0.0, until - time.monotonic()))
            assert readable, f"{pattern!r} did not come:\n{self.said}"
            part = self._part()
            assert part, f"it ended before {pattern!r}:\n{self.said}"
            self.said += part
        return str(found[1])

    def drain(self) -> None:
        """What is there to be read, without waiting for more."""
        while select.select([self._reading], [], [], 0)[0] and (part := self._part()):
            self.said += part

    def _part(self) -> str:
        """Empty: nobody will say more."""
        try:
            return os.read(self._reading, 1 << 16).decode(errors="replace").replace("\r\n", "\n")
        except OSError:  # the terminal's last user is gone
            return ""

    def ended(self) -> int:
        """The exit status, as subprocess has it; all that was said is in `said`."""
        until = time.monotonic() + PATIENCE
        while True:
            readable, _, _ = select.select([self._reading], [], [], max(0.0, until - time.monotonic()))
            assert readable, f"it does not end:\n{self.said}"
            part = self._part()
            if not part:
                return self.process.wait(PATIENCE)
            self.said += part


def python(code: str) -> list[str]:
    """A small agent."""
    return [sys.executable, "-u", "-c", code]


# ---- exit status, streams, words ----


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 0"], 0),
        (["sh", "-c", "exit 41"], 41),
        (["no-such-command-anywhere"], 127),
        (["./plain.txt"], 126),
        (["./no-program"], 126),
    ],
)
def test_the_exit_status_is_the_commands(command: list[str], status: int, state: Path) -> None:
    """And that of shells where there is no command to ask."""
    (state.parent / "plain.txt").write_text("echo no\n")
    program = state.parent / "no-program"
    program.write_text("neither a program nor a script\n")
    program.chmod(0o755)
    assert run_to_end(state, *command).status == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT])
def test_a_command_killed_by_a_signal_ends_semel_by_the_same(number: signal.Signals, state: Path) -> None:
    """Whoever started it (a shell in a loop, make) looks at that. No second core is dumped."""
    ran = run_to_end(state, *python(f"import os; os.kill(os.getpid(), {int(number)})"))
    assert ran.status == -number
    assert f"the command was killed by {number.name}" in ran.err


def test_streams_pass_untouched(state: Path) -> None:
    """Bytes in, bytes out, nothing of semel's among them; what semel says begins with its name."""
    copy = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.write('mine\\n')"
    ran = subprocess.run(
        [*RUN, "--state-dir", str(state), "--", *python(copy)],
        cwd=state.parent, env=clean_environment(), input=bytes(range(256)), capture_output=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == bytes(range(256))
    lines = ran.stderr.decode().splitlines()
    assert [line for line in lines if not line.startswith("semel: ")] == ["mine"]
    assert len(lines) > 1


def test_files_and_ignored_signals_of_the_caller_reach_the_command(state: Path) -> None:
    """As with nohup and `3>file`; and no signal is blocked, though semel blocks its own."""
    code = (
        "import os, signal; os.write(3, b'three'); "
        "print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.pthread_sigmask(0, []))"
    )
    words = shlex.join([*RUN, "--state-dir", str(state), "--", *python(code)])
    ran = subprocess.run(
        ["sh", "-c", f"trap '' HUP; {words} 3>three"],
        cwd=state.parent, env=clean_environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (state.parent / "three").read_text() == "three"
    assert ran.stdout == "True set()\n"


def test_a_closed_stderr_is_no_failure(state: Path) -> None:
    """Nobody listens to semel; the agent runs all the same."""
    words = shlex.join([*RUN, "--state-dir", str(state), "--", "sh", "-c", "echo ran; exit 5"])
    ran = subprocess.run(
        ["sh", "-c", f"{words} 2>&-"],
        cwd=state.parent, env=clean_environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (5, "ran\n")


def test_a_run_without_a_name_gets_one_and_the_line_to_repeat_it(state: Path) -> None:
    """The line can be pasted; it names the same run and never the token."""
    ran = run_to_end(state, "sh", "-c", "exit 1", options=["--token", "secret-token"])
    (line,) = [line for line in ran.own if "to repeat it: " in line]
    words = shlex.split(line.partition("to repeat it: ")[2])
    name = words[words.index("--id") + 1]
    assert words == ["semel", "run", "--id", name, "--state-dir", str(state), "--", "sh", "-c", "exit 1"]
    assert re.fullmatch(r"run-\d{8}-\d{6}-[0-9a-f]{4}", name)
    assert "secret-token" not in ran.err
    again = run_to_end(state, "sh", "-c", 'echo "$SEMEL_RUN"', options=["--id", name])
    assert again.out == f"{name}\n"
    assert "to repeat it" not in again.err


def test_json_is_one_line_on_stderr_that_fits_its_schema(state: Path) -> None:
    """And nothing else is said, with --quiet."""
    ran = run_to_end(state, "sh", "-c", "exit 4", options=["--json", "--quiet", "--id", "t"])
    assert (ran.status, ran.out) == (4, "")
    (line,) = ran.err.splitlines()
    document = json.loads(line)
    jsonschema.validate(document, SCHEMA)
    assert (document["run"], document["status"], document["signal"], document["attempts"]) == (
        "t",
        4,
        None,
        1,
    )


def test_quiet_leaves_only_warnings(state: Path) -> None:
    """Nothing at all where all is well."""
    assert run_to_end(state, "true", options=["--quiet"]).err == ""
    gone = run_to_end(state, "true", options=["--quiet"], env={"SSL_CERT_FILE": "/no/such/file"})
    assert "SSL_CERT_FILE: /no/such/file cannot be read" in gone.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "agent.py"], "Write the command behind --"),
        (["--id", "a"], "Write the command behind --"),
        (["--"], "Write the command behind --"),
        (["--id", "a b", "--", "true"], "--id: A run's name is 1 to 128 characters"),
        (["--id", "..", "--", "true"], "--id: A run's name is 1 to 128 characters"),
        (["--retries", "-1", "--", "true"], "--retries"),
        (["--proxy", "http://127.0.0.1:1/path", "--", "true"], "without a path"),
        (["--proxy", "ftp://127.0.0.1", "--", "true"], "is not the address of a proxy"),
    ],
)
def test_bad_usage_starts_nothing(words: list[str], said: str, tmp_path: Path) -> None:
    """Exit status 2, and what to do."""
    ran = subprocess.run(
        [*RUN, *words], cwd=tmp_path, env=clean_environment(HOME=str(tmp_path)), capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr


def test_the_commands_words_may_be_any_bytes(state: Path) -> None:
    """semel's own must be text; the command's are handed on as they are."""
    words = [*RUN, "--state-dir", str(state), "--", "printf", "%s", os.fsdecode(b"\xff\xfe")]
    ran = subprocess.run(words, cwd=state.parent, env=clean_environment(), capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, b"\xff\xfe"), ran.stderr


def test_the_commands_own_flags_are_its_own(state: Path) -> None:
    """Also those that semel has, and a second `--`."""
    ran = run_to_end(state, *python("import sys; print(sys.argv[1:])"), "--id", "x", "--", "--json", "--help")
    assert ran.out == "['--id', 'x', '--', '--json', '--help']\n"


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("pass", 0)])
def test_nobody_reads_what_semel_says_and_the_exit_status_is_the_commands(
    tmp_path: Path, code: str, status: int
) -> None:
    """A pipe whose reader has gone, as behind `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*RUN, "--state-dir", str(tmp_path / "state"), "--", *python(code)],
            cwd=ROOT, env=clean_environment(), stderr=writing, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == status
