"""openai and anthropic: what has effects and is in doubt is raised at once; their own retries let it be."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest
import pytest_asyncio

from tests.sdk.scene import Api, Scene, Tools, scene

pytestmark = pytest.mark.asyncio(loop_scope="module")
RUNS = itertools.count(1)


class Sdk(NamedTuple):
    upstream: str
    path: str  # behind the upstream's name in its base URL
    client: Callable[..., Any]
    act: Callable[[Any], object]  # something with effects
    conflict: type[Exception]


SDKS = {
    "openai": Sdk(
        "openai",
        "/v1",
        openai.OpenAI,
        lambda client: client.batches.create(
            input_file_id="file-1", endpoint="/v1/responses", completion_window="24h"
        ),
        openai.ConflictError,
    ),
    "openai-mcp": Sdk(
        "openai",
        "/v1",
        openai.OpenAI,
        lambda client: client.responses.create(
            model="gpt-4.1",
            input="Pay",
            tools=[{"type": "mcp", "server_label": "bank", "server_url": "https://mcp.bank.example"}],
        ),
        openai.ConflictError,
    ),
    "anthropic": Sdk(
        "anthropic",
        "",
        anthropic.Anthropic,
        lambda client: client.messages.batches.create(requests=[]),
        anthropic.ConflictError,
    ),
}


class Stage(NamedTuple):
    scene: Scene
    apis: dict[str, Tools]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with Tools() as gpt, Tools() as claude:
        apis: dict[str, Api] = {"openai": gpt, "anthropic": claude}
        presets = {name: f"extends: {name}" for name in apis}
        async with scene(tmp_path_factory.mktemp("doubt"), apis, presets) as made:
            yield Stage(made, {"openai": gpt, "anthropic": claude})


class Counting(httpx2.HTTPTransport):
    """What the SDK sends by."""

    asked = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        return super().handle_request(request)


@pytest.mark.parametrize("name", SDKS)
async def test_no_storm_of_retries(stage: Stage, name: str) -> None:
    """The SDK would try twice more on a 409 and on a 500. Told not to, it asks once in each attempt, and the
    API hears of the call once in all; the developer is told what to do."""
    sdk = SDKS[name]
    api, run = stage.apis[sdk.upstream], f"run-{next(RUNS)}"
    api.faults.append(500)
    before = api.count()
    for attempt in ("one", "two"):
        wire = Counting()
        url = stage.scene.way("base", sdk.upstream, run, attempt).url + sdk.path
        with httpx2.Client(transport=wire) as http:
            client = sdk.client(base_url=url, api_key="none", max_retries=2, http_client=http)
            with pytest.raises(sdk.conflict) as raised:
                await asyncio.to_thread(sdk.act, client)
        assert raised.value.body["type"] == "urn:semel:in-doubt"  # type: ignore[attr-defined]
        assert "took effect is not known" in str(raised.value)
        assert (wire.asked, api.count() - before) == (1, 1)
