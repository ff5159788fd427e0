"""Request targets: whose they are and what they name. Bytes are checked, never rewritten."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from proxy.errors import BadRequest
from proxy.front.run_ref import NOBODY, Speaker, parse_user

OWN_NAMES = frozenset({"metrics", "healthz", "readyz", "_semel"})
# Printable ASCII is all that a request target may hold; "#" never goes over the wire.
_TARGET = re.compile(r"/[!\"$-~]*")
# Servers differ in what they take for a slash, and in whether they cut a segment at ";" before they look at
# it. A rule is matched against the path as it came, so none of them may make another path of it.
_SLASH = r"(?:[/\\]|%2[fF]|%5[cC])"
_DOT_SEGMENT = re.compile(rf"{_SLASH}(?:\.|%2[eE]){{1,2}}(?:{_SLASH}|;|%3[bB]|\Z)")


class OwnAddress(NamedTuple):
    """semel's own: /metrics, /healthz, /readyz, /_semel/…"""

    path: str


class UpstreamAddress(NamedTuple):
    upstream: str
    raw_path: str  # begins with a slash
    query: str | None  # None without "?"; an empty one is kept
    speaker: Speaker = NOBODY  # what the address says of run, attempt and token


Address: TypeAlias = OwnAddress | UpstreamAddress


def parse_target(target: str) -> Address:
    if not target.startswith("/"):
        raise BadRequest(
            "Use an address of the form /{upstream}/{path}. The forward proxy (absolute form, CONNECT) "
            "is not supported yet."
        )
    if _TARGET.fullmatch(target) is None:
        raise BadRequest("The target holds a byte that may not stand in a URL: percent-encode it.")
    path, mark, query = target.partition("?")
    if ("." in path or "%2" in path) and _DOT_SEGMENT.search(path) is not None:
        raise BadRequest(
            "The path holds a dot segment (. or .., also escaped, between / \\ %2f %5c or before ;): send "
            "the path it means."
        )
    name, slash, rest = path[1:].partition("/")
    if name in OWN_NAMES:
        return OwnAddress(path)
    speaker = NOBODY
    if name.startswith("@"):
        speaker = parse_user(name[1:])
        if not speaker.run:
            raise BadRequest("An address with @ names a run: /@{run}/{upstream}/{path}.")
        name, slash, rest = rest.partition("/")
    return UpstreamAddress(name, slash + rest if slash else "/", query if mark else None, speaker)
