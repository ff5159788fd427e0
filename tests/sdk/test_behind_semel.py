"""The real SDKs through semel, with the presets and a scripted model behind them; outside runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from proxy.app import App
from proxy.demo.model import ModelApi, cut, play
from proxy.demo.turn import Step, ToolCall
from tests.inside import semel

pytestmark = pytest.mark.usefixtures("any_store")

SCRIPT = play(Step("Let me look.", (ToolCall("get_weather", {"city": "Ulm"}),)), Step("Sunny."))
# Outside runs only what says `same` is kept: these stand in for a run.
KEPT = "safe: true, repeat: same, key: {normalize: [timestamps]}"
SAME = f"""
rules:
  - {{name: chat, match: {{method: POST, path: /v1/chat/completions}}, {KEPT}}}
  - {{name: messages, match: {{method: POST, path: /v1/messages}}, {KEPT}}}
"""


def policy(name: str, api: ModelApi, rules: str = "") -> str:
    return f"upstream: {name}\nextends: {name}\nbase_url: {api.url}\n{rules}"


@pytest.fixture
async def api() -> AsyncIterator[ModelApi]:
    async with ModelApi(SCRIPT) as made:
        yield made


def open_ai(app: App) -> Any:
    url = f"http://127.0.0.1:{app.address.port}/openai/v1"
    return openai.AsyncOpenAI(base_url=url, api_key="sk-test", max_retries=0)


def claude(app: App) -> Any:
    url = f"http://127.0.0.1:{app.address.port}/anthropic"
    return anthropic.AsyncAnthropic(base_url=url, api_key="sk-test", max_retries=0)


def asked(text: str) -> dict[str, Any]:
    return {"model": "claude-opus-5", "messages": [{"role": "user", "content": text}]}


async def test_models_are_passed_on_outside_a_run(tmp_path: Path, api: ModelApi) -> None:
    """Every ask is a real one, and its answer is the model's own."""
    async with semel(tmp_path, policy("openai", api)) as app, open_ai(app) as client:
        got = [await client.chat.completions.with_raw_response.create(**asked("weather?")) for _ in "12"]
        assert [one.headers["semel-status"] for one in got] == ["passed", "passed"]
        assert [one.parse().choices[0].message.content for one in got] == [
            "Let me look. [answer 1]",
            "Let me look. [answer 2]",
        ]
    assert api.count() == 2


async def test_what_was_said_is_said_again(tmp_path: Path, api: ModelApi) -> None:
    """Tool calls and all, plain and as a stream, though the time in the prompt is another."""
    async with semel(tmp_path, policy("openai", api, SAME)) as app, open_ai(app) as client:
        plain, streamed = [], []
        for now in ("2026-11-16T10:58:50Z", "2026-11-17T08:00:00Z"):
            asking = asked(f"It is {now}. Weather?")
            plain.append((await client.chat.completions.create(**asking)).model_dump())
            async with client.chat.completions.stream(**asking) as stream:
                streamed.append((await stream.get_final_completion()).model_dump())
    assert plain[0] == plain[1]
    assert streamed[0] == streamed[1]
    assert plain[0]["choices"][0]["message"]["tool_calls"][0]["id"] == "call_1_0"
    assert streamed[0]["choices"][0]["message"]["tool_calls"][0]["id"] == "call_2_0"
    assert api.count() == 2


async def test_a_message_is_said_again(tmp_path: Path, api: ModelApi) -> None:
    """The same for Anthropic's events."""
    async with semel(tmp_path, policy("anthropic", api, SAME)) as app, claude(app) as client:
        messages = []
        for now in ("2026-11-16", "2026-11-17"):
            async with client.messages.stream(max_tokens=9, **asked(f"It is {now}. Weather?")) as stream:
                messages.append(await stream.get_final_message())
    assert messages[0] == messages[1]
    assert messages[0].content[1].input == {"city": "Ulm"}
    assert api.count() == 1


async def test_a_stream_that_breaks_off_is_not_kept(tmp_path: Path, api: ModelApi) -> None:
    """The caller sees the break, and asking again asks the model again."""
    async with semel(tmp_path, policy("openai", api, SAME)) as app, open_ai(app) as client:
        api.fail(cut(after=4))
        stream = await client.chat.completions.create(**asked("Weather?"), stream=True)
        with pytest.raises(openai.APIConnectionError):
            _ = [one async for one in stream]
        again = await client.chat.completions.create(**asked("Weather?"), stream=True)
        text = "".join([one.choices[0].delta.content or "" async for one in again])
    assert text == "Let me look. [answer 2]"
    assert api.count() == 2
