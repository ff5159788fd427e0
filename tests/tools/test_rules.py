"""Rules for the agent's own functions: found by name and arguments, they guard as they guard everything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from proxy.app import App
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.origin import READ_ALL, Origin, Reset
from tests.tools.workers import JSON, PATIENT, Said, Worker

AGENT, OTHER, OPERATOR, METRICS = "semel_agent", "semel_other", "semel_operator", "semel_metrics"
TOKENS = [
    Token(sha256=digest(AGENT), tenant="acme", role=Role.AGENT),
    Token(sha256=digest(OTHER), tenant="else", role=Role.AGENT),
    Token(sha256=digest(OPERATOR), tenant="acme", role=Role.OPERATOR),
    Token(sha256=digest(METRICS), tenant="acme", role=Role.METRICS),
]
POLICY = """
upstream: local-tools
protocol: tools
rules:
  - {name: large, match: {tool: "pay*", when: "usd > `100`"}, approval: {wait: 0s}}
  - {name: never, match: {tool: drop_tables}, mode: deny}
  - {name: clock, match: {tool: clock}, mode: pass}
  - {name: search, match: {tool: "search_*"}, mode: cache, key: {include: [q]}}
  - {name: limited, match: {tool: mail}, budget: {calls: 1/1h}}
  - {name: card, match: {tool: charge_card}, redact: {args: [number]}}
  - {name: declined, match: {tool: order}, outcome: {not_executed_if: "error.type == 'Declined'"}}
"""


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with semel(tmp_path, POLICY, settings=PATIENT, tokens=TOKENS) as app:
        yield app


@pytest.fixture
def worker(app: App) -> Worker:
    return Worker(app.address.port, "night", token=AGENT)


async def decide(app: App, told: Said, how: str) -> Answer:
    target = f"/_semel/calls/{told.document['call']}/{how}"
    headers = {**JSON, "Semel-Token": OPERATOR}
    request = request_bytes("POST", target, headers, b'{"reason": "seen"}', host="127.0.0.1")
    return await raw_call(app.address.port, request)


async def test_a_person_is_asked_before_it_is_handed_out(app: App, worker: Worker) -> None:
    """By its arguments; what was permitted is handed out once, whatever starts again meanwhile."""
    assert (await worker.begin("pay", {"usd": 5})).semel == "executed"
    held = await worker.begin("pay_out", {"usd": 500})
    assert (held.status, held.problem) == (409, "awaiting-approval")
    assert (await decide(app, held, "approve")).status == 200
    handed = await worker.next("a2").begin("pay_out", {"usd": 500})
    assert handed.semel == "executed"
    await worker.complete(handed, tool="pay_out")
    assert (await worker.next("a3").begin("pay_out", {"usd": 500})).semel == "replayed"


async def test_what_is_denied_limited_or_passed(worker: Worker) -> None:
    """403 and 429 before anything is handed out; what passes is not recorded."""
    assert (await worker.begin("drop_tables")).problem == "denied"
    first = await worker.begin("mail")
    await worker.complete(first, tool="mail")
    assert (await worker.begin("mail")).problem == "budget-exceeded"
    for _ in range(2):
        told = await worker.begin("clock")
        assert (told.status, told.semel, told.document) == (200, "passed", {"execute": {}})


async def test_a_cached_result_is_shared_by_runs(worker: Worker) -> None:
    """By what the rule says that counts."""
    handed = await worker.begin("search_web", {"q": "x", "page": 1})
    assert (await worker.complete(handed, ["found"], tool="search_web")).document == {"state": "done"}
    again = await Worker(worker.port, "other", token=AGENT).begin("search_web", {"q": "x", "page": 2})
    assert (again.semel, again.document) == ("replayed", {"result": ["found"]})


async def test_an_error_may_say_that_nothing_happened(worker: Worker) -> None:
    """Where the rule says so: it is released, and handed out again."""
    handed = await worker.begin("order")
    error = {"error": {"type": "Declined", "message": "no"}}
    assert (await worker.report("complete", handed, error, "order")).document == {"state": "released"}
    assert (await worker.begin("order")).semel == "executed"


async def test_what_is_redacted_is_not_in_the_record(app: App, worker: Worker, tmp_path: Path) -> None:
    """It names the call as a keyed hash."""
    card = {"number": "4242424242424242", "usd": 5}
    handed = await worker.begin("charge_card", card)
    await worker.complete(handed, tool="charge_card")
    assert (await worker.next("a2").begin("charge_card", card)).semel == "replayed"
    assert (await worker.begin("charge_card", {**card, "number": "4000"})).semel == "executed"
    kept = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"4242424242424242" in data for data in kept)


# ---- whose it is ----


async def test_another_tenants_call_is_not_there(worker: Worker) -> None:
    """Neither to be completed nor to be kept alive; and the same arguments are another call."""
    handed = await worker.begin()
    other = Worker(worker.port, "night", token=OTHER)
    for told in (await other.complete(handed), await other.fail(handed), await other.beat(handed)):
        assert (told.status, told.problem) == (404, "not-found")
    assert (await other.begin()).semel == "executed"
    assert (await worker.complete(handed)).document == {"state": "done"}


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("semel_guess", 401), (OPERATOR, 403), (METRICS, 403)]
)
async def test_tools_are_for_agents(worker: Worker, token: str, status: int) -> None:
    """Who decides does not act, and who reads figures does neither."""
    stranger = Worker(worker.port, token=token)
    assert (await stranger.begin()).status == status
    handed = await worker.begin()
    assert (await stranger.complete(handed)).status == status


async def test_a_call_over_the_network_is_nobodys_to_complete(tmp_path: Path) -> None:
    """An agent cannot settle by its own word what an upstream has to answer for."""
    async with Origin((*READ_ALL, Reset())) as origin:
        policy = f"upstream: bank\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy, settings=PATIENT) as app:
            headers = {**JSON, "Semel-Tool": "pay"}
            lost = await call(app.address.port, "POST", "/bank/pay", headers, b'{"usd": 5}')
            told = json.loads(lost.body)
            assert told["type"] == "urn:semel:in-doubt"
            claimed = Said(200, {"execute": {"call": told["call"], "fence": 1}}, None)
            worker = Worker(app.address.port)
            assert (await worker.complete(claimed)).problem == "not-found"
            assert (await worker.fail(claimed)).problem == "not-found"
            (held,) = [one async for one in _all(app)]
    assert held == "in_doubt"


async def _all(app: App) -> AsyncIterator[str]:
    shown = await raw_call(app.address.port, request_bytes("GET", "/_semel/calls", host="127.0.0.1"))
    for one in json.loads(shown.body)["calls"]:
        yield str(one["state"])


# ---- what cannot be taken ----


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("pay", b"[1]", 400),
        ("pay", b"5", 400),
        ("pay", b'{"a": 1, "a": 2}', 400),
        ("pay", b'{"a": ', 400),
        ("p%2fy", b"{}", 400),
        ("", b"{}", 400),
        ("x" * 129, b"{}", 400),
        ("pay/abc", b"{}", 400),
        ("pay/abc/complete?fence=1", b'{"result": 1}', 404),
        (f"pay/{'0' * 32}/complete", b'{"result": 1}', 400),
        (f"pay/{'0' * 32}/complete?fence=0", b'{"result": 1}', 400),
        (f"pay/{'0' * 32}/complete?fence=1&fence=2", b'{"result": 1}', 400),
        (f"pay/{'0' * 32}/complete?fence=1", b'{"result": 1}', 404),
        (f"pay/{'0' * 32}/complete?fence=1", b"{}", 400),
        (f"pay/{'0' * 32}/complete?fence=1", b'{"result": 1, "error": {}}', 400),
        (f"pay/{'0' * 32}/complete?fence=1", b'{"error": {"type": 1}}', 400),
        (f"pay/{'0' * 32}/fail?fence=1", b'{"reason": ""}', 400),
        (f"pay/{'0' * 32}/explode?fence=1", b"", 404),
    ],
)
async def test_what_cannot_be_taken_is_refused_and_nothing_is_handed_out(
    app: App, worker: Worker, path: str, body: bytes, status: int
) -> None:
    """With a problem that says what to do."""
    told = await worker.post(path, body)
    assert told.status == status
    assert told.document["detail"]
    assert not app.flights.by_key


async def test_other_methods_and_types_are_refused(app: App, worker: Worker) -> None:
    """A page of another site can send neither JSON nor the token, but might try a form."""
    form = await worker.post("pay", b"usd=5", Content_Type="application/x-www-form-urlencoded")
    assert form.status == 415
    shown = await raw_call(
        app.address.port,
        request_bytes("GET", "/_semel/tools/pay", {"Semel-Token": AGENT}, host="127.0.0.1"),
    )
    assert shown.status == 405


async def test_pages_of_other_sites_hand_nothing_out(tmp_path: Path) -> None:
    """Without tokens whoever reaches semel may call: not through a person's browser."""
    async with semel(tmp_path, "upstream: local-tools\nprotocol: tools\n", settings=PATIENT) as app:
        worker = Worker(app.address.port)
        assert (await worker.begin(Origin="https://evil.example")).status == 403
        assert (await worker.begin(Sec_Fetch_Site="cross-site")).status == 403
        assert (await worker.begin()).semel == "executed"


async def test_the_upstream_of_tools_has_no_other_address(app: App, worker: Worker) -> None:
    """Neither its name in a path nor a rule's path leads around the protocol."""
    answer = await call(app.address.port, "POST", "/local-tools/pay", {**JSON, "Semel-Token": AGENT}, b"{}")
    assert (answer.status, b"/_semel/tools/" in answer.body) == (404, True)
