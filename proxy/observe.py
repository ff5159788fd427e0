"""What happened, told once. metrics.py and log.py listen; nothing else in semel knows them."""

from __future__ import annotations

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


class Sent(NamedTuple):
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


class Deaf:
    """Hears nothing: observers take from it what does not concern them, and are then not even called."""

    def served(self, told: Served) -> None:
        """Not listening."""

    def sent(self, told: Sent) -> None:
        """Not listening."""

    def store_took(self, operation: str, seconds: float) -> None:
        """Not listening."""

    def reloaded(self, *, good: bool, detail: str) -> None:
        """Not listening."""

    def noted(self, event: str, **fields: object) -> None:
        """Not listening."""


class Everyone:
    """Tells several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._served = [one.served for one in observers if type(one).served is not Deaf.served]
        self._sent = [one.sent for one in observers if type(one).sent is not Deaf.sent]
        self._took = [one.store_took for one in observers if type(one).store_took is not Deaf.store_took]
        self._reloaded = [one.reloaded for one in observers if type(one).reloaded is not Deaf.reloaded]
        self._noted = [one.noted for one in observers if type(one).noted is not Deaf.noted]

    def served(self, told: Served) -> None:
        for tell in self._served:
            tell(told)

    def sent(self, told: Sent) -> None:
        for tell in self._sent:
            tell(told)

    def store_took(self, operation: str, seconds: float) -> None:
        for tell in self._took:
            tell(operation, seconds)

    def reloaded(self, *, good: bool, detail: str) -> None:
        for tell in self._reloaded:
            tell(good=good, detail=detail)

    def noted(self, event: str, **fields: object) -> None:
        for tell in self._noted:
            tell(event, **fields)
