"""Bytes from an upstream become one answer, or a reason why they never will.

Strict: what could be read in two ways, or could not be handed on unaltered, is refused. No I/O in here.
"""

from __future__ import annotations

from typing import NamedTuple

import httptools

from proxy.core.headers import Headers, end_to_end

_END_OF_HEAD = b"\r\n\r\n"
# Heads up to this size are remembered, this many of them: half a megabyte at most, and mostly a tenth of it.
REMEMBERED_SIZE, REMEMBERED = 2048, 256
# 100, 102, 103: one per second for the default total timeout. More is an upstream that never answers.
MAX_INTERIM = 600


class Head(NamedTuple):
    """What stands before a body of this length."""

    status: int
    headers: Headers
    length: int


def whole_by(known: dict[bytes, Head], data: bytes) -> tuple[Head, bytes] | None:
    """A whole answer with a head that came before, byte for byte, and its body."""
    end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
    head = known.get(data[:end])
    return None if head is None or len(data) != end + head.length else (head, data[end:])


class AnswerReader:
    """One answer, out of httptools' callbacks. `problem` says why it can never become complete.

    `known`: heads of whole answers that came before, byte for byte; the same mean the same again."""

    __slots__ = (
        "_head_only",
        "_head_size",
        "_interim",
        "_known",
        "_length",
        "_limit",
        "_parser",
        "_quiet",
        "_raw",
        "_transfer",
        "_until_eof",
        "complete",
        "headers",
        "parts",
        "pending",
        "problem",
        "reusable",
        "status",
    )

    def __init__(
        self, *, head_only: bool, max_header_bytes: int, known: dict[bytes, Head] | None = None
    ) -> None:
        self.status = 0  # of the final head, once it is there
        self.headers: Headers = ()
        self.parts: list[bytes] = []
        self.pending = 0  # the length of all parts
        self.complete = False
        self.reusable = False
        self.problem = ""
        self._head_only = head_only
        self._limit = max_header_bytes
        self._quiet = 0  # bytes since the last visible progress: bounds heads, trailers, chunk extensions
        self._interim = 0
        self._until_eof = False
        self._raw: list[tuple[bytes, bytes]] = []
        self._length: bytes | None = None
        self._transfer: list[bytes] = []
        self._head_size = 0
        self._known = None if head_only else known
        self._parser: httptools.HttpResponseParser | None = None

    def feed(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False  # more than one answer to one request: whose is the next?
            return
        if self._parser is None:
            if self._takes_known(data):
                return
            self._parser = httptools.HttpResponseParser(self)
            self._parse(data)
            self._remember(data)
        else:
            self._parse(data)

    def _takes_known(self, data: bytes) -> bool:
        """Whether it is a whole answer with a head that came before."""
        found = None if self._known is None else whole_by(self._known, data)
        if found is None:
            return False
        (self.status, self.headers, length), body = found
        if length:
            self.parts.append(body)
            self.pending = length
        self.complete = self.reusable = True
        return True

    def _remember(self, data: bytes) -> None:
        """Nothing but a head and so many bytes, with another answer to follow on the connection."""
        known, end = self._known, data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        if known is None or not self.reusable or self._length is None:
            return
        if end <= REMEMBERED_SIZE and len(data) == end + self.pending:
            if len(known) >= REMEMBERED:
                known.clear()
            known[data[:end]] = Head(self.status, self.headers, self.pending)

    def _parse(self, data: bytes) -> None:
        parser = self._parser
        assert parser is not None
        self._quiet += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._refuse(f"the answer is not valid HTTP/1.1: {error}")
        if self._quiet > self._limit:
            self._refuse(f"the answer's head is over {self._limit} bytes")

    def eof(self) -> None:
        """The upstream ended the stream properly."""
        if self._until_eof:
            self.complete = True
        else:
            where = "inside the answer" if self.status else "before an answer"
            self._refuse(f"the upstream closed the connection {where}")

    def release(self) -> None:
        """Break the cycle between the parser and its callbacks, so that nothing waits for the collector."""
        self._parser = None

    # What httptools calls.

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer
        self._head_size += len(name) + len(value) + 4
        if self._head_size > self._limit:
            self._refuse(f"the answer's head is over {self._limit} bytes")
            return
        self._raw.append((name, value))
        length = len(name)
        if length == 14 and name.lower() == b"content-length":
            self._length = value.strip(b" \t")
        elif length == 17 and name.lower() == b"transfer-encoding":
            self._transfer.append(value.strip(b" \t").lower())

    def on_headers_complete(self) -> None:
        if self.complete or self.problem:
            return
        assert self._parser is not None
        self._quiet = 0
        status = self._parser.get_status_code()
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse("the answer is not HTTP/1.1")
        elif status == 101 or status < 100:
            self._refuse(f"the upstream answered {status:03}, which nobody asked for")
        elif status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._refuse(f"more than {MAX_INTERIM} interim answers")
            self._forget_head()
        elif self._transfer and (self._transfer != [b"chunked"] or version == "1.0"):
            # Handing on the body would need Transfer-Encoding to be handed on too, and it is hop-by-hop.
            # HTTP/1.0 does not know it: somebody passed it on unread (RFC 9112, 6.1).
            self._refuse("the answer has a transfer coding other than chunked in HTTP/1.1")
        else:
            self._final_head(status)

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
        elif not self.problem:
            self._quiet = 0
            self.parts.append(data)
            self.pending += len(data)

    def on_message_complete(self) -> None:
        if self.status and not self.complete and not self.problem:
            assert self._parser is not None
            self.complete = True
            self.reusable = self._parser.should_keep_alive() and not self._bodiless_with_length()

    # How it fits together.

    def _final_head(self, status: int) -> None:
        self.status = status
        self.headers = end_to_end(tuple(self._raw))
        if self._head_only:
            # httptools cannot be told that no body follows. Never reused: an upstream that sends one all the
            # same would have it taken for the next answer.
            self.complete = True
        elif status not in (204, 304):
            self._until_eof = self._length is None and not self._transfer

    def _bodiless_with_length(self) -> bool:
        """A 204 or 304 that announces a body: should one follow, it is no answer to the next request."""
        return self.status in (204, 304) and (bool(self._transfer) or self._length not in (None, b"0"))

    def _forget_head(self) -> None:
        self._raw = []
        self._length = None
        self._transfer = []
        self._head_size = 0

    def _refuse(self, problem: str) -> None:
        """The first problem counts. Behind a complete answer it costs the connection, nothing else."""
        if self.complete:
            self.reusable = False
        elif not self.problem:
            self.problem = problem
