"""Who says what to whom: the client's lines to the server, the server's to the client, calls to the record.

A batch with calls in it is answered message by message: over a pipe nothing else keeps them together.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from proxy.bridge.calls import Calls
from proxy.bridge.pipes import Out, Readable, TooLong, lines
from proxy.bridge.room import Room
from proxy.bridge.server import ServerProcess
from proxy.core.json_text import after_space, elements, plain_text, read_if_json
from proxy.core.jsonrpc import (
    CANCELLED,
    INVALID_REQUEST,
    LIST_TOOLS,
    PARSE_ERROR,
    Heard,
    Id,
    Message,
    Other,
    ToolCall,
    Unclear,
    error,
    hear,
    is_id,
    is_request,
    is_response,
)
from proxy.errors import Overloaded
from proxy.front.mcp_memory import Caller, UnderWay
from proxy.front.mcp_memory import Session as Whose
from proxy.problem import render_rpc

_Key: TypeAlias = tuple[type, Id]
_T = TypeVar("_T")
# A longer line is read beside the loop.
READ_INLINE = 64 * 1024
TOO_MUCH = (
    "Too many calls are under way, or too long ones, and the server waits for a word of the client: nothing "
    "was sent. Call again when some are answered."
)


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
        self._calling: Counter[_Key] = Counter()  # calls that are not answered, whether or not it has them
        self._questions: set[_Key] = set()  # what the server has asked the client
        self._passed: set[_Key] = set()  # requests that the server has, and that are no calls
        self._listing: set[_Key] = set()  # of those, the ones for a list of tools
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = Room(limits.client)
        self._left = False

    # ---- the client ----

    async def hear_client(self) -> None:
        """Until it says nothing more."""
        async for line in lines(self._client, self._limits.client):
            if isinstance(line, TooLong):
                text = f"The message is over {self._limits.client} bytes (limits.request_body)."
                await self._refuse(None, INVALID_REQUEST, text)
                continue
            try:
                heard = await _aside(_hear_line, line)
            except Unclear as unclear:
                await self._refuse(unclear.id, unclear.code, str(unclear))
                continue
            as_it_is = not heard.calls and not any(map(_cancels, heard.messages))
            if as_it_is and not any(map(self._is_taken, heard.messages)):
                for each in heard.messages:
                    self._expect(each)
                await self._server.say(line)
                continue
            for each in heard.messages:
                await self._take(each)

    async def _refuse(self, id_: Id | None, code: int, why: str) -> None:
        await self._out.write(error(id_, code, f"semel: {why} It was not handed on.").strip())

    def _is_taken(self, message: Message) -> bool:
        """Its id is that of a call under way: their answers could not be told apart."""
        is_asking = isinstance(message, Other) and message.method and message.id is not None
        return bool(is_asking) and (type(message.id), message.id) in self._calling

    async def _take(self, message: Message) -> None:
        if self._is_taken(message) or (isinstance(message, ToolCall) and self._is_passed(message.id)):
            await self._refuse(message.id, INVALID_REQUEST, f"The id {message.id!r} is in use.")
        elif isinstance(message, ToolCall):
            size, key = len(message.text), (type(message.id), message.id)
            if not await self._room.enter(size, lambda: bool(self._questions)):
                await self._out.write(render_rpc(Overloaded(TOO_MUCH), message.id)[2].strip())
                return
            self._calling[key] += 1
            caller = self._under_way.called(self._whose, message.id)  # it may give up in the next line
            task = asyncio.create_task(self._call(message, caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._done(key, size))
        elif not _cancels(message) or self._may_be_cancelled(message.params.get("requestId")):
            self._expect(message)
            await self._server.say(message.text)

    def _done(self, key: _Key, size: int) -> None:
        self._room.leave(size)
        self._calling[key] -= 1
        if not self._calling[key]:
            del self._calling[key]

    def _may_be_cancelled(self, id_: object) -> bool:
        """Whoever gives up a call no longer waits for it; the server does not hear of that."""
        self._under_way.cancelled(self._whose, id_)
        if not self._is_passed(id_):
            return False
        self._answered(id_)  # what is called off needs no answer
        return True

    def _is_passed(self, id_: object) -> bool:
        return isinstance(id_, int | str) and (type(id_), id_) in self._passed

    def _expect(self, message: Message) -> None:
        if isinstance(message, Other) and message.id is not None:
            key = (type(message.id), message.id)
            if not message.method:
                self._questions.discard(key)
                return
            self._passed.add(key)
            if message.method == LIST_TOOLS:
                self._listing.add(key)

    async def _call(self, call: ToolCall, caller: Caller) -> None:
        answer = await self._calls.ask(call)
        taken = not caller.gone and await self._out.write(answer.line)
        if answer.delivery is not None:
            answer.delivery.complete()
            if not taken or self._left:
                caller.gone = True
            caller.took(answer.delivery)

    def client_left(self) -> None:
        """What it asked for goes on. Answers are written still, but whoever has left takes nothing: made
        again, such a call is the same."""
        self._left = True
        self._out.leave()

    @property
    def is_writing(self) -> bool:
        return self._out.is_busy

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
            message = await _aside(read_if_json, line)
            if isinstance(message, list) and any(map(is_response, message)):
                for element, text in _elements(line):
                    await self._hear(element, text)
            else:
                await self._hear(message, line)

    async def _hear(self, message: Any, line: bytes) -> None:  # noqa: ANN401 (JSON)
        if self._server.heard(message, line, self._is_passed):
            return
        if is_response(message) and is_id(message.get("id")):
            if not self._is_passed(message["id"]) and self._under_way.knows(self._whose, message["id"]):
                return  # a call's second answer: the first is on record
            self._note(message)
        if is_request(message) and is_id(message["id"]):
            self._questions.add((type(message["id"]), message["id"]))
            self._room.look_again()
        await self._out.write(line)

    def _note(self, response: dict[str, Any]) -> None:
        key = (type(response["id"]), response["id"])
        if key in self._listing and "result" in response:
            self._calls.annotations.learn(self._whose.server, response["result"])
        self._answered(response["id"])

    def _answered(self, id_: object) -> None:
        if isinstance(id_, int | str):
            self._passed.discard((type(id_), id_))
            self._listing.discard((type(id_), id_))


def _cancels(message: Message) -> bool:
    return isinstance(message, Other) and message.method == CANCELLED


def _hear_line(line: bytes) -> Heard:
    """A carriage return is a space in JSON, and to many servers the end of a line: what follows it would be
    another message to them. Raises Unclear."""
    if b"\r" in line.strip():
        raise Unclear(PARSE_ERROR, "A message is one line, without carriage returns in it.")
    return hear(line)


async def _aside(reader: Callable[[bytes], _T], line: bytes) -> _T:
    return reader(line) if len(line) <= READ_INLINE else await asyncio.to_thread(reader, line)


def _elements(line: bytes) -> Iterator[tuple[Any, bytes]]:
    """Of a batch, each as it was written."""
    text = plain_text(line)
    for each in elements(text, after_space(text, 0)):
        yield each.value, text[each.begin : each.end].encode()
