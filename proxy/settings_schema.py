"""Every key of semel.yaml: what it means, how it is read, what it is by default.

settings_values.py has what they come to. Variables and flags use the same table: `limits.request_body` is
SEMEL_LIMITS_REQUEST_BODY.
"""

from __future__ import annotations

import re
from pathlib import Path

from proxy.core.divergence import OnDivergence
from proxy.notifying.schema import NOTIFY, build_notify
from proxy.policy_file import not_yet
from proxy.policy_file.fields import Check, Field, Level, Section, nested
from proxy.policy_file.mistakes import Log, Wrong, suggestion
from proxy.policy_file.nodes import Broken, Items, Node, locate
from proxy.policy_file.values import (
    boolean,
    choice,
    duration,
    host_and_port,
    label,
    list_of,
    pattern,
    size,
    text,
    whole,
    written,
)
from proxy.quantities import quoted
from proxy.settings_values import (
    GIB,
    KIB,
    MIB,
    TIB,
    Address,
    Auth,
    Encryption,
    Forward,
    Gc,
    Limits,
    Owners,
    Private,
    Role,
    Runs,
    Tls,
    Token,
    Traces,
    Unknown,
)
from proxy.store.durability import Durability

# What opening.py opens by an address.
STORES = ("postgres", "postgresql", "redis", "rediss")


def _address(given: str) -> Address:
    if re.fullmatch(r":?[0-9]+", given):
        raise ValueError(f"{quoted(given)} has no host: did you mean 127.0.0.1:{given.lstrip(':')}?")
    return Address(*host_and_port(given, None))


def _store(given: str) -> str:
    known = ("embedded", "memory")
    scheme, address, _ = given.partition("://")  # never the rest: it may hold a password
    if given in known or (address and scheme in STORES):
        return given
    if scheme in STORES:
        raise ValueError(
            f"{quoted(scheme)} alone is not a store: write {scheme}://USER:PASSWORD@HOST/DATABASE"
        )
    near = suggestion(scheme, (*known, *STORES)) or ": use embedded, memory, postgres://… or redis://…"
    raise ValueError(f"{quoted(scheme)} is not a store{near}")


def _path(node: Node, log: Log) -> str:
    """A relative path counts from the file it stands in, or else from where semel was started."""
    given: str = text(label)(node, log)
    if not node.at.line or given.startswith("~"):
        return given
    return str(Path(node.at.file).parent / given)


def _source(node: Node, log: Log) -> str:
    word: str = text(label)(node, log)
    return word if word == "presets" else _path(node, log)


def _sources(node: Node, log: Log) -> tuple[str, ...]:
    if isinstance(node, Broken):
        raise Wrong
    if isinstance(node, Items) and not node.items:
        raise Wrong("this list is empty: without policies there is nothing to call. Name 'presets' or a path")
    sources: tuple[str, ...] = list_of(_source)(node, log)
    return sources


def _loopback_without_auth(section: Section, log: Log) -> None:
    if section.sound("listen", "auth") and not section.get("auth") and not section.get("listen").is_loopback:
        log.add(
            section.nodes["listen"].at,
            f"'{section.get('listen')}' can be reached from other machines, and anybody there could call. "
            "Make tokens with `semel token new --tenant T --role agent` and list them under 'auth', start "
            "with --first-token, or listen on 127.0.0.1",
        )


def _one_role_per_token(section: Section, log: Log) -> None:
    """Else which of the two it has would depend on the order of the lines."""
    seen: set[str] = set()
    for index, token in enumerate(section.values.get("tokens") or ()):
        if token.sha256 in seen:
            at = locate(section.nodes["tokens"], index, "sha256")
            log.add(at, "this token is listed already: one token has one tenant and one role, make another")
        seen.add(token.sha256)


def _death_takes_longer_than_a_beat(section: Section, log: Log) -> None:
    if section.sound("heartbeat", "dead_after") and section.get("dead_after") < 2 * section.get("heartbeat"):
        at = section.keys.get("dead_after") or section.keys["heartbeat"]
        log.add(at, "'dead_after' is at least twice 'heartbeat': one late beat is no death")


def _level(name: str, doc: str, *fields: Field, checked_by: tuple[Check, ...] = ()) -> Level:
    refused = not_yet.keys_of(not_yet.SETTINGS, name)
    return Level(name=name, doc=doc, fields=fields, checks=checked_by, not_yet=refused)


TLS = _level(
    "tls",
    "A certificate for the listener.",
    Field("cert", "The file with the certificate chain.", required=True, parse=_path),
    Field("key", "The file with its key.", required=True, parse=_path),
)
TOKEN = _level(
    "tokens",
    "One token.",
    Field(
        "sha256",
        "The token's SHA-256 in hex.",
        required=True,
        parse=text(pattern(r"[0-9a-f]{64}", "64 hex digits")),
    ),
    Field(
        "tenant", "Whose it is.", required=True, parse=text(pattern(r"[A-Za-z0-9._-]+", "a tenant's name"))
    ),
    Field("role", "agent, operator or metrics.", required=True, parse=choice(Role)),
)
AUTH = _level(
    "auth",
    "Who may call.",
    Field("tokens", "The tokens.", required=True, parse=list_of(nested(TOKEN, Token))),
    checked_by=(_one_role_per_token,),
)
ENCRYPTION = _level(
    "encryption",
    "Encryption at rest.",
    Field("key_file", "The file with the key.", required=True, parse=_path),
)
LIMITS = _level(
    "limits",
    "How much of anything.",
    Field("request_body", "The largest request body.", size(KIB, TIB), "32MiB"),
    Field("response_body", "The largest answer that is recorded.", size(KIB, TIB), "256MiB"),
    Field("connections", "Connections at a time.", whole(1, 1_000_000), "2000"),
    Field(
        "header_timeout",
        "How long a client may take to send its headers, and stand still inside a body.",
        duration(),
        "15s",
    ),
    Field("headers", "The largest header block.", size(KIB, MIB), "64KiB"),
    Field("inline_body", "Larger answers are kept as files beside the store.", size(0, 16 * MIB), "64KiB"),
    Field("spool", "Larger bodies in flight wait in a temporary file.", size(0, GIB), "1MiB"),
)
FORWARD = _level(
    "forward",
    "The forward proxy.",
    Field("unknown", "A host that no upstream names: deny, tunnel, record.", choice(Unknown), "deny"),
    Field(
        "private",
        "A host that turns out to be at a private address, without a policy that says so: deny, allow.",
        choice(Private),
        "deny",
    ),
)
RUNS = _level(
    "runs",
    "Runs.",
    Field("retention", "How long a run is kept after its last activity.", duration(), "30d"),
    Field("on_divergence", "hold or allow.", choice(OnDivergence), "hold"),
)
OWNERS = _level(
    "owners",
    "How processes on one store over the network watch each other; the embedded store asks the kernel.",
    Field("heartbeat", "How often a process says that it lives.", duration(), "5s"),
    Field("dead_after", "How long a silent one is taken to live.", duration(), "15s"),
    checked_by=(_death_takes_longer_than_a_beat,),
)
GC = _level("gc", "Housekeeping.", Field("every", "How often.", duration(), "1h"))

SETTINGS = _level(
    "settings",
    "semel.yaml. A flag wins over a SEMEL_ variable, that over the file, that over the default.",
    Field("listen", "Where to listen, host:port.", written(_address), "127.0.0.1:8080"),
    Field("tls", "A certificate for the listener.", nested(TLS, Tls)),
    Field("state", "The directory of the embedded store; flag --state-dir.", _path, "~/.local/state/semel"),
    Field("store", "embedded, memory, postgres://…, redis://…", text(_store), "embedded"),
    Field(
        "durability",
        "Of a Redis store: strict refuses calls with effects where the server's settings may lose a write, "
        "best-effort makes them all the same.",
        choice(Durability),
        "strict",
    ),
    Field("workers", "Processes that share the address.", whole(1, 256), "1"),
    Field(
        "policies",
        "'presets' (what ships with semel), files, directories; later ones win.",
        _sources,
        "[presets]",
    ),
    Field("limits", "How much of anything.", nested(LIMITS, Limits), "{}"),
    Field("auth", "Who may call.", nested(AUTH, Auth)),
    Field("encryption", "Encryption at rest.", nested(ENCRYPTION, Encryption)),
    Field("notify", "Whom to tell when a call needs a person.", nested(NOTIFY, build_notify)),
    Field("forward", "The forward proxy.", nested(FORWARD, Forward), "{}"),
    Field("runs", "Runs.", nested(RUNS, Runs), "{}"),
    Field("owners", "How processes on one store watch each other.", nested(OWNERS, Owners), "{}"),
    Field("gc", "Housekeeping.", nested(GC, Gc), "{}"),
    Field(
        "recall",
        "Give a request that came before, byte for byte, its recorded answer where it arrives; off: every "
        "request is read and named anew. What is given is the same.",
        boolean,
        "true",
    ),
    Field("reload", "Read policies again when they change; a bad file keeps the old ones.", boolean, "true"),
    Field(
        "traces",
        "off, or otlp: a span for each call, sent where OTEL_EXPORTER_OTLP_ENDPOINT says. Extra: otel.",
        choice(Traces),
        "off",
    ),
    checked_by=(_loopback_without_auth,),
)

LEVELS = (SETTINGS, TLS, AUTH, TOKEN, ENCRYPTION, NOTIFY, LIMITS, FORWARD, RUNS, OWNERS, GC)
