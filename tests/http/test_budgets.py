"""Budgets over the wire, counted at the upstream: never exceeded, however many ask at once; replays free."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web

from proxy.app import App
from proxy.core.budget import Account
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests import ambient
from tests.conftest import STORES, kept_as_named
from tests.counts import count
from tests.inside import Answer, call, semel, until
from tests.process import SemelProcess, kill_at

ACME, ZENITH = "semel_acme", "semel_zenith"
TOKENS = [
    Token(sha256=digest(ACME), tenant="acme", role=Role.AGENT),
    Token(sha256=digest(ZENITH), tenant="zenith", role=Role.AGENT),
]
PLENTY = 200


@dataclass
class Shop:
    """Counts what arrives. A body says what comes of it: `status`, and `usd`, which the answer repeats."""

    arrived: Counter[str] = field(default_factory=Counter)
    port: int = 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.arrived[request.path] += 1
        body = await request.read()
        said = json.loads(body) if body else {}
        await asyncio.sleep(0.01)
        return web.json_response(
            {"usd": said.get("usd"), "n": self.arrived[request.path]}, status=said.get("status", 200)
        )


def policy(shop: Shop, *rules: str) -> str:
    lines = [f"upstream: shop\nbase_url: http://127.0.0.1:{shop.port}\nrules:"]
    return "\n".join([*lines, *(f"  - {rule}" for rule in rules)]) + "\n"


def buying(budget: str = "{calls: 50/1h}", more: str = "", path: str = "/buy") -> str:
    return f"{{name: buy, match: {{path: {path}}}, budget: {budget}{more}}}"


@pytest.fixture(params=STORES)
def each_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """Always all of them: this is what budgets are about."""
    with kept_as_named(request):
        yield


async def buy(
    app: App, what: object, *, run: str = "", token: str = "", target: str = "/shop/buy", **more: Any
) -> Answer:
    headers = {"Content-Type": "application/json"} | ({"Semel-Run": run} if run else {})
    headers |= {"Semel-Token": token} if token else {}
    body = json.dumps({"what": what, **more}).encode()
    return await call(app.address.port, "POST", target, headers, body, within=60)


@asynccontextmanager
async def shop_and(
    tmp_path: Path, *rules: str, tokens: list[Token] | None = None
) -> AsyncIterator[tuple[Shop, App]]:
    async with Shop() as shop, semel(tmp_path, policy(shop, *rules), tokens=tokens or []) as app:
        yield shop, app


async def held(tmp_path: Path, run: str = "", tenant: str = "default", rule: str = "buy") -> dict[str, int]:
    store = await ambient.opened(tmp_path / "state")
    try:
        spent = await store.spent(Account(tenant, run, "shop", rule))
    finally:
        await store.close()
    sums: Counter[str] = Counter()
    for each in spent:
        sums[each.meter] += each.amount
    return dict(sums)


def told(answer: Answer) -> dict[str, Any]:
    assert answer.status == 429, answer
    assert answer.semel == "refused"
    members: dict[str, Any] = json.loads(answer.body)
    assert members["type"] == "urn:semel:budget-exceeded"
    return members


async def two_hundred_at_once(tmp_path: Path, run: str = "") -> None:
    """Distinct calls over two proxies on one store. Asked again, what went out comes from the record, and the
    others are refused as before."""
    async with Shop() as shop:
        text = policy(shop, buying("{calls: 150/1h, usd: 5.00}", ", cost: {usd: 0.10}"))
        async with semel(tmp_path, text) as one, semel(tmp_path, text) as two:

            async def ask(attempt: int, numbers: Iterable[int]) -> dict[int, Answer]:
                target = f"/@{run}+a{attempt}/shop/buy" if run else "/shop/buy"
                asked = {n: buy((one, two)[(n + attempt) % 2], n, target=target) for n in numbers}
                return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))

            first = await ask(0, range(PLENTY))
            bought = [n for n, answer in first.items() if answer.semel == "executed"]
            refused = [answer for answer in first.values() if answer.status == 429]
            assert (len(bought), len(refused), shop.arrived["/buy"]) == (50, PLENTY - 50, 50)
            members = told(refused[0])
            assert (members["budget"], members["limit"], members["used"]) == ("usd", 5.0, 5.0)
            for attempt in range(1, count(test=2, soak=10)):
                again = await ask(attempt, bought)  # in a run first: it must be seen to keep to its record
                assert {n: answer.body for n, answer in again.items()} == {n: first[n].body for n in bought}
                assert {answer.semel for answer in again.values()} == {"replayed"}
                others = await ask(attempt, set(range(PLENTY)).difference(bought))
                assert {answer.status for answer in others.values()} == {429}
            assert shop.arrived["/buy"] == 50
    assert await held(tmp_path, run) == {"calls": 50, "usd": 5_000_000}


@pytest.mark.usefixtures("each_store")
async def test_two_hundred_at_once_never_pass_a_budget_and_replays_are_free(tmp_path: Path) -> None:
    """Exactly as many arrive as calls and money allow."""
    await two_hundred_at_once(tmp_path)


@pytest.mark.usefixtures("any_store")
async def test_two_hundred_at_once_in_a_run_never_pass_its_budget_and_replays_are_free(
    tmp_path: Path,
) -> None:
    """Nor does a later attempt of it."""
    await two_hundred_at_once(tmp_path, "r")


@pytest.mark.usefixtures("any_store")
async def test_identical_calls_at_once_are_one_call_of_the_budget(tmp_path: Path) -> None:
    """A hundred of each of three, and room for two: two arrive, and whoever asked for them is answered."""
    async with shop_and(tmp_path, buying("{calls: 2/1h}")) as (shop, app):
        answers = await asyncio.gather(*(buy(app, n % 3) for n in range(300)))
        assert shop.arrived["/buy"] == 2
        assert Counter(answer.status for answer in answers) == {200: 200, 429: 100}


@pytest.mark.usefixtures("any_store")
async def test_how_a_refusal_is_told(tmp_path: Path) -> None:
    """What, how much, until when; a clock that SDKs read, or word that waiting is no use."""
    rules = (
        buying("{calls: 1/1h}"),
        "{name: ask, match: {path: /ask}, budget: {usd: 0.10}, cost: {usd: 0.10}}",
    )
    async with shop_and(tmp_path, *rules) as (shop, app):
        assert (await buy(app, 1)).status == 200
        answer = await buy(app, 2)
        members = told(answer)
        seconds = int(answer.get("Retry-After") or 0)
        until_ = datetime.fromisoformat(members["until"])
        assert 3590 < seconds <= 3661
        assert abs((until_ - datetime.now(UTC)).total_seconds() - seconds) < 5
        assert (members["rule"], members["upstream"], members["budget"]) == ("buy", "shop", "calls")
        assert (members["limit"], members["used"]) == (1, 1)
        assert members["until"] in members["detail"]
        assert answer.get("x-should-retry") is None
        assert answer.get("Semel-Call") is None, "there is no such call"
        assert (await buy(app, 1, run="r", target="/shop/ask")).status == 200
        answer = await buy(app, 2, run="r", target="/shop/ask")
        members = told(answer)
        assert members["run"] == "r"
        assert "raise the rule's budget in the policy file" in members["detail"]
        assert answer.get("Retry-After") is None
        assert (answer.get("x-should-retry"), answer.get("stripe-should-retry")) == ("false", "false")
        assert "until" not in members
        metrics = (await call(app.address.port, "GET", "/metrics")).body.decode()
        assert 'semel_problems_total{type="budget-exceeded"} 2.0' in metrics
        assert shop.arrived == {"/buy": 1, "/ask": 1}
    assert await ambient.states_in(tmp_path / "state") == ["done", "done"]


@pytest.mark.usefixtures("any_store")
async def test_tenants_and_runs_have_accounts_of_their_own(tmp_path: Path) -> None:
    """One of each for everybody."""
    async with shop_and(tmp_path, buying("{calls: 1/1h}"), tokens=TOKENS) as (shop, app):
        for token in (ACME, ZENITH):
            for run in ("", "r", "s"):
                assert (await buy(app, 1, run=run, token=token)).status == 200
                told(await buy(app, 2, run=run, token=token))
        assert shop.arrived["/buy"] == 6
    assert await held(tmp_path, "r", "zenith") == {"calls": 1}


@pytest.mark.usefixtures("any_store")
async def test_a_short_budget_is_free_again_when_it_says(tmp_path: Path) -> None:
    """By the real clock: refused until then, through after it."""
    async with shop_and(tmp_path, buying("{calls: 1/1s}")) as (shop, app):
        await buy(app, 1)
        members = told(await buy(app, 2))
        free_at = datetime.fromisoformat(members["until"])
        await until(lambda: datetime.now(UTC) >= free_at)
        assert (await buy(app, 2)).semel == "executed"
        assert shop.arrived["/buy"] == 2


@pytest.mark.usefixtures("any_store")
async def test_a_safe_call_outside_runs_is_counted_and_goes_live_each_time(tmp_path: Path) -> None:
    """Without a budget it would pass unseen. No upgrade leads around it either."""
    rule = "{name: look, match: {method: GET, path: /look}, budget: {calls: 3/1h}}"
    async with shop_and(tmp_path, rule) as (shop, app):
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        for n, headers in enumerate(({}, {}, upgrade), 1):
            answer = await call(app.address.port, "GET", "/shop/look", headers)
            assert (answer.semel, json.loads(answer.body)["n"]) == ("executed", n)
        for headers in ({}, upgrade):
            told(await call(app.address.port, "GET", "/shop/look", headers))
        assert shop.arrived["/look"] == 3


@pytest.mark.usefixtures("any_store")
async def test_a_price_in_the_answer_is_what_is_counted(tmp_path: Path) -> None:
    """As for a model, safe and outside runs: the real sum is kept, and when it is reached, that was it."""
    rule = buying("{usd: 1.00}", ", safe: true, cost: {usd_from: usd}")
    async with shop_and(tmp_path, rule) as (shop, app):
        for usd in (0.125, 0.25, 0.5):
            assert (await buy(app, 1, usd=usd)).semel == "executed"
        await until_held(tmp_path, {"usd": 875_000})
        members = told(await buy(app, 1, usd=0.01))
        assert members["used"] == 0.875
        assert "would add 0.50 USD" in members["detail"], "the dearest that was seen"
        assert shop.arrived["/buy"] == 3


async def until_held(tmp_path: Path, wanted: dict[str, int]) -> None:
    async with asyncio.timeout(15):
        while await held(tmp_path) != wanted:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("any_store")
async def test_what_an_upstream_refuses_costs_nothing_and_counts_as_a_call(tmp_path: Path) -> None:
    """And an upstream that is not there costs neither."""
    rule = buying("{calls: 3/1h, usd: 0.10}", ", cost: {usd: 0.10}")
    async with shop_and(tmp_path, rule) as (_, app):
        for n in range(2):
            assert (await buy(app, n, status=429)).status == 429
        assert await held(tmp_path) == {"calls": 2, "usd": 0}
        assert (await buy(app, 7)).status == 200
    assert await held(tmp_path) == {"calls": 3, "usd": 100_000}
    text = (tmp_path / "policies" / "test.yaml").read_text().replace("3/1h", "4/1h").replace("0.10,", "0.20,")
    async with semel(tmp_path, text.replace("usd: 0.10}", "usd: 0.20}", 1)) as app:  # the shop is closed
        assert (await buy(app, 8)).status == 502
    assert await held(tmp_path) == {"calls": 3, "usd": 100_000}


@pytest.mark.usefixtures("any_store")
@pytest.mark.parametrize("point", ["claimed", pytest.param("request_sent", marks=pytest.mark.soak)])
async def test_what_a_killed_proxy_had_taken_stays_taken(tmp_path: Path, point: str) -> None:
    """Nobody knows what came of its call: the next proxy refuses what would pass the budget."""
    policies = tmp_path / "policies"
    policies.mkdir()
    async with Shop() as shop:
        (policies / "shop.yaml").write_text(policy(shop, buying("{calls: 1/1h, usd: 9}", ", cost: {usd: 1}")))
        async with SemelProcess(tmp_path / "state", policies, kill_at(point)) as doomed:
            body = b'{"what": 1}'
            await call(doomed.port, "POST", "/shop/buy", {"Content-Type": "application/json"}, body)
            await doomed.died()
        async with SemelProcess(tmp_path / "state", policies) as next_one:
            port, headers = next_one.port, {"Content-Type": "application/json"}
            told(await call(port, "POST", "/shop/buy", headers, b'{"what": 2}'))
            same = await call(port, "POST", "/shop/buy", headers, body)
            assert json.loads(same.body)["type"] == "urn:semel:in-doubt"
    assert await held(tmp_path) == {"calls": 1, "usd": 1_000_000}
    assert shop.arrived["/buy"] == (point == "request_sent")


@pytest.mark.usefixtures("any_store")
async def test_a_run_obeys_the_budgets_of_now(tmp_path: Path) -> None:
    """How a run names its calls is kept for its life; what it may use up is not, whatever the rules are
    called by now."""
    async with Shop() as shop:
        plain = policy(
            shop, "{name: once, match: {path: /buy}}", "{name: free, match: {path: /free}, mode: pass}"
        )
        async with semel(tmp_path, plain) as app:
            assert (await buy(app, 1, run="r")).status == 200
            assert (await buy(app, 1, run="r", target="/shop/free")).semel == "passed"
        stricter = policy(
            shop, buying("{calls: 1/1h}"), buying("{calls: 9/1h}", path="/free").replace("buy,", "free,", 1)
        )
        async with semel(tmp_path, stricter) as app:
            assert (await buy(app, 2, run="r")).semel == "executed"
            told(await buy(app, 3, run="r"))
            answer = await buy(app, 1, run="r", target="/shop/free")
            assert (answer.status, json.loads(answer.body)["type"]) == (403, "urn:semel:denied")
        assert await held(tmp_path, "r") == {"calls": 1}
        async with semel(tmp_path, plain) as app:
            assert (await buy(app, 3, run="r")).semel == "executed"
        assert await held(tmp_path, "r") == {"calls": 1}
        assert shop.arrived == {"/buy": 3, "/free": 1}
