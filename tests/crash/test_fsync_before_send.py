"""The promise in system calls, read from a trace of a real process: the intent is on the disk before the
first byte goes upstream, the answer before the last byte goes to the caller."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.crash.scene import JSON, Kind, policy, write_policy
from tests.crash.tracing import SystemCall, finished, need_strace, parse, strace
from tests.inside import request_bytes
from tests.origin import READ_ALL, Origin, Wait, answer
from tests.process import SemelProcess

TRACED = "trace=fdatasync,fsync,write,pwrite64,sendto,sendmsg,writev,connect,rename"
SOCKET_WRITES = frozenset({"write", "writev", "sendto", "sendmsg"})
ASKED, ANSWERED = "the-intent-to-be-kept", "the-answer-to-be-kept"


class OutOfOrder(AssertionError):
    """What the trace shows breaks the promise."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One call through semel, as the kernel saw it."""

    calls: list[SystemCall]
    semel_port: int
    origin_port: int

    def to_upstream(self) -> list[SystemCall]:
        peer = re.compile(rf"\d+<TCP:\[[^]>]*->[^]>]*:{self.origin_port}\]>")
        return [call for call in self.calls if call.name in SOCKET_WRITES and peer.match(call.args)]

    def to_client(self) -> list[SystemCall]:
        local = re.compile(rf"\d+<TCP:\[[^]>]*:{self.semel_port}->")
        return [call for call in self.calls if call.name in SOCKET_WRITES and local.match(call.args)]

    def log_writes(self, marked: str) -> list[SystemCall]:
        """The writes of this text into the ledger's log."""
        return [
            call
            for call in self.calls
            if call.name == "pwrite64" and "ledger.sqlite-wal>" in call.args and marked in call.args
        ]

    def synced(self, write: SystemCall) -> SystemCall:
        """The first successful fdatasync of the log that began when the write was over."""
        for call in self.calls:
            log = call.name == "fdatasync" and "ledger.sqlite-wal>" in call.args
            if log and call.worked and call.began > write.ended:
                return call
        raise OutOfOrder("the log was never synced after the write")


def check(trace: Trace) -> None:
    """Raises OutOfOrder where the order is not the promised one."""
    intents, answers = trace.log_writes(ASKED), trace.log_writes(ANSWERED)
    if not intents or not answers:
        raise OutOfOrder("the intent or the answer was never written into the log")
    if not trace.synced(intents[0]).ended < trace.to_upstream()[0].began:
        raise OutOfOrder("a byte went upstream before the intent was on the disk")
    if not trace.synced(answers[0]).ended < trace.to_client()[-1].began:
        raise OutOfOrder("the caller got the end before the answer was on the disk")


async def record(
    tmp_path: Path, *, body: bytes, env: Mapping[str, str] | None = None
) -> tuple[str, int, int]:
    """One POST, its answer in two halves; the trace and the two ports."""
    seen, file = asyncio.Event(), tmp_path / "trace"
    words = answer(200, f"first half, {ANSWERED}".encode())
    half = len(ANSWERED)
    async with Origin((*READ_ALL, words[:-half], Wait(seen), words[-half:])) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        prefix = strace(file, "-e", TRACED)
        async with SemelProcess(tmp_path / "state", policies, prefix=prefix, env=env) as semel:
            reader, writer = await asyncio.open_connection("127.0.0.1", semel.port)
            writer.write(request_bytes("POST", Kind.D.target, JSON, body))
            await reader.readuntil(b"first half, ")
            seen.set()
            await reader.readuntil(ANSWERED.encode())
            writer.close()
            assert await semel.stop(signal.SIGTERM) == 0
            text = await finished(file, semel.pid)
        assert origin.started == 1
    return text, semel.port, origin.port


BODY = b'{"n": "%b"}' % ASKED.encode()


async def test_the_intent_is_synced_before_the_first_byte_and_the_answer_before_the_last(
    tmp_path: Path,
) -> None:
    """And the same check, over the same trace put out of order, says so."""
    need_strace()
    text, semel_port, origin_port = await record(tmp_path, body=BODY)
    trace = Trace(parse(text), semel_port, origin_port)
    check(trace)
    # It is the last byte that has to wait: the first half was handed on before there was an answer to keep.
    assert trace.to_client()[0].ended < trace.log_writes(ANSWERED)[0].began

    intent_sync = trace.synced(trace.log_writes(ASKED)[0])
    answer_sync = trace.synced(trace.log_writes(ANSWERED)[0])
    for sync, later, complaint in (
        (intent_sync, trace.to_upstream()[0], "upstream before"),
        (answer_sync, trace.to_client()[-1], "the end before"),
    ):
        with pytest.raises(OutOfOrder, match=complaint):
            check(Trace(parse(_moved_behind(text, sync, later)), semel_port, origin_port))
        with pytest.raises(OutOfOrder):
            check(Trace(parse(_failed(text, sync)), semel_port, origin_port))


async def test_without_synchronous_commits_the_check_fails(tmp_path: Path) -> None:
    """Show that the check can fail: a ledger opened with synchronous=OFF."""
    need_strace()
    text, semel_port, origin_port = await record(
        tmp_path, body=BODY, env={"TEST_PRAGMAS": '{"synchronous": "OFF"}'}
    )
    with pytest.raises(OutOfOrder):
        check(Trace(parse(text), semel_port, origin_port))


async def test_a_large_request_is_on_the_disk_before_the_row_that_names_it(tmp_path: Path) -> None:
    """The blob's content, its name and its directory, then the row, then the first byte."""
    need_strace()
    text, semel_port, origin_port = await record(tmp_path, body=b'{"n": "%b"}' % (b"x" * 100_000))
    trace = Trace(parse(text), semel_port, origin_port)
    first_byte = trace.to_upstream()[0]
    content = next(call for call in trace.calls if call.name == "fsync" and "/blobs/tmp/" in call.args)
    renamed = next(call for call in trace.calls if call.name == "rename" and "/blobs/tmp/" in call.args)
    named = next(
        call for call in trace.calls if call.name == "fsync" and re.search(r"/blobs/[0-9a-f]{2}>", call.args)
    )
    row = next(
        call
        for call in trace.calls
        if call.name == "pwrite64" and "ledger.sqlite-wal>" in call.args and call.began > content.began
    )
    steps = (content, renamed, named, row, trace.synced(row), first_byte)
    assert all(step.worked for step in steps)
    for earlier, later in pairwise(steps):
        assert earlier.ended < later.began, (earlier, later)


def _moved_behind(text: str, sync: SystemCall, later: SystemCall) -> str:
    """The trace of a semel that did not wait: the sync is over only after the later call began."""
    lines = text.splitlines()
    moved = [lines[position] for position in sorted({sync.began, sync.ended})]
    kept = [line for position, line in enumerate(lines) if position not in (sync.began, sync.ended)]
    behind = kept.index(lines[later.ended]) + 1
    return "\n".join([*kept[:behind], *moved, *kept[behind:]])


def _failed(text: str, sync: SystemCall) -> str:
    """The same trace, but this sync and all later ones reported an error."""
    lines = text.splitlines()
    for position in range(sync.ended, len(lines)):
        if "fdatasync" in lines[position]:
            lines[position] = re.sub(r"= 0$", "= -1 EIO (Input/output error)", lines[position])
    return "\n".join(lines)
