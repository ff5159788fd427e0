"""The servers that keep a record, as players of a round: what the tests have of them, with one face."""

from __future__ import annotations

import signal

from tests.servers.postgres import PostgresServer, children_of
from tests.servers.valkey import Valkey


class Postgres:
    """SIGTERM would wait for semel to go: whoever is in a hurry says SIGQUIT."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.start, self.kill, self.end = server.start, server.kill, server.stop

    @property
    def port(self) -> int:
        return self._server.port

    def processes(self) -> list[int]:
        """The postmaster first: it would start others."""
        return [self._server.pid, *children_of(self._server.pid)]


class ValkeyServer:
    def __init__(self, server: Valkey) -> None:
        self._server = server
        self.start, self.kill = server.start, server.kill

    @property
    def port(self) -> int:
        return self._server.port

    def end(self) -> None:
        assert self._server.process is not None
        self._server.process.send_signal(signal.SIGTERM)
        self._server.process.wait()

    def processes(self) -> list[int]:
        assert self._server.process is not None
        return [self._server.process.pid]
