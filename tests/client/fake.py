"""A semel that says what a test wants: it answers tools' requests by a script, and notes what it heard."""

from __future__ import annotations

import json
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit

LIMIT = 10.0  # seconds that any wait may take
CALL = "c0ffee"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    document: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None  # in place of the document
    cut: int | None = None  # after so many bytes of the answer the connection is closed
    gate: Event | None = None  # nothing is said before it opens


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    word: str  # begin, complete, fail, heartbeat
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def execute(heartbeat: float = 5.0, fence: int = 1) -> Reply:
    return Reply(document={"execute": {"call": CALL, "fence": fence, "heartbeat": heartbeat}})


def result(value: object) -> Reply:
    return Reply(document={"result": value})


def problem(name: str, status: int, *, after: int | None = None, detail: str = "") -> Reply:
    document = {
        "type": f"urn:semel:{name}",
        "title": name,
        "status": status,
        "detail": detail or f"about {name}",
    }
    return Reply(
        document=document, status=status, headers={} if after is None else {"Retry-After": str(after)}
    )


CUT = Reply(cut=0)  # heard, and not answered
DEFAULTS = {
    "begin": execute(),
    "complete": Reply(document={"state": "done"}),
    "fail": Reply(document={"state": "absent"}),
    "heartbeat": Reply(document={"state": "pending", "heartbeat": 5.0}),
}


class Fake:
    """`says[word]`: the next answers to such requests; then what `DEFAULTS` has."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.says: defaultdict[str, deque[Reply]] = defaultdict(deque)
        self.heard: list[Heard] = []
        self._changed = Condition()
        self._open: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.fake = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self._scheme == "http" else "localhost"
        return f"{self._scheme}://{host}:{self._server.server_address[1]}"

    def words(self, *which: str) -> list[str]:
        """What was heard, in order; only these if named. Heartbeats come when they come: name them."""
        wanted = which or ("begin", "complete", "fail")
        return [one.word for one in self.heard if one.word in wanted]

    def only(self, word: str) -> Heard:
        (found,) = [one for one in self.heard if one.word == word]
        return found

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, LIMIT), [one.word for one in self.heard]

    def wait_heard(self, word: str, times: int = 1) -> None:
        self.wait_for(lambda: len(self.words(word)) >= times)

    def wait_left(self) -> None:
        """Until no client has a connection any more."""
        self.wait_for(lambda: not self._open)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(LIMIT)
        with self._changed:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # joins the handlers' threads

    # ---- for the handlers ----

    def note(self, heard: Heard) -> Reply:
        with self._changed:
            self.heard.append(heard)
            self._changed.notify_all()
            waiting = self.says[heard.word]
            return waiting.popleft() if waiting else DEFAULTS[heard.word]

    def connected(self, one: socket.socket, there: bool) -> None:
        with self._changed:
            (self._open.add if there else self._open.discard)(one)
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128  # many connect at once
    fake: Fake

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is none of a test's errors."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    numbers: ClassVar[Iterator[int]] = iter(range(10**9))

    def setup(self) -> None:
        super().setup()
        self.number = next(self.numbers)
        self.server.fake.connected(self.connection, True)

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.server.fake.connected(self.connection, False)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        last = urlsplit(self.path).path.rpartition("/")[2]
        heard = Heard(
            word=last if last in ("complete", "fail", "heartbeat") else "begin",
            target=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            connection=self.number,
        )
        reply = self.server.fake.note(heard)
        if reply.gate is not None:
            assert reply.gate.wait(LIMIT)
        data = json.dumps(reply.document).encode() if reply.raw is None else reply.raw
        if reply.cut == 0:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: reply.cut])
        if reply.cut is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def faking(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Fake]:
    fake = Fake(port, tls)
    try:
        yield fake
    finally:
        fake.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
