"""One client that waits for each answer, on one connection that it keeps: for what is measured in time and
not in numbers. A plain blocking socket, on the core of the load."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.bodies import request

WITHIN = 60.0
PART = 1 << 18
CHUNKED = b"transfer-encoding: chunked"
LAST_CHUNK = b"\r\n0\r\n\r\n"


class Timed(NamedTuple):
    """Seconds since the request began to be written: to the first byte of the answer's body, and to its last.
    Not since it was written: whoever shares the client's core may have answered by then."""

    first: float
    last: float
    size: int  # of the body; with its chunks' heads if it came in chunks


def has_begun(data: bytes) -> bool:
    """Whether a byte of the body is there: not its head, nor the line that says how long a chunk is."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if CHUNKED in head.lower():
        _, found, rest = rest.partition(b"\r\n")
    return bool(found and rest)


class Client:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WITHIN)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, path: str, body: bytes) -> Timed:
        asked = request(path, body)
        began = time.perf_counter()
        self._socket.sendall(asked)
        data = b""
        while not has_begun(data):
            data += self._part()
        first = time.perf_counter()
        end = data.index(b"\r\n\r\n") + 4
        head = data[:end].lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(data[:300].decode("latin-1"))
        if CHUNKED in head:
            size = self._chunks(data[end:])
        else:
            at = head.index(b"content-length:") + 15
            size = self._length(len(data) - end, int(head[at : head.index(b"\r\n", at)]))
        return Timed(first - began, time.perf_counter() - began, size)

    def _part(self) -> bytes:
        part = self._socket.recv(PART)
        if not part:
            raise RuntimeError("the server closed the connection inside an answer")
        return part

    def _length(self, got: int, length: int) -> int:
        while got < length:
            got += len(self._part())
        return length

    def _chunks(self, tail: bytes) -> int:
        """Until the last one; what comes here never looks like its end."""
        size = len(tail)
        while not tail.endswith(LAST_CHUNK):
            part = self._part()
            size += len(part)
            tail = tail[-len(LAST_CHUNK) :] + part
        return size
