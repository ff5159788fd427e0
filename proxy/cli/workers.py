"""`semel serve --workers N`: one process that starts N others on one address, and starts them again.

The supervisor serves nothing and keeps no record: it forks, waits, and hands signals on. A worker that dies
is replaced; what it had under way is recovered by the others, as after any crash. A worker whose supervisor
is gone ends as if it had been told to.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import orjson

from proxy.cli.output import REFUSED, USAGE, warn
from proxy.cli.serving import cannot_listen, say_ready, serve
from proxy.errors import ConfigurationError
from proxy.settings import Address, Settings
from proxy.siblings import Place

# A worker that dies at once is not started at once again: first so soon, then twice as late, at most so late.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
LONG_PATH = 70
# One that has lived so long died of something else.
LIVED = 5.0


_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int
    started_at: float
    telling: int  # where it tells that it is ready; -1 afterwards
    pause: float = FIRST_PAUSE


class Supervisor:
    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._workers: dict[int, _Worker] = {}  # by pid
        self._due: dict[
            int, tuple[float, float]
        ] = {}  # by number: when to start it again, and the pause so far
        self._ready: set[int] = set()
        self._said_ready = False
        self._signals: list[int] = []
        self._stopping = False
        self._status = 0
        self._lifeline, self._alive = os.pipe()
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def run(self) -> int:
        for heard in _HEARD:
            signal.signal(heard, self._on_signal)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            for number in range(self._settings.workers):
                self._start(number, FIRST_PAUSE)
            while self._workers or (self._due and not self._stopping):
                self._wait()
                self._hand_on_signals()
                self._bury_the_dead()
                self._start_again()
            return self._status
        finally:
            signal.set_wakeup_fd(-1)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _wait(self) -> None:
        """For a signal, a worker that is ready, or the time to start one again."""
        telling = [worker.telling for worker in self._workers.values() if worker.telling >= 0]
        now = time.monotonic()
        timeout = min((max(0.0, at - now) for at, _ in self._due.values()), default=None)
        readable, _, _ = select.select([self._woken, *telling], [], [], None if self._stopping else timeout)
        if self._woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        for worker in self._workers.values():
            if worker.telling in readable:
                self._told(worker)

    def _told(self, worker: _Worker) -> None:
        if os.read(worker.telling, 1):
            self._ready.add(worker.number)
        os.close(worker.telling)
        worker.telling = -1
        if not self._said_ready and len(self._ready) == self._settings.workers:
            self._said_ready = True
            say_ready(self._settings.listen)

    def _hand_on_signals(self) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                self._tell_all(signal.SIGHUP)
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._stop()

    def _stop(self) -> None:
        """Again: in a hurry."""
        self._stopping = True
        self._due.clear()
        self._tell_all(signal.SIGTERM)

    def _tell_all(self, number: int) -> None:
        for pid in self._workers:
            os.kill(pid, number)  # not reaped yet, so it is still its own

    def _bury_the_dead(self) -> None:
        for pid in list(self._workers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._died(self._workers.pop(pid), os.waitstatus_to_exitcode(status))

    def _died(self, worker: _Worker, code: int) -> None:
        if worker.telling >= 0:
            os.close(worker.telling)
        if self._stopping:
            self._status = self._status or (REFUSED if code else 0)
        elif not self._said_ready:  # it has said why; the others would fail alike
            self._status = code if code > 0 else REFUSED
            self._stop()
        else:
            now = time.monotonic()
            pause = FIRST_PAUSE if now - worker.started_at > LIVED else min(2 * worker.pause, LONGEST_PAUSE)
            how = f"signal {-code}" if code < 0 else f"exit status {code}"
            _log("worker-died", worker=worker.number, pid=worker.pid, how=how, again_in=pause)
            self._due[worker.number] = (now + pause, pause)

    def _start_again(self) -> None:
        for number, (at, pause) in list(self._due.items()):
            if at <= time.monotonic():
                del self._due[number]
                self._start(number, pause)

    def _start(self, number: int, pause: float) -> None:
        telling, ready = os.pipe()
        # No signal may reach the child while it still has our handlers: it would be lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        pid = os.fork()
        if pid == 0:
            os.close(telling)
            self._be_worker(number, ready, before)
        os.close(ready)
        self._workers[pid] = _Worker(number, pid, time.monotonic(), telling, pause)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _be_worker(self, number: int, ready: int, mask: Iterable[int]) -> None:
        """In the child, and never back from here."""
        status = REFUSED
        try:
            self._let_go()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = serve(
                self._settings,
                tell_ready=lambda _: _say(ready),
                place=Place(self._directory, number, self._settings.workers),
                lifeline=self._lifeline,
            )
        except ConfigurationError as error:
            if number == 0 or self._said_ready:  # once is enough
                warn(str(error))
            status = USAGE
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _let_go(self) -> None:
        """Of what is the supervisor's. Ctrl-C reaches every process of a terminal, and is for it to hear."""
        signal.set_wakeup_fd(-1)
        for heard in _HEARD:
            signal.signal(heard, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        others = [worker.telling for worker in self._workers.values() if worker.telling >= 0]
        for descriptor in (self._alive, self._woken, self._wake, *others):
            os.close(descriptor)


def serve_with_workers(settings: Settings) -> int:
    if settings.store == "memory":
        raise ConfigurationError(
            "several workers need a store that they share: use embedded, postgres://… or redis://…."
        )
    # A socket's path may have some hundred characters, and some have a long TMPDIR.
    where = None if len(tempfile.gettempdir()) < LONG_PATH else "/tmp"  # noqa: S108 (made anew, for us alone)
    with (
        _address(settings.listen) as listen,
        tempfile.TemporaryDirectory(prefix="semel-", dir=where) as folder,
    ):
        each = -(-settings.limits.connections // settings.workers)
        limits = replace(settings.limits, connections=each)
        return Supervisor(replace(settings, listen=listen, limits=limits), Path(folder)).run()


@contextmanager
def _address(wanted: Address) -> Iterator[Address]:
    """Kept for the workers, and nobody else's: one that others share already is refused."""
    try:
        found = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(*found[:2]) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(found[4])
        with socket.socket(*found[:2]) as kept:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind(found[4])
            yield Address(wanted.host, kept.getsockname()[1])
    except OSError as error:
        raise cannot_listen(wanted, error) from None


def _say(ready: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever waited for it was killed: the lifeline says so too
        os.write(ready, b"+")
    os.close(ready)


def _log(event: str, **fields: object) -> None:
    """A line of the same log as the workers'."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with contextlib.suppress(OSError):
        os.write(2, orjson.dumps({"at": at, "event": event, **fields}) + b"\n")
