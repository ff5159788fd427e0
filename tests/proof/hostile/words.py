"""What is said to semel in a form that it does not take; other protocols; expectations; too many lines."""

from __future__ import annotations

from tests.proof.hostile.corpus import (
    CHUNKED,
    Hostile,
    because,
    chunks,
    declined,
    head,
    in_chunks,
    line,
    malformed,
    taken,
)

NO_BODY = b"Content-Length: 0"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings"
RPC = b"Content-Type: application/json"


def said(*lines: bytes) -> bytes:
    return head(*lines, NO_BODY)


WORDS = {
    **because(
        "A header of semel's own that was misread would make a repeat a replay, or the other way round.",
        {
            "run header of words": declined(said(b"Semel-Run: my run"), 400),
            "run with a control byte": malformed(said(b"Semel-Run: a\x08b")),
            "run beyond ASCII": declined(said(b"Semel-Run: \xff"), 400),
            "an empty run": declined(said(b"Semel-Run:"), 400),
            "two runs": declined(said(b"Semel-Run: a", b"Semel-Run: b"), 400),
            "another run than the address": declined(
                head(b"Semel-Run: b", NO_BODY, first=b"POST /@a/pay/x HTTP/1.1"), 400
            ),
            "attempt without a run": declined(said(b"Semel-Attempt: a"), 400),
            "occurrence zero": declined(said(b"Semel-Occurrence: 0"), 400),
            "occurrence negative": declined(said(b"Semel-Occurrence: -2"), 400),
            "occurrence of words": declined(said(b"Semel-Occurrence: second"), 400),
            "occurrence beyond ASCII": declined(said("Semel-Occurrence: ٢".encode()), 400),
            "occurrence of twenty digits": declined(said(b"Semel-Occurrence: " + b"1" * 20), 400),
            "two occurrences": declined(said(b"Semel-Occurrence: 1", b"Semel-Occurrence: 2"), 400),
            "refresh of words": declined(said(b"Semel-Refresh: yes"), 400),
            "tool too long": declined(said(b"Semel-Tool: " + b"t" * 200), 400),
            "tool beyond ASCII": declined(said(b"Semel-Tool: \xff"), 400),
            "a word that semel does not know": declined(said(b"Semel-Ocurrence: 2"), 400),
            "an answer's header in a request": declined(said(b"Semel-Status: replayed"), 400),
        },
    ),
    **because(
        "A client's key names the call: one, and not an empty one.",
        {
            "two idempotency keys": declined(said(b"Idempotency-Key: a", b"Idempotency-Key: b"), 400),
            "the same idempotency key twice": declined(
                said(b"Idempotency-Key: a", b"Idempotency-Key: a"), 400
            ),
            "empty idempotency key": declined(said(b"Idempotency-Key:"), 400),
            "blank idempotency key": declined(said(b"Idempotency-Key: \t "), 400),
            "missing idempotency key": declined(line(b"POST /pay/keyed HTTP/1.1"), 400),
            "idempotency key with a NUL": malformed(said(b"Idempotency-Key: a\x00b")),
            "idempotency key beyond ASCII": taken(
                head(b"Idempotency-Key: \xff\xfe", b"Content-Length: 2", body=b"as"), b"POST /x|as"
            ),
            "idempotency key of 10 kB": taken(
                head(b"Idempotency-Key: " + b"k" * 10_000, b"Content-Length: 2", body=b"at"), b"POST /x|at"
            ),
        },
    ),
    **because(
        "Expectations are semel's to meet, and there is one.",
        {
            "unknown expectation": declined(head(b"Expect: 200-ok", NO_BODY), 400, anywhere=True),
            "two expectations": malformed(
                head(b"Expect: 100-continue, 200-ok", b"Content-Length: 2", body=b"ab")
            ),
            "expectation met": taken(
                head(b"Expect: 100-continue", b"Content-Length: 2", body=b"au"), b"POST /x|au"
            ),
            "expectation with chunks": in_chunks(
                head(b"Expect: 100-continue", CHUNKED, body=chunks(b"av")), b"POST /x|av"
            ),
            "expectation without a body": taken(
                head(b"Expect: 100-continue", NO_BODY, b"X: aw"), b"POST /x|"
            ),
            "expectation of a body too large": malformed(
                head(b"Expect: 100-continue", b"Content-Length: 9999999999"), 413
            ),
        },
    ),
    **because(
        "A wish for another protocol is not granted, and what follows is a request or nothing.",
        {
            "h2c": taken(
                head(
                    UPGRADE, b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", NO_BODY, b"X: ax"
                ),
                b"POST /x|",
                closes=None,
            ),
            "h2c with a body": taken(
                head(UPGRADE, b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk", b"Content-Length: 2", body=b"ay"),
                b"POST /x|ay",
                closes=None,
            ),
            "a websocket with a body": taken(
                head(b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 2", body=b"az"),
                b"POST /x|az",
            ),
            "an unknown protocol": taken(
                head(b"Connection: Upgrade", b"Upgrade: cow/1", b"Content-Length: 2", body=b"ba"),
                b"POST /x|ba",
                closes=None,
            ),
            "a websocket to nobody, and a trailer behind it": Hostile(
                head(b"Connection: Upgrade", b"Upgrade: websocket", first=b"GET /nobody/x HTTP/1.1")
                + head(CHUNKED, body=b"2\r\nbh\r\n0\r\nX-A: 1\r\nSemel-Run: evil\r\n\r\n"),
                (404, 200),
                sent=(b"POST /x|bh",),
                anywhere=False,
            ),
            "a websocket to semel, and a trailer behind it": Hostile(
                head(b"Connection: Upgrade", b"Upgrade: websocket", first=b"GET /_semel/nothing HTTP/1.1")
                + head(CHUNKED, body=b"2\r\nbi\r\n0\r\nX-A: 1\r\nIdempotency-Key: evil\r\n\r\n"),
                (404, 200),
                sent=(b"POST /x|bi",),
                anywhere=False,
            ),
        },
    ),
    **because(
        "What Connection names goes no further; framing and the host do all the same.",
        {
            "Connection names the length": taken(
                head(b"Connection: content-length", b"Content-Length: 2", body=b"bb"), b"POST /x|bb"
            ),
            "Connection names the host": taken(
                head(b"Connection: host, x-secret", b"X-Secret: 1", b"Content-Length: 2", body=b"bc"),
                b"POST /x|bc",
            ),
            "Connection closes": taken(
                head(b"Connection: close", b"Content-Length: 2", body=b"bd"),
                b"POST /x|bd",
                closes=True,
                instead=400,
            ),
            "HTTP/1.0": taken(
                head(b"Content-Length: 2", body=b"be", first=b"POST /pay/x HTTP/1.0"),
                b"POST /x|be",
                closes=True,
                instead=400,
            ),
        },
    ),
    **because(
        "A thousand lines, or 64 kB of them, are enough.",
        {
            "a bomb of empty headers": malformed(head(*[b"a:"] * 10_001, NO_BODY)),
            # By their number, or by their size, whichever is over first.
            "a bomb of headers": malformed(head(*[b"X-Header: value"] * 10_001, NO_BODY), 431)._replace(
                instead=400
            ),
            "one line of 70 kB": malformed(head(b"X: " + b"y" * 70_000, NO_BODY), 431),
        },
    ),
}
