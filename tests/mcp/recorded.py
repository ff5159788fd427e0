"""What passed between a client and a server, with what differs from session to session made alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from tests.mcp.tap import Exchange

# Hop by hop, the address, the day, and how a body was cut into pieces.
NOT_COMPARED = frozenset({b"host", b"date", b"connection", b"keep-alive", b"transfer-encoding"})
# Sealed by the server, anew each time.
STATE = re.compile(rb'("requestState": ?)"v1\.[A-Za-z0-9_-]+"')


class Line(NamedTuple):
    """One message in one direction."""

    what: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Compared(NamedTuple):
    request: Line
    answer: Line


def normal(exchanges: Iterable[Exchange], *ports: int) -> list[Compared]:
    """In the order of their bodies: what is open at the same time comes in any order."""
    found = [
        Compared(
            Line(
                _first_line(each),
                _headers(each.request.headers, each.request.body),
                _body(each.request.body, ports),
            ),
            Line(
                str(each.answer.status),
                _headers(each.answer.headers, each.answer.body),
                _body(each.answer.body, ports),
            ),
        )
        for each in exchanges
    ]
    return sorted(found, key=lambda each: (each.request.what, _number(each.request.body), each.request.body))


def _first_line(exchange: Exchange) -> str:
    method, target, _ = bytes(exchange.request.head).split(b" ", 2)
    return f"{method.decode()} {target.decode().removeprefix('/shop')}"


def _number(body: bytes) -> int:
    return int(json.loads(body or b"{}").get("id", -1))


def _headers(headers: list[tuple[bytes, bytes]], body: bytes | bytearray) -> tuple[tuple[bytes, bytes], ...]:
    """In their order, without semel's own. A length that is right is like any other."""
    kept = [(name.lower(), value) for name, value in headers if name.lower() not in NOT_COMPARED]
    alike = {(b"content-length", b"%d" % len(body)): b"right"}
    return tuple(
        (name, b"the session" if name == b"mcp-session-id" else alike.get((name, value), value))
        for name, value in kept
        if not name.startswith((b"semel-", b"cache-status"))
    )


def _body(body: bytes | bytearray, ports: tuple[int, ...]) -> bytes:
    text = bytes(body)
    for port in ports:
        text = text.replace(b"127.0.0.1:%d" % port, b"127.0.0.1")
    return STATE.sub(rb'\1"the state"', text)
