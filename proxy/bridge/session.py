"""Who says what to whom: the client's lines to the server, the server's to the client, calls to the record.

A batch with calls in it is answered message by message: over a pipe nothing else keeps them together.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, TypeAlias

from proxy.bridge.calls import Calls
from proxy.bridge.pipes import Out, Readable, TooLong, lines
from proxy.bridge.server import ServerProcess
from proxy.core.jsonrpc import (
    CANCELLED,
    INVALID_REQUEST,
    LIST_TOOLS,
    Id,
    Message,
    Other,
    ToolCall,
    Unclear,
    error,
    hear,
    is_response,
)
from proxy.front.mcp_memory import Caller, UnderWay
from proxy.front.mcp_memory import Session as Whose

_Key: TypeAlias = tuple[type, Id]


class Limits(NamedTuple):
    """The longest line, in bytes, of each side."""

    client: int
    server: int


class Session:
    def __init__(
        self, *, client: Readable, out: Out, server: ServerProcess, calls: Calls, whose: Whose, limits: Limits
    ) -> None:
        self._client = client
        self._out = out
        self._server = server
        self._calls = calls
        self._whose = whose
        self._limits = limits
        self._under_way = UnderWay()
        self._passed: set[_Key] = set()  # requests that the server has, and that are no calls
        self._listing: set[_Key] = set()  # of those, the ones for a list of tools
        self._tasks: set[asyncio.Task[None]] = set()
        self._callers: set[Caller] = set()

    # ---- the client ----

    async def hear_client(self) -> None:
        """Until it says nothing more."""
        async for line in lines(self._client, self._limits.client):
            if isinstance(line, TooLong):
                text = f"semel: The message is over {self._limits.client} bytes (limits.request_body)."
                await self._out.write(error(None, INVALID_REQUEST, text).strip())
                continue
            try:
                heard = hear(line)
            except Unclear as unclear:
                text = f"semel: {unclear} It was not handed on."
                await self._out.write(error(unclear.id, unclear.code, text).strip())
                continue
            if not heard.calls and not any(map(_cancels, heard.messages)):
                for each in heard.messages:
                    self._expect(each)
                await self._server.say(line)
                continue
            for each in heard.messages:
                await self._take(each)

    async def _take(self, message: Message) -> None:
        if isinstance(message, ToolCall):
            task = asyncio.create_task(self._call(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not _cancels(message) or self._may_be_cancelled(message.params.get("requestId")):
            self._expect(message)
            await self._server.say(message.text)

    def _may_be_cancelled(self, id_: object) -> bool:
        """Whoever gives up a call no longer waits for it; the server does not hear of that."""
        self._under_way.cancelled(self._whose, id_)
        return isinstance(id_, int | str) and (type(id_), id_) in self._passed

    def _expect(self, message: Message) -> None:
        if isinstance(message, Other) and message.method and message.id is not None:
            key = (type(message.id), message.id)
            self._passed.add(key)
            if message.method == LIST_TOOLS:
                self._listing.add(key)

    async def _call(self, call: ToolCall) -> None:
        caller = self._under_way.called(self._whose, call.id)
        self._callers.add(caller)
        try:
            answer = await self._calls.ask(call)
            taken = not caller.gone and await self._out.write(answer.line)
            if answer.delivery is not None:
                answer.delivery.complete()
                if not taken:
                    caller.gone = True
                caller.took(answer.delivery)
        finally:
            self._callers.discard(caller)

    def client_left(self) -> None:
        """What it asked for goes on; what comes of that is taken by nobody."""
        for caller in self._callers:
            caller.leave()

    async def all_answered(self, patience: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)

    # ---- the server ----

    async def hear_server(self) -> None:
        """Until it says nothing more. What is no JSON goes by like everything else."""
        async for line in lines(self._server.out, self._limits.server):
            if isinstance(line, TooLong):
                self._server.over(
                    f"the server sent a message over {self._limits.server} bytes (limits.response_body)"
                )
                return
            message = _read(line)
            if not self._server.heard(message, line):
                self._note(message)
                await self._out.write(line)
        self._server.over("the server ended before it answered")

    def _note(self, message: Any) -> None:  # noqa: ANN401 (JSON)
        if not is_response(message) or not isinstance(message.get("id"), int | str):
            return
        key = (type(message["id"]), message["id"])
        self._passed.discard(key)
        if key in self._listing and "result" in message:
            self._calls.annotations.learn(self._whose.server, message["result"])
        self._listing.discard(key)


def _cancels(message: Message) -> bool:
    return isinstance(message, Other) and message.method == CANCELLED


def _read(line: bytes) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
