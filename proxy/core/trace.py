"""The trace that a request belongs to, as W3C Trace Context writes it: read, never changed.

`traceparent` goes upstream as it came and is no part of a call's name; here it is only told, in the log and
to whoever collects spans. One that is malformed is nobody's trace, and goes upstream all the same.
"""

from __future__ import annotations

import re

from proxy.core.headers import Headers

HEADER = b"traceparent"
_SIZE = len(HEADER)
# Version, trace, parent, flags. Later versions may say more behind a dash; ff is none.
_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


def trace_of(headers: Headers) -> str:
    """32 hex digits, or nothing; nothing too where there are several, since nobody knows which is meant."""
    given = None
    for name, value in headers:
        if len(name) == _SIZE and name.lower() == HEADER:
            if given is not None:
                return ""
            given = value
    found = None if given is None else _TRACEPARENT.fullmatch(given)
    if given is None or found is None or (found[2] and given[:2] == b"00"):
        return ""
    return found[1].decode()
