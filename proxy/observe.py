"""What happened, told once. metrics.py and log.py listen; nothing else in semel knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from proxy.core.intent import Call
from proxy.core.policy import PolicySet

# Events that are counted beside being told.
DIVERGED, POLLING, DRIFT, COLLECTED = "diverged", "looks-like-polling", "drift", "collected"
RECOVERED = "recovered"

T = TypeVar("T")
# The call's id, the seconds it took, of these the upstream's, and its answer's size.
TellsCall: TypeAlias = Callable[[str, float, float, int], None]


class Served(NamedTuple):
    """One request answered, whoever answered it. Labels are bounded; `tool`, `call` and `trace` are for the
    log and for spans."""

    upstream: str = ""
    rule: str = ""
    mode: str = ""
    tool: str = ""
    safe: bool = True
    method: str = ""
    trace: str = ""  # the agent's, of which this call is a part
    status: str = ""  # executed | replayed | joined | passed | refused
    code: int = 0
    call: str = ""
    problem: str = ""
    seconds: float = 0.0
    upstream_seconds: float = 0.0  # of these, while the upstream had it; 0 where it was not asked
    size: int = 0
    delivered: bool = True
    cost_usd: float = 0.0  # of the answer, where it is known by then


class Sent(NamedTuple):
    """One exchange with an upstream. `code` is its status, or "lost" or "not_sent"."""

    upstream: str
    rule: str
    code: str
    seconds: float


class Observer(Protocol):
    def served(self, told: Served) -> None: ...

    def again(self, told: Served) -> Callable[[float], None]:
        """The very same may be told many times, but for the seconds it takes: what is called for each."""

    def alike(self, told: Served) -> TellsCall:
        """The same of calls that were delivered, and differ in no more than what is told of each."""

    def sent(self, told: Sent) -> None: ...

    def sent_again(self, told: Sent) -> Callable[[float], None]:
        """As `again`."""

    def store_took(self, operation: str, seconds: float) -> None: ...

    def store_again(self, operation: str) -> Callable[[float], None]:
        """As `again`."""

    def reloaded(self, *, good: bool, detail: str) -> None: ...

    def governed(self, policies: PolicySet) -> None:
        """These hold from now on: said at the start, and when others take their place."""

    def spent(self, call: Call) -> None:
        """A call was executed, and what it cost is known: said once it is durable, by whoever wrote it."""

    def entered(self, call: Call) -> None:
        """A call has come into doubt, or waits for approval: said once it is durable, by whoever wrote it."""

    def noted(self, event: str, **fields: object) -> None:
        """Anything an operator should read in the log: recoveries, store trouble, late answers."""


class Deaf:
    """Hears nothing: observers take from it what does not concern them, and are then not even called."""

    def served(self, told: Served) -> None:
        """Not listening."""

    def again(self, told: Served) -> Callable[[float], None]:
        """As if it were told anew."""
        return lambda seconds: self.served(told._replace(seconds=seconds))

    def sent(self, told: Sent) -> None:
        """Not listening."""

    def sent_again(self, told: Sent) -> Callable[[float], None]:
        """As if it were told anew."""
        return lambda seconds: self.sent(told._replace(seconds=seconds))

    def alike(self, told: Served) -> TellsCall:
        """As if it were told anew."""

        def tell(call: str, seconds: float, upstream_seconds: float, size: int) -> None:
            self.served(
                told._replace(call=call, seconds=seconds, upstream_seconds=upstream_seconds, size=size)
            )

        return tell

    def store_took(self, operation: str, seconds: float) -> None:
        """Not listening."""

    def store_again(self, operation: str) -> Callable[[float], None]:
        """As if it were told anew."""
        return lambda seconds: self.store_took(operation, seconds)

    def reloaded(self, *, good: bool, detail: str) -> None:
        """Not listening."""

    def governed(self, policies: PolicySet) -> None:
        """Not listening."""

    def spent(self, call: Call) -> None:
        """Not listening."""

    def entered(self, call: Call) -> None:
        """Not listening."""

    def noted(self, event: str, **fields: object) -> None:
        """Not listening."""


def _to_all(listeners: list[Callable[..., None]]) -> Callable[..., None]:
    if len(listeners) == 1:
        return listeners[0]

    def tell(*told: object, **more: object) -> None:
        for listener in listeners:
            listener(*told, **more)

    return tell


def _of_a_call(listeners: list[Callable[[T], None]]) -> Callable[[T], None]:
    """For every call: passing on whatever there is costs as much as counting it."""
    if len(listeners) != 2:
        return _to_all(listeners)
    first, second = listeners

    def tell(told: T) -> None:
        first(told)
        second(told)

    return tell


class Everyone:
    """Tells several observers; who does not listen to something is not called for it."""

    def __init__(self, *observers: Observer) -> None:
        def who(hear: str) -> list[Callable[..., None]]:
            deaf = getattr(Deaf, hear)
            return [getattr(one, hear) for one in observers if getattr(type(one), hear) is not deaf]

        def all_who(hear: str) -> Callable[..., None]:
            return _to_all(who(hear))

        self._hear_calls = [one for one in observers if type(one).served is not Deaf.served]
        self._hear_sends = [one for one in observers if type(one).sent is not Deaf.sent]
        self._hear_the_store = [one for one in observers if type(one).store_took is not Deaf.store_took]
        self.served: Callable[[Served], None] = _of_a_call(who("served"))
        self.sent: Callable[[Sent], None] = all_who("sent")
        self.store_took: Callable[[str, float], None] = all_who("store_took")
        self.reloaded = all_who("reloaded")
        self.governed: Callable[[PolicySet], None] = all_who("governed")
        self.spent: Callable[[Call], None] = all_who("spent")
        self.entered: Callable[[Call], None] = all_who("entered")
        self.noted = all_who("noted")

    def again(self, told: Served) -> Callable[[float], None]:
        return _of_a_call([one.again(told) for one in self._hear_calls])

    def alike(self, told: Served) -> TellsCall:
        tellers = [one.alike(told) for one in self._hear_calls]
        if len(tellers) != 2:
            return _to_all(tellers)
        first, second = tellers

        def tell(call: str, seconds: float, upstream_seconds: float, size: int) -> None:
            first(call, seconds, upstream_seconds, size)
            second(call, seconds, upstream_seconds, size)

        return tell

    def sent_again(self, told: Sent) -> Callable[[float], None]:
        return _of_a_call([one.sent_again(told) for one in self._hear_sends])

    def store_again(self, operation: str) -> Callable[[float], None]:
        return _of_a_call([one.store_again(operation) for one in self._hear_the_store])
