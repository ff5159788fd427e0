"""A log that nobody reads, or reads late: no call waits for it, no shutdown, and what is lost is counted."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy import log
from proxy.log import LogObserver
from tests.inside import call
from tests.process import READY, ROOT


@dataclass
class Pipe:
    """With `fill` it holds as much as it can: whoever writes next waits until somebody reads."""

    reader: int
    writer: int
    filled: int = 0

    def fill(self) -> None:
        os.set_blocking(self.writer, False)
        for size in (65536, 1):
            with suppress(BlockingIOError):
                while True:
                    self.filled += os.write(self.writer, b"x" * size)
        os.set_blocking(self.writer, True)

    def empty(self) -> list[dict[str, object]]:
        """What was written after `fill`; the writer's end must be closed elsewhere by now."""
        os.close(self.writer)
        self.writer = -1
        with os.fdopen(self.reader, "rb", closefd=False) as stream:
            return [json.loads(line) for line in stream.read()[self.filled :].splitlines()]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(*os.pipe())
    try:
        yield made
    finally:
        for end in (made.reader, made.writer):
            if end >= 0:
                os.close(end)


async def test_a_stderr_that_nobody_reads_costs_no_call_and_no_shutdown(tmp_path: Path, pipe: Pipe) -> None:
    """A real process with a full pipe: it answers, and it ends when it is told to."""
    policy = tmp_path / "up.yaml"
    policy.write_text("upstream: up\nbase_url: http://127.0.0.1:9\n")
    pipe.fill()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy.cli", "serve", "--listen", "127.0.0.1:0"),
        *("--state-dir", str(tmp_path / "state"), "--policies", str(policy)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=pipe.writer,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert line.startswith(READY)
        port = int(line.rsplit(":", 1)[1])
        for _ in range(50):
            assert (await call(port, "GET", "/nowhere/x", within=5)).status == 404
        assert (await call(port, "GET", "/healthz", within=5)).status == 200
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    """Every line is either there or in the count, and the count comes when the reader is back."""
    monkeypatch.setattr(log, "WAITING", 10)
    pipe.fill()
    with os.fdopen(os.dup(pipe.writer), "w") as stream:
        observer = LogObserver(stream)
        for number in range(30):
            observer.noted("something", number=number)
        assert os.read(pipe.reader, pipe.filled) == b"x" * pipe.filled
        pipe.filled = 0
        observer.close()
    *lines, dropped = pipe.empty()
    assert [line["number"] for line in lines] == list(range(len(lines)))
    assert (dropped["event"], dropped["lines"]) == ("log-lines-dropped", 30 - len(lines))
    assert len(lines) == 10


def test_a_log_that_recovers_goes_on(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    """The lines dropped are told once, then all is as before."""
    monkeypatch.setattr(log, "WAITING", 10)
    pipe.fill()
    with os.fdopen(os.dup(pipe.writer), "w") as stream:
        observer = LogObserver(stream)
        for number in range(15):
            observer.noted("early", number=number)
        got = os.read(pipe.reader, pipe.filled)
        while b"log-lines-dropped" not in got:
            got += os.read(pipe.reader, 65536)
        pipe.filled = 0
        observer.noted("late")
        observer.close()
    assert [line["event"] for line in pipe.empty()] == ["late"]


def test_a_log_that_is_stuck_is_left_behind(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    """Closing waits for a moment, not for a reader."""
    monkeypatch.setattr(log, "PATIENCE", 0.2)
    pipe.fill()
    with os.fdopen(os.dup(pipe.writer), "w") as stream:
        observer = LogObserver(stream)
        observer.noted("something")
        began = time.monotonic()
        observer.close()
        assert time.monotonic() - began < 5
        os.read(pipe.reader, pipe.filled)
        pipe.filled = 0
        observer.close()
        observer.noted("more")
        observer.close()
    assert [line["event"] for line in pipe.empty()] == ["something", "more"]


def test_a_descriptor_that_does_not_block_loses_nothing(pipe: Pipe) -> None:
    """Others share it and may have made it so; a short write is no reason to drop the rest."""
    os.set_blocking(pipe.writer, False)
    with os.fdopen(os.dup(pipe.writer), "w") as stream:
        observer = LogObserver(stream)
        for number in range(200):
            observer.noted("something", number=number, long="x" * 1000)
        got = b""
        while got.count(b"\n") < 200:
            got += os.read(pipe.reader, 65536)
        observer.close()
    assert [json.loads(line)["number"] for line in got.splitlines()] == list(range(200))


async def test_lines_come_by_themselves_and_at_the_end() -> None:
    """In a loop they are gathered for a moment; whoever closes the log has them all, in memory too."""
    stream = io.StringIO()
    observer = LogObserver(stream)
    observer.noted("first")
    assert stream.getvalue() == ""
    async with asyncio.timeout(10):
        while not stream.getvalue():
            await asyncio.sleep(0.002)
    observer.noted("second")
    observer.close()
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["first", "second"]
    observer.noted("third")
    observer.close()
    assert stream.getvalue().count("\n") == 3
