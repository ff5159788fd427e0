"""The proxy behind `semel run`: one of its own, for its lifetime, or one that runs already.

Our own is in a session of its own, so that Ctrl-C reaches the agent and not the proxy, which ends after it.
If it dies it is started again on the same port, a bounded number of times: the agent's variables name it.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import select
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult

from proxy.cli.output import USAGE, Refused
from proxy.cli.run_agent import Ending
from proxy.cli.run_signals import ENDING, Waiting
from proxy.cli.run_telling import Teller
from proxy.errors import ConfigurationError

READY = "semel is ready on "
# Seconds. A start takes a fraction of one; a machine under load may take its time.
START_PATIENCE = 30.0
# A proxy gives its calls 30 s to finish, and then needs a moment to write down what became of them.
STOP_PATIENCE = 45.0
ASK_PATIENCE = 5.0
# Before each further start in a row. One that has lived for STEADY seconds begins a new row.
PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0)
STEADY = 60.0


class Proxy(Protocol):
    url: str
    restarts: int

    def tend(self, now: float) -> float | None:
        """Look after it; when to look again at the latest."""
        ...

    def stop(self, signals: Waiting) -> None: ...


class GivenProxy:
    """One that others started, and that lives on."""

    restarts = 0

    def __init__(self, url: str) -> None:
        from proxy.admin.remote import address

        parts = address(url)
        if parts.path not in ("", "/"):
            raise ConfigurationError("--proxy: write it as http://HOST:PORT, without a path.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._require_ready(parts)

    def _require_ready(self, parts: SplitResult) -> None:
        """Before the agent starts: its first call is a bad place to find out."""
        connection = connect(parts, ASK_PATIENCE)
        try:
            connection.request("GET", "/readyz", headers={"Connection": "close"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Refused(
                f"No semel answers at {self.url}: {why}. Start one there (`semel serve`), or leave out "
                "--proxy. The command was not started."
            ) from None
        finally:
            connection.close()
        if status != 200:
            what = "its store does not answer" if status == 503 else "is it a semel?"
            raise Refused(
                f"{self.url} is not ready (/readyz gives {status}): {what} The command was not started."
            )

    def tend(self, now: float) -> float | None:
        return None

    def stop(self, signals: Waiting) -> None:
        pass


class OwnProxy:
    """`arguments` are those of `semel serve`, without --listen."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], teller: Teller) -> None:
        self.restarts = 0
        self._arguments, self._environment, self._teller = tuple(arguments), environment, teller
        self._in_a_row = 0
        self._due: float | None = None
        self._told = b""
        self._process = self._spawn("127.0.0.1:0", subprocess.PIPE)
        self.url = self._first_line()

    def _spawn(self, listen: str, stdout: int) -> subprocess.Popen[bytes]:
        # -P: a folder named proxy, where the agent works, is not ours.
        command = [sys.executable, "-P", "-m", "proxy.cli.run_lifeline", "--listen", listen, *self._arguments]
        process = subprocess.Popen(  # noqa: S603 (ourselves)
            command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        self._born, self._listened_to = time.monotonic(), False
        return process

    def _first_line(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], START_PATIENCE)
        line = stdout.readline().decode(errors="replace") if readable else ""
        if READY in line:
            return line.rsplit(READY, 1)[1].strip()
        if not readable:
            self._process.kill()
            why = f"it was not ready after {START_PATIENCE:.0f} s"
        else:
            why = "it ended"
        status = self._process.wait()
        assert self._process.stderr is not None
        told = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        kind = ConfigurationError if status == USAGE else Refused
        raise kind(f"The proxy did not start: {why}. The command was not started. {told}".rstrip())

    # ---- while the agent runs ----

    def tend(self, now: float) -> float | None:
        """All signals are blocked by now, SIGIO too, which says that there is something to read."""
        self._read_log()
        if self._due is None and self._process.returncode is None and self._process.poll() is not None:
            self._plan_next_start(now)
        if self._due is not None and now >= self._due:
            self._due = None
            self._process = self._spawn(self.url.rpartition("/")[2], subprocess.DEVNULL)
            self._read_log()
        return self._due

    def _plan_next_start(self, now: float) -> None:
        self._close()
        if now - self._born >= STEADY:
            self._in_a_row = 0
        how = _how_it_ended(self._process.returncode)
        if self._in_a_row == len(PAUSES):
            self._teller.warn(
                f"the proxy {how} again and is not started any more; the agent's calls will fail. Nothing "
                "that it has recorded is lost."
            )
            return
        self._due = now + PAUSES[self._in_a_row]
        self._in_a_row += 1
        self.restarts += 1
        self._teller.warn(
            f"the proxy {how}; it is started again on the same port ({self._in_a_row} of {len(PAUSES)})."
        )

    def _read_log(self) -> None:
        stderr = self._process.stderr
        if stderr is None or stderr.closed:
            return
        if not self._listened_to:
            self._listened_to = True
            fcntl.fcntl(stderr, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(stderr, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        try:
            while part := os.read(stderr.fileno(), 1 << 16):
                self._told += part
        except BlockingIOError:
            pass
        *lines, self._told = self._told.split(b"\n")
        for line in lines:
            self._teller.of_proxy(line.decode(errors="replace"))

    def stop(self, signals: Waiting) -> None:
        """Calls in flight are finished. Who is in a hurry signals again: then they are marked."""
        until = time.monotonic() + STOP_PATIENCE
        if self._process.returncode is None:
            self._process.terminate()
        while self._process.poll() is None:
            arrived = signals.wait(until - time.monotonic())
            self._read_log()
            if arrived is None:
                self._teller.warn("the proxy does not end and is killed. Its calls are held as in doubt.")
                self._process.kill()
                until += STOP_PATIENCE
            elif arrived.number in ENDING:
                self._process.terminate()
        self._read_log()
        self._close()

    def _close(self) -> None:
        self._read_log()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _how_it_ended(status: int) -> str:
    return str(Ending(status=max(status, 0), signal=max(-status, 0)))


def connect(parts: SplitResult, patience: float) -> http.client.HTTPConnection:
    """No proxy of the environment stands between: it may be the very one that is asked."""
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=patience, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=patience)


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """It imports what we import, wherever we were started."""
    return {**environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)}
