"""The stripe SDK behind the preset: however an answer gets lost, the customer is charged once.

The payments are counted where they are made (tests/sdk/payments.py), by base URL and through HTTPS_PROXY.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
import requests
import stripe

from tests.inside import until
from tests.sdk.payments import Fault, Payments
from tests.sdk.scene import KILLED, Route, Scene, agent, scene

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Time for two resends, after which a call in doubt is held.
POLICY = "extends: stripe\ntimeout: {connect: 4s, idle: 1500ms, total: 4s}"
RUNS = itertools.count(1)
each_way = pytest.mark.parametrize("way", ["base", "https"])


class Stage(NamedTuple):
    scene: Scene
    payments: Payments


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, module_store: None) -> AsyncIterator[Stage]:
    async with Payments() as payments:
        apis, policies = {"stripe": payments}, {"stripe": POLICY}
        async with scene(tmp_path_factory.mktemp("stripe"), apis, policies) as made:
            yield Stage(made, payments)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come as they do, only sooner; nothing is told to the vendor."""
    monkeypatch.setattr(stripe.HTTPClient, "INITIAL_DELAY", 0.01)
    monkeypatch.setattr(stripe, "enable_telemetry", False)


class Wire(requests.Session):
    """What the SDK sends by; the first `lost` answers do not get through to it."""

    def __init__(self, lost: int = 0) -> None:
        super().__init__()
        self.lost, self.asked = lost, 0

    def request(self, *args: Any, **more: Any) -> requests.Response:
        self.asked += 1
        answer = super().request(*args, **more)
        if self.asked <= self.lost:
            raise requests.ConnectionError("the answer was lost on its way")
        return answer


class Agents:
    """The attempts of one run, each in the environment that it would have; or, outside a run, one agent."""

    def __init__(self, stage: Stage, way: str, patch: pytest.MonkeyPatch, *, in_a_run: bool = True) -> None:
        self.mark = f"run-{next(RUNS)}."
        self.payments = stage.payments
        self.payments.faults.clear()  # what a test that failed left over
        self.wire = Wire()
        self._stage, self._way, self._patch, self._in_a_run = stage, way, patch, in_a_run

    def route(self, attempt: str) -> Route:
        route = self._stage.scene.way(self._way, "stripe", self.mark, attempt)
        if self._in_a_run:
            return route
        run, user = f"/@{self.mark}+{attempt}", f"{self.mark}+{attempt}:-@"
        env = {name: value.replace(user, "") for name, value in route.env.items()}
        return Route(route.url.replace(run, ""), env)

    async def pay(
        self, attempt: str = "one", *, lost: int = 0, key: str | None = None
    ) -> stripe.PaymentIntent:
        """Two retries of the SDK's own, as it is set up by most."""
        route = self.route(attempt)
        for name, value in route.env.items():
            self._patch.setenv(name, value)
        if ca := route.env.get("SSL_CERT_FILE"):
            self._patch.setattr(stripe, "ca_bundle_path", ca)
        self.wire = Wire(lost)
        client = stripe.StripeClient(
            "sk_test_1",
            base_addresses={"api": route.url},
            max_network_retries=2,
            http_client=stripe.RequestsClient(session=self.wire),
        )
        return await asyncio.to_thread(
            client.v1.payment_intents.create,
            {
                "amount": 2000,
                "currency": "usd",
                "payment_method": "pm_card_visa",
                "confirm": True,
                "description": self.mark,
            },
            {"idempotency_key": key} if key else None,
        )

    @property
    def charged(self) -> int:
        return self.payments.charged(self.mark)

    @property
    def keys(self) -> list[str]:
        return self.payments.keys(self.mark)


# ---- without semel ----


async def test_the_small_stripe_keeps_its_keys(stage: Stage) -> None:
    """What fails only behind semel is ours: the SDK against the API itself. A key replays its first answer, a
    decline too; for other parameters it is refused."""
    url, payments = f"http://127.0.0.1:{stage.payments.plain}", stage.payments
    client = stripe.StripeClient("sk_test_1", base_addresses={"api": url})

    async def pay(amount: int, key: str) -> stripe.PaymentIntent:
        params: Any = {"amount": amount, "currency": "usd", "description": "direct"}
        return await asyncio.to_thread(client.v1.payment_intents.create, params, {"idempotency_key": key})

    first, again = await pay(2000, "k1"), await pay(2000, "k1")
    assert (first.id, payments.charged("direct")) == (again.id, 1)
    assert again.last_response is not None
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    with pytest.raises(stripe.IdempotencyError, match="same parameters"):
        await pay(2001, "k1")
    payments.faults.append(Fault.DECLINED)
    for _ in "12":
        with pytest.raises(stripe.CardError):
            await pay(2000, "k2")
    assert (await pay(2000, "k3")).id != first.id
    assert payments.charged("direct") == 2


async def test_without_semel_a_killed_agent_charges_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripe's own keys do not help it: they are new at each start."""
    agents = Agents(stage, "base", monkeypatch)
    direct = Route(f"http://127.0.0.1:{stage.payments.plain}", {})
    assert (await agent("stripe_agent", Route(direct.url, {"DIES": "1"}), agents.mark))[0] == KILLED
    assert (await agent("stripe_agent", direct, agents.mark))[0] == 0
    assert (agents.charged, len(set(agents.keys))) == (2, 2)


# ---- an answer is lost ----


@each_way
async def test_a_connection_cut_after_the_charge(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One charge, and the SDK gets its answer: semel asked again under the same key, the SDK did not have to.
    The next attempt of the run gets the same."""
    agents = Agents(stage, way, monkeypatch)
    stage.payments.faults.append(Fault.CUT)
    made = await agents.pay()
    assert (made.status, agents.charged, agents.wire.asked) == ("succeeded", 1, 1)
    assert len(agents.keys) == 2
    assert (await agents.pay("two")).id == made.id
    assert (agents.charged, len(agents.keys)) == (1, 2)


@each_way
async def test_answers_lost_between_semel_and_the_sdk(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK retries twice by itself, under its one key: one charge, and one request to Stripe."""
    agents = Agents(stage, way, monkeypatch)
    made = await agents.pay(lost=2)
    assert (made.status, agents.wire.asked) == ("succeeded", 3)
    assert (agents.charged, len(agents.keys)) == (1, 1)


@each_way
async def test_a_request_that_stripe_is_still_at_work_on(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """semel waits no longer, asks again, and hears 409 "another in-progress request": that is no refusal and
    no other call's key, so it asks once more, and Stripe is done by then. One charge."""
    agents = Agents(stage, way, monkeypatch)
    stage.payments.answering.clear()
    stage.payments.faults.append(Fault.SLOW)
    conflicts = stage.payments.conflicts
    paying = asyncio.create_task(agents.pay())
    await until(lambda: stage.payments.conflicts == conflicts + 1, within=10)
    stage.payments.answering.set()
    assert (await paying).status == "succeeded"
    assert (agents.charged, agents.wire.asked) == (1, 1)
    assert (len(agents.keys), len(set(agents.keys))) == (3, 1)


# ---- the agent is killed ----


@each_way
async def test_an_agent_killed_after_the_charge(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again, and the SDK mints a new key: one charge, and it gets the answer of the first."""
    agents = Agents(stage, way, monkeypatch)
    route = agents.route("one")
    status, said, err = await agent("stripe_agent", Route(route.url, {**route.env, "DIES": "1"}), agents.mark)
    assert (status, said, agents.charged) == (KILLED, [], 1), err
    status, said, err = await agent("stripe_agent", agents.route("two"), agents.mark)
    assert status == 0, err
    assert said == [f"pi_{stage.payments.charges.index(agents.mark) + 1}"]
    assert (agents.charged, len(agents.keys)) == (1, 1)


# ---- the native key ----


@each_way
async def test_the_native_key_stays_the_same_until_the_call_is_settled(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge's answer is lost and the one to the resend too: Stripe sees three requests under one key,
    which is not the agent's."""
    agents = Agents(stage, way, monkeypatch)
    stage.payments.faults.append(Fault.CUT_TWICE)
    replays = stage.payments.replays
    made = await agents.pay(key="the-agents-own")
    assert (made.status, agents.charged) == ("succeeded", 1)
    assert (len(agents.keys), len(set(agents.keys)), stage.payments.replays - replays) == (3, 1, 2)
    assert "the-agents-own" not in agents.keys
    assert 16 <= len(agents.keys[0]) <= 255


@each_way
async def test_a_decline_gives_the_next_try_a_new_key(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripe keeps a decline under its key. The agent is told of it, makes the same call again, even under a
    key of its own that it used before, and the customer is charged: once."""
    agents = Agents(stage, way, monkeypatch)
    stage.payments.faults.append(Fault.DECLINED)
    with pytest.raises(stripe.CardError) as declined:
        await agents.pay(key="order-6735" + agents.mark)
    assert (declined.value.code, agents.wire.asked, agents.charged) == ("card_declined", 1, 0)
    made = await agents.pay(key="order-6735" + agents.mark)
    assert (made.status, agents.charged) == ("succeeded", 1)
    assert len(agents.keys) == len(set(agents.keys)) == 2
    assert (await agents.pay("two")).id == made.id
    assert agents.charged == 1


# ---- doubt ----


@each_way
async def test_the_sdk_makes_no_storm_of_a_call_in_doubt(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripe says 500 for ever. semel asks again a few times, then tells the SDK, which asks once, does not
    retry though it may, and raises with what the developer has to do."""
    agents = Agents(stage, way, monkeypatch)
    stage.payments.faults.append(Fault.BROKEN)
    with pytest.raises(stripe.APIError) as raised:
        await agents.pay()
    assert agents.wire.asked == 1
    assert 2 <= len(agents.keys) <= 4
    assert len(set(agents.keys)) == 1
    assert agents.charged == 0
    told = json.loads(raised.value.http_body or "")
    assert (told["type"], told["upstream_status"]) == ("urn:semel:in-doubt", 500)
    assert told["detail"].partition("'")[0] in str(raised.value)  # the SDK shows it as Python would
    assert "semel calls show" in str(raised.value)
    assert raised.value.http_status == 409


# ---- outside a run ----


@each_way
async def test_outside_a_run_the_sdks_retries_are_one_charge(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come under one key, also when Stripe's answer got lost on top."""
    agents = Agents(stage, way, monkeypatch, in_a_run=False)
    stage.payments.faults.append(Fault.CUT)
    made = await agents.pay(lost=2)
    assert (made.status, agents.wire.asked, agents.charged) == ("succeeded", 3, 1)
    assert (len(agents.keys), len(set(agents.keys))) == (2, 1)


@each_way
async def test_outside_a_run_two_calls_are_two_charges(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK gives each call a key of its own, and whoever gives one key twice means one charge."""
    agents = Agents(stage, way, monkeypatch, in_a_run=False)
    first, second = await agents.pay(), await agents.pay()
    assert (first.id != second.id, agents.charged) == (True, 2)
    ordered = [await agents.pay(key="order-1" + agents.mark) for _ in "12"]
    assert (ordered[0].id == ordered[1].id, agents.charged) == (True, 3)


@each_way
async def test_in_a_run_a_second_payment_on_purpose_is_a_second_charge(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next attempt finds both, in their order."""
    agents = Agents(stage, way, monkeypatch)
    made = [(await agents.pay()).id for _ in "12"]
    assert (len(set(made)), agents.charged) == (2, 2)
    assert [(await agents.pay("two")).id for _ in "12"] == made
    assert agents.charged == 2
