"""The call that everything here makes: 90 bytes of JSON, so that all are measured with the same.

Nothing but Python's own: peers are run in environments of their own.
"""

from __future__ import annotations

SIZE = 90
MANY = 2000  # different calls, for those who ask for many in turn


def body(seed: str, number: int) -> bytes:
    """Another seed or number makes another call."""
    start = b'{"customer": "%b-%09d", "usd": 12.5, "note": "' % (seed.encode(), number)
    return start + b"n" * (SIZE - len(start) - 2) + b'"}'


def request(path: str, content: bytes) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: semel\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer sk-bench\r\nContent-Length: %d\r\n\r\n%b"
        % (path.encode(), len(content), content)
    )
