"""What happened, told once. metrics.py and log.py listen; nothing else in semel knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Served(NamedTuple):
    """One request answered, whoever answered it. Labels are bounded; `call` and `target` are for the log."""

    upstream: str = ""
    rule: str = ""
    mode: str = ""
    tool: str = ""
    safe: bool = True
    method: str = ""
    status: str = ""  # executed | replayed | joined | passed | refused
    code: int = 0
    call: str = ""
    problem: str = ""
    seconds: float = 0.0
    size: int = 0
    delivered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One exchange with an upstream. `code` is its status, or "lost" or "not_sent"."""

    upstream: str
    rule: str
    code: str
    seconds: float


class Observer(Protocol):
    def served(self, told: Served) -> None: ...

    def sent(self, told: Sent) -> None: ...

    def store_took(self, operation: str, seconds: float) -> None: ...

    def reloaded(self, *, good: bool, detail: str) -> None: ...

    def noted(self, event: str, **fields: object) -> None:
        """Anything an operator should read in the log: recoveries, store trouble, late answers."""


class Everyone:
    """Tells several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def served(self, told: Served) -> None:
        for observer in self._observers:
            observer.served(told)

    def sent(self, told: Sent) -> None:
        for observer in self._observers:
            observer.sent(told)

    def store_took(self, operation: str, seconds: float) -> None:
        for observer in self._observers:
            observer.store_took(operation, seconds)

    def reloaded(self, *, good: bool, detail: str) -> None:
        for observer in self._observers:
            observer.reloaded(good=good, detail=detail)

    def noted(self, event: str, **fields: object) -> None:
        for observer in self._observers:
            observer.noted(event, **fields)
