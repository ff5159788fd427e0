"""What this process remembers of MCP sessions: what is under way, what servers say of their tools, and which
sessions were given what another one did.

All of it may be lost without harm: a tool of which nothing is known has effects, and a cancellation that
cannot be told apart goes no further.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from proxy.asking import Delivery
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers, is_event_stream
from proxy.core.hints import MOST_TOOLS, Hints, hints_in
from proxy.core.json_text import read
from proxy.core.jsonrpc import Id
from proxy.core.sse import data_of, split_events
from proxy.errors import Denied
from proxy.front.incoming import Asked
from proxy.front.rpc import session_of
from proxy.front.tale import Tale
from proxy.runs.book import Book
from proxy.upstream.base import Answered, Result, Sink

# A list of tools is read up to this size; of so many servers, sessions and calls something is remembered.
READABLE = 4 * 1024 * 1024
SERVERS, SESSIONS, CALLS = 256, 4096, 16384
# So many callers may still give up what they were answered.
RECENT = 1024


class Server(NamedTuple):
    """As one tenant sees it."""

    tenant: str
    upstream: str
    where: str

    @classmethod
    def of(cls, asked: Asked) -> Server:
        origin = "" if asked.address.place is None else asked.address.place.origin
        query = "" if asked.address.query is None else f"?{asked.address.query}"
        return cls(asked.tenant, asked.upstream.name, origin + asked.address.raw_path + query)


class Session(NamedTuple):
    server: Server
    run: str
    id: bytes  # empty where the server has no sessions

    @classmethod
    def of(cls, asked: Asked) -> Session:
        return cls(Server.of(asked), asked.speaker.run, session_of(asked.headers))


@dataclass(slots=True, eq=False)
class Caller:
    """Who asked for a call. `gone`: it says that it no longer waits."""

    gone: bool = False
    handed: Delivery | None = None

    def took(self, delivery: Delivery | None) -> None:
        """In a run: what was written to somebody who had left was taken by nobody."""
        self.handed = delivery
        if self.gone:
            self.leave()

    def leave(self) -> None:
        self.gone = True
        if self.handed is not None:
            self.handed.abandoned()


class Aloft(NamedTuple):
    """A call is on its way, whether or not anybody still waits for it. It may be sent a second time."""

    take_off: Callable[[], None]
    land: Callable[[], None]

    def __enter__(self) -> None:
        self.take_off()

    def __exit__(self, *_: object) -> None:
        self.land()


_Request: TypeAlias = tuple[Session, type, Id]


class UnderWay:
    """Requests that are not answered yet, or were a moment ago: they may be cancelled."""

    def __init__(self) -> None:
        self._passed: Counter[_Request] = Counter()
        self._callers: OrderedDict[_Request, Caller] = OrderedDict()
        self._aloft: Counter[Session] = Counter()
        self._quiet: dict[Session, list[asyncio.Future[None]]] = {}

    @contextmanager
    def passed(self, session: Session, ids: tuple[Id, ...]) -> Iterator[None]:
        keys: list[_Request] = [(session, type(each), each) for each in ids]
        self._passed.update(keys)
        try:
            yield
        finally:
            for key in keys:
                self._passed[key] -= 1
                if self._passed[key] <= 0:
                    del self._passed[key]

    def called(self, session: Session, id_: Id) -> Caller:
        """Remembered for a while: a client may give up while the answer is on its way to it."""
        key, caller = (session, type(id_), id_), Caller()
        self._callers[key] = caller
        self._callers.move_to_end(key)
        while len(self._callers) > RECENT:
            self._callers.popitem(last=False)
        return caller

    def knows(self, session: Session, id_: Id) -> bool:
        """It is, or was, a call's."""
        return (session, type(id_), id_) in self._callers

    def aloft(self, session: Session) -> Aloft:
        return Aloft(partial(self._take_off, session), partial(self._land, session))

    def _take_off(self, session: Session) -> None:
        self._aloft[session] += 1

    def _land(self, session: Session) -> None:
        self._aloft[session] -= 1
        if not self._aloft[session]:
            del self._aloft[session]
            for waiter in self._quiet.pop(session, ()):
                if not waiter.done():
                    waiter.set_result(None)

    def is_busy(self, session: Session) -> bool:
        return session in self._aloft

    async def quiet(self, session: Session) -> None:
        """When none of its calls is on its way."""
        while session in self._aloft:
            waiter = asyncio.get_running_loop().create_future()
            self._quiet.setdefault(session, []).append(waiter)
            await waiter

    def cancelled(self, session: Session, id_: object) -> bool:
        """Whether the server may hear of it: only of what surely is no call. One with effects is never
        stopped by its caller, and clients cancel whatever takes them too long. But then nobody waits for its
        answer, so the same call, made again, is that one."""
        if not isinstance(id_, int | str):
            return False
        key = (session, type(id_), id_)
        caller = self._callers.get(key)
        if caller is not None:
            caller.leave()
        return caller is None and key in self._passed


class Annotations:
    """What servers said of their tools, the last time that a list of them went by."""

    def __init__(self) -> None:
        self._known: OrderedDict[Server, dict[str, Hints]] = OrderedDict()

    def of(self, server: Server, tool: str) -> Hints | None:
        return self._known.get(server, {}).get(tool)

    def learn(self, server: Server, result: object) -> None:
        """One page of a list. What another page said of other tools stands."""
        known = self._known.setdefault(server, {})
        self._known.move_to_end(server)
        for name, hints in hints_in(result):
            if len(known) < MOST_TOOLS or name in known:
                known[name] = hints
        while len(self._known) > SERVERS:
            self._known.popitem(last=False)


class Listed:
    """Hears the answer to one tools/list on its way to the client."""

    def __init__(self, annotations: Annotations, server: Server) -> None:
        self._annotations = annotations
        self._server = server
        self._sink: Sink | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._events = False
        self._codings: tuple[str, ...] = ()

    def onto(self, sink: Sink) -> Sink:
        self._sink = sink
        return self

    def head(self, status: int, headers: Headers) -> None:
        assert self._sink is not None
        self._events, self._codings = is_event_stream(headers), codings(headers)
        self._sink.head(status, headers)

    async def data(self, chunk: bytes) -> None:
        assert self._sink is not None
        self._size += len(chunk)
        if self._size <= READABLE:
            self._parts.append(chunk)
        await self._sink.data(chunk)

    def ended(self, result: Result) -> None:
        if not isinstance(result, Answered) or self._size > READABLE:
            return
        try:
            body = decode(b"".join(self._parts), self._codings, READABLE)
        except Undecodable:
            return
        for text in map(data_of, split_events(body)) if self._events else (body,):
            try:
                message = read(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict) and "result" in message:
                self._annotations.learn(self._server, message["result"])


class Recollections:
    """Which session made a call, and which sessions were given calls that they did not make."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, Session] = OrderedDict()
        self._given: OrderedDict[Session, None] = OrderedDict()

    def made(self, call: str, session: Session) -> None:
        self._made[call] = session
        while len(self._made) > CALLS:
            self._made.popitem(last=False)

    def given(self, call: str, session: Session) -> None:
        if session.id and self._made.get(call) != session:
            self._given[session] = None
        while len(self._given) > SESSIONS:
            self._given.popitem(last=False)

    def guard(self, session: Session, book: Book | None, tale: Tale) -> Callable[[], None]:
        """Asked before a call would go out: what an earlier session did, this one's server does not know. In
        a run the record says who did what; outside, this does: whoever is let through makes it."""
        name = session.server.upstream

        def check() -> None:
            by_record = book is not None and bool(book.attempt)
            if book.lives_on_anothers(name) if book is not None and by_record else session in self._given:
                raise Denied(
                    f"The upstream {name!r} is stateful, and this session was given answers of calls that "
                    "were made in an earlier one. The server of this session has not seen them, so a further "
                    "call would find another state than the agent believes, and nothing was sent. Begin a "
                    "new run, or one that makes them again: `semel runs fork RUN --at N --as NEW --resend`."
                )
            if tale.call and not by_record:
                self.made(tale.call, session)

        return check
