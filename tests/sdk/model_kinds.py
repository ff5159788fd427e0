"""The model SDKs by what they are asked: how a client is made, asked, listened to; an agent that is killed.

`python -m tests.sdk.model_kinds BASE KIND EVENTS` listens to so many events of a stream, and kills itself.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
QUESTION = {"role": "user", "content": "Weather in Ulm?"}


class Kind(NamedTuple):
    """`create`: the method of a client that asks; `prefix`: what the SDK wants behind the API's address."""

    upstream: str
    path: str
    prefix: str
    client: str  # imported when it is needed: each takes a second
    resource: Callable[[Any], Any]
    asked: dict[str, Any]
    terminal: bytes

    def open(self, url: str, **more: Any) -> Any:
        # In the environment somebody may have a key of their own; no test uses it.
        make = getattr(importlib.import_module(self.upstream), self.client)
        return make(base_url=url + self.prefix, api_key="sk-test", **more)

    async def ask(self, client: Any, **more: Any) -> Any:
        return (await self.resource(client).create(**self.asked, **more)).model_dump()

    async def listen(self, client: Any, **more: Any) -> list[Any]:
        return [event.model_dump() async for event in await self.events(client, **more)]

    async def events(self, client: Any, **more: Any) -> AsyncIterator[Any]:
        stream: AsyncIterator[Any] = await self.resource(client).create(**self.asked, stream=True, **more)
        return stream

    async def raw(self, client: Any, **more: Any) -> list[bytes]:
        """The bytes of a stream's body as the SDK gets them."""
        asking: AbstractAsyncContextManager[Any] = self.resource(client).with_streaming_response.create(
            **self.asked, stream=True, **more
        )
        async with asking as got:
            return [part async for part in got.iter_bytes()]


KINDS = {
    "chat": Kind(
        upstream="openai",
        path="/v1/chat/completions",
        prefix="/v1",
        client="AsyncOpenAI",
        resource=lambda client: client.chat.completions,
        asked={
            "model": "gpt-4.1",
            "messages": [QUESTION],
            "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
        },
        terminal=b"data: [DONE]\n\n",
    ),
    "responses": Kind(
        upstream="openai",
        path="/v1/responses",
        prefix="/v1",
        client="AsyncOpenAI",
        resource=lambda client: client.responses,
        asked={
            "model": "gpt-5",
            "input": [QUESTION],
            "tools": [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}],
        },
        terminal=b"response.completed",
    ),
    "messages": Kind(
        upstream="anthropic",
        path="/v1/messages",
        prefix="",
        client="AsyncAnthropic",
        resource=lambda client: client.messages,
        asked={
            "model": "claude-opus-5",
            "max_tokens": 9,
            "messages": [QUESTION],
            "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
        },
        terminal=b"message_stop",
    ),
}


async def listen_and_die(url: str, kind: Kind, events: int) -> None:
    async with kind.open(url, max_retries=0) as client:
        heard = 0
        async for event in await kind.events(client):
            print(json.dumps(event.model_dump()), flush=True)
            heard += 1
            if heard == events:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(listen_and_die(sys.argv[1], KINDS[sys.argv[2]], int(sys.argv[3])))
