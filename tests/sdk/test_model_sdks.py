"""The openai and anthropic SDKs in runs: what was said is said again, also after their own retries."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest
import pytest_asyncio

from proxy.demo.model import Fault, cut, play, refuse
from proxy.demo.turn import Step, ToolCall
from tests.inside import call
from tests.sdk.model_kinds import KINDS, Kind
from tests.sdk.scene import KILLED, WAYS, Api, Model, Scene, Tools, agent, scene

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCRIPT = play(Step("Let me look.", (ToolCall("get_weather", {"city": "Ulm"}),)))
RUNS = itertools.count(1)
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
each_way = pytest.mark.parametrize("way", WAYS)


class Stage(NamedTuple):
    scene: Scene
    models: dict[str, Model]
    tools: Tools


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, module_store: None) -> AsyncIterator[Stage]:
    async with Model(SCRIPT) as gpt, Model(SCRIPT) as claude, Tools() as tools:
        apis: dict[str, Api] = {"openai": gpt, "anthropic": claude, "tools": tools}
        presets = {name: f"extends: {name}" for name in ("openai", "anthropic")}
        async with scene(tmp_path_factory.mktemp("models"), apis, presets) as made:
            yield Stage(made, {"openai": gpt, "anthropic": claude}, tools)


class Agents:
    """The attempts of one run, each in the environment that it would have."""

    def __init__(self, stage: Stage, kind: Kind, way: str, patch: pytest.MonkeyPatch) -> None:
        self.run = f"run-{next(RUNS)}"
        self.model = stage.models[kind.upstream]
        self._stage, self._kind, self._way, self._patch = stage, kind, way, patch
        self._before = self.model.count()

    def start(self, attempt: str, **more: Any) -> Any:
        route = self._stage.scene.way(self._way, self._kind.upstream, self.run, attempt)
        for name, value in route.env.items():
            self._patch.setenv(name, value)
        return self._kind.open(route.url, **{"max_retries": 0, **more})

    @property
    def sent(self) -> int:
        return self.model.count() - self._before

    async def charge(self, attempt: str) -> bytes:
        """What the agent does because of what the model said."""
        where = f"/@{self.run}+{attempt}/tools/charge"
        return (await call(self._stage.scene.semel.port, "POST", where, body=self.run.encode())).body

    @property
    def charges(self) -> int:
        return self._stage.tools.asked.count(f"POST /charge {self.run}")


@each_kind
@each_way
async def test_what_was_said_is_said_again(
    stage: Stage, kind: Kind, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain and streamed, tool calls and all, event by event; a question more goes to the model."""
    agents = Agents(stage, kind, way, monkeypatch)
    heard = []
    for attempt in ("one", "two"):
        async with agents.start(attempt) as client:
            plain = [await kind.ask(client) for _ in "12"]  # asked twice on purpose: two answers
            heard.append((plain, await kind.listen(client), await agents.charge(attempt)))
        assert agents.sent == 3
    assert heard[0] == heard[1]
    assert heard[0][0][0] != heard[0][0][1]
    assert "get_weather" in str(heard[0][0])
    assert len(heard[0][1]) > 5
    assert agents.charges == 1
    async with agents.start("two") as client:
        third = await kind.ask(client)
    assert third not in heard[0][0]
    assert agents.sent == 4


@each_kind
@each_way
async def test_a_stream_is_replayed_byte_for_byte(
    stage: Stage, kind: Kind, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first attempt gets are the model's bytes, and what the second gets are the same."""
    agents = Agents(stage, kind, way, monkeypatch)
    for attempt in ("one", "two"):
        async with agents.start(attempt) as client:
            assert b"".join(await kind.raw(client)) == agents.model.bodies[-1]
    assert agents.model.bodies[-1].count(kind.terminal) >= 1
    assert agents.sent == 1


# Not every pair: each is a process of its own, and the streams of all pairs are compared above.
@pytest.mark.parametrize(
    ("name", "way"), [("chat", "base"), ("chat", "https"), ("responses", "http"), ("messages", "https")]
)
async def test_who_is_killed_in_mid_stream_finds_it_whole(
    stage: Stage, name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model goes on talking to nobody; the next attempt gets every byte, and the model no question."""
    kind = KINDS[name]
    agents = Agents(stage, kind, way, monkeypatch)
    agents.model.pause = asyncio.Event()
    try:
        route = stage.scene.way(way, kind.upstream, agents.run, "one")
        status, heard, err = await agent("model_kinds", route, name, "2")
        assert status == KILLED, err
        assert len(heard) == 2
    finally:
        agents.model.pause.set()
        agents.model.pause = None
    async with agents.start("two") as client:
        assert b"".join(await kind.raw(client)) == agents.model.bodies[-1]
    async with agents.start("three") as client:
        again = await kind.listen(client)
    assert again[:2] == heard
    assert agents.sent == 1


NOW = {"retry_after_ms": "1"}
FAULTS = {"429": refuse(429, **NOW), "500": refuse(500, **NOW), "cut": cut()}


@each_kind
@each_way
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_the_sdks_own_retry_is_not_repeated(
    stage: Stage, kind: Kind, way: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model fails once, the SDK asks again and succeeds. The next attempt is told the same, and what was
    done because of it was done once."""
    agents = Agents(stage, kind, way, monkeypatch)
    agents.model.fail(fault)
    heard = []
    for attempt in ("one", "two"):
        async with agents.start(attempt, max_retries=2) as client:
            heard.append((await kind.ask(client), await agents.charge(attempt)))
        assert agents.sent == 2
    assert heard[0] == heard[1]
    assert agents.charges == 1
    if fault.status != 200:  # semel itself may repeat a call of which nothing was handed on yet
        assert agents.model.requests[-1].headers["x-stainless-retry-count"] == "1"


@each_kind
@each_way
async def test_a_stream_that_was_cut_is_heard_whole_by_the_next_attempt(
    stage: Stage, kind: Kind, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No SDK asks again in mid-stream, so the agent does; its second answer is the one that stays."""
    agents = Agents(stage, kind, way, monkeypatch)
    agents.model.fail(cut())
    pause = agents.model.pause = asyncio.Event()
    async with agents.start("one", max_retries=2) as client:
        with pytest.raises((openai.APIConnectionError, httpx2.TransportError)):
            async for _ in await kind.events(client):
                pause.set()  # cut when some of it was heard
        agents.model.pause = None
        first = (await kind.listen(client), await agents.charge("one"))
    async with agents.start("two", max_retries=2) as client:
        second = (await kind.listen(client), await agents.charge("two"))
    assert first == second
    assert agents.sent == 2
    assert agents.charges == 1


@each_kind
@each_way
async def test_a_model_that_stays_busy_is_busy_again_behind_what_was_done(
    stage: Stage, kind: Kind, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All retries are refused and the agent charges all the same: the next attempt must see it refused too,
    though the model would answer by now."""
    agents = Agents(stage, kind, way, monkeypatch)
    agents.model.fail(*[refuse(429, **NOW)] * 3)
    for attempt in ("one", "two"):
        async with agents.start(attempt, max_retries=2) as client:
            with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
                await kind.ask(client)
            await agents.charge(attempt)
        assert agents.sent == 3
    assert agents.charges == 1
