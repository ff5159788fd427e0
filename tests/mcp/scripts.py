"""What a server says, byte by byte: answers of the old era in streams with event ids, and in pieces."""

from __future__ import annotations

import json

from tests.origin import READ_ALL, Close, Origin, Reset, Script, answer

JSON = (b"Content-Type", b"application/json")
EVENTS = (b"Content-Type", b"text/event-stream")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: s1\r\n\r\n"
ASKS = {"jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {}}


def result(id_: object, text: str = "paid") -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id_, "result": {"content": [{"type": "text", "text": text}]}}


def error(id_: object, code: int) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": f"error {code}"}}


def event(message: object, event_id: str = "", retry: int | None = None) -> bytes:
    """Without a message: what a stream begins with, so that it can be taken up."""
    named = f"id: {event_id}\n" if event_id else ""
    when = "" if retry is None else f"retry: {retry}\n"
    return f"{named}{when}data: {'' if message is None else json.dumps(message)}\n\n".encode()


def stream(*events: bytes, reset: bool = False) -> Script:
    """Ends where its events end."""
    return (*READ_ALL, HEAD, *events, Reset() if reset else Close())


def whole(message: object, status: int = 200) -> Script:
    return (*READ_ALL, answer(status, json.dumps(message).encode(), JSON))


def bare(status: int, *headers: tuple[bytes, bytes]) -> Script:
    return (*READ_ALL, answer(status, b"", *headers))


def calls(origin: Origin) -> int:
    """How often a tool was called there."""
    return sum(b'"tools/call"' in seen.body for seen in origin.requests)


def asked_for_the_rest(origin: Origin) -> list[bytes]:
    """After which events."""
    found = [dict(seen.headers) for seen in origin.requests if seen.head.startswith(b"GET ")]
    return [value for headers in found for name, value in headers.items() if name.lower() == b"last-event-id"]
