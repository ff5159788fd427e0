"""A full disk and a failing sync, end to end: nothing is sent without an intent, the caller is told 503, and
when the disk is well again, so is semel."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.scene import Kind, ask, policy, told, write_policy
from tests.crash.tracing import SystemCall, finished, need_strace, parse, strace
from tests.inside import call
from tests.origin import READ_ALL, Origin, Script, answer
from tests.process import SemelProcess

OK: Script = (*READ_ALL, answer(200, b"fine"))
LARGE = b'{"n": "%b"}' % (b"x" * 100_000)
TRIES = 60


@contextlib.contextmanager
def small_disk(directory: Path, size: str = "2m") -> Iterator[None]:
    """A file system of its own. Needs root, and a kernel that lets root mount."""
    directory.mkdir()
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("a small disk needs mount and tmpfs")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "semel-test", str(directory)],
        capture_output=True,
        check=False,
        timeout=30,
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, timeout=30)


def fill(path: Path) -> None:
    """Until not one byte more fits."""
    with path.open("wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)


@pytest.mark.parametrize("body", [b'{"n": 1}', LARGE], ids=["small", "blob"])
async def test_a_full_disk(body: bytes, tmp_path: Path) -> None:
    """503 and nothing sent while it is full; recorded calls replay; with space everything works again."""
    state = tmp_path / "state"
    async with Origin(OK) as origin:
        with small_disk(state):
            policies = write_policy(tmp_path, policy(origin.port))
            async with SemelProcess(state, policies) as semel:
                assert told(await ask(semel.port, Kind.D, b'{"n": 0}')) == "executed 200"
                assert await semel.stop() == 0
            # A new process: its log is empty, so there is no room that it could make by emptying the log.
            async with SemelProcess(state, policies) as semel:
                fill(state / "filler")
                for _ in range(3):
                    assert told(await ask(semel.port, Kind.D, body)) == "store-unavailable 503"
                assert origin.started == 1
                assert (await call(semel.port, "GET", "/readyz")).status == 503
                assert told(await ask(semel.port, Kind.D, b'{"n": 0}')) == "replayed 200"
                (state / "filler").unlink()
                await until_executed(semel, body)
                assert told(await ask(semel.port, Kind.D, body)) == "replayed 200"
                assert origin.started == 2
                assert (await call(semel.port, "GET", "/readyz")).status == 200


async def test_a_disk_that_fills_up_between_intent_and_answer(tmp_path: Path) -> None:
    """The end is withheld until there is space; then the very answer is recorded and handed on."""
    state = tmp_path / "state"
    words = b"w" * 500_000
    async with Origin((*READ_ALL, answer(200, words))) as origin:
        with small_disk(state):
            policies = write_policy(tmp_path, policy(origin.port, idle="1s", total="1s"))
            async with SemelProcess(state, policies) as semel:
                assert told(await ask(semel.port, Kind.D, b'{"n": 0}')) == "executed 200"
                with (state / "filler").open(
                    "wb"
                ) as filler:  # leaves room for an intent, not for this answer
                    filler.write(b"x" * (shutil.disk_usage(state).free - 200_000))
                cut = await ask(semel.port, Kind.D)
                assert told(cut) == "a break"
                assert len(cut.body) < len(words)
                (state / "filler").unlink()
                again = await ask(semel.port, Kind.D)
                while told(again) == "in-progress 409":
                    again = await ask(semel.port, Kind.D)
                assert (told(again), again.body) == ("replayed 200", words)
                assert origin.started == 2


@pytest.mark.parametrize("kind", [Kind.A, Kind.D])
async def test_a_sync_of_the_ledger_that_fails(kind: Kind, tmp_path: Path) -> None:
    """EIO from fdatasync, injected by strace. Effects: 503 while it fails, nothing sent; safe: passed. Then
    all is well again, and no file was written on after its sync had failed.

    strace counts per thread. Opening the ledger takes about ten syncs in a thread of its own, so a window
    that begins later is met by the writer alone; pings use up what comes before it.
    """
    need_strace()
    inject = "inject=fdatasync:error=EIO:when=20..29"
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        prefix = strace(tmp_path / "trace", "-e", "trace=fdatasync,pwrite64,close", "-e", inject)
        async with SemelProcess(tmp_path / "state", policies, prefix=prefix) as semel:
            await until_not_ready(semel)
            refused = await until_executed(semel, b'{"n": 1}', kind)
            assert refused >= 1
            assert origin.started == 1 + (refused if kind.safe else 0)
            assert told(await ask(semel.port, kind, b'{"n": 1}')) == "replayed 200"
            assert (await call(semel.port, "GET", "/readyz")).status == 200
            assert await semel.stop() == 0
            text = await finished(tmp_path / "trace", semel.pid)
        assert origin.started == 1 + (refused if kind.safe else 0)
    assert written_after_failed_syncs(parse(text)) == (10, [])


def written_after_failed_syncs(calls: list[SystemCall]) -> tuple[int, list[SystemCall]]:
    """How many syncs failed, and every write to a file between its failed sync and its closing."""
    failed, distrusted, written = 0, set[str](), []
    for call_ in calls:
        file = call_.args.split(",", 1)[0]  # 15</…/ledger.sqlite-wal>
        if call_.name == "fdatasync" and not call_.worked:
            failed += 1
            distrusted.add(file)
        elif call_.name == "close":
            distrusted.discard(file)
        elif file in distrusted:
            written.append(call_)
    return failed, written


def test_a_write_after_a_failed_sync_would_be_seen() -> None:
    """The check above can fail."""
    fd = "15</state/ledger.sqlite-wal>"
    text = f'7 1.0 fdatasync({fd}) = -1 EIO (INJECTED)\n7 1.1 pwrite64({fd}, "x", 1, 0) = 1\n'
    assert len(written_after_failed_syncs(parse(text))[1]) == 1
    closed = text.replace("7 1.1", f"7 1.1 close({fd}) = 0\n7 1.2")
    assert written_after_failed_syncs(parse(closed)) == (1, [])


async def test_a_sync_of_a_blob_that_fails(tmp_path: Path) -> None:
    """The same for the fsync of a large request's body: no row may name what is not there."""
    need_strace()
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        prefix = strace(tmp_path / "trace", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1..2")
        async with SemelProcess(tmp_path / "state", policies, prefix=prefix) as semel:
            assert told(await ask(semel.port, Kind.D, LARGE)) == "store-unavailable 503"
            assert origin.started == 0
            await until_executed(semel, LARGE)
            assert told(await ask(semel.port, Kind.D, LARGE)) == "replayed 200"
            assert origin.started == 1
        assert "EIO" in (tmp_path / "trace").read_text()


async def until_not_ready(semel: SemelProcess) -> None:
    for _ in range(TRIES):
        if (await call(semel.port, "GET", "/readyz")).status == 503:
            return
    raise AssertionError("the injected error never came")


async def until_executed(semel: SemelProcess, body: bytes, kind: Kind = Kind.D) -> int:
    """How often the caller was told 503 before (a safe call: passed); nothing else may come in between."""
    for refused in range(TRIES):
        words = told(await ask(semel.port, kind, body))
        if words == "executed 200":
            return refused
        assert words == ("passed 200" if kind.safe else "store-unavailable 503")
    raise AssertionError("the disk is well again, and calls do not work")
