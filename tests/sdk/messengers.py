"""Agents that send by resend, slack_sdk and twilio, in runs, with the presets of these names.

The SDKs are real and as they come; of slack_sdk all three handlers that retry are on.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import resend
from resend.exceptions import ResendError
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_handlers import (
    ConnectionErrorRetryHandler,
    RateLimitErrorRetryHandler,
    ServerErrorRetryHandler,
)
from twilio.base.exceptions import TwilioException  # type: ignore[import-untyped]
from twilio.rest import Client  # type: ignore[import-untyped]

from tests.inside import call
from tests.sdk.messaging import Api, Channel, Mails, Texts
from tests.sdk.scene import Scene, scene

ERRORS = (ResendError, SlackApiError, TwilioException)
RUNS = itertools.count(1)


class Stage(NamedTuple):
    scene: Scene
    mails: Mails
    channel: Channel
    texts: Texts


@asynccontextmanager
async def messaging(at: Path) -> AsyncIterator[Stage]:
    """One semel before three APIs."""
    async with Mails() as mails, Channel() as channel, Texts() as texts:
        apis = {"resend": mails, "slack": channel, "twilio": texts}
        async with scene(at, apis, {name: f"extends: {name}" for name in apis}) as made:
            yield Stage(made, mails, channel, texts)


def mail(url: str, text: str) -> str:
    resend.api_url, resend.api_key = url, "re_test"
    to, subject = ["ada@example.com"], "Hello"
    sent = resend.Emails.send({"from": "a@example.com", "to": to, "subject": subject, "text": text})
    return str(sent["id"])


def slack(url: str) -> WebClient:
    handlers = (ConnectionErrorRetryHandler, RateLimitErrorRetryHandler, ServerErrorRetryHandler)
    client = WebClient(token="xoxb-test", base_url=f"{url}/api/")
    client.retry_handlers = [handler(max_retry_count=3) for handler in handlers]
    return client


def post(url: str, text: str) -> str:
    return str(slack(url).chat_postMessage(channel="C1", text=text)["ts"])


def text_message(url: str, text: str) -> str:
    client = Client("AC" + "a" * 32, "token")
    client.api.base_url = url
    return str(client.messages.create(to="+15558675310", from_="+15017122661", body=text).sid)


SENDS: dict[str, Callable[[str, str], str]] = {"resend": mail, "slack": post, "twilio": text_message}


class Agents:
    """The attempts of one run, each in the environment that it would have."""

    def __init__(self, stage: Stage, sdk: str, way: str, patch: pytest.MonkeyPatch) -> None:
        self.run = f"run-{next(RUNS)}."
        self.api: Api = {"resend": stage.mails, "slack": stage.channel, "twilio": stage.texts}[sdk]
        self._scene, self._sdk, self._way, self._patch = stage.scene, sdk, way, patch
        self._before = self.api.asked
        # slack_sdk waits for a random part of a second on top of what Retry-After says.
        handlers = "slack_sdk.http_retry.builtin_handlers.random"
        patch.setattr(handlers, SimpleNamespace(random=lambda: 0.0))

    async def do(self, attempt: str, how: Callable[[str], Any]) -> Any:
        route = self._scene.way(self._way, self._sdk, self.run, attempt)
        for name, value in route.env.items():
            self._patch.setenv(name, value)
        return await asyncio.to_thread(how, route.url)

    async def send(self, attempt: str, text: str = "") -> str:
        """The id that the SDK gives for it."""
        return str(await self.do(attempt, lambda url: SENDS[self._sdk](url, self.run + text)))

    async def is_told(self, attempt: str) -> str:
        """What the SDK raises, as a developer sees it."""
        with pytest.raises(ERRORS) as raised:
            await self.send(attempt)
        return str(raised.value)

    def sent(self, text: str = "") -> int:
        return self.api.sent.count(self.run + text)

    @property
    def asked(self) -> int:
        """How often the API was."""
        return self.api.asked - self._before

    async def reached_semel(self) -> int:
        """All requests for this API that semel has had so far."""
        told = (await call(self._scene.semel.port, "GET", "/metrics")).body.decode()
        counted = re.findall(rf'^semel_calls_total{{.*upstream="{self._sdk}".*}} (\S+)$', told, re.MULTILINE)
        return int(sum(map(float, counted)))
