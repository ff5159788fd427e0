"""For all tests: Hypothesis judges what is right, not how fast a busy machine is, and says how to repeat.

Real servers are started by the first test that needs one, and ended with the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from proxy.store.opening import Place
from tests import ambient
from tests.exchange.bridge import NEVER, grounds
from tests.exchange.ground import standing_on
from tests.servers.postgres import PostgresServer, postgres
from tests.servers.valkey import Valkey, valkey

settings.register_profile(
    "semel", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("semel")

# Of the variants of a test that runs on every store, one in so many runs beside the one at home in the
# ordinary suite; a test that has no other variants runs on one of the two, one in three such tests. A soak
# runs all of them.
# A store for a module costs the start of a process.
SAMPLED = {"any_store": 40, "some_store": 40, "any_stage": 40, "module_store": 60, "forward_store": 40}
# Whole files of which `make test` takes one test in so many: each of these starts processes, waits for them
# to die, and takes seconds. TEST_EVERY=1, as .ci/run has it, takes them all.
EVERY = bool(os.environ.get("TEST_EVERY"))
DRAWN = {
    "tests/admin/test_openapi.py": 2,
    "tests/admin/test_runs.py": 2,
    "tests/browser/test_approving.py": 2,
    "tests/browser/test_deciding.py": 5,
    "tests/browser/test_finding.py": 3,
    "tests/browser/test_injection.py": 5,
    "tests/browser/test_signing_in.py": 5,
    "tests/browser/test_trouble.py": 3,
    "tests/cli/test_demo.py": 8,
    "tests/cli/test_explain_like.py": 2,
    "tests/cli/test_explain_run.py": 2,
    "tests/cli/test_keys.py": 4,
    "tests/cli/test_run_again.py": 2,
    "tests/cli/test_run_figures.py": 2,
    "tests/cli/test_run_process.py": 7,
    "tests/cli/test_run_proxy.py": 5,
    "tests/cli/test_run_signals.py": 4,
    "tests/cli/test_runs.py": 2,
    "tests/cli/test_store_copy.py": 3,
    "tests/cli/test_workers.py": 3,
    "tests/core/test_jsonrpc.py": 2,
    "tests/core/test_sse_events.py": 2,
    "tests/crash/test_disk_trouble.py": 2,
    "tests/crash/test_fault_matrix.py": 9,
    "tests/crash/test_owners.py": 5,
    "tests/crash/test_settled_kinds.py": 10,
    "tests/crash/test_shutdown.py": 2,
    "tests/crash/test_store_rows.py": 2,
    "tests/crash/test_upstream_rows.py": 2,
    "tests/dashboards/test_alerts.py": 4,
    "tests/dashboards/test_killed_worker.py": 4,
    "tests/dashboards/test_pictures.py": 12,
    "tests/demo/test_act_two.py": 4,
    "tests/forward/test_connect.py": 2,
    "tests/http/test_approval.py": 2,
    "tests/http/test_bombs.py": 2,
    "tests/http/test_encryption.py": 2,
    "tests/http/test_metrics_truth.py": 3,
    "tests/http/test_planted.py": 6,
    "tests/http/test_rotation.py": 3,
    "tests/http/test_slow_callers.py": 5,
    "tests/http/test_upstream_time.py": 2,
    "tests/mcp/test_annotations.py": 2,
    "tests/mcp/test_bodies.py": 2,
    "tests/mcp/test_bridge_cancelling.py": 3,
    "tests/mcp/test_bridge_cli.py": 3,
    "tests/mcp/test_bridge_ends.py": 8,
    "tests/mcp/test_bridge_exact.py": 4,
    "tests/mcp/test_bridge_malformed.py": 3,
    "tests/mcp/test_bridge_many_tools.py": 3,
    "tests/mcp/test_bridge_races.py": 4,
    "tests/mcp/test_bridge_rules.py": 2,
    "tests/mcp/test_bridge_talk.py": 5,
    "tests/mcp/test_cancelling.py": 2,
    "tests/mcp/test_everything.py": 4,
    "tests/mcp/test_explain.py": 2,
    "tests/mcp/test_finality.py": 2,
    "tests/mcp/test_found_bridge.py": 2,
    "tests/mcp/test_late_answers.py": 3,
    "tests/mcp/test_lifecycle.py": 2,
    "tests/mcp/test_lost_streams.py": 2,
    "tests/mcp/test_many_tools.py": 4,
    "tests/mcp/test_servers.py": 2,
    "tests/mcp/test_several_semels.py": 2,
    "tests/mcp/test_stateful.py": 2,
    "tests/mcp/test_two_processes.py": 2,
    "tests/notifying/test_after_a_crash.py": 2,
    "tests/notifying/test_hook.py": 2,
    "tests/presets/test_answers.py": 5,
    "tests/presets/test_redacted.py": 2,
    "tests/runs/test_killed.py": 2,
    "tests/sdk/test_boto3.py": 4,
    "tests/sdk/test_boto3_killed.py": 2,
    "tests/sdk/test_http_clients.py": 2,
    "tests/sdk/test_langgraph.py": 2,
    "tests/sdk/test_messaging.py": 4,
    "tests/sdk/test_model_sdks.py": 3,
    "tests/sdk/test_slack_sdk.py": 4,
    "tests/sdk/test_stripe.py": 3,
    "tests/stores/test_copying.py": 5,
    "tests/stores/test_model.py": 2,
    "tests/stores/test_postgres.py": 4,
    "tests/stores/test_postgres_faults.py": 6,
    "tests/stores/test_postgres_pooled.py": 5,
    "tests/stores/test_postgres_processes.py": 4,
    "tests/stores/test_postgres_serve.py": 6,
    "tests/stores/test_redis.py": 3,
    "tests/stores/test_redis_copying.py": 2,
    "tests/stores/test_redis_faults.py": 2,
    "tests/stores/test_redis_processes.py": 2,
    "tests/test_benchmarks.py": 3,
    "tests/test_compose.py": 3,
    "tests/test_dockerfile.py": 4,
    "tests/tools/test_decorator.py": 5,
    "tests/tools/test_doubt.py": 2,
    "tests/tools/test_langgraph.py": 11,
    "tests/tools/test_langgraph_errors.py": 3,
    "tests/tools/test_typescript.py": 3,
}
# By fixture: what always runs.
MODEL = "model"
AT_HOME = {
    "any_store": (ambient.EMBEDDED, "memory"),
    "some_store": (ambient.EMBEDDED,),
    "any_stage": (MODEL,),
    "module_store": (ambient.EMBEDDED,),
    "forward_store": ("memory",),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(item, "callspec", _NoVariant).params
        elsewhere = [name for name, home in AT_HOME.items() if name in params and params[name] not in home]
        if elsewhere and not _is_sampled(item.nodeid, params, SAMPLED[elsewhere[0]]):
            item.add_marker(pytest.mark.soak)
        drawn = item.get_closest_marker("one_in")
        one_in = DRAWN.get(item.nodeid.partition("::")[0], 1) if drawn is None else drawn.args[0]
        if not EVERY and crc32(item.nodeid.encode()) % one_in:
            item.add_marker(pytest.mark.soak)


def _is_sampled(node: str, params: Mapping[str, object], one_in: int) -> bool:
    if params.keys() != {"any_store"}:
        return crc32(node.encode()) % one_in == 0
    of_test = crc32(node.partition("[")[0].encode())
    return of_test % 3 == 0 and params["any_store"] == ("postgres", "redis")[of_test % 2]


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


@pytest.fixture(params=[MODEL, *STORES])
def any_stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """The staged processes of this test keep their record there; every `World` is another record."""
    if request.param == MODEL:
        yield
        return
    numbers = count()
    with ExitStack() as after:

        def place() -> Place:
            n = next(numbers)
            address, state = _another(request, n, after), tmp_path / f"world{n}"
            return Place(store=address, state=state, heartbeat=NEVER, dead_after=NEVER)

        with grounds(place) as new, standing_on(new):
            yield


def _another(request: pytest.FixtureRequest, n: int, after: ExitStack) -> str:
    """The address of the n-th record of a test."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        name = server.new_database()
        after.callback(server.drop, name)
        return server.url(name)
    if request.param == "redis":
        redis: Valkey = request.getfixturevalue("valkey_server")
        if n == 0:
            redis.ask("FLUSHALL")
        return f"{redis.url.removesuffix('/0')}/{n}"
    return ambient.EMBEDDED


@pytest.fixture(scope="module", params=STORES)
def module_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests that share a semel."""
    with ExitStack() as after, ambient.kept_in(_another(request, 0, after)):
        yield


@pytest.fixture(params=STORES)
def any_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """Semels of this test keep their record there."""
    with kept_as_named(request):
        yield


@pytest.fixture(params=STORES)
def some_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same for what has little to do with the record: only a sample runs elsewhere in the ordinary
    suite."""
    with kept_as_named(request):
        yield


@contextmanager
def kept_as_named(request: pytest.FixtureRequest) -> Iterator[None]:
    fixture = STORES.get(request.param)
    with ambient.kept_in(request.param if fixture is None else request.getfixturevalue(fixture)):
        yield
