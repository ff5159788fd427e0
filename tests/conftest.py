"""For all tests: Hypothesis judges what is right, not how fast a busy machine is, and says how to repeat.

Real servers are started by the first test that needs one, and ended with the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests import ambient
from tests.servers.postgres import PostgresServer, postgres
from tests.servers.valkey import Valkey, valkey

settings.register_profile(
    "semel", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("semel")

# Of the variants of a test that runs on every store, one in so many runs beside the embedded store's in the
# ordinary suite; a soak runs all of them.
SAMPLED = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(item, "callspec", _NoVariant).params
        elsewhere = params.get("any_store", ambient.EMBEDDED) != ambient.EMBEDDED
        if elsewhere and len(params) > 1 and crc32(item.nodeid.encode()) % SAMPLED:
            item.add_marker(pytest.mark.soak)


class _NoVariant:
    params: ClassVar[dict[str, object]] = {}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a fresh one."""
    name = postgres_server.new_database()
    yield name
    postgres_server.drop(name)


@pytest.fixture
def postgres_address(postgres_server: PostgresServer, database: str) -> str:
    return postgres_server.url(database)


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def redis_address(valkey_server: Valkey) -> str:
    valkey_server.ask("FLUSHALL")
    return valkey_server.url


# By name: the fixture that gives its address; None for the one that needs none.
STORES = {"embedded": None, "postgres": "postgres_address", "redis": "redis_address"}


@pytest.fixture(params=STORES)
def any_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """Semels of this test keep their record there."""
    fixture = STORES[request.param]
    with ambient.kept_in(ambient.EMBEDDED if fixture is None else request.getfixturevalue(fixture)):
        yield
