"""The OpenAPI document is true: what it allows is taken, what it forbids is refused, answers fit it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from proxy.admin.openapi import document
from proxy.admin.routes import PREFIX, ROUTES
from proxy.admin.schemas import COMPONENTS
from proxy.problem import PROBLEMS
from tests.admin.scene import FINE, JSON, LOST, Scene, scene
from tests.counts import SOAK, count
from tests.inside import call
from tests.origin import READ_ALL, Stall, answer

DOUBTS = count(40, 400)
BLOB = (*READ_ALL, answer(200, b"x" * 100_000))
REFUSED = (*READ_ALL, answer(429, b"later"))
STATES = {"done": 6, "in_doubt": DOUBTS, "released": 1, "pending": 1}

# 410: an answer that nobody has is no fault of whoever asks for it.
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "404", "409", "410"]}}}
)
SCHEMA = schemathesis.openapi.from_dict(document(), config=CONFIG)


@dataclass(slots=True)
class Running:
    """A semel in a thread of its own, with calls in every state."""

    directory: Path
    url: str = ""
    ids: Iterator[str] = field(default_factory=lambda: iter(()))
    failed: BaseException | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # told in the test's own thread
            self.failed = error
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        scripts = (FINE, FINE, FINE, BLOB, LOST, LOST, REFUSED, *[LOST] * DOUBTS, (*READ_ALL, Stall()))
        async with scene(self.directory, *scripts) as world:
            few, doubts, waiting = await seed(world)
            self.url, self.ids = world.url, cycle([one for doubt in doubts for one in (doubt, *few)])
            self.ready.set()
            await asyncio.to_thread(self.stop.wait)
            waiting.cancel()


async def seed(world: Scene) -> tuple[list[str], list[str], asyncio.Task[object]]:
    for ref in ("there+a1", "there+a2"):
        for number in (8, 9) if ref.endswith("1") else (8,):
            await call(world.port, "POST", f"/@{ref}/pay/charge", JSON, b'{"usd": %d}' % number)
    few = [await world.charged(1), await world.charged(2)]
    for number, said in ((3, {}), (4, {"status": 204})):
        few.append(await world.charged(number))
        decision = {"as": "executed", "reason": "r", **said}
        assert (await world.ask("POST", f"calls/{few[-1]}/resolve", decision)).status == 200
    few.append(await world.charged(5))
    doubts = [await world.charged(100 + number) for number in range(DOUBTS)]
    waiting: asyncio.Task[object] = asyncio.create_task(world.charge(6))
    async with asyncio.timeout(10):
        while not (pending := (await world.document("calls?state=pending"))["calls"]):
            await asyncio.sleep(0.01)
    few.append(pending[0]["id"])
    counted = (await world.document("stats"))["calls"]
    assert {state: counted[state] for state in STATES} == STATES
    return few, doubts, waiting


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("openapi"))
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        assert made.ready.wait(60)
        if made.failed is not None:
            raise made.failed
        yield made
    finally:
        made.stop.set()
        thread.join(30)
    assert made.failed is None


@SCHEMA.parametrize()
@settings(
    max_examples=count(25, 3000),
    deadline=None,
    derandomize=not SOAK,
    suppress_health_check=list(HealthCheck),
)
def test_the_api_keeps_to_its_document(case: schemathesis.Case[Any], running: Running) -> None:
    """Every operation, with what fits and what does not, on calls in every state."""
    given = case.path_parameters.get("id") if case.path_parameters else None
    if isinstance(given, str) and re.fullmatch("[0-9a-f]{32}", given):
        case.path_parameters["id"] = next(running.ids)
    on_a_run(case)
    # Where no tokens are configured, nobody is known to be an operator.
    refused = case.path.endswith(("/approve", "/deny"))
    case.call_and_validate(
        base_url=running.url, excluded_checks=[positive_data_acceptance] if refused else []
    )


def on_a_run(case: schemathesis.Case[Any]) -> None:
    """A name that fits becomes that of a run that is there. How many steps it has no schema can know."""
    run = case.path_parameters.get("run") if case.path_parameters else None
    if isinstance(run, str) and re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}", run):
        case.path_parameters["run"] = "there"
    body: Any = case.body
    at = body.get("at") if isinstance(body, dict) else None
    if isinstance(at, int | float) and not isinstance(at, bool) and 0 <= at < 2**53 and at % 1 == 0:
        body["at"] = at % 3


def test_the_document_is_openapi_and_has_every_route() -> None:
    """The table's, no more and no less, each with its failures."""
    made = json.loads(json.dumps(document()))
    assert made["openapi"] == "3.1.0"
    operations = {(method.upper(), path) for path, item in made["paths"].items() for method in item}
    assert operations == {(route.method, PREFIX + route.path) for route in ROUTES}
    for route in ROUTES:
        operation = made["paths"][PREFIX + route.path][route.method.lower()]
        for kind in route.fails:
            problem = PROBLEMS[kind]
            assert f"`{problem.name}`" in operation["responses"][str(problem.status)]["description"]


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_a_schema(name: str) -> None:
    """Of the dialect that OpenAPI 3.1 uses."""
    jsonschema.Draft202012Validator.check_schema(COMPONENTS[name])


async def test_a_proxy_gives_its_document(tmp_path: Path) -> None:
    """At /_semel/openapi.json."""
    async with scene(tmp_path) as world:
        assert await world.document("openapi.json") == json.loads(json.dumps(document()))
