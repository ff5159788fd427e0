"""The seam between semel and the network behind it.

A send has one of three results. `NotSent` needs proof: not one byte of the request was handed to the
kernel. Everything else that is not a complete answer is `Lost`: doubt is the default.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from proxy.core.intent import Call
from proxy.core.jsonrpc import Id
from proxy.core.policy import Timeouts
from proxy.core.reachable import Said
from proxy.spool import Spool

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Errand(Protocol):
    """What no network carries: whoever asks for the call does it (proxy/tools)."""

    def claimed(self, call: Call) -> None:
        """Told when the claim is durable, before anything is handed out."""


class Outgoing(NamedTuple):
    """One request, ready to be written as it is: Host and framing included by `headers`."""

    scheme: str
    host: str
    port: int
    method: str
    target: bytes  # origin-form, the very bytes
    headers: Headers
    body: Spool | None
    timeouts: Timeouts
    max_idle: float  # a pooled connection may be used only if it was idle for less than this (seconds)
    said: Said  # of the host: which addresses it may have
    head: bytes = b""  # as it will be written, where the caller has made and checked it already
    errand: Errand | None = None  # its caller does it: no address counts
    rpc: Id | None = None  # of the JSON-RPC request that it is: the response to that is its answer
    aloft: AbstractContextManager[object] = nullcontext()  # entered for as long as it is under way


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete answer was given to the sink. `rpc`: the JSON-RPC request that it should answer; `asked`: in
    the course of it the client was asked something, beside the answer."""

    status: int
    rpc: Id | None = None
    asked: bool = False

    @property
    def code(self) -> str:
        """As it is told; the other results have theirs."""
        return str(self.status)


@dataclass(frozen=True, slots=True)
class NotSent:
    """Proven: nothing went out. `for_good`: nor will it next time, unless a person changes something."""

    code: ClassVar[str] = "not_sent"
    reason: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Sent, or perhaps sent. `status`: the head's, if one came; `timed_out`: a timeout, not a break."""

    code: ClassVar[str] = "lost"
    reason: str
    status: int | None = None
    timed_out: bool = False


Result: TypeAlias = Answered | NotSent | Lost


class Sink(Protocol):
    """Where an answer goes while it arrives. Interim (1xx) answers are not given to it."""

    def head(self, status: int, headers: Headers) -> None:
        """Header names and values as they came, without hop-by-hop ones."""

    async def data(self, chunk: bytes) -> None:
        """May wait: reading from the upstream pauses meanwhile."""


class WholeSink:
    """A sink that would rather have an answer that came all at once in one piece. No ABC: whether a sink is
    one is asked for every call, and of those in Python."""

    @abstractmethod
    def wants(self, headers: Headers, size: int) -> bool:
        """Whether `take` may be called, in place of `head` and `data`."""

    @abstractmethod
    def take(self, status: int, headers: Headers, body: bytes) -> None: ...

    @abstractmethod
    def head(self, status: int, headers: Headers) -> None: ...

    @abstractmethod
    async def data(self, chunk: bytes) -> None: ...


class Tap(Protocol):
    """Hears what comes of one send that is only forwarded."""

    def onto(self, sink: Sink) -> Sink:
        """A sink that hands on to this one what it hears. Never waits by itself and never fails."""

    def ended(self, result: Result) -> None:
        """Told in any case, and before the caller sees the end."""


class Hears(Protocol):
    """Who is told what becomes of a send that nobody awaits. What it does then never raises."""

    def answered(self, result: Result) -> None:
        """The send is over."""

    def goes_on(self, rest: Awaitable[Result]) -> None:
        """It comes in parts, or is no short one: `rest` gives what becomes of it, and has to be awaited."""


class UnderWay(Protocol):
    def abandon(self) -> None:
        """Break it off. Nothing more is told."""


# As `send`, if it can begin at once and nothing has to be awaited. None: nothing was done.
SendSoon: TypeAlias = Callable[[Outgoing, WholeSink, Callable[[], bool], Hears], "UnderWay | NotSent | None"]


class UpstreamClient(Protocol):
    def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Awaitable[Result]:
        """Send once, never twice. `may_send` is asked directly before the first byte; no means NotSent.
        On cancellation the connection is closed, never returned to the pool."""

    async def close(self) -> None: ...
