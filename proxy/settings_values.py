"""What semel.yaml comes to: frozen values, each with its default. settings_schema.py is how they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path

from proxy.core.divergence import OnDivergence
from proxy.notifying.schema import Notify
from proxy.store.durability import Durability

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


class Role(StrEnum):
    AGENT = "agent"
    OPERATOR = "operator"
    METRICS = "metrics"


class Unknown(StrEnum):
    """What happens to a host that no upstream names."""

    DENY = "deny"
    TUNNEL = "tunnel"
    RECORD = "record"


class Private(StrEnum):
    """What happens to a host at a private address that nobody has said so of."""

    DENY = "deny"
    ALLOW = "allow"


class Traces(StrEnum):
    """Where spans go."""

    OFF = "off"
    OTLP = "otlp"


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int  # 0: any free one

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    cert: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    sha256: str
    tenant: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    key_file: str = ""
    key: str = field(default="", repr=False)  # instead of a file: from the environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """In bytes, seconds, connections."""

    request_body: int = 32 * MIB
    response_body: int = 256 * MIB
    connections: int = 2000
    header_timeout: float = 15.0
    headers: int = 64 * KIB
    inline_body: int = 64 * KIB
    spool: int = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    unknown: Unknown = Unknown.DENY
    private: Private = Private.DENY


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    retention: float = 30 * 86400.0
    on_divergence: OnDivergence = OnDivergence.HOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    heartbeat: float = 5.0
    dead_after: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gc:
    every: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    listen: Address = Address("127.0.0.1", 8080)
    tls: Tls | None = None
    state: Path = field(default_factory=lambda: Path("~/.local/state/semel").expanduser())
    store: str = "embedded"
    durability: Durability = Durability.STRICT
    workers: int = 1
    policies: tuple[str, ...] = ("presets",)
    limits: Limits = field(default_factory=Limits)
    auth: Auth | None = None
    encryption: Encryption | None = None
    notify: Notify | None = None
    forward: Forward = field(default_factory=Forward)
    runs: Runs = field(default_factory=Runs)
    owners: Owners = field(default_factory=Owners)
    gc: Gc = field(default_factory=Gc)
    reload: bool = True
    recall: bool = True
    traces: Traces = Traces.OFF

    @property
    def has_operators(self) -> bool:
        """Somebody has a token with which people decide."""
        return self.auth is not None and any(token.role is Role.OPERATOR for token in self.auth.tokens)

    @property
    def is_encrypted(self) -> bool:
        """Whether the record may hold what only semel may read."""
        return self.encryption is not None
