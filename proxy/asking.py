"""What the front hands to the exchange, and what it gets back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from proxy.answers import Produced
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.core.policy import Rule
from proxy.flight import Flight
from proxy.intended import Intent, RunPlace
from proxy.stream import Phase, Reader, Whole
from proxy.upstream.base import Outgoing, Result


class Patience(NamedTuple):
    """Until when, by the monotonic clock, a caller waits: for the same call of another, for a person."""

    others: float
    person: float

    @classmethod
    def of(cls, rule: Rule, began: float) -> Patience:
        return cls(began + rule.wait, began if rule.approval is None else began + rule.approval.wait)

    @property
    def end(self) -> float:
        return max(self)


class Sendable(Protocol):
    """What a call would send and write down. Asked for only when it is really sent."""

    @property
    def base_path(self) -> str:
        """What the upstream's address puts before every path."""

    def outgoing(self) -> Outgoing:
        """Raises a Refusal for what cannot be sent as it is."""

    def intent(self, identity: Identity, outgoing: Outgoing) -> Intent: ...


Source: TypeAlias = Callable[[Flight], Awaitable[Result]]
# Hears what a caller waits for, before it waits: who leaves early was served by that all the same.
Boards: TypeAlias = "Callable[[Live], None]"


def unheard(live: Live) -> None:
    """Nobody tells of this one."""


class Ask(NamedTuple):
    """A call as the front hands it over: named, with its rule."""

    identity: Identity
    rule: Rule
    safe: bool
    refresh: bool
    sending: Sendable
    place: RunPlace | None = None  # in a run
    occurrence: int = 1
    source: Source | None = None  # where the answer comes from, if not from the upstream
    payer: str = ""  # the run whose budget it is taken from, where it is not a call of that run
    boards: Boards = unheard


class Labels(NamedTuple):
    """For metrics: both are names from policy files."""

    upstream: str
    rule: str


class Delivery(Protocol):
    """In a run: what becomes of handing an answer on is part of the record."""

    def complete(self) -> None:
        """All of it was written."""

    def abandoned(self) -> None:
        """The caller left before the end. Also after `complete`, where that shows only then."""


class Replayed(NamedTuple):
    call: Call
    answer: Produced
    delivery: Delivery | None = None

    @property
    def size(self) -> int | None:
        return None if self.call.answer is None else self.call.answer.size


@dataclass(slots=True)
class Live:
    """The answer as it arrives. Whoever holds it says `leave` in any case. `given`: what it is read by, where
    it was not taken whole."""

    flight: Flight
    joined: bool
    delivery: Delivery | None = None
    given: Reader | None = None

    @property
    def reader(self) -> Reader:
        if self.given is None:
            self.given = self.flight.capture.reader()
        return self.given

    @property
    def whole(self) -> Whole | None:
        """All of it at once, where that is all there is."""
        return self.flight.whole if self.given is None else None

    @property
    def how(self) -> str:
        if self.joined:
            return "joined"
        return "replayed" if self.flight.from_record else "executed"

    @property
    def size(self) -> int | None:
        """Of the whole; None: it is not known yet."""
        capture = self.flight.capture
        return capture.received if capture.phase is Phase.SEALED else None

    def leave(self) -> None:
        if self.given is not None:
            self.given.close()
        self.flight.leave()


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The store is down and the call is safe: forward it without a record."""


Reply: TypeAlias = Replayed | Live | Unrecorded
