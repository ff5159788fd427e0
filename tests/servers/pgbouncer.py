"""A real PgBouncer in transaction mode before a test's PostgreSQL, from the Debian package where it is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.servers.postgres import USER, PostgresServer, free_port, unprivileged

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 500
query_wait_timeout = 10
"""


def program() -> str | None:
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")


class PgBouncer:
    def __init__(self, server: PostgresServer) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="semel-pgbouncer-", dir="/tmp"))
        settings = self._directory / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(server=server.port, user=USER, port=self.port))
        if os.geteuid() == 0:
            for path in (self._directory, settings):
                shutil.chown(path, "nobody", "nogroup")
        found = program()
        assert found is not None
        self._process = subprocess.Popen(
            [found, "-q", str(settings)],
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **unprivileged(),  # type: ignore[call-overload]
        )
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._process.poll() is None, "PgBouncer ended while it started"
                assert time.monotonic() < until, "PgBouncer did not become ready"
                time.sleep(0.02)
            else:
                return

    def remove(self) -> None:
        self._process.kill()
        self._process.wait(30)
        shutil.rmtree(self._directory, ignore_errors=True)
