"""Signals and the terminal: the agent behaves as if it ran alone, and hears each Ctrl-C once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from signal import Signals

import pytest

from proxy.cli.run_signals import HANDED_ON, Arrived, Waiting, must_be_handed_on
from tests.cli.test_run_process import Running, alive, proxies_of, python, state_of, wait_until

# Says which signals it gets, and ends when it is told to by SIGUSR2. They are fetched, not handled: a handler
# of Python's does not run while a pause goes on that began just after the signal came.
COUNTING = """
import os, signal
names = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "WINCH")
numbers = [signal.Signals["SIG" + name] for name in names]
for number in numbers:
    signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("agent", os.getpid(), os.getpgrp(), flush=True)
while True:
    number = signal.sigwait(numbers)
    print("heard", number.name, flush=True)
    if number == signal.SIGUSR2:
        os._exit(9)
"""
# What an interactive shell does with a job, and nothing else: its own group in the foreground, `fg` after a
# stop (or, told anything else, only a further look at it). Says what becomes of the job.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, raw = os.waitpid(job, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(raw):
        print("job ended", os.waitstatus_to_exitcode(raw), flush=True)
        break
    print("job stopped", flush=True)
    if sys.stdin.readline() == "fg\\n":
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def agent_pid(run: Running) -> int:
    return int(run.read_match(r"^agent (\d+)\b.*\n"))


def agent_and_semel(run: Running) -> tuple[int, int]:
    """Where semel is not what was started, but the agent's parent."""
    agent = agent_pid(run)
    return agent, int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])


# ---- which signals are handed on ----


@pytest.mark.parametrize("number", sorted(HANDED_ON))
def test_what_a_process_sends_is_handed_on_and_what_the_terminal_sends_is_not(number: Signals) -> None:
    """The terminal has given it to the agent as well; a second one would look like a second Ctrl-C."""
    assert must_be_handed_on(Arrived(number=number, sender=7), 100, leads_session=False)
    assert not must_be_handed_on(Arrived(number=number, by_kernel=True), 100, leads_session=False)
    assert not must_be_handed_on(Arrived(number=number, sender=100), 100, leads_session=False)


def test_a_hang_up_of_the_sessions_leader_is_handed_on() -> None:
    """The kernel tells the leader alone when the terminal goes away."""
    assert must_be_handed_on(Arrived(number=Signals.SIGHUP, by_kernel=True), 100, leads_session=True)
    assert not must_be_handed_on(Arrived(number=Signals.SIGINT, by_kernel=True), 100, leads_session=True)


def test_signals_about_children_are_never_handed_on() -> None:
    """They are semel's own."""
    for number in (Signals.SIGCHLD, Signals.SIGIO):
        assert not must_be_handed_on(Arrived(number=number, sender=7), 100, leads_session=True)


def to_this_thread(number: Signals) -> None:
    """Only here it is blocked, and whoever runs the tests may have more threads."""
    signal.pthread_kill(threading.get_ident(), number)


def test_a_signal_is_fetched_with_its_sender_and_the_world_is_as_before_afterwards() -> None:
    """Blocked while it is waited for; handlers and mask come back."""
    handler, mask = signal.getsignal(Signals.SIGUSR1), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Waiting() as signals:
        assert signals.wait(0) is None
        to_this_thread(Signals.SIGUSR1)
        assert signals.wait(30) == Arrived(number=Signals.SIGUSR1, sender=os.getpid())
        to_this_thread(Signals.SIGTERM)  # left unfetched: it must not end this process
    assert signal.getsignal(Signals.SIGUSR1) == handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_where_the_sender_is_not_told_the_signal_is_fetched_all_the_same() -> None:
    """As on macOS, which has no wait with a limit."""
    with Waiting() as signals:
        assert signals._wait_and_guess(0) is None
        to_this_thread(Signals.SIGUSR1)
        assert signals._wait_and_guess(30) == Arrived(number=Signals.SIGUSR1)


# ---- real processes ----


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGTERM", "SIGWINCH"])
def test_a_signal_to_semel_reaches_the_agent(name: str, state: Path) -> None:
    """Sent to `semel run` alone, heard once; the agent decides what it means."""
    with Running(state, python(COUNTING)) as run:
        agent_pid(run)
        run.process.send_signal(Signals[name])
        run.read_until(f"heard {name}")
        run.process.send_signal(Signals.SIGUSR2)
        assert run.ended() == 9
        assert run.said.count(f"heard {name}") == 1


def test_the_agent_is_in_semels_process_group(state: Path) -> None:
    """So the terminal and the shell treat both as one job."""
    with Running(state, python(COUNTING)) as run:
        agent = agent_pid(run)
        assert os.getpgid(agent) == os.getpgid(run.pid)
        (proxy,) = proxies_of(run.pid)
        assert os.getsid(proxy) == proxy != os.getsid(agent)
        assert os.getpgid(proxy) != os.getpgid(agent)


@pytest.mark.parametrize(("key", "name"), [(b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")])
def test_a_key_on_the_terminal_is_heard_once_and_the_proxy_lives_on(
    key: bytes, name: str, state: Path
) -> None:
    """Ctrl-C and Ctrl-\\ reach the agent first; the proxy ends after it. semel is made to come late: else two
    signals could become one on their way."""
    with Running(state, python(COUNTING), terminal=True) as run:
        agent_pid(run)
        (proxy,) = proxies_of(run.pid)
        os.kill(run.pid, Signals.SIGSTOP)
        wait_until(lambda: state_of(run.pid) == "T", "the stop")
        run.type(key)
        run.read_until(f"heard {name}")
        os.kill(run.pid, Signals.SIGCONT)
        os.kill(run.pid, Signals.SIGUSR1)  # of a higher number than both, so it is fetched after them
        run.read_until("heard SIGUSR1")
        assert alive(proxy)
        os.kill(run.pid, Signals.SIGUSR2)
        assert run.ended() == 9
        assert run.said.count(f"heard {name}") == 1
        assert "the proxy" not in run.said
        assert not alive(proxy)


def test_ctrl_c_ends_an_agent_that_does_not_care_and_semel_ends_the_same_way(state: Path) -> None:
    """No retry after that, though one was asked for."""
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "print('agent', os.getpid(), flush=True); signal.pause()"
    )
    with Running(state, python(code), options=["--retries", "5"], terminal=True) as run:
        agent_pid(run)
        run.type(b"\x03")
        assert run.ended() == -signal.SIGINT
        assert "the next attempt" not in run.said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_no_retry_after_a_signal_to_semel(name: str, state: Path) -> None:
    """The agent dies of it; that is no failure to be mended."""
    code = "import os, signal; print('agent', os.getpid(), flush=True); signal.pause()"
    with Running(state, python(code), options=["--retries", "5"]) as run:
        agent_pid(run)
        run.process.send_signal(Signals[name])
        assert run.ended() == -Signals[name]
        assert "the next attempt" not in run.said


def test_a_signal_ends_the_pause_between_two_attempts(state: Path) -> None:
    """And is what semel ends by: nobody else is there to be ended."""
    with Running(state, ["sh", "-c", "exit 3"], options=["--retries", "9"]) as run:
        run.read_until("the next attempt is in")
        run.process.send_signal(Signals.SIGTERM)
        assert run.ended() == -signal.SIGTERM


def test_a_terminal_that_goes_away_is_told_to_the_agent(state: Path) -> None:
    """semel leads the session here, so the kernel tells it alone."""
    heard = state.parent / "heard"
    code = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])\n"
        "print('agent', os.getpid(), flush=True)\n"
        "signal.sigwait([signal.SIGHUP])\n"
        f"open({str(heard)!r}, 'w').write('hup')\n"
    )
    with Running(state, python(code), terminal=True) as run:
        agent_pid(run)
        os.close(run._master)
        run._master = -1
        wait_until(lambda: run.process.poll() is not None, "the end")
        assert heard.read_text() == "hup"


# ---- job control ----


def test_ctrl_z_and_fg(state: Path) -> None:
    """The shell sees a stopped job, `fg` brings both back; the proxy is never stopped."""
    prefix = [sys.executable, "-c", SHELL]
    with Running(state, python(COUNTING), terminal=True, prefix=prefix) as run:
        agent, semel = agent_and_semel(run)
        (proxy,) = proxies_of(semel)
        for times in (1, 2):
            run.type(b"\x1a")
            wait_until(partial(has_stopped, run, times), "the stop")
            assert (state_of(agent), state_of(semel)) == ("T", "T")
            assert state_of(proxy) != "T"
            run.type(b"fg\n")
            wait_until(lambda: "T" not in (state_of(agent), state_of(semel)), "the continuation")
        run.type(b"\x03")
        run.read_until("heard SIGINT")
        os.kill(semel, Signals.SIGUSR2)
        run.read_until("job ended 9")


def test_a_second_ctrl_z_before_semel_is_awake_stops_the_job_again(state: Path) -> None:
    """The agent went on and stands still again before semel takes a step: a stop as good as the first."""
    prefix = [sys.executable, "-c", SHELL]
    with Running(state, python(COUNTING), terminal=True, prefix=prefix) as run:
        agent, semel = agent_and_semel(run)
        run.type(b"\x1a")
        wait_until(partial(has_stopped, run, 1), "the first stop")
        os.kill(agent, Signals.SIGCONT)
        wait_until(lambda: state_of(agent) != "T", "the continuation")
        os.kill(agent, Signals.SIGSTOP)
        wait_until(lambda: state_of(agent) == "T", "the agent's stop")
        run.type(b"look\n")
        os.kill(semel, Signals.SIGCONT)
        wait_until(partial(has_stopped, run, 2), "the second stop")
        run.type(b"fg\n")
        os.kill(semel, Signals.SIGUSR2)
        run.read_until("job ended 9")


def test_an_agent_that_is_killed_while_the_job_is_stopped(state: Path) -> None:
    """`fg` finds it dead, and semel ends as it did."""
    prefix = [sys.executable, "-c", SHELL]
    with Running(state, python(COUNTING), terminal=True, prefix=prefix) as run:
        agent, _ = agent_and_semel(run)
        run.type(b"\x1a")
        wait_until(partial(has_stopped, run, 1), "the stop")
        os.kill(agent, Signals.SIGKILL)
        run.type(b"fg\n")
        run.read_until("job ended -9")


def test_an_agent_that_stops_itself_stops_the_job(state: Path) -> None:
    """As editors do on Ctrl-Z; whoever continues semel alone means the agent too."""
    code = (
        "import os, signal\nprint('agent', os.getpid(), flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
        "print('went on', flush=True)\n"
    )
    with Running(state, python(code), terminal=True, prefix=[sys.executable, "-c", SHELL]) as run:
        agent, semel = agent_and_semel(run)
        run.read_until("job stopped")
        assert (state_of(agent), state_of(semel)) == ("T", "T")
        os.kill(semel, Signals.SIGCONT)
        run.read_until("went on")
        run.type(b"fg\n")  # the shell has not looked since
        run.read_until("job ended 0")


def test_without_a_terminal_a_stopped_agent_does_not_stop_semel(state: Path) -> None:
    """Nobody would continue it: whoever stopped the agent continues the agent."""
    with Running(state, python(COUNTING), prefix=["setsid"]) as run:
        agent, semel = agent_and_semel(run)
        os.kill(agent, Signals.SIGSTOP)
        wait_until(lambda: state_of(agent) == "T", "the stop")
        os.kill(semel, Signals.SIGUSR1)  # handed on, so the stop has been seen before it
        os.kill(agent, Signals.SIGCONT)
        run.read_until("heard SIGUSR1")
        assert state_of(semel) != "T"
        os.kill(semel, Signals.SIGUSR2)
        assert run.ended() == 9


def has_stopped(run: Running, times: int) -> bool:
    run.drain()
    return run.said.count("job stopped") == times
