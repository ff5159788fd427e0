"""The parts of a rule that stand on their own: keys for the upstream, probes, approvals, budgets.

Values only. What cannot be is refused here as well as in the policy file's reader, so that a rule made
by hand in a test obeys the same laws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum


class Wire(StrEnum):
    """What an upstream speaks (`protocol:`)."""

    HTTP = "http"
    MCP = "mcp"
    TOOLS = "tools"  # functions of the agent's own


class OnDoubt(StrEnum):
    HOLD = "hold"
    RESEND = "resend"
    PROBE = "probe"


class KeyEncoding(StrEnum):
    """How an upstream wants its keys written."""

    TEXT = "text"  # letters and digits
    HEX = "hex"
    UUID = "uuid"


class OnStale(StrEnum):
    SERVE = "serve"
    REVALIDATE = "revalidate"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamKey:
    """Where this upstream takes an idempotency key, and how long it remembers one."""

    header: str | None = None  # lower case
    body: str | None = None  # a dotted path into the JSON body
    retention: float = 86400.0
    max_length: int = 64
    encoding: KeyEncoding = KeyEncoding.TEXT
    mismatch: frozenset[int] = frozenset()  # "this key was used for something else": doubt, not a result
    mismatch_if: str | None = None  # the same, as JMESPath on the answer
    beside: tuple[
        tuple[str, str | int | bool], ...
    ] = ()  # further fields of the body, and what they are set to

    def __post_init__(self) -> None:
        if (self.header is None) == (self.body is None):
            raise ValueError("an upstream key goes into a header or into the body")
        if self.beside and self.body is None:
            raise ValueError("further fields stand in the body, beside a key that does")
        if self.encoding is KeyEncoding.UUID and self.max_length < 36:
            raise ValueError("a UUID has 36 characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A safe question whose answer tells whether a call took effect."""

    method: str
    target: str  # path and query with {placeholders}
    found: str  # JMESPath on the probe's answer
    result: str | None = None  # JMESPath; None: the whole answer
    settle: float = 5.0

    @property
    def tells_repeats_apart(self) -> bool:
        """Whether it asks for one of several identical calls, and not for any of them."""
        return "{upstream_key}" in self.target or "{sent_at}" in self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    when: str | None = None  # JMESPath on the arguments; None: always
    wait: float = 20.0
    expires: float = 86400.0


@dataclass(frozen=True, slots=True)
class Rate:
    calls: int
    period: float


@dataclass(frozen=True, slots=True)
class Allowance:
    usd: Decimal
    period: float | None = None  # None: of a run for its life; outside runs a day's


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Per run, outside runs per tenant."""

    calls: Rate | None = None
    usd: Allowance | None = None

    def __post_init__(self) -> None:
        if self.calls is None and self.usd is None:
            raise ValueError("a budget limits calls, money or both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    usd: Decimal | None = None
    usd_from: str | None = None  # JMESPath on the answer

    def __post_init__(self) -> None:
        if (self.usd is None) == (self.usd_from is None):
            raise ValueError("a cost is fixed or read from the answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redact:
    """What is stored only as a keyed hash."""

    args: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()  # lower case


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject:
    """A credential that semel holds, so that the agent does not."""

    header: str  # as written
    value_env: str
    # Only a semel that serves has it. Never shown: whoever prints a policy prints no secret.
    value: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        return self.header.lower()

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """What goes upstream."""
        if not self.value:  # a call without it would be made in the name of nobody, or of the agent
            raise RuntimeError(f"{self.value_env} was not read: nothing may be sent without it")
        return self.header.encode(), self.value
