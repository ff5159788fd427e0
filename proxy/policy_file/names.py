"""The words that policy files give meaning to: names, methods, arguments, placeholders.

Every function takes a text and returns it in its one form, or raises ValueError with a sentence.
"""

from __future__ import annotations

import re
from datetime import date

from proxy.core.headers import HOP_BY_HOP
from proxy.core.patterns import PathPattern
from proxy.core.policy import DEFAULT_NAME
from proxy.policy_file.mistakes import suggestion
from proxy.policy_file.values import header_name, host_and_port, pattern
from proxy.quantities import quoted

# Served by the proxy itself.
RESERVED_UPSTREAMS = frozenset({"metrics", "healthz", "readyz"})

# Methods of the registry that APIs use. Others are taken as they are, unless they look like a slip.
KNOWN_METHODS = (
    "GET",
    "HEAD",
    "OPTIONS",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "QUERY",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "PURGE",
    "LINK",
    "UNLINK",
)

# They change when a crashed agent comes back, so they can never tell one call from another.
NEVER_KEYED = frozenset(
    {
        "traceparent",
        "tracestate",
        "x-request-id",
        "x-amz-date",
        "user-agent",
        "mcp-session-id",
        "date",
        "accept-encoding",
    }
)
NEVER_KEYED_PREFIXES = ("x-stainless-", "amz-sdk-")
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"})

# Headers that would change what a request is, if semel set them beside those of the hop and of the body.
NO_CREDENTIALS = frozenset({"host", "expect", "accept", "range", "prefer", "idempotency-key"})

_ANY_LABEL = "semel-any-label"

_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_WORD = r"[^.\[\]*\s\x00-\x1f]+"
# Forms and queries write what is nested as `card[number]`: there it is one name.
_ARGUMENT_PART = re.compile(rf"{_WORD}(\[(?![0-9]+\]){_WORD}\])*(\[\])*|(\[\])+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PROBE_WORDS = ("upstream_key", "sent_at")

_upstream = pattern(
    r"[a-z][a-z0-9-]*", "an upstream's name: lower-case letters, digits and -, a letter first", 63
)
_rule = pattern(r"[A-Za-z][A-Za-z0-9_.-]*", "a rule's name: letters, digits, _, . and -, a letter first")
variable = pattern(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable", 128)


_TOOL = re.compile(r"[A-Za-z0-9._*-][A-Za-z0-9._*/-]{0,127}")


def upstream(given: str) -> str:
    if given in RESERVED_UPSTREAMS:
        raise ValueError(f"{quoted(given)} is one of semel's own addresses: name the upstream otherwise")
    return _upstream(given)


def rule(given: str) -> str:
    if given == DEFAULT_NAME:
        raise ValueError(
            f"{quoted(given)} is what calls without a rule are counted under: name the rule otherwise"
        )
    return _rule(given)


def method(given: str) -> str:
    if given.upper() in KNOWN_METHODS and given not in KNOWN_METHODS:
        raise ValueError(f"{quoted(given)} is not a method: did you mean '{given.upper()}'?")
    if given in ("*", "any", "ANY", "all", "ALL"):
        raise ValueError(f"{quoted(given)} is not a method: leave 'method' out to match any")
    if given in ("CONNECT", "TRACE"):
        raise ValueError(f"{given} never reaches an upstream")
    if given not in KNOWN_METHODS:
        near = suggestion(given.upper(), KNOWN_METHODS)
        if near or not _METHOD.fullmatch(given):
            raise ValueError(f"{quoted(given)} is not a method{near or ': write it in capitals, as POST'}")
    return given


def argument(given: str) -> str:
    """`path.id`, `query.page`, `body.customer.id`, `items[].id`, `card[number]` of a form, `email`."""
    if "*" in given:
        raise ValueError(
            f"{quoted(given)}: there are no wildcards here, name the field or the one that holds it"
        )
    if re.search(r"\[[0-9]+\]", given):
        raise ValueError(f"{quoted(given)}: arrays are walked whole, write [] without an index")
    if not all(_ARGUMENT_PART.fullmatch(part) for part in given.split(".")):
        raise ValueError(
            f"{quoted(given)} is not an argument: write email, items[].id, path.id, query.page, body.user.id"
        )
    if given in ("path", "query", "body"):
        raise ValueError(f"{quoted(given)} alone names no argument: write {given}.NAME")
    return given


def body_field(given: str) -> str:
    name = argument(given)
    if "[" in name or name.split(".")[0] in ("path", "query"):
        raise ValueError(f"{quoted(given)} is not one field of the body")
    return name.removeprefix("body.")


def keyed_header(given: str) -> str:
    name = header_name(given)
    if name in NEVER_KEYED or name.startswith(NEVER_KEYED_PREFIXES):
        raise ValueError(
            f"{quoted(given)} changes when an agent tries again: it cannot be part of a call's name"
        )
    if name.encode() in HOP_BY_HOP or name in ("host", "expect"):
        raise ValueError(f"{quoted(given)} is about the connection, and goes no further than to semel")
    if name in CREDENTIAL_HEADERS:
        raise ValueError(f"{quoted(given)} carries credentials: write 'credential: include' instead")
    if name == "idempotency-key":
        raise ValueError(f"{quoted(given)} has its own setting: 'client_key'")
    return name


def tool(given: str) -> str:
    if not _TOOL.fullmatch(given):
        raise ValueError(f"{quoted(given)} is not a tool's name: A-Z a-z 0-9 . _ - / and * for anything")
    return given


def path_pattern(given: str) -> PathPattern:
    if "?" in given or "#" in given:
        raise ValueError("a path pattern is a path alone: look at the query with 'when', as query.page")
    return PathPattern.parse(given)


def header_value(given: str) -> str:
    """What a header is compared with; * stands for anything."""
    if not re.fullmatch(r"[\x20-\x7e]{1,256}", given) or given != given.strip():
        raise ValueError(f"{quoted(given)} is not the value of a header: printable characters, * for any")
    return given


def day(given: str) -> str:
    try:
        return date.fromisoformat(given).isoformat()
    except ValueError:
        raise ValueError(f"{quoted(given)} is not a date: write it as 2026-11-17") from None


def credential_header(given: str) -> str:
    """As written: some servers take header names by the letter."""
    name = header_name(given)
    if name.encode() in HOP_BY_HOP or name in NO_CREDENTIALS or name.startswith(("content-", "if-")):
        raise ValueError(
            f"{quoted(given)} is no header for a credential: it says something else of the request"
        )
    return given


def host(given: str) -> str:
    """`host[:port]`, `*.host[:port]`, `name.*.host[:port]`, in lower case."""
    if "/" in given:
        plain = given.partition("://")[2] or given
        raise ValueError(f"{quoted(given)} is an address, not a host: write {plain.partition('/')[0]}")
    if "*" in given and not re.search(r"^\*\.|\.\*\.", given):
        raise ValueError(f"{quoted(given)}: * stands for a whole part of a name, and not for the last one")
    if given.count("*") > 1:
        raise ValueError(f"{quoted(given)}: one * is enough, for one part of the name or for all before it")
    wildcard = "*." if given.startswith("*.") else ""
    # Any word may stand there; one that no host has does for the check.
    name, port = host_and_port(given.removeprefix("*.").replace(".*.", f".{_ANY_LABEL}."), 0)
    name = name.replace(f".{_ANY_LABEL}.", ".*.")
    bracketed = f"[{name}]" if ":" in name else name
    return f"{wildcard}{bracketed}:{port}" if port else f"{wildcard}{bracketed}"


def probe_method(given: str) -> str:
    if given != "GET":
        raise ValueError(f"{quoted(given)}: a probe changes nothing and reads what it finds: it is a GET")
    return given


def probe_target(given: str) -> str:
    if not re.fullmatch(r"/[\x21-\x7e]*", given) or "#" in given:
        raise ValueError(
            f"{quoted(given)} is not a path with an optional query, as /v1/messages?ref={{body.ref}}"
        )
    placeholders = _PLACEHOLDER.findall(given)
    if not set(placeholders) - {"sent_at"}:
        raise ValueError("a probe must ask for one call: use a placeholder, as {body.ref} or {upstream_key}")
    if re.search(r"[{}]", _PLACEHOLDER.sub("", given)):
        raise ValueError(f"{quoted(given)} has a brace without its partner")
    for name in placeholders:
        if name not in _PROBE_WORDS:
            argument(name)
    return given


def placeholders_of(target: str) -> frozenset[str]:
    return frozenset(_PLACEHOLDER.findall(target))
