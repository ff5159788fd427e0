"""The proxy of `semel run`: it lives as long as the command, comes back when it dies, and never stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proxy.cli.run_proxy import PAUSES, STEADY, OwnProxy
from proxy.cli.run_telling import Teller, worth_telling
from proxy.tokens import digest
from tests.cli.test_run_process import (
    RUN,
    Running,
    alive,
    clean_environment,
    proxies_of,
    python,
    run_to_end,
    wait_until,
)
from tests.process import ROOT, SemelProcess

POLICY = "upstream: mail\nbase_url: http://mail.example\n"
# Says where its proxy is; asks it whether it is ready at every SIGUSR1; ends at SIGUSR2.
ASKING = """
import http.client, os, signal, urllib.parse
place = urllib.parse.urlsplit(os.environ["SEMEL_URL"])
numbers = [signal.SIGUSR1, signal.SIGUSR2]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("agent", os.getpid(), place.port, flush=True)
while signal.sigwait(numbers) == signal.SIGUSR1:
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    connection.request("GET", "/readyz")
    print("readyz", connection.getresponse().status, flush=True)
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def port_of(run: Running) -> int:
    return int(run.read_match(r"^agent \d+ (\d+)\n"))


def answers(port: int) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{port}/readyz", timeout=20
        ) as response:
            return bool(response.status == 200)
    except OSError:
        return False


# ---- its own ----


def test_the_proxy_answers_while_the_command_runs_and_is_gone_afterwards(state: Path) -> None:
    """On the port that the agent was told."""
    with Running(state, python(ASKING)) as run:
        port = port_of(run)
        (proxy,) = proxies_of(run.pid)
        run.process.send_signal(signal.SIGUSR1)
        run.read_until("readyz 200")
        run.process.send_signal(signal.SIGUSR2)
        assert run.ended() == 0
        assert not alive(proxy)
        assert not answers(port)


def test_a_proxy_that_dies_comes_back_on_the_same_port(state: Path) -> None:
    """The agent's variables name that port, and it goes on."""
    with Running(state, python(ASKING)) as run:
        port = port_of(run)
        (first,) = proxies_of(run.pid)
        os.kill(first, signal.SIGKILL)
        run.read_until("the proxy was killed by SIGKILL; it is started again on the same port (1 of 5).")
        wait_until(lambda: answers(port), "the second proxy")
        (second,) = proxies_of(run.pid)
        assert second != first
        run.process.send_signal(signal.SIGUSR1)
        run.read_until("readyz 200")
        run.process.send_signal(signal.SIGUSR2)
        assert run.ended() == 0
        assert not alive(second)


def test_a_killed_semel_leaves_neither_proxy_nor_agent(state: Path) -> None:
    """SIGKILL gives no time to clear up: the closed pipe ends the proxy, the kernel ends the agent."""
    with Running(state, python(ASKING)) as run:
        agent = int(run.read_match(r"^agent (\d+) \d+\n"))
        (proxy,) = proxies_of(run.pid)
        os.kill(run.pid, signal.SIGKILL)
        run.process.wait()
        wait_until(lambda: not alive(proxy), "the proxy's end")
        if sys.platform.startswith("linux"):
            wait_until(lambda: not alive(agent), "the agent's end")


def test_a_semel_killed_while_its_proxy_starts_leaves_none(state: Path) -> None:
    """There is no moment in which the proxy would not notice."""
    process = subprocess.Popen(
        [*RUN, "--state-dir", str(state), "--", "sleep", "100"], cwd=state.parent, env=clean_environment()
    )
    try:
        wait_until(lambda: bool(proxies_of(process.pid)), "the proxy's start")
        (proxy,) = proxies_of(process.pid)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not alive(proxy), "the proxy's end")


def test_two_runs_share_a_state_directory(state: Path) -> None:
    """At the same time, with a proxy each."""
    with Running(state, python(ASKING)) as one, Running(state, python(ASKING)) as other:
        assert port_of(one) != port_of(other)
        for run in (one, other):
            run.process.send_signal(signal.SIGUSR1)
            run.read_until("readyz 200")
        for run in (one, other):
            run.process.send_signal(signal.SIGUSR2)
            assert run.ended() == 0


def test_a_folder_named_proxy_where_the_agent_works_is_not_ours(state: Path) -> None:
    """The proxy is started there, too, and must not import from it."""
    folder = state.parent / "work"
    (folder / "proxy").mkdir(parents=True)
    (folder / "proxy" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    ran = run_to_end(state, "sh", "-c", "exit 6", cwd=folder, launcher=LAUNCHER)
    assert ran.status == 6, ran.err


# As the installed command begins: with no folder of the caller's on the path.
LAUNCHER = (sys.executable, "-P", "-c", "import sys; from proxy.cli import main; sys.exit(main())", "run")


def test_bad_policies_start_nothing(state: Path) -> None:
    """Exit status 2, with file and line; the command has not run."""
    bad = state.parent / "bad.yaml"
    bad.write_text("upstream: mail\nbase_ur: http://a\n")
    mark = state.parent / "ran"
    ran = run_to_end(state, "touch", str(mark), options=["--policies", str(bad)])
    assert ran.status == 2
    assert f"{bad}:2:1" in ran.err
    assert not mark.exists()
    assert all(line.startswith("semel: ") for line in ran.err.splitlines())


def test_a_state_directory_that_cannot_be_used_starts_nothing(tmp_path: Path) -> None:
    """And says so once, with what to do."""
    (tmp_path / "file").write_text("")
    ran = run_to_end(tmp_path / "file" / "state", "touch", "ran", cwd=tmp_path)
    assert ran.status in (1, 2)
    assert "--state-dir" in ran.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ([], 2, "The settings want tokens: give an agent's with --token or SEMEL_TOKEN"),
        (["--token", "wrong"], 1, "This token is not known here"),
        (["--token", "operator"], 1, "may not make calls"),
        (["--token", "agent"], 0, ""),
    ],
)
def test_where_tokens_are_wanted_the_agent_has_one(
    given: list[str], status: int, said: str, state: Path
) -> None:
    """Found out before the command starts, and not at its first call."""
    tokens = "".join(
        f"    - {{sha256: {digest(role)}, tenant: acme, role: {role}}}\n" for role in ("agent", "operator")
    )
    config = state.parent / "semel.yaml"
    config.write_text(f"auth:\n  tokens:\n{tokens}")
    mark = state.parent / "ran"
    ran = run_to_end(state, "touch", str(mark), options=["--config", str(config), *given])
    assert ran.status == status, ran.err
    assert said in ran.err
    assert mark.exists() == (status == 0)


# ---- how often it is brought back ----


class FakeProcess:
    """A proxy that has ended, or not."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.dies_with: int | None = None
        self.stdin = self.stdout = self.stderr = None

    def poll(self) -> int | None:
        self.returncode = self.dies_with
        return self.returncode


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> OwnProxy:
    """An OwnProxy whose processes are FakeProcess."""
    made = OwnProxy.__new__(OwnProxy)

    def spawn(listen: str, stdout: int) -> FakeProcess:
        made._born = 0.0
        return FakeProcess()

    monkeypatch.setattr(made, "_spawn", spawn)
    made.restarts, made._in_a_row, made._due, made._told = 0, 0, None, b""
    made._teller, made.url, made._born = Teller(), "http://127.0.0.1:7", 0.0
    made._process = FakeProcess()  # type: ignore[assignment]
    return made


def die(proxy: OwnProxy) -> None:
    proxy._process.dies_with = 1  # type: ignore[attr-defined]


def test_a_proxy_that_keeps_dying_is_given_up(own: OwnProxy, capsys: pytest.CaptureFixture[str]) -> None:
    """After growing pauses, and that is told."""
    now = 1.0
    for pause in PAUSES:
        die(own)
        due = own.tend(now)
        assert (due is None) == (pause == 0.0)
        if due is not None:
            assert due == now + pause
            assert own.tend(due) is None
    die(own)
    assert own.tend(now) is None
    assert own.tend(now + 1000) is None
    assert own.restarts == len(PAUSES)
    assert capsys.readouterr().err.count("is not started any more") == 1


def test_a_proxy_that_has_lived_for_a_while_begins_anew(own: OwnProxy) -> None:
    """Five deaths in a row are a defect; five in a week are not."""
    for number in range(3 * len(PAUSES)):
        die(own)
        assert own.tend(STEADY + number) is None  # at once
    assert own.restarts == 3 * len(PAUSES)


# ---- one that runs already ----


async def test_a_given_proxy_is_used_and_left_running(tmp_path: Path) -> None:
    """All addresses name it."""
    policies = tmp_path / "mail.yaml"
    policies.write_text(POLICY)
    async with SemelProcess(tmp_path / "state", policies) as semel:
        ran = run_to_end(
            tmp_path / "state", "sh", "-c", 'echo "$SEMEL_URL $HTTP_PROXY"',
            options=["--proxy", semel.url + "/", "--id", "task"],
        )  # fmt: skip
        assert ran.status == 0, ran.err
        base, forward = ran.out.split()
        assert base.startswith(f"{semel.url}/@task+")
        assert urlsplit(forward).port == semel.port
        assert semel.alive


def test_a_given_proxy_that_does_not_answer_starts_nothing(state: Path) -> None:
    """The agent's first call is a bad place to find out."""
    ran = run_to_end(state, "touch", str(state.parent / "ran"), options=["--proxy", "http://127.0.0.1:1"])
    assert ran.status == 1
    assert "No semel answers at http://127.0.0.1:1" in ran.err
    assert "The command was not started." in ran.err
    assert not (state.parent / "ran").exists()


# ---- its words ----


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"at":"now","event":"call","status":"executed"}', ""),
        ('{"at":"now","event":"store-trouble","doing":"sweep","error":"full"}',
         "store-trouble: doing sweep, error full"),
        ("no upstream is configured: give policy files with --policies PATH", ""),
        ("semel may open 10 files", "semel may open 10 files"),
        ("[1]", "[1]"),
        ("", ""),
    ],
)  # fmt: skip
def test_of_the_proxys_log_only_what_a_person_needs_is_told(line: str, told: str) -> None:
    """Not a line for every call."""
    assert worth_telling(line) == told


# In a process of its own: SIGIO goes to any thread that does not block it, and a test's worker has several.
READS_THE_LOG = """
import signal, sys
from pathlib import Path
from proxy.cli import run_proxy
from proxy.cli.run_proxy import OwnProxy
from proxy.cli.run_signals import Waiting
from proxy.cli.run_telling import Teller
from tests.cli.test_run_proxy import clean_environment

proxy = OwnProxy(["--state-dir", sys.argv[1]], run_proxy.own_environment(clean_environment()), Teller())
with Waiting() as signals:
    try:
        proxy.tend(0.0)
        Path(f"/proc/{proxy._process.pid}/fd/2").write_text("a word\\n")
        arrived = signals.wait(30)
        assert arrived is not None
        assert arrived.number == signal.SIGIO
        proxy.tend(0.0)
    finally:
        proxy.stop(signals)
assert proxy._process.returncode == 0
"""


def test_the_log_is_read_as_it_comes(tmp_path: Path) -> None:
    """The kernel says when there is something to read; nobody looks again and again."""
    done = subprocess.run(
        [sys.executable, "-c", READS_THE_LOG, str(tmp_path / "state")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "semel: proxy: a word\n")
