"""How model APIs are spoken: OpenAI's Chat Completions and Responses, Anthropic's Messages; as streams too.

A dialect reads what was asked into messages, and writes a turn as the document or the events of that API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from proxy.demo.turn import Document, Message, Turn, pieces

# Documents say when they were made; a time of its own would make tests depend on the clock.
MADE_AT = 1_700_000_000


class Dialect(NamedTuple):
    read: Callable[[Document], list[Message]]
    whole: Callable[[Turn], Document]
    events: Callable[[Turn, Document], Iterator[bytes]]
    problem: Callable[[int, str], Document]


def text_of(content: object) -> str:
    """A string, or parts of which some have a text."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        return " ".join(str(part.get("text") or text_of(part.get("content"))) for part in parts).strip()
    return content if isinstance(content, str) else ""


def _merged(messages: list[Message]) -> list[Message]:
    """What the assistant said and which tools it called in one turn is one message."""
    found: list[Message] = []
    for message in messages:
        if found and message.role == found[-1].role == "assistant":
            found[-1] = Message("assistant", f"{found[-1].text} {message.text}".strip())
        else:
            found.append(message)
    return found


def _data(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _named(document: Document) -> bytes:
    return b"event: " + str(document["type"]).encode() + b"\n" + _data(document)


# ---- OpenAI: Chat Completions ----


def _read_chat(asked: Document) -> list[Message]:
    roles = {"developer": "system"}
    messages = asked.get("messages", [])
    return _merged(
        [Message(roles.get(one["role"], one["role"]), text_of(one.get("content"))) for one in messages]
    )


def _chat_usage(turn: Turn) -> Document:
    return {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.prompt_tokens + turn.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _chat_head(turn: Turn, kind: str) -> Document:
    return {
        "id": f"chatcmpl-{turn.number}",
        "object": kind,
        "created": MADE_AT,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": f"fp_{turn.number}",
    }


def _whole_chat(turn: Turn) -> Document:
    message: Document = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call, name, arguments in turn.calls
        ]
    reason = "tool_calls" if turn.calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {**_chat_head(turn, "chat.completion"), "choices": [choice], "usage": _chat_usage(turn)}


def _chat_events(turn: Turn, asked: Document) -> Iterator[bytes]:
    counts = bool((asked.get("stream_options") or {}).get("include_usage"))
    head = _chat_head(turn, "chat.completion.chunk") | ({"usage": None} if counts else {})

    def chunk(delta: Document, reason: str | None = None) -> bytes:
        return _data(
            {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        )

    yield chunk({"role": "assistant", "content": "" if turn.text else None})
    for piece in pieces(turn.text):
        yield chunk({"content": piece})
    for index, (call, name, arguments) in enumerate(turn.calls):
        begun = {"id": call, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **begun}]})
        for piece in pieces(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if turn.calls else "stop")
    if counts:
        yield _data({**head, "choices": [], "usage": _chat_usage(turn)})
    yield b"data: [DONE]\n\n"


def _openai_problem(status: int, words: str) -> Document:
    kind = "rate_limit_exceeded" if status == 429 else "server_error"
    return {"error": {"message": words, "type": kind, "param": None, "code": kind}}


# ---- OpenAI: Responses ----


def _read_response(asked: Document) -> list[Message]:
    given = asked.get("input", "")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    kinds = {"function_call": "assistant", "function_call_output": "tool"}
    found = [Message("system", asked["instructions"])] if asked.get("instructions") else []
    for item in items:
        role = kinds.get(item.get("type", ""), item.get("role", ""))
        if role:  # an item of reasoning has none
            text = item.get("content", item.get("output", ""))
            found.append(Message("system" if role == "developer" else role, text_of(text)))
    return _merged(found)


def _output(turn: Turn) -> list[Document]:
    found: list[Document] = []
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        found.append(
            {
                "id": f"msg_{turn.number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for call, name, arguments in turn.calls:
        found.append(
            {
                "id": f"fc_{call}",
                "type": "function_call",
                "call_id": call,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
        )
    return found


def _whole_response(turn: Turn) -> Document:
    return {
        "id": f"resp_{turn.number}",
        "object": "response",
        "created_at": MADE_AT,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": turn.model,
        "output": _output(turn),
        "parallel_tool_calls": True,
        "service_tier": "default",
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": turn.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": turn.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.prompt_tokens + turn.output_tokens,
        },
    }


def _response_steps(turn: Turn) -> Iterator[Document]:
    done = _whole_response(turn)
    begun = {**done, "status": "in_progress", "output": [], "usage": None, "service_tier": "auto"}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(done["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        empty: Document = {"content": []} if item["type"] == "message" else {"arguments": ""}
        bare = {**item, "status": "in_progress", **empty}
        yield {"type": "response.output_item.added", "output_index": index, "item": bare}
        if item["type"] == "message":
            (part,) = item["content"]
            inside = {**at, "content_index": 0}
            yield {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **inside, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **inside, "part": part}
        else:
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            told = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **at, **told}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": done}


def _response_events(turn: Turn, _asked: Document) -> Iterator[bytes]:
    for number, step in enumerate(_response_steps(turn)):
        yield _named({**step, "sequence_number": number})


# ---- Anthropic: Messages ----


def _read_messages(asked: Document) -> list[Message]:
    found = [Message("system", text_of(asked["system"]))] if asked.get("system") else []
    for one in asked.get("messages", []):
        content = one.get("content")
        results = (
            [part for part in content if part.get("type") == "tool_result"]
            if isinstance(content, list)
            else []
        )
        found += [Message("tool", text_of(part.get("content"))) for part in results]
        if not results:
            found.append(Message(one["role"], text_of(content)))
    return _merged(found)


def _blocks(turn: Turn) -> list[Document]:
    found: list[Document] = [{"type": "text", "text": turn.text}] if turn.text else []
    for call, name, arguments in turn.calls:
        found.append(
            {"type": "tool_use", "id": f"toolu_{call}", "name": name, "input": json.loads(arguments)}
        )
    return found


def _whole_message(turn: Turn) -> Document:
    return {
        "id": f"msg_{turn.number}",
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": _blocks(turn),
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": turn.output_tokens,
            "service_tier": "standard",
        },
    }


def _message_steps(turn: Turn) -> Iterator[Document]:
    done = _whole_message(turn)
    begun: Document = {"content": [], "stop_reason": None, "usage": {**done["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": {**done, **begun}}
    for index, block in enumerate(done["content"]):
        is_text = block["type"] == "text"
        bare = {**block, "text": ""} if is_text else {**block, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": bare}
        if index == 0:
            yield {"type": "ping"}
        for piece in pieces(block["text"] if is_text else json.dumps(block["input"])):
            delta = {"type": "text_delta", "text": piece}
            if not is_text:
                delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": turn.output_tokens}}
    yield {"type": "message_stop"}


def _message_events(turn: Turn, _asked: Document) -> Iterator[bytes]:
    yield from map(_named, _message_steps(turn))


def _anthropic_problem(status: int, words: str) -> Document:
    kind = "rate_limit_error" if status == 429 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": words}}


DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": Dialect(_read_chat, _whole_chat, _chat_events, _openai_problem),
    "/v1/responses": Dialect(_read_response, _whole_response, _response_events, _openai_problem),
    "/v1/messages": Dialect(_read_messages, _whole_message, _message_events, _anthropic_problem),
}
