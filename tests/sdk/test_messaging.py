"""resend, slack_sdk and twilio with their presets: mails and messages go out once, as their APIs count."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.sdk.messaging import CUT
from tests.sdk.messengers import Agents, Stage, messaging
from tests.sdk.scene import WAYS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("way", WAYS)]
each_sdk = pytest.mark.parametrize("sdk", ["resend", "slack", "twilio"])
without_key = pytest.mark.parametrize("sdk", ["slack", "twilio"])
without_retries = pytest.mark.parametrize("sdk", ["resend", "twilio"])
# How often it asks in all; of its retries behind a proxy for https see test_slack_sdk.py.
SLACKS_TRIES = {"base": 4, "https": 2, "http": 4}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, module_store: None) -> AsyncIterator[Stage]:
    async with messaging(tmp_path_factory.mktemp("messaging")) as made:
        yield made


@each_sdk
async def test_it_is_sent_once(stage: Stage, sdk: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted agent makes the same call: the SDK gets the same id, and nothing is sent. What is new is
    sent."""
    agents = Agents(stage, sdk, way, monkeypatch)
    first, second, new = await agents.send("one"), await agents.send("two"), await agents.send("two", "new")
    assert first == second != new
    assert (agents.sent(), agents.sent("new"), agents.asked) == (1, 1, 2)


async def test_a_mail_whose_answer_was_lost_is_asked_for_under_its_key(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after Resend has sent it. semel sends it again under the same key, Resend gives
    the mail that it has, and the SDK gets its id; so does the next attempt."""
    agents = Agents(stage, "resend", way, monkeypatch)
    stage.mails.faults.append(CUT)
    first = await agents.send("one")
    assert (agents.sent(), agents.asked) == (1, 2)
    assert first == f"49a3999c-0ce1-4ea6-ab68-{len(stage.mails.sent):012}"
    assert await agents.send("two") == first
    assert (agents.sent(), agents.asked) == (1, 2)
    key, again = stage.mails.keys[-2:]
    assert key
    assert key == again


@without_key
@pytest.mark.parametrize(("fault", "done"), [(CUT, 1), (500, 0)], ids=["cut", "500"])
async def test_what_may_have_been_sent_is_held(
    stage: Stage, sdk: str, way: str, fault: int | str, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key, so nobody can know: neither the SDK's own retries nor the same call made again, by this attempt
    or the next one, reach the API."""
    agents = Agents(stage, sdk, way, monkeypatch)
    agents.api.faults.append(fault)
    for attempt in ("one", "one", "two"):
        assert "409" in await agents.is_told(attempt)
        assert (agents.sent(), agents.asked) == (done, 1)


@each_sdk
async def test_what_was_refused_for_now_is_sent_in_the_end(
    stage: Stage, sdk: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429, as often as the SDK asks, and the agent gives up. Started again it makes the same call, which is
    sent, and that is the answer from then on."""
    agents = Agents(stage, sdk, way, monkeypatch)
    tries = SLACKS_TRIES[way] if sdk == "slack" else 1
    agents.api.faults.extend([429] * tries)
    await agents.is_told("one")
    assert (agents.sent(), agents.asked) == (0, tries)
    second = await agents.send("two")
    assert await agents.send("three") == second
    assert (agents.sent(), agents.asked) == (1, tries + 1)


@without_retries
async def test_an_agents_own_retry_is_no_second_send(
    stage: Stage, sdk: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429, and the agent itself tries again. After a crash it goes the same way, is told the same things, and
    nothing more is sent."""
    agents = Agents(stage, sdk, way, monkeypatch)
    agents.api.faults.append(429)
    refused, first = await agents.is_told("one"), await agents.send("one")
    assert (agents.sent(), agents.asked) == (1, 2)
    assert (await agents.is_told("two"), await agents.send("two")) == (refused, first)
    assert (agents.sent(), agents.asked) == (1, 2)


@without_key
async def test_no_storm_of_retries(stage: Stage, sdk: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To an SDK `in-doubt` is an answer, not an outage: each call of the agent's is one request to semel, and
    the API has seen one."""
    agents = Agents(stage, sdk, way, monkeypatch)
    agents.api.faults.append(CUT)
    before = await agents.reached_semel()
    await agents.is_told("one")
    assert await agents.reached_semel() == before + 1
    await agents.is_told("two")
    assert await agents.reached_semel() == before + 2
    assert agents.asked == 1


# resend takes nothing but application/json for an answer, and shows of others only that they are none.
unheard = pytest.mark.xfail(strict=True, reason="the SDK does not show what stands in problem+json")


@pytest.mark.parametrize(
    ("sdk", "fault"),
    [
        ("slack", CUT),
        pytest.param("resend", "invalid_idempotent_request", marks=unheard),
        ("twilio", CUT),
    ],
)
async def test_the_developer_is_told_what_to_do(
    stage: Stage, sdk: str, fault: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the SDK raises has semel's detail in it: what is not known, and how to settle it."""
    agents = Agents(stage, sdk, way, monkeypatch)
    agents.api.faults.append(fault)
    told = await agents.is_told("one")
    assert "Whether this call took effect is not known" in told
    assert "semel calls show" in told
