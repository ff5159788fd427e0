"""One kept-alive connection to semel, for one call: its begin, its heartbeats, its report.

A failure says how far it came. `NotSent`: not a byte went out. `NoAnswer`: semel may have heard all of it.
Environment proxies are never asked: HTTP_PROXY is semel itself.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Lock
from types import TracebackType

from semel.place import Place
from semel.values import Json, decode

CONNECTING = 10.0  # seconds; semel is on this machine or near it
# A peer that vanished without a word is noticed after about 35 seconds, though an answer may take minutes.
# Not every system has all of these.
KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class NotSent(Exception):
    """No connection came about."""

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good  # trying again cannot help


class NoAnswer(Exception):
    """The connection broke, or the time was over, before the whole answer was here."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after: float | None  # seconds
    body: bytes

    @property
    def document(self) -> dict[str, Json]:
        """Empty if it is no JSON object: then it is not semel's."""
        try:
            value = decode(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class Line:
    """One request at a time; another connection is made when the last one broke."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._lock = Lock()
        self._connection: HTTPConnection | None = None
        self._ended = False

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """`path` below that of the tools. Raises NotSent or NoAnswer."""
        try:
            with self._lock:
                return self._exchange(self._connected(timeout), path, body, headers, timeout)
        finally:
            self._sweep()

    def end(self) -> None:
        """From any thread, at once: whoever waits here for an answer gets none, and nothing more is sent."""
        self._ended = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                # TCP's, below TLS: another thread may be reading.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
        self._sweep()

    def _sweep(self) -> None:
        """Of two threads the last to leave closes: never waiting, since an event loop may be asking."""
        if self._ended and self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _exchange(
        self, connection: HTTPConnection, path: str, body: bytes, headers: Mapping[str, str], timeout: float
    ) -> Answer:
        every = {"Content-Type": "application/json", **self.place.headers, **headers}
        try:
            connection.sock.settimeout(timeout)
            connection.request("POST", self.place.path + path, body, every)
            with connection.getresponse() as response:
                data = response.read()
                return Answer(response.status, _seconds(response.getheader("Retry-After")), data)
        except (OSError, HTTPException) as error:
            self._drop()
            raise NoAnswer(_told(error)) from error
        except BaseException:  # KeyboardInterrupt: half of an exchange is on this connection
            self._drop()
            raise

    def _connected(self, timeout: float) -> HTTPConnection:
        if self._connection is None or self._connection.sock is None:
            try:
                self._connection = _connect(self.place, min(timeout, CONNECTING))
            except OSError as error:
                for_good = isinstance(error, ssl.SSLCertVerificationError)
                raise NotSent(_told(error), for_good=for_good) from error
        if self._ended:  # looked at when the connection is there for `end` to see: one sees the other
            raise NotSent("the call was given up", for_good=True)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _connect(place: Place, timeout: float) -> HTTPConnection:
    connection: HTTPConnection
    if place.secure:
        context = ssl.create_default_context()  # SSL_CERT_FILE, too, which `semel run` sets
        connection = HTTPSConnection(place.host, place.port, timeout=timeout, context=context)
    else:
        connection = HTTPConnection(place.host, place.port, timeout=timeout)
    try:
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except BaseException:
        connection.close()
        raise
    # A second connection is a decision of ours, not of the library.
    connection.auto_open = 0
    return connection


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
