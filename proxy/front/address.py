"""Request targets: whose they are and what they name. Bytes are checked, never rewritten."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple, TypeAlias

from proxy.core.policy import DEFAULT_PORTS
from proxy.errors import BadRequest
from proxy.front.run_ref import NOBODY, Speaker, parse_user

OWN_NAMES = frozenset({"metrics", "healthz", "readyz", "_semel"})
TOOLS = "/_semel/tools/"
_TOOL = re.compile(r"[A-Za-z0-9._-]{1,128}")
# Printable ASCII is all that a request target may hold; "#" never goes over the wire.
_TARGET = re.compile(r"/[!\"$-~]*")
# Servers differ in what they take for a slash, and in whether they cut a segment at ";" before they look at
# it. A rule is matched against the path as it came, so none of them may make another path of it.
_SLASH = r"(?:[/\\]|%2[fF]|%5[cC])"
_DOT_SEGMENT = re.compile(rf"{_SLASH}(?:\.|%2[eE]){{1,2}}(?:{_SLASH}|;|%3[bB]|\Z)")
_ABSOLUTE = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/\\?#]+))(?::([0-9]{1,5}))?")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_LONGEST_NAME = 253


class OwnAddress(NamedTuple):
    """semel's own: /metrics, /healthz, /readyz, /_semel/…"""

    path: str


class ToolAddress(NamedTuple):
    """A tool of the agent's own: /_semel/tools/{tool}, and with a call what is reported of it."""

    tool: str
    call: str = ""
    report: str = ""  # what is said of the call
    query: str | None = None
    speaker: Speaker = NOBODY


class Place(NamedTuple):
    """Where a request of the forward proxy is to go. It is asked for what an Upstream says of itself too."""

    scheme: str  # "http" | "https"
    host: str  # in its ASCII form, lower case, without a dot at the end; IPv6 without brackets
    port: int
    base_path: str = ""

    @property
    def authority(self) -> bytes:
        """The Host header: the port only where it must be said."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        said = host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"
        return said.encode()

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}"


class UpstreamAddress(NamedTuple):
    upstream: str
    raw_path: str  # begins with a slash
    query: str | None  # None without "?"; an empty one is kept
    speaker: Speaker = NOBODY  # what the address says of run, attempt and token
    place: Place | None = None  # of the forward proxy, where it is not the upstream's base_url


Address: TypeAlias = OwnAddress | UpstreamAddress | ToolAddress


@lru_cache(maxsize=1024)
def parse_target(target: str) -> Address:
    """Agents ask the same few addresses again and again."""
    if not target.startswith("/"):
        raise BadRequest(
            "Use an address of the form /{upstream}/{path}, or the form of a proxy: http://{host}/{path}."
        )
    path, query = split_target(target)
    name, slash, rest = path[1:].partition("/")
    if name in OWN_NAMES:
        return OwnAddress(path) if not path.startswith(TOOLS) else _tool(path.removeprefix(TOOLS), query)
    speaker = NOBODY
    if name.startswith("@"):
        speaker = parse_user(name[1:])
        if not speaker.run:
            raise BadRequest("An address with @ names a run: /@{run}/{upstream}/{path}.")
        if f"/{rest}".startswith(TOOLS):
            return _tool(f"/{rest}".removeprefix(TOOLS), query)._replace(speaker=speaker)
        name, slash, rest = rest.partition("/")
    return UpstreamAddress(name, slash + rest if slash else "/", query, speaker)


def _tool(rest: str, query: str | None) -> ToolAddress:
    name, *said = rest.split("/")
    if _TOOL.fullmatch(name) is None:
        raise BadRequest("A tool's name is 1 to 128 characters of A-Z a-z 0-9 . _ -")
    if len(said) not in (0, 2):
        raise BadRequest("Use /_semel/tools/{tool}, or /_semel/tools/{tool}/{call}/{report}.")
    call, report = said or ("", "")
    return ToolAddress(name, call, report, query)


def split_target(target: str) -> tuple[str, str | None]:
    """Path and query of a target in origin form, checked."""
    if _TARGET.fullmatch(target) is None:
        raise BadRequest("The target holds a byte that may not stand in a URL: percent-encode it.")
    path, mark, query = target.partition("?")
    if ("." in path or "%2" in path) and _DOT_SEGMENT.search(path) is not None:
        raise BadRequest(
            "The path holds a dot segment (. or .., also escaped, between / \\ %2f %5c or before ;): send "
            "the path it means."
        )
    return path, query if mark else None


def parse_absolute(target: str) -> tuple[Place, str]:
    """`http://host/path?query`: the place, and the target in origin form."""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise BadRequest(
            "Use an address of the form /{upstream}/{path}, or the form of a proxy: http://{host}/{path}."
        )
    scheme, rest = found[1].lower(), found[3]
    host, port = parse_authority(found[2], DEFAULT_PORTS[scheme])
    return Place(scheme, host, port), rest if rest.startswith("/") else f"/{rest}"


def parse_authority(given: str, default_port: int | None = None) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, as CONNECT names it; without a default the port must be said."""
    if "@" in given:
        raise BadRequest("The address holds a user: send credentials in a header, not before the host.")
    found = _AUTHORITY.fullmatch(given)
    if found is None:
        raise BadRequest("The address is not host:port (IPv6 in brackets, the port a number).")
    if found[3] is None and default_port is None:
        raise BadRequest("The address has no port: CONNECT names host:port.")
    port = default_port if found[3] is None else int(found[3])
    if port is None or not 1 <= port <= 65535:
        raise BadRequest("The port is a number from 1 to 65535.")
    return (_address_6(found[1]) if found[1] else host_name(found[2])), port


def host_name(given: str) -> str:
    """The one form of a host: what two spellings of the same host share."""
    name = given
    if len(name) <= _LONGEST_NAME and not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            raise BadRequest("The host cannot be written in ASCII (IDNA): check its spelling.") from None
    name = name.lower().removesuffix(".")
    if re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]*", name):
        try:
            return str(IPv4Address(name))
        except ValueError:  # 127.1, 0177.0.0.1: read in as many ways as there are resolvers
            raise BadRequest("The host is not an IPv4 address: write four numbers, as 127.0.0.1.") from None
    if len(name) > _LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise BadRequest("The host is not a host name: letters, digits and - between dots.")
    return name


def _address_6(given: str) -> str:
    try:
        address = IPv6Address(given)
        return str(address.ipv4_mapped or address)  # one host, one spelling
    except ValueError:
        raise BadRequest("The host is not an IPv6 address.") from None
