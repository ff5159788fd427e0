"""The scripted model API against the real SDKs, without semel: what fails only behind semel is ours."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from proxy.core.clauses import Cost
from proxy.core.cost import cost_of
from proxy.core.policy import Rule
from proxy.core.sse import EventStream
from proxy.demo.model import ModelApi, cut, echo, play, refuse, stall
from proxy.demo.turn import Message, Step, ToolCall

WEATHER = ToolCall("get_weather", {"city": "Ulm", "days": [1, 2]})
SCRIPT = play(Step("Let me look.", (WEATHER, ToolCall("get_time", {}))), Step("Sunny."))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture
async def api() -> AsyncIterator[ModelApi]:
    async with ModelApi() as made:
        yield made


@pytest.fixture
async def scripted() -> AsyncIterator[ModelApi]:
    async with ModelApi(SCRIPT) as made:
        yield made


def open_ai(api: ModelApi, **more: Any) -> Any:
    return openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key="sk-test", **{"max_retries": 0, **more})


def claude(api: ModelApi, **more: Any) -> Any:
    return anthropic.AsyncAnthropic(base_url=api.url, api_key="sk-test", **{"max_retries": 0, **more})


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


# ---- OpenAI, Chat Completions ----


async def test_chat(api: ModelApi) -> None:
    """Two identical calls get two different answers, and both are counted."""
    async with open_ai(api) as client:
        answers = [
            await client.chat.completions.create(model="gpt-4.1", messages=user("hello")) for _ in "12"
        ]
    assert [one.choices[0].message.content for one in answers] == [
        "You said: hello [answer 1]",
        "You said: hello [answer 2]",
    ]
    assert answers[0].id != answers[1].id
    assert answers[0].choices[0].finish_reason == "stop"
    assert (answers[0].usage.prompt_tokens, answers[0].usage.completion_tokens) == (1, 5)
    assert api.count("/v1/chat/completions") == api.count() == 2
    assert api.requests[0].headers["authorization"] == "Bearer sk-test"


async def test_chat_as_a_stream(api: ModelApi) -> None:
    """Word by word; the usage comes last, and only if it was asked for."""
    async with open_ai(api) as client:
        asked = {"model": "gpt-4.1", "messages": user("hello world"), "stream": True}
        chunks = [one async for one in await client.chat.completions.create(**asked)]
        assert (
            "".join(one.choices[0].delta.content or "" for one in chunks)
            == "You said: hello world [answer 1]"
        )
        assert len(chunks) > 5
        assert all(one.usage is None for one in chunks)
        counting = await client.chat.completions.create(**asked, stream_options={"include_usage": True})
        *_, last = [one async for one in counting]
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (2, 6)


async def test_chat_with_tools(scripted: ModelApi) -> None:
    """Two calls at once, their results, the next step; plain, and assembled from a stream."""
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    async with open_ai(scripted) as client:
        asked = {"model": "gpt-4.1", "messages": user("weather?"), "tools": tools}
        first = (await client.chat.completions.create(**asked)).choices[0]
        assert first.finish_reason == "tool_calls"
        assert first.message.content == "Let me look. [answer 1]"
        assert [one.function.name for one in first.message.tool_calls] == ["get_weather", "get_time"]
        assert json.loads(first.message.tool_calls[0].function.arguments) == WEATHER.arguments
        async with client.chat.completions.stream(**asked) as stream:
            streamed = (await stream.get_final_completion()).choices[0].message
        assert json.loads(streamed.tool_calls[0].function.arguments) == WEATHER.arguments
        assert streamed.tool_calls[0].id != first.message.tool_calls[0].id
        results = [
            {"role": "tool", "tool_call_id": one.id, "content": "25"} for one in first.message.tool_calls
        ]
        history = [*user("weather?"), first.message.model_dump(exclude_none=True), *results]
        last = await client.chat.completions.create(model="gpt-4.1", messages=history)
    assert last.choices[0].message.content == "Sunny. [answer 3]"


# ---- OpenAI, Responses and embeddings ----


async def test_responses(api: ModelApi) -> None:
    """A text, a list of messages with instructions, and a conversation that the API remembers."""
    async with open_ai(api) as client:
        one = await client.responses.create(model="gpt-5", input="hello", instructions="Be brief.")
        two = await client.responses.create(model="gpt-5", input=user("again"), previous_response_id=one.id)
    assert (one.output_text, one.status) == ("You said: hello [answer 1]", "completed")
    assert two.output_text == "You said: again [answer 2]"
    assert (one.usage.input_tokens, two.usage.input_tokens) == (3, 3 + 3 + 1)


async def test_responses_as_a_stream(api: ModelApi) -> None:
    """From response.created to response.completed, numbered."""
    async with open_ai(api) as client:
        stream = await client.responses.create(model="gpt-5", input="hello", stream=True)
        events = [one async for one in stream]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [one.sequence_number for one in events] == list(range(len(events)))
    text = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == "You said: hello [answer 1]"


async def test_responses_with_tools(scripted: ModelApi) -> None:
    """Function calls are items of the output, and their results items of the next input."""
    tools = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
    async with open_ai(scripted) as client:
        first = await client.responses.create(model="gpt-5", input="weather?", tools=tools)
        async with client.responses.stream(model="gpt-5", input="weather?", tools=tools) as stream:
            streamed = await stream.get_final_response()
        calls = [one for one in first.output if one.type == "function_call"]
        assert [json.loads(one.arguments) for one in calls] == [WEATHER.arguments, {}]
        assert [one.type for one in streamed.output] == ["message", "function_call", "function_call"]
        results = [{"type": "function_call_output", "call_id": one.call_id, "output": "25"} for one in calls]
        given = [*user("weather?"), *(one.model_dump(exclude_none=True) for one in first.output), *results]
        last = await client.responses.create(model="gpt-5", input=given)
        remembered = await client.responses.create(
            model="gpt-5", input=results, previous_response_id=first.id
        )
    assert last.output_text == "Sunny. [answer 3]"
    assert remembered.output_text == "Sunny. [answer 4]"


async def test_embeddings(api: ModelApi) -> None:
    """As the SDK asks for them by itself (base64), and as plain numbers."""
    async with open_ai(api) as client:
        packed = await client.embeddings.create(model="text-embedding-3-small", input=["a b", "c"])
        plain = await client.embeddings.create(model="m", input="a", encoding_format="float")
    assert [one.embedding[:2] for one in packed.data] == [[1.0, 0.0], [1.0, 1.0]]
    assert plain.data[0].embedding[:2] == [2.0, 0.0]
    assert packed.usage.prompt_tokens == 3


# ---- Anthropic ----


async def test_messages(api: ModelApi) -> None:
    """Two identical calls get two different answers; counting tokens costs none."""
    asked = {"model": "claude-opus-5", "messages": user("hello"), "system": "Be brief."}
    async with claude(api) as client:
        one, two = [await client.messages.create(**asked, max_tokens=9) for _ in "12"]
        counted = await client.messages.count_tokens(**asked)
    assert [one.content[0].text, two.content[0].text] == [f"You said: hello [answer {n}]" for n in (1, 2)]
    assert (one.stop_reason, one.usage.input_tokens, one.usage.output_tokens) == ("end_turn", 3, 5)
    assert counted.input_tokens == 3
    assert "sk-test" in api.requests[0].headers["authorization"]


async def test_messages_as_a_stream(api: ModelApi) -> None:
    """Event by event from message_start to message_stop, and assembled by the SDK."""
    asked = {"model": "claude-opus-5", "max_tokens": 9, "messages": user("hello")}
    async with claude(api) as client:
        events = [one.type async for one in await client.messages.create(**asked, stream=True)]
        async with client.messages.stream(**asked) as stream:
            text = "".join([one async for one in stream.text_stream])
            message = await stream.get_final_message()
    assert events[:2] == ["message_start", "content_block_start"]
    assert events[-2:] == ["message_delta", "message_stop"]
    assert text == message.content[0].text == "You said: hello [answer 2]"
    assert message.usage.output_tokens == 5


async def test_messages_with_tools(scripted: ModelApi) -> None:
    """Tool use, its results, the next step; plain, and assembled from a stream."""
    tools = [{"name": "get_weather", "input_schema": SCHEMA}]
    asked = {"model": "claude-opus-5", "max_tokens": 9, "messages": user("weather?"), "tools": tools}
    async with claude(scripted) as client:
        first = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        assert first.stop_reason == streamed.stop_reason == "tool_use"
        assert [one.type for one in first.content] == ["text", "tool_use", "tool_use"]
        assert first.content[1].input == streamed.content[1].input == WEATHER.arguments
        assert first.content[1].id != streamed.content[1].id
        used = [one for one in first.content if one.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": one.id, "content": "25"} for one in used]
        content = [one.model_dump(exclude_none=True) for one in first.content]
        history = [
            *user("weather?"),
            {"role": "assistant", "content": content},
            {"role": "user", "content": results},
        ]
        last = await client.messages.create(model="claude-opus-5", max_tokens=9, messages=history)
    assert last.content[0].text == "Sunny. [answer 3]"


# ---- failing on demand ----


async def test_a_refusal_is_retried_by_the_sdks(api: ModelApi) -> None:
    """429 and 500 in each vendor's words; the next try gets through, and all tries are counted."""
    async with open_ai(api, max_retries=2) as client:
        api.fail(refuse(429, retry_after="0"), refuse(500, retry_after="0"))
        got = await client.chat.completions.create(model="gpt-4.1", messages=user("hello"))
        assert got.choices[0].message.content == "You said: hello [answer 3]"
        api.fail(refuse(503, retry_after="0"))
        assert (await client.embeddings.create(model="m", input="a")).data[0].embedding[0] == 5.0
    assert [one.headers["x-stainless-retry-count"] for one in api.requests] == ["0", "1", "2", "0", "1"]
    async with claude(api) as client:
        api.fail(refuse(429), refuse(500))
        with pytest.raises(anthropic.RateLimitError, match="rate_limit_error"):
            await client.messages.create(model="claude-opus-5", max_tokens=9, messages=user("hello"))
        with pytest.raises(anthropic.InternalServerError, match="answer 7"):
            await client.messages.create(model="claude-opus-5", max_tokens=9, messages=user("hello"))
    assert api.count() == 7


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_stream_is_cut_or_stalled_where_asked(api: ModelApi, path: str) -> None:
    """So many whole events, then the connection ends without an end, or nothing more comes."""
    asked = {"model": "m", "stream": True, "messages": user("a b c d"), "input": "a b c d", "max_tokens": 9}
    async with aiohttp.ClientSession() as session:
        api.fail(cut(after=3))
        got = bytearray()
        async with session.post(api.url + path, json=asked) as reply:
            assert reply.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                async for part in reply.content.iter_any():
                    got += part
        assert got.count(b"\n\n") == 3
        api.fail(stall(after=2))
        async with session.post(api.url + path, json=asked) as reply:
            for _ in range(2):
                await reply.content.readuntil(b"\n\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reply.content.readany(), 0.05)
        async with session.post(api.url + path, json=asked) as reply:
            assert (await reply.read()).count(b"\n\n") > 5
    assert api.count(path) == 3


async def test_a_cut_reaches_the_sdks(api: ModelApi) -> None:
    """In the middle of a stream, and in the middle of a plain answer."""
    async with open_ai(api) as client:
        api.fail(cut(after=4))
        stream = await client.chat.completions.create(model="m", messages=user("a b c"), stream=True)
        seen = []
        with pytest.raises(openai.APIConnectionError):
            async for one in stream:
                seen.append(one)  # noqa: PERF401 (what came before the break counts)
        assert len(seen) == 4
        api.fail(cut())
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(model="m", messages=user("a"))
    async with claude(api) as client:
        api.fail(cut())
        with pytest.raises(anthropic.APIConnectionError):
            await client.messages.create(model="m", max_tokens=9, messages=user("a"))
    assert api.count() == 3


# ---- what semel makes of it ----


@pytest.mark.parametrize(
    ("path", "model"),
    [("/v1/chat/completions", "gpt-4.1"), ("/v1/responses", "gpt-4.1"), ("/v1/messages", "claude-opus-5")],
)
async def test_semel_knows_where_a_stream_ends_and_what_it_cost(api: ModelApi, path: str, model: str) -> None:
    """The terminal event is found, the price is the same as of the plain answer."""
    asked = {"model": model, "messages": user("a b c"), "input": "a b c", "max_tokens": 9}
    streaming = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    priced = Rule(name="one", cost=Cost(usd_from="tokens_usd(@)"))
    costs = []
    async with aiohttp.ClientSession() as session:
        for document in (asked, streaming):
            async with session.post(api.url + path, json=document) as reply:
                body = await reply.read()
                costs.append(cost_of(priced, reply.status, tuple(reply.raw_headers), body))
    events = EventStream()
    visible = events.feed(body)
    assert events.ended
    assert 0 < visible < len(body)
    assert costs[0] is not None
    assert costs[0] > 0
    assert costs[0] == costs[1]


async def test_it_runs_as_a_process_of_its_own(tmp_path: Any) -> None:
    """With its steps in a file; it says where it is, and what it was asked."""
    steps = tmp_path / "steps.json"
    steps.write_text(json.dumps([{"tools": [{"name": "pay", "arguments": {"eur": 1}}]}, {"text": "Paid."}]))
    command = [sys.executable, "-m", "proxy.demo.model", "--steps", str(steps)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        url = line.decode().split()[-1]
        asked = {
            "model": "m",
            "messages": [*user("pay"), {"role": "assistant"}, {"role": "tool", "content": "ok"}],
        }
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/v1/chat/completions", json=asked) as reply:
                document = await reply.json()
            async with session.get(f"{url}/requests") as reply:
                told = await reply.json()
    finally:
        process.kill()
        await process.wait()
    assert document["choices"][0]["message"]["content"] == "Paid. [answer 1]"
    assert told == {"requests": 1, "by_path": {"/v1/chat/completions": 1}}


def test_a_script_follows_the_conversation() -> None:
    """The turn is read from the messages, so an agent that starts again is told the same."""
    begun = [Message("user", "x")]
    assert SCRIPT(begun).tools[0] == WEATHER
    later = [*begun, Message("assistant", ""), Message("tool", "25")]
    assert SCRIPT(later) == Step("Sunny.")
    assert SCRIPT([*later, Message("assistant", ""), Message("user", "more")]) == Step("Sunny.")
    assert echo([]) == Step("You said: ")
