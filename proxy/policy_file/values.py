"""How single values are read: words, numbers, quantities, lists, names, addresses.

Each reader here makes a parser for a field. A value of the wrong type or out of range raises Wrong with
a sentence that says what is wanted; a list notes each of its bad items at that item's own place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import jmespath
import jmespath.functions
from jmespath.exceptions import JMESPathError

from proxy.core.policy import DEFAULT_PORTS, TOOL_SCHEME
from proxy.policy_file.fields import Parser, attempt, is_wrong
from proxy.policy_file.mistakes import Log, Wrong, suggestion
from proxy.policy_file.nodes import Broken, Items, Node, Pairs, Scalar, kind_of
from proxy.quantities import parse_duration, parse_size, quoted, show_size

T = TypeVar("T")

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_LABEL = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,128}")


def written(convert: Callable[[str], T]) -> Parser:
    """A scalar taken as it is written, whatever YAML would make of it: `60s`, `5.00`, `100/1h`."""

    def parse(node: Node, _log: Log) -> T:
        if isinstance(node, Broken):
            raise Wrong
        if not isinstance(node, Scalar) or node.value is None:
            raise Wrong(f"a value is wanted, this is {kind_of(node)}")
        try:
            return convert(node.text)
        except ValueError as error:
            raise Wrong(str(error)) from None

    return parse


def text(convert: Callable[[str], T]) -> Parser:
    """A scalar that is text: 404 and true would be something else and have to be quoted."""
    as_written = written(convert)

    def parse(node: Node, log: Log) -> Any:  # noqa: ANN401
        if isinstance(node, Scalar) and not isinstance(node.value, str):
            raise Wrong(f"a text is wanted, this is {kind_of(node)}")
        return as_written(node, log)

    return parse


def boolean(node: Node, _log: Log) -> bool:
    if isinstance(node, Broken):
        raise Wrong
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    raise Wrong(f"true or false is wanted, this is {kind_of(node)}")


def whole(low: int, high: int, what: str = "a whole number") -> Parser:
    def parse(node: Node, _log: Log) -> int:
        if isinstance(node, Broken):
            raise Wrong
        if not isinstance(node, Scalar) or not isinstance(node.value, int) or isinstance(node.value, bool):
            raise Wrong(f"{what} is wanted, this is {kind_of(node)}")
        if not low <= node.value <= high:
            raise Wrong(f"{node.value} is out of range: {what} from {low} to {high}")
        return node.value

    return parse


def choice(words: type[StrEnum]) -> Parser:
    known = [word.value for word in words]

    def convert(given: str) -> StrEnum:
        if given not in known:
            near = suggestion(given, known)
            raise ValueError(f"{quoted(given)} is not one of {', '.join(known)}{near}")
        return words(given)

    return text(convert)


def duration(*, zero: bool = False) -> Parser:
    def convert(given: str) -> float:
        seconds = parse_duration(given)
        if not seconds and not zero:
            raise ValueError(f"{given} is no time at all: a duration over zero is wanted")
        return seconds

    return written(convert)


def size(low: int, high: int) -> Parser:
    def convert(given: str) -> int:
        count = parse_size(given)
        if not low <= count <= high:
            raise ValueError(f"{given} is out of range: from {show_size(low)} to {show_size(high)}")
        return count

    return written(convert)


def list_of(item: Parser) -> Parser:
    """A tuple. Each bad item and each repeated one is noted where it stands."""

    def parse(node: Node, log: Log) -> tuple[Any, ...]:
        if isinstance(node, Broken):
            raise Wrong
        if not isinstance(node, Items):
            hint = f": write [{node.text[:40]}]" if isinstance(node, Scalar) and node.text else ""
            raise Wrong(f"a list is wanted, this is {kind_of(node)}{hint}")
        values: dict[Hashable, None] = {}
        for one in node.items:
            value = attempt(item, one, log)
            if is_wrong(value):
                continue
            if value in values:
                log.add(one.at, f"{quoted(str(value))} stands in this list twice")
            values[value] = None
        return tuple(values)

    return parse


def one_or_more(item: Parser) -> Parser:
    """A single value or a list of them; always a tuple."""
    many = list_of(item)

    def parse(node: Node, log: Log) -> tuple[Any, ...]:
        if not isinstance(node, Items):
            return (item(node, log),)
        if not node.items:
            raise Wrong("this list is empty: name at least one, or leave the key out")
        values: tuple[Any, ...] = many(node, log)
        return values

    return parse


def mapping_of(name: Parser, value: Parser) -> Parser:
    """Pairs, in the order of their names. Each bad one is noted where it stands."""

    def parse(node: Node, log: Log) -> tuple[tuple[Any, Any], ...]:
        if isinstance(node, Broken):
            raise Wrong
        if not isinstance(node, Pairs):
            raise Wrong(f"a mapping is wanted, this is {kind_of(node)}: write {{name: value}}")
        found: dict[Any, Any] = {}
        for key, given in node.entries:
            pair = (attempt(name, key, log), attempt(value, given, log))
            if any(map(is_wrong, pair)):
                continue
            if pair[0] in found:
                log.add(key.at, f"{quoted(key.text)} stands here twice")
            found[pair[0]] = pair[1]
        return tuple(sorted(found.items()))

    return parse


def plain(node: Node, _log: Log) -> str | int | bool:
    """A text, a whole number, true or false."""
    if isinstance(node, Broken):
        raise Wrong
    if isinstance(node, Scalar) and isinstance(node.value, str | int):
        return node.value
    raise Wrong(f"a text, a whole number, true or false is wanted, this is {kind_of(node)}")


def pattern(shape: str, meaning: str, longest: int = 64) -> Callable[[str], str]:
    compiled = re.compile(shape)

    def convert(given: str) -> str:
        if not compiled.fullmatch(given):
            raise ValueError(f"{quoted(given)} is not {meaning}")
        if len(given) > longest:
            raise ValueError(f"{quoted(given)} is too long: at most {longest} characters")
        return given

    return convert


def label(given: str) -> str:
    if not _LABEL.fullmatch(given):
        raise ValueError("a label has 1 to 128 characters, none of them a line break or control character")
    return given


def header_name(given: str) -> str:
    """In lower case: header names have no case."""
    if not _TOKEN.fullmatch(given):
        raise ValueError(f"{quoted(given)} is not a header name: letters, digits and -, as X-Api-Key")
    name = given.lower()
    if name.startswith("semel-"):
        raise ValueError(f"{quoted(given)} is one of semel's own headers: they never reach an upstream")
    return name


def expression(given: str) -> str:
    """JMESPath; kept as text, because compiled expressions do not compare."""
    try:
        jmespath.compile(given)
    except JMESPathError as error:
        reason = str(error).partition("\n")[0].removeprefix("Invalid jmespath expression: ")
        reason = reason.removesuffix(":").removesuffix(", for expression")
        raise ValueError(f"{quoted(given)} is not JMESPath: {reason[:160]}") from None
    except RecursionError:
        raise ValueError("this JMESPath is nested too deeply") from None
    _check_functions(jmespath.compile(given).parsed)
    return given


# Those of JMESPath, and those that prices have (core/cost.py): how many arguments each takes, or at least.
_TAKES = {
    name: (len(entry["signature"]), any(one.get("variadic") for one in entry["signature"]))
    for name, entry in jmespath.functions.Functions.FUNCTION_TABLE.items()
} | {"times": (2, False), "tokens_usd": (1, False)}


def _check_functions(node: Any) -> None:  # noqa: ANN401 (JMESPath's tree)
    """An expression that calls what is not there would never be true, and nobody would be told."""
    if not isinstance(node, dict):
        return
    if node["type"] == "function_expression":
        name, given = node["value"], len(node["children"])
        if name not in _TAKES:
            raise ValueError(f"there is no function {quoted(name)}{suggestion(name, sorted(_TAKES))}")
        wanted, or_more = _TAKES[name]
        if given < wanted or (given > wanted and not or_more):
            more = " or more" if or_more else ""
            raise ValueError(f"the function {quoted(name)} takes {wanted} argument(s){more}, not {given}")
    for child in node["children"]:
        _check_functions(child)


@dataclass(frozen=True, slots=True)
class BaseUrl:
    scheme: str
    host: str
    port: int
    path: str  # without a trailing slash


def at_hand(name: str) -> BaseUrl:
    """Of a server that `semel mcp` runs: no network leads there."""
    return BaseUrl(TOOL_SCHEME, name, 0, "")


def base_url(given: str) -> BaseUrl:
    if not _VISIBLE.fullmatch(given):
        raise ValueError("an address has no blanks and only ASCII characters: percent-encode the others")
    if not re.match(r"https?://", given):
        raise ValueError(f"{quoted(given)} does not start with http:// or https://")
    if "?" in given or "#" in given:
        raise ValueError("the base address ends with its path: remove everything from ? or # on")
    parts = urlsplit(given)  # raises ValueError for brackets that do not match
    if "@" in parts.netloc:
        raise ValueError("credentials do not belong in an address: let the agent send them in a header")
    if any(
        segment.replace("%2e", ".").replace("%2E", ".") in (".", "..") for segment in parts.path.split("/")
    ):
        raise ValueError("the path has . or .. segments: write the path that is meant")
    host, port = host_and_port(parts.netloc, DEFAULT_PORTS[parts.scheme])
    return BaseUrl(parts.scheme, host, port, parts.path.rstrip("/"))


def host_and_port(given: str, default_port: int | None) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]:port`; the host in lower case and without brackets."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/]*)(?::([^:]*))?", given)
    if not found or not found[1]:
        raise ValueError(f"{quoted(given)} has no host: write host or host:port (IPv6 in brackets)")
    host = found[1].lower()
    if host.startswith("["):
        host = str(IPv6Address(host[1:-1]))  # AddressValueError is a ValueError with a sentence
    elif not _HOST.fullmatch(host) or ".." in host:
        raise ValueError(f"{quoted(host)} is not a host name")
    if found[2] is None:
        if default_port is None:
            raise ValueError(f"{quoted(given)} has no port: write {host}:8080")
        return host, default_port
    if not re.fullmatch(r"[0-9]{1,5}", found[2]) or int(found[2]) > 65535:
        raise ValueError(f"{quoted(found[2])} is not a port: a number from 1 to 65535")
    return host, int(found[2])
