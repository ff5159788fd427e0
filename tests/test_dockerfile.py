"""The Dockerfile: clean for its linter, and its steps carried out in a scratch directory.

There is no container engine here. What is not shown: the base image, the user, the volume, the port. What is:
every RUN step but `useradd`, the entry point, the health check and the stop signal, as they are written.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.store.database import FILE_NAME
from tests import dockerfile
from tests.dockerfile import ROOT, Scratch, Stage, Step

STAGES = dockerfile.read(ROOT / "Dockerfile")
BUILD, LAST = STAGES
LISTEN = "0.0.0.0:8080"
POLICY = "upstream: nowhere\nbase_url: http://127.0.0.1:{closed}\n"


def only(word: str, steps: list[Step] = LAST) -> Step:
    (found,) = [step for step in steps if step.word == word]
    return found


def test_the_linter_has_nothing_to_say() -> None:
    """hadolint, with no rule switched off."""
    text = (ROOT / "Dockerfile").read_text()
    assert "hadolint ignore" not in text
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    assert hadolint is not None, "hadolint comes with the development requirements: `make install`"
    done = subprocess.run(
        [hadolint, "--no-color", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_last_stage_has_no_root_no_sources_and_no_build() -> None:
    """Nothing is copied into it, nothing is fetched, and the user is the one that was made."""
    assert [step for step in LAST if step.word in ("COPY", "ADD")] == []
    made = re.search(r"useradd .*--uid (\d+) --user-group", " ".join(step.text for step in LAST))
    assert made is not None
    assert only("USER").text == f"{made[1]}:{made[1]}"
    assert LAST.index(only("USER")) > max(LAST.index(step) for step in LAST if step.word == "RUN")
    (installing,) = [step.text for step in LAST if step.text.startswith("pip ")]
    assert "--no-index" in installing
    assert "apt-get" not in " ".join(step.text for step in LAST)


def test_signals_reach_semel_and_the_record_is_on_the_volume() -> None:
    """Exec forms, one state directory everywhere, the port that is exposed and asked."""
    for word in ("ENTRYPOINT", "CMD"):
        assert only(word).text.startswith("[")
    command = only("CMD").words
    (volume,) = only("VOLUME").words
    assert command[command.index("--state-dir") + 1] == volume
    assert f"SEMEL_STATE={volume}" in only("ENV").words
    port = only("EXPOSE").text
    assert command[command.index("--listen") + 1] == f"0.0.0.0:{port}" == LISTEN
    assert f"'127.0.0.1', {port}" in only("HEALTHCHECK").text
    assert "--first-token" in command


def test_only_what_is_copied_reaches_the_build() -> None:
    """.dockerignore lets through exactly the sources of COPY: no tests, no history, no state."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_through = {line[1:].rstrip("/") for line in rules if line.startswith("!")}
    copied = {source.rstrip("/") for step in BUILD if step.word == "COPY" for source in step.words[:-1]}
    assert let_through == copied
    assert rules[-2:] == ["**/__pycache__/", "**/*.pyc"]


@pytest.fixture
def image(tmp_path: Path) -> Stage:
    """Built once, for the one test that needs it: it takes half a minute."""
    if not dockerfile.package_index_is_there(tmp_path / "asked"):
        pytest.skip("needs a package index, as the Dockerfile's first stage does")
    scratch = Scratch(tmp_path / "image")
    return [scratch.build(steps) for steps in STAGES][-1]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def healthy(image: Stage, port: int) -> bool:
    """HEALTHCHECK's own command, on the port of this test."""
    form, command = only("HEALTHCHECK").text.split(" ", 1)
    assert form == "CMD"
    words = [word.replace("8080", str(port)) for word in Step("CMD", {}, command).words]
    done = subprocess.run(words, env=image.env, cwd=image.root, capture_output=True, timeout=20, check=False)
    assert done.returncode in (0, 1)  # what an engine understands
    return done.returncode == 0


def command(image: Stage, port: int) -> list[str]:
    """ENTRYPOINT and CMD; the address is loopback here, since a test opens no port to other machines."""
    words = only("ENTRYPOINT").words + only("CMD").words
    words = [f"127.0.0.1:{port}" if word == LISTEN else image.mapped(word) for word in words]
    path = shutil.which(words[0], path=image.env["PATH"])
    assert path is not None
    assert Path(path).is_relative_to(image.root)  # what was installed by the steps, not what lies here
    return [path, *words[1:]]


@contextmanager
def mounted(image: Stage) -> Iterator[Path]:
    """A policy where the page on containers says to put one; nothing listens at its upstream."""
    policy = Path(image.mapped("/etc/semel/policies")) / "nowhere.yaml"
    policy.write_text(POLICY.format(closed=free_port()))
    try:
        yield policy
    finally:
        policy.unlink()


@contextmanager
def running(image: Stage, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(image, port), env=image.env, cwd=image.root, stdout=out, stderr=out
        )
    try:
        until = time.monotonic() + 60
        while not healthy(image, port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def status_of(url: str, token: str | None) -> int:
    request = urllib.request.Request(url, headers={"Semel-Token": token} if token else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_steps_give_a_semel_that_starts_is_healthy_and_stops(image: Stage, tmp_path: Path) -> None:
    """Twice on one volume, and once without the policies that should be mounted. What is left out of the
    steps is what needs root: another such step cannot be added unnoticed."""
    assert [command.split()[0] for command in image.left_out] == ["useradd", "install"]
    starts_knows_its_tokens_and_stops(image, tmp_path)
    says_where_to_put_a_policy(image)


def starts_knows_its_tokens_and_stops(image: Stage, tmp_path: Path) -> None:
    """The first start prints its tokens once and lets in only them; SIGTERM ends it with 0; so does the next
    start, which prints none and still knows them."""
    port = free_port()
    assert not healthy(image, port)  # the check can fail
    tokens: dict[str, str] = {}
    for start in ("first", "second"):
        log = tmp_path / f"{start}.log"
        with mounted(image), running(image, port, log) as process:
            said = log.read_text()
            printed = dict(re.findall(r"^(agent|operator) token\b.*: (semel_\S+)$", said, re.MULTILINE))
            assert set(printed) == ({"agent", "operator"} if start == "first" else set()), said
            tokens |= printed
            proxy = f"http://127.0.0.1:{port}"
            assert [
                status_of(f"{proxy}/nowhere/", token) for token in (None, tokens["operator"], tokens["agent"])
            ] == [401, 403, 502]
            assert status_of(f"{proxy}/metrics", tokens["operator"]) == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(45) == 0, log.read_text()
    state = Path(image.mapped(only("VOLUME").words[0]))
    assert (state / FILE_NAME).is_file()
    assert state.stat().st_mode & 0o777 == 0o700


def says_where_to_put_a_policy(image: Stage) -> None:
    """An image started without its mount ends at once, with the directory in the message."""
    done = subprocess.run(
        command(image, free_port()),
        env=image.env,
        cwd=image.root,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "/etc/semel/policies:1:1: the directory has no *.yaml or *.yml file" in done.stderr
