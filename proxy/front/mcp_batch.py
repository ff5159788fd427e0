"""A batch (2025-03-26): each of its calls is a call of its own, the rest goes on as a smaller batch.

The client gets one array with all responses. Whether it took that counts for every call in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import NamedTuple, TypeAlias

from proxy.asking import Delivery
from proxy.core.headers import Headers, is_event_stream
from proxy.core.json_text import after_space, elements, plain_text, read_if_json
from proxy.core.jsonrpc import Id, error, is_response
from proxy.core.sse import data_of, split_events
from proxy.errors import Refusal
from proxy.front.connection import Connection
from proxy.front.reply import ReplyWriter, Written
from proxy.front.tale import Tale
from proxy.front.turns import HttpRequest
from proxy.observe import Observer
from proxy.problem import problem_of, render_rpc
from proxy.stream import CutOff

# What became of a batch is told in one word: the first of these that befell a part of it.
WORDS = ("executed", "joined", "replayed", "passed", "refused")
CONNECTION_CLOSED = -32000
# So many of a batch are under way at the same time.
AT_ONCE = 32
BROKEN_OFF = "semel: the answer broke off. Ask again: what was sent is not sent twice."


class AllOf(NamedTuple):
    """What was handed over together."""

    deliveries: tuple[Delivery, ...]

    def complete(self) -> None:
        for each in self.deliveries:
            each.complete()

    def abandoned(self) -> None:
        for each in self.deliveries:
            each.abandoned()


class Part(ReplyWriter):
    """One of several replies that are written together."""

    def __init__(
        self, request: HttpRequest, connection: Connection, together: Together, ids: tuple[Id, ...]
    ) -> None:
        super().__init__(request, connection)
        self._together = together
        self._ids = ids
        self._of = connection
        self.responses: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def whole(self, status: int, headers: Headers, body: bytes) -> Written:
        self.size = len(body)
        if not self.responses.done():
            said = _responses(headers, body)
            self.responses.set_result([*said, *_in_place_of(self._ids, said, status)])
        return Written(status, self._of, keep_alive=True, body_length=len(body))

    async def stream(
        self, status: int, headers: Headers, parts: AsyncIterator[bytes], *, head_first: bool = False
    ) -> Written:
        return self.whole(status, headers, b"".join([part async for part in parts]))

    async def taken(self) -> None:
        await asyncio.shield(self._together.written)

    def handed_over(self, delivery: Delivery) -> None:
        self._together.deliveries.append(delivery)


Serving: TypeAlias = Callable[[ReplyWriter, Tale], Awaitable[Written]]


class Together:
    """`written`: when the client has the whole. It ends without a result where that never happens."""

    def __init__(
        self, request: HttpRequest, connection: Connection, observer: Observer, upstream: str
    ) -> None:
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.deliveries: list[Delivery] = []
        self._request = request
        self._connection = connection
        self._observer = observer
        self._upstream = upstream

    async def serve(self, servings: Iterable[tuple[Serving, tuple[Id, ...]]], writer: ReplyWriter) -> Written:
        """Each serving with the requests that it answers."""
        tales: list[Tale] = []
        parts: list[Part] = []
        tasks: list[asyncio.Task[None]] = []
        room = asyncio.Semaphore(AT_ONCE)
        try:
            for serving, ids in servings:
                await room.acquire()
                tales.append(Tale(self._upstream))
                parts.append(Part(self._request, self._connection, self, ids))
                tasks.append(asyncio.create_task(self._serve(serving, ids, parts[-1], tales[-1])))
                parts[-1].responses.add_done_callback(lambda _: room.release())
            responses = [text for part in parts for text in await part.responses]
            body = b"[" + b",".join(responses) + b"]"
            word = next((word for word in WORDS if any(tale.status == word for tale in tales)), "refused")
            reply = writer.whole(200, _head(body, word), body)
            self.written.set_result(None)
        finally:
            self.written.cancel()  # if it is not written: nobody has taken anything
            await asyncio.gather(*tasks, return_exceptions=True)
        writer.handed_over(AllOf(tuple(self.deliveries)))
        return reply

    async def _serve(self, serving: Serving, ids: tuple[Id, ...], part: Part, tale: Tale) -> None:
        began = time.monotonic()
        try:
            await serving(part, tale)
            tale.delivered = True
        except Refusal as refusal:
            tale.status, tale.code, tale.problem = "refused", 200, problem_of(refusal).name
            _answer(part, [render_rpc(refusal, id_)[2] for id_ in ids])
        except (CutOff, ConnectionError):
            _answer(part, [error(id_, CONNECTION_CLOSED, BROKEN_OFF) for id_ in ids])
        except BaseException as defect:
            if not part.responses.done():
                part.responses.set_exception(defect)
            raise
        finally:
            self._observer.served(tale.served("POST", part.size, time.monotonic() - began))


def _answer(part: Part, responses: list[bytes]) -> None:
    if not part.responses.done():
        part.responses.set_result([text.strip() for text in responses])


def _head(body: bytes, word: str) -> Headers:
    return (
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Semel-Status", word.encode()),
    )


def _responses(headers: Headers, body: bytes) -> list[bytes]:
    """As they came, where a reply is one message."""
    if not is_event_stream(headers):
        message = read_if_json(body)
        if isinstance(message, list):
            return _each(plain_text(body))
        return [body.strip()] if is_response(message) else []
    return [text for text in map(data_of, split_events(body)) if is_response(read_if_json(text))]


def _in_place_of(ids: tuple[Id, ...], said: list[bytes], status: int) -> list[bytes]:
    """Whoever asked in a batch hears of every request: a status that was meant for one of them is lost."""
    answered = {str(read_if_json(text).get("id")) for text in said}
    told = f"semel: the server answered {status} and gave no response."
    return [error(id_, CONNECTION_CLOSED, told).strip() for id_ in ids if str(id_) not in answered]


def _each(text: str) -> list[bytes]:
    return [
        text[each.begin : each.end].encode()
        for each in elements(text, after_space(text, 0))
        if is_response(each.value)
    ]
