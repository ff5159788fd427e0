"""A real PostgreSQL, started by the first test that needs one and ended with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a fresh one."""
    name = postgres_server.new_database()
    yield name
    postgres_server.drop(name)
