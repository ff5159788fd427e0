"""The promise of `semel run`, end to end: an agent that died takes the same path and sends nothing twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.test_run_process import Ran, Running, proxies_of, python, run_to_end, wait_until

# Three calls by SEMEL_URL and one by HTTP_PROXY; dies before the last two when it is told to.
AGENT = """
import os, sys, urllib.request
def post(url):
    request = urllib.request.Request(url, data=b"{}", headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        print(answer.headers["Semel-Status"], answer.read().decode(), flush=True)
origin = sys.argv[1]
post(os.environ["SEMEL_URL"] + "/toy/one")
post(os.environ["SEMEL_URL"] + "/toy/two")
if "DIE" in os.environ:
    os.kill(os.getpid(), 9)
post(os.environ["SEMEL_URL"] + "/toy/three")
post(origin + "/four")
"""
# One call that the origin holds back until it is let go.
WAITING = (
    AGENT.partition("origin =")[0]
    + """
print("port", os.environ["SEMEL_URL"].split("/")[2].split(":")[1], flush=True)
post(os.environ["SEMEL_URL"] + "/toy/wait")
"""
)


@dataclass
class Origin:
    url: str
    effects: list[str]
    let_go: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Counts effects, and numbers its answers by them."""
    effects: list[str] = []
    let_go = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            effects.append(self.path)
            if self.path == "/wait":
                assert let_go.wait(30)
            content = str(len(effects)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as its parent has it)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Origin(f"http://127.0.0.1:{server.server_address[1]}", effects, let_go)
    finally:
        let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def policy(origin: Origin, tmp_path: Path) -> Path:
    file = tmp_path / "toy.yaml"
    file.write_text(f"upstream: toy\nbase_url: {origin.url}\n")
    return file


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True


def test_an_agent_that_died_goes_on_where_it_stopped(origin: Origin, policy: Path, tmp_path: Path) -> None:
    """By base URL and by forward proxy. Then the run is complete, and a third start sends nothing at all."""

    def start(**env: str) -> tuple[Ran, dict[str, object]]:
        options = ["--id", "task", "--json", "--policies", str(policy)]
        ran = run_to_end(tmp_path / "state", *python(AGENT), origin.url, options=options, env=env)
        return ran, json.loads(ran.err.splitlines()[-1])

    died, summary = start(DIE="1")
    assert (died.status, died.out) == (-signal.SIGKILL, "executed 1\nexecuted 2\n"), died.err
    assert not summary["complete"]

    ended, summary = start()
    assert ended.out == "replayed 1\nreplayed 2\nexecuted 3\nexecuted 4\n", ended.err
    assert (ended.status, summary["complete"]) == (0, True)
    assert "semel: run task goes on: 2 steps on record." in ended.err.splitlines()
    figures = summary["figures"]
    assert isinstance(figures, dict)
    assert [figures[name] for name in ("steps", "replayed", "executed", "refused")] == [4, 2, 2, 0]

    again, _ = start()
    assert again.out == "replayed 1\nreplayed 2\nreplayed 3\nreplayed 4\n", again.err
    assert "semel: run task was completed before: everything in it is replayed." in again.err.splitlines()
    assert origin.effects == ["/one", "/two", "/three", "/four"]


def test_a_call_in_flight_when_the_agent_dies_is_finished(
    origin: Origin, policy: Path, tmp_path: Path
) -> None:
    """The proxy ends after it: the next attempt finds the answer and sends nothing."""
    state, options = tmp_path / "state", ["--policies", str(policy)]
    with Running(state, python(WAITING), options=options) as run:
        wait_until(lambda: origin.effects == ["/wait"], "the call")
        port = int(run.read_match(r"^port (\d+)\n"))
        (proxy,) = proxies_of(run.pid)
        agent = next(pid for pid in run._descendants() if pid != proxy)
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: not listens(port), "the proxy's stop")  # it takes no new calls, and waits
        origin.let_go.set()
        assert run.ended() == -signal.SIGKILL
    ran = run_to_end(state, *python(WAITING), options=["--id", "t", *options])
    assert (ran.status, ran.out.splitlines()[1:]) == (0, ["replayed 1"]), ran.err
    assert origin.effects == ["/wait"]


def test_a_proxy_killed_in_the_middle_of_a_call_leaves_it_in_doubt_and_says_what_to_do(
    origin: Origin, policy: Path, tmp_path: Path
) -> None:
    """The next start holds the call and does not send it again. (Whether the proxy comes back before the
    agent, whose connection broke, has ended is for chance to decide.)"""
    state, options = tmp_path / "state", ["--policies", str(policy)]
    with Running(state, python(WAITING), options=options) as run:
        wait_until(lambda: origin.effects == ["/wait"], "the call")
        (proxy,) = proxies_of(run.pid)
        os.kill(proxy, signal.SIGKILL)
        origin.let_go.set()
        assert run.ended() == 1  # the agent's connection broke, and it does not try again
    ran = run_to_end(state, *python(WAITING), options=["--id", "t", *options])
    assert ran.status == 1
    (told,) = [line for line in ran.own if line.startswith("in doubt: ")]
    assert f"--reason WHY --state-dir {state}" in told
    assert origin.effects == ["/wait"]
