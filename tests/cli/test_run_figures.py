"""Figures, the mark of a complete run, the summary and further attempts; and what happens without figures."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.cli.run import SCHEMA
from proxy.cli.run_agent import Ending
from proxy.cli.run_figures import AttemptFigures, ProxyFigures, RunFigures, read_figures
from proxy.cli.run_summary import Report, document, lines
from proxy.cli.run_supervision import pause_before
from tests.cli.test_run_process import python, run_to_end

KNOWN: dict[str, Any] = {
    "run": "task",
    "state": "open",
    "steps": 18,
    "attempts": [{"name": "a1", "replayed": 17, "executed": 1, "joined": 0, "refused": 2, "more": 1}],
    "in_doubt": ["c" * 32],
    "awaiting_approval": ["d" * 32],
    "diverged": ["e" * 32],
    "unlisted": ["a.example", "b.example"],
    "saved_usd": 0.42,
    "saved_seconds": 31.5,
    "new in a later version": {},
}


@contextmanager
def proxy(figures: object = None, status: int = 200) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """What answers /readyz and the API of runs; and what it was asked: method, path, token, body."""
    asked: list[tuple[str, str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            ready = self.path == "/readyz"
            if not ready:
                asked.append((self.command, self.path, self.headers.get("Semel-Token", ""), body))
            content = (
                b"{}" if ready else (figures if isinstance(figures, bytes) else json.dumps(figures).encode())
            )
            self.send_response(200 if ready else status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as its parent has it)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ---- what is read ----


def test_figures_are_read_and_more_than_is_known_does_no_harm() -> None:
    """A list where a count is wanted is counted."""
    figures = read_figures("task", KNOWN)
    assert (figures.state, figures.steps, figures.diverged) == ("open", 18, 1)
    assert figures.of("a1") == AttemptFigures(name="a1", replayed=17, executed=1, refused=2)
    assert figures.of("never called") == AttemptFigures(name="never called")


@pytest.mark.parametrize("wrong", [None, "text", True, -1.5, [1], {"a": 1}])
def test_what_is_not_as_expected_is_left_out(wrong: object) -> None:
    """Figures are for people: none of them may fail a run."""
    read_figures("task", dict.fromkeys(KNOWN, wrong))
    assert read_figures("task", {"attempts": [wrong]}).of("x") == AttemptFigures(name="x")
    assert read_figures("task", {}) == RunFigures(run="task")


@pytest.mark.parametrize(
    ("figures", "status", "why"),
    [
        (None, 404, "no call of this run is on record"),
        (None, 401, "--token"),
        (None, 403, "to this token"),
        (None, 500, "the proxy answers 500"),
        (b"<html>", 200, "not understood"),
        (b"[]", 200, "not understood"),
        (b"[" * 100_000, 200, "not understood"),
    ],
)
def test_figures_that_are_not_to_be_had_are_none_with_the_reason(
    figures: object, status: int, why: str
) -> None:
    """Whatever the proxy answers."""
    with proxy(figures, status) as (url, _):
        asking = ProxyFigures(url)
        assert asking.of_run("task") is None
        assert why in asking.why


def test_a_proxy_that_is_gone_is_no_failure() -> None:
    """Nothing is raised, and why is known."""
    asking = ProxyFigures("http://127.0.0.1:1")
    assert asking.of_run("task") is None
    assert not asking.complete("task", "a1")
    assert asking.why


# ---- what is told ----


def report(ending: Ending = Ending(), **more: Any) -> Report:  # noqa: B008 (frozen)
    facts = {"figures": read_figures("task", KNOWN), "complete": False, **more}
    return Report(run="task", attempt="a1", attempts=1, ending=ending, seconds=1.25, **facts)


def test_the_summary_names_what_happened_and_what_settles_what_is_held() -> None:
    """With commands that can be pasted."""
    told = "\n".join(lines(report(Ending(status=1)), " --state-dir s", ["semel", "run", "--id", "task"]))
    assert "17 replayed, 1 executed, 0 joined, 2 refused; 18 steps on record; saved $0.42 and 31.5 s." in told
    settles = f"semel calls resolve {'c' * 32} --as executed --body-file ANSWER --reason WHY --state-dir s"
    assert settles in told
    assert f"semel calls approve {'d' * 32} --reason WHY --state-dir s" in told
    assert "diverged: 1 call held" in told
    assert "semel runs allow task --reason WHY --state-dir s" in told
    assert "a.example, b.example" in told
    assert told.endswith("to go on where it stopped: semel run --id task")


def test_a_complete_run_says_so() -> None:
    """In the last line."""
    assert "the run is complete" in lines(report(complete=True), "", [])[-1]


@pytest.mark.parametrize("ending", [Ending(), Ending(status=3), Ending(signal=9)])
@pytest.mark.parametrize("figures", [None, read_figures("task", KNOWN), RunFigures(run="task")])
def test_the_document_fits_its_schema(ending: Ending, figures: RunFigures | None) -> None:
    """However it ended, with figures and without."""
    made = json.loads(json.dumps(document(report(ending, figures=figures))))
    jsonschema.validate(made, SCHEMA)
    assert (made["status"] is None) == bool(ending.signal)


# ---- a real command ----


def test_success_marks_the_run_complete(tmp_path: Path) -> None:
    """With the attempt that did it, and the token."""
    with proxy(KNOWN) as (url, asked):
        options = ["--proxy", url, "--id", "task", "--token", "t"]
        ran = run_to_end(tmp_path / "state", "sh", "-c", 'echo "$SEMEL_ATTEMPT"', options=options)
    assert ran.status == 0
    (marked,) = [one for one in asked if one[0] == "POST"]
    assert marked[:3] == ("POST", "/_semel/runs/task/complete", "t")
    assert json.loads(marked[3]) == {"attempt": ran.out.strip()}
    assert "the run is complete" in ran.err


def test_failure_does_not(tmp_path: Path) -> None:
    """It is asked for figures before and after, and that is all."""
    with proxy(KNOWN) as (url, asked):
        ran = run_to_end(tmp_path / "state", "false", options=["--proxy", url, "--id", "task"])
    assert ran.status == 1
    assert [one[0] for one in asked] == ["GET", "GET"]
    assert "to go on where it stopped: semel run --id task" in ran.err


@pytest.mark.parametrize(
    ("state", "said", "status"),
    [
        ("open", "run task goes on: 18 steps on record.", 0),
        ("complete", "run task was completed before: everything in it is replayed.", 0),
        ("expired", "The retention of run task is over: choose another --id.", 1),
    ],
)
def test_the_start_says_what_was_before(state: str, said: str, status: int, tmp_path: Path) -> None:
    """Of a run whose record is gone nothing is started."""
    with proxy({**KNOWN, "state": state}) as (url, _):
        options = ["--proxy", url, "--id", "task"]
        ran = run_to_end(tmp_path / "state", "touch", str(tmp_path / "ran"), options=options)
    assert ran.status == status
    assert said in ran.err
    assert (tmp_path / "ran").exists() == (status == 0)


def test_without_figures_the_run_goes_on_and_the_summary_says_why(tmp_path: Path) -> None:
    """A proxy that does not have that API fails nobody."""
    with proxy(None, 404) as (url, _):
        ran = run_to_end(tmp_path / "state", "true", options=["--proxy", url, "--id", "task"])
    assert ran.status == 0
    assert "warning: no call of this run is on record" in ran.err
    assert "the run is complete" not in ran.err


# ---- further attempts ----


def test_pauses_double_up_to_a_minute_and_differ() -> None:
    """By a quarter more or less."""
    assert [pause_before(number, 0.5) for number in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (pause_before(1, 0.0), pause_before(1, 1.0)) == (0.75, 1.25)
    assert pause_before(100_000, 1.0) == 75.0


FAILS_ONCE = """
import os, pathlib, sys
log = pathlib.Path("attempts")
before = log.read_text() if log.exists() else ""
log.write_text(before + os.environ["SEMEL_ATTEMPT"] + "\\n")
print(os.environ["SEMEL_URL"].rpartition("+")[2] == os.environ["SEMEL_ATTEMPT"])
if not before:
    {first}
"""


@pytest.mark.parametrize("first", ["sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_failed_command_is_started_again_as_a_new_attempt(first: str, tmp_path: Path) -> None:
    """Also one that was killed; the status is the last one's."""
    command = python(FAILS_ONCE.format(first=first))
    ran = run_to_end(tmp_path / "state", *command, options=["--retries", "3", "--json", "--id", "task"])
    assert (ran.status, ran.out) == (0, "True\nTrue\n")
    names = (tmp_path / "attempts").read_text().split()
    assert len(set(names)) == 2
    summary = json.loads(ran.err.splitlines()[-1])
    assert (summary["attempts"], summary["attempt"]) == (2, names[1])


def test_retries_are_bounded_and_the_last_status_is_given(tmp_path: Path) -> None:
    """One retry is two starts."""
    script = "echo x >> attempts; exit $(wc -l < attempts)"
    ran = run_to_end(tmp_path / "state", "sh", "-c", script, options=["--retries", "1"])
    assert ran.status == 2
    assert (tmp_path / "attempts").read_text() == "x\nx\n"
    assert len(re.findall("the next attempt is in", ran.err)) == 1


def test_a_command_that_cannot_be_started_is_not_tried_again(tmp_path: Path) -> None:
    """It would not be found the next time either."""
    ran = run_to_end(tmp_path / "state", "no-such-command", options=["--retries", "9"])
    assert ran.status == 127
    assert "the next attempt" not in ran.err
