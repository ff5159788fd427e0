"""slack_sdk with the preset: what Slack says inside a 200, its own retries, reads by POST, secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import requests
from slack_sdk.webhook import WebhookClient

from tests.inside import raw_call, request_bytes
from tests.sdk.messaging import CUT
from tests.sdk.messengers import Agents, Stage, messaging, slack
from tests.sdk.scene import WAYS

pytestmark = [pytest.mark.asyncio(loop_scope="module")]
each_way = pytest.mark.parametrize("way", WAYS)
SECRET = "QWxhZGRpbjpvcGVuIHNlc2FtZQ"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, module_store: None) -> AsyncIterator[Stage]:
    async with messaging(tmp_path_factory.mktemp("slack")) as made:
        yield made


@pytest.mark.parametrize(("way", "times"), [("base", 2), ("http", 2), ("https", 1)])
async def test_its_own_patience_is_not_a_second_message(
    stage: Stage, way: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429: RateLimitErrorRetryHandler waits and tries again, and it is posted once. So it does after a crash,
    and nothing more is posted."""
    agents = Agents(stage, "slack", way, monkeypatch)
    agents.api.faults.extend([429] * times)
    first = await agents.send("one")
    assert (agents.sent(), agents.asked) == (1, times + 1)
    assert await agents.send("two") == first
    assert (agents.sent(), agents.asked) == (1, times + 1)


async def test_its_second_retry_is_lost_behind_a_proxy_for_https(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib's request, used a third time, goes through the tunnel in the clear: no proxy can make anything
    of that. semel says so, nothing is posted, and the agent's next call is posted once."""
    agents = Agents(stage, "slack", "https", monkeypatch)
    agents.api.faults.extend((429, 429))
    assert "urn:semel:bad-request" in await agents.is_told("one")
    assert (agents.sent(), agents.asked) == (0, 2)
    await agents.send("one")
    assert (agents.sent(), agents.asked) == (1, 3)


@each_way
@pytest.mark.parametrize("error", ["channel_not_found", "ratelimited", "invalid_auth"])
async def test_an_error_by_which_nothing_happened_lets_it_be_posted(
    stage: Stage, way: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ok: false` in a 200 that proves it: the agent gets Slack's answer and gives up. Started again it makes
    the same call, which is posted, and that is the answer from then on."""
    agents = Agents(stage, "slack", way, monkeypatch)
    agents.api.faults.append(error)
    assert error in await agents.is_told("one")
    assert (agents.sent(), agents.asked) == (0, 1)
    second = await agents.send("two")
    assert await agents.send("three") == second
    assert (agents.sent(), agents.asked) == (1, 2)


@each_way
async def test_a_fatal_error_leaves_it_open(stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fatal_error` in a 200: it may have been posted, and here it was. Held, whoever asks."""
    agents = Agents(stage, "slack", way, monkeypatch)
    agents.api.faults.append("fatal_error")
    for attempt in ("one", "one", "two"):
        assert "urn:semel:in-doubt" in await agents.is_told(attempt)
    assert (agents.sent(), agents.asked) == (1, 1)


@each_way
async def test_a_no_for_good_is_not_asked_for_again(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`no_text`: the next attempt is told the same without asking Slack."""
    agents = Agents(stage, "slack", way, monkeypatch)
    agents.api.faults.append("no_text")
    assert "no_text" in await agents.is_told("one")
    assert "no_text" in await agents.is_told("two")
    assert (agents.sent(), agents.asked) == (0, 1)


@each_way
async def test_a_read_that_it_posts_is_no_effect(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conversations.list by POST: a lost answer is fetched again at once, and the next attempt reads what the
    first one read."""
    agents = Agents(stage, "slack", way, monkeypatch)
    agents.api.faults.append(CUT)
    first = await agents.do("one", _channels)
    assert agents.asked == 2
    assert await agents.do("two", _channels) == first
    assert agents.asked == 2


def _channels(url: str) -> Any:
    return slack(url).conversations_list()["channels"]


@each_way
async def test_what_lets_one_post_is_not_written_down(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last part of a webhook's address; a token in a form, where other clients than slack_sdk have it.
    Posted once all the same."""
    agents = Agents(stage, "slack", way, monkeypatch)

    def by_webhook(url: str) -> Any:
        return WebhookClient(f"{url}/services/T1/B1/{SECRET}").send(text=f"{agents.run}hook").body

    def by_form(url: str) -> Any:
        form = {"token": SECRET, "channel": "C1", "text": f"{agents.run}form"}
        return requests.post(f"{url}/api/chat.postMessage", data=form, timeout=30).json()["ok"]

    for attempt in ("one", "two"):
        assert await agents.do(attempt, by_webhook) == "ok"
        assert await agents.do(attempt, by_form)
    assert (agents.sent("hook"), agents.sent("form")) == (1, 1)
    asking = request_bytes("GET", f"/_semel/calls?run={agents.run}", host="127.0.0.1")
    listed = (await raw_call(stage.scene.semel.port, asking)).body
    assert b'"tool": "post_webhook"' in listed
    assert b'"tool": "post_message"' in listed
    state = [file.read_bytes() for file in stage.scene.semel.state.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in told for told in (listed, *state))
