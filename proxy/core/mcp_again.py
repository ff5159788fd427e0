"""An MCP server's answer, given again for another request: under that one's id.

Event ids go, since no server knows the new request by them; so does what the server asked the client. How it
went is told under the token of whoever asks now, or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.core.headers import Headers
from proxy.core.json_text import after_space, elements, plain_text, read
from proxy.core.jsonrpc import PROGRESS, Id, for_request, is_request, is_response, with_progress_token
from proxy.core.sse import data_of, fields_of

# Whose session it was, how long the answer was then, and where else the call could be made.
_NOT_AGAIN = frozenset({b"mcp-session-id", b"content-length", b"location"})


class Again(NamedTuple):
    """For whom."""

    id: Id
    progress: Id | None
    modern: bool = False

    def message(self, body: bytes) -> bytes:
        """A whole answer that is one message. What cannot be read is given as it was."""
        try:
            if isinstance(read(body), list):
                return self._said(body) or body
            return for_request(body, self.id, modern=self.modern)
        except (ValueError, RecursionError):
            return body

    def event(self, event: bytes) -> bytes | None:
        """One event of a stream; None: it is not for this request."""
        try:
            data = self._said(data_of(event))
        except (ValueError, RecursionError):
            return None  # a comment, or the first event, whose id is all that it says
        if data is None:
            return None
        kept = [(name, value) for name, value in fields_of(event) if name == b"event"]
        lines = [*kept, *((b"data", line) for line in data.split(b"\n"))]
        return b"".join([b"%b: %b\n" % pair for pair in lines]) + b"\n"

    def _said(self, data: bytes) -> bytes | None:
        message = read(data)
        if isinstance(message, list):  # of 2025-03-26: several together
            text = plain_text(data)
            each = [text[at.begin : at.end].encode() for at in elements(text, after_space(text, 0))]
            kept = [said for said in map(self._said, each) if said is not None]
            return b"[" + b",".join(kept) + b"]" if kept else None
        if is_request(message):  # of the client, who has no use for its answer
            return None
        if is_response(message):
            return for_request(data, self.id, modern=self.modern)
        if not isinstance(message, dict) or message.get("method") != PROGRESS:
            return data
        return None if self.progress is None else with_progress_token(data, self.progress)


def headers_again(headers: Headers) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() not in _NOT_AGAIN)
