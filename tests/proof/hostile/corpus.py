"""What an entry of the corpus is: the exact bytes, what becomes of them, and why.

`@ORIGIN@` and `@SEMEL@` stand for the addresses of the upstream and of semel itself, which a test knows only
when they listen. Everything else is as it goes over the wire.
"""

from __future__ import annotations

from typing import NamedTuple

ORIGIN, SEMEL = b"@ORIGIN@", b"@SEMEL@"
CHUNKED = b"Transfer-Encoding: chunked"
SMUGGLED = b"POST /pay/smuggled HTTP/1.1\r\nHost: semel\r\nContent-Length: 0\r\n\r\n"
LAST = b"0\r\n\r\n"


class Hostile(NamedTuple):
    raw: bytes
    answers: tuple[int, ...]  # statuses of the answers to it
    # After them; if not, an innocent request behind it is answered. None: by whether that came along.
    closes: bool | None = True
    sent: tuple[bytes, ...] = ()  # what reaches the upstream: "METHOD /path|body"
    anywhere: bool = True  # means the same inside of a CONNECT
    instead: int = (
        0  # the one answer, and nothing sent, where what is behind it came along and cannot be read
    )
    why: str = ""


def malformed(raw: bytes, status: int = 400) -> Hostile:
    """One refusal; whatever follows was framed by somebody who disagrees, so nobody reads it."""
    return Hostile(raw, (status,))


def declined(raw: bytes, status: int, *, anywhere: bool = False) -> Hostile:
    """Framed beyond doubt, and not to be served: one refusal, and the next request is heard."""
    return Hostile(raw, (status,), closes=False, anywhere=anywhere)


def turned_away(raw: bytes, status: int) -> Hostile:
    """The same, and the connection ends; inside of a CONNECT it means something else."""
    return Hostile(raw, (status,), anywhere=False)


def taken(
    raw: bytes, *sent: bytes, closes: bool | None = False, anywhere: bool = True, instead: int = 0
) -> Hostile:
    """Odd, with one meaning, and served."""
    return Hostile(raw, (200,) * len(sent), closes, sent, anywhere, instead)


def in_chunks(raw: bytes, *sent: bytes) -> Hostile:
    """The same, in chunks: what came along behind them is not heard, since a trailer may have been mixed up
    with it; what comes later is."""
    return taken(raw, *sent, closes=None)


def because(why: str, entries: dict[str, Hostile]) -> dict[str, Hostile]:
    return {name: entry._replace(why=why) for name, entry in entries.items()}


def head(*lines: bytes, body: bytes = b"", first: bytes = b"POST /pay/x HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: semel", *lines, b"", b""]) + body


def line(first: bytes) -> bytes:
    return head(b"Content-Length: 0", first=first)


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + LAST
