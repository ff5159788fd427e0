"""What a policy file says, as frozen values. Which rule a request meets is in matching.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proxy.core.clauses import (
    Approval,
    Budget,
    Cost,
    Inject,
    OnDoubt,
    OnStale,
    Probe,
    Redact,
    UpstreamKey,
    Wire,
)
from proxy.core.patterns import PathPattern
from proxy.core.reachable import Said

# Of calls that no network carries: the tool's name stands where others have their path.
TOOL_SCHEME, TOOL_METHOD = "tool", "TOOL"
TOOLS_NAME = "local-tools"  # of their upstream; no other may have it
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# What calls without a rule are counted under.
DEFAULT_NAME = "default"


class Mode(StrEnum):
    ONCE = "once"
    CACHE = "cache"
    PASS = "pass"  # noqa: S105 (not a password)
    DENY = "deny"


class Scope(StrEnum):
    RUN = "run"
    TENANT = "tenant"


class Repeat(StrEnum):
    ORDINAL = "ordinal"
    SAME = "same"


class Credential(StrEnum):
    AUTO = "auto"
    INCLUDE = "include"
    EXCLUDE = "exclude"


class ClientKey(StrEnum):
    AUTO = "auto"
    IGNORE = "ignore"
    REQUIRE = "require"


class Normalize(StrEnum):
    TIMESTAMPS = "timestamps"
    UUIDS = "uuids"


class OnDisconnect(StrEnum):
    FINISH = "finish"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Implied:
    """What names a call, or does not, without the rule's `key` saying so."""

    headers: tuple[str, ...] = ()  # lower case: they choose the account, or the rule
    # Where the upstream takes a key, the client may have put its own: that counts as an Idempotency-Key, and
    # is no argument.
    client_header: str = ""  # lower case
    client_field: str = ""  # of the JSON body, dotted
    client_beside: tuple[tuple[str, str | int | bool], ...] = ()  # without these it is no key


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecipe:
    """Which parts of a request name the call."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()  # lower case
    credential: Credential = Credential.AUTO
    client_key: ClientKey = ClientKey.AUTO
    normalize: tuple[Normalize, ...] = ()
    implied: Implied = field(default_factory=Implied)
    counted: tuple[str, ...] = field(init=False, default=(), compare=False)  # all headers that count

    def __post_init__(self) -> None:
        counted = dict.fromkeys((*self.headers, *self.implied.headers))
        counted.pop(self.implied.client_header, None)  # a key that is minted anew must not name the call
        object.__setattr__(self, "counted", tuple(counted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What a rule looks at beyond method and path."""

    headers: tuple[tuple[str, tuple[str, ...]], ...] = ()  # lower case; each has one of these values
    when: str | None = None  # JMESPath on the arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRule:
    """What the statuses of this endpoint mean, where the general table is wrong for it."""

    final: frozenset[int] = frozenset()
    not_executed: frozenset[int] = frozenset()
    in_doubt: frozenset[int] = frozenset()
    not_executed_if: str | None = None  # JMESPath on the answer's JSON body
    in_doubt_if: str | None = None  # the same; its word counts before the others'


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    connect: float = 5.0
    idle: float = 120.0
    total: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str
    methods: frozenset[str] = frozenset()  # empty: any
    path: PathPattern | None = None  # None: any
    looks: Looks | None = None  # None: at nothing more
    tool: str = ""
    mode: Mode = Mode.ONCE
    safe: bool | None = None  # None: by method (and cache is always safe)
    scope: Scope = Scope.RUN
    repeat: Repeat = Repeat.ORDINAL
    key: KeyRecipe = field(default_factory=KeyRecipe)
    ttl: float = 86400.0
    wait: float = 60.0
    on_disconnect: OnDisconnect = OnDisconnect.FINISH
    outcome: OutcomeRule = field(default_factory=OutcomeRule)
    in_doubt: OnDoubt = OnDoubt.HOLD
    upstream_key: UpstreamKey | None = None
    probe: Probe | None = None
    approval: Approval | None = None
    budget: Budget | None = None
    charged_to: str = ""  # in a run: the rule of now whose budget it is, where that has another name
    cost: Cost | None = None
    max_age: float | None = None
    stale: OnStale = OnStale.SERVE
    shadow: bool = False
    redact: Redact = field(default_factory=Redact)  # in a run: as it was when that began
    redacts_now: Redact = field(default_factory=Redact)  # only where that differs from what it is now

    def __post_init__(self) -> None:
        if self.mode is Mode.CACHE and self.safe is False:
            raise ValueError("a cache rule is safe by nature")
        if self.on_disconnect is OnDisconnect.CANCEL and self.safe is False:
            raise ValueError("only a safe call may be cancelled")

    def is_safe(self, method: str) -> bool:
        if self.safe is not None:
            return self.safe
        return self.mode is Mode.CACHE or method in SAFE_METHODS


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One policy file: where an upstream is, and the rules for calling it."""

    name: str
    scheme: str  # "http" | "https" | "tool"
    host: str
    port: int
    base_path: str = ""  # without a trailing slash
    credentials: tuple[str, ...] = ()  # lower case, beside the well-known ones
    accounts: tuple[str, ...] = ()  # lower case: headers that name every call; rules have them in their key
    timeouts: Timeouts = field(default_factory=Timeouts)
    rules: tuple[Rule, ...] = ()
    hosts: tuple[str, ...] = ()  # empty: the base address's own
    private: bool = False  # the names of its hosts may lead to private addresses
    protocol: Wire = Wire.HTTP
    stateful: bool = False  # MCP: what a session of the server remembers, another does not
    trust_annotations: bool = False  # MCP: what the server says of its tools may loosen
    inject: Inject | None = None
    # The header, in lower case, whose value from the agent is not sent, and so names no call: two agents with
    # different placeholders make the same call. Nor does the value that is sent in its place: with a new key
    # it is the same caller, and what was done under the old one keeps its name. None: the one of `inject`.
    replaced: str | None = None
    about: str = ""  # for people: what it is
    verified: str = ""  # when its facts were last checked, as 2026-11-17
    # In a run: headers that carry credentials by now. They are not among those that name its calls.
    secret_too: tuple[str, ...] = ()

    guards: bool = field(init=False, default=False)  # some rule denies, asks a person, limits, or hides
    shadows: bool = field(init=False, default=False)  # some rule only looks on
    looks: bool = field(init=False, default=False)  # some rule looks at headers or arguments
    hides_by_looks: bool = field(init=False, default=False)  # some rule that does redacts something
    secrets: tuple[str, ...] = field(init=False, default=())  # lower case: never in the record
    authority: bytes = field(init=False, default=b"")  # the Host header: the port only where it must be said

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        said = host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"
        object.__setattr__(self, "authority", said.encode())
        guards = any(
            rule.approval or rule.budget or rule.mode is Mode.DENY or rule.redact != Redact()
            for rule in self.rules
        )
        object.__setattr__(self, "guards", guards)
        object.__setattr__(self, "shadows", any(rule.shadow for rule in self.rules))
        looking = [rule for rule in self.rules if rule.looks is not None]
        object.__setattr__(self, "looks", bool(looking))
        object.__setattr__(self, "hides_by_looks", any(rule.redact != Redact() for rule in looking))
        injected = "" if self.inject is None else self.inject.name
        if self.replaced is None:
            object.__setattr__(self, "replaced", injected)
        further = [name for name in (injected, self.replaced, *self.secret_too) if name]
        object.__setattr__(self, "secrets", tuple(dict.fromkeys((*self.credentials, *further))))

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """The hosts, or `*.` and what they end with, and ports for which the forward proxy knows it."""
        if not self.hosts:
            return ((self.host, self.port),)
        return tuple([_host_and_port(entry, DEFAULT_PORTS[self.scheme]) for entry in self.hosts])

    def said_of(self, host: str, port: int) -> Said:
        """Whoever has a name below a wildcard decides where it leads: only whole names are named."""
        if (host, port) != (self.host, self.port) and (host, port) not in self.places:
            return Said.NOTHING
        return Said.PRIVATE if self.private else Said.NAMED


def _host_and_port(entry: str, default_port: int) -> tuple[str, int]:
    """Of an entry as the policy file's reader leaves it: `host`, `host:port`, `[v6]`, `[v6]:port`."""
    host, colon, port = entry.rpartition(":")
    if colon and not entry.endswith("]"):
        return host.strip("[]"), int(port)
    return entry.strip("[]"), default_port


DEFAULT_PORTS = {"http": 80, "https": 443, TOOL_SCHEME: 0}


def local_tools(**said: Any) -> Upstream:  # noqa: ANN401 (what any upstream may say)
    """The agent's own functions: they have no address, and no forward proxy leads there."""
    return Upstream(name=TOOLS_NAME, scheme=TOOL_SCHEME, host=TOOLS_NAME, port=0, protocol=Wire.TOOLS, **said)


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All upstreams by name. Replaced whole on reload, so a request sees one consistent set."""

    upstreams: dict[str, Upstream] = field(default_factory=dict)
    _places: dict[tuple[str, int], tuple[Upstream, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Who names a host has it, the last one of several; else all have it whose base_url is there."""
        upstreams = self.reached
        places = {place: (upstream,) for upstream in upstreams if upstream.hosts for place in upstream.places}
        bases: dict[tuple[str, int], tuple[Upstream, ...]] = {}
        for upstream in upstreams:
            if not upstream.hosts:
                (place,) = upstream.places
                bases[place] = (*bases.get(place, ()), upstream)
        object.__setattr__(self, "_places", bases | places)

    @property
    def reached(self) -> list[Upstream]:
        """Those that have an address."""
        return [one for one in self.upstreams.values() if one.scheme != TOOL_SCHEME]

    @property
    def tools(self) -> Upstream:
        """The agent's own functions; without a file about them, all by the table."""
        return self.upstreams.get(TOOLS_NAME, _WITHOUT_RULES)

    def at(self, host: str, port: int) -> tuple[Upstream, ...]:
        """Whose host this is. The nearest entry counts: the host itself, one with a `*` inside, then `*.`
        from the left."""
        found = self._places.get((host, port), ())
        labels = host.split(".")
        for at in range(1, len(labels) if not found else 0):
            inside = ".".join([*labels[:at], "*", *labels[at + 1 :]])
            found = found or self._places.get((inside, port), ())
        rest = host
        while not found and "." in rest:
            rest = rest.partition(".")[2]
            found = self._places.get((f"*.{rest}", port), ())
        return found


_WITHOUT_RULES = local_tools()
