"""Tools with books, for act two and for the traffic of compose.yaml: what is counted took effect.

    GET  /search?q=…    paid for each time that it is asked
    GET  /orders?id=…   how far an order has come
    POST /charges       charges the card
    POST /refunds       gives money back
    POST /emails        sends the mail
    POST /notes         writes something down
    GET  /books         how often each of them took effect

No idempotency keys: it does what it is asked, as often as it is asked. A header `X-Toy` says what goes wrong
with one request: `slow` takes its time, `lose` takes effect and hangs up, a status is the whole answer and
nothing took effect. Being a header it is no part of the call: the same without it is the same call again.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

LARGEST_BODY = 64 * 1024
READS = {"/search": "search", "/orders": "order"}
WRITES = {"/charges": "charge", "/refunds": "refund", "/emails": "email", "/notes": "note"}
NAMES = (*READS.values(), *WRITES.values())
MISHAP = "X-Toy"
SLOW, LOSE = "slow", "lose"
# Seconds. Long enough for whoever asks at the same time to find the first one under way.
SLOWNESS = 0.5


class Tools(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, work: float, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(address, Handler)
        self.work = work
        self._books: Counter[str] = Counter(dict.fromkeys(NAMES, 0))
        self._lock = threading.Lock()

    def take_effect(self, name: str) -> int:
        """Which one of its kind it is: a second real call never looks like the first."""
        with self._lock:
            self._books[name] += 1
            return self._books[name]

    def books(self) -> dict[str, int]:
        with self._lock:
            return dict(self._books)

    def server_bind(self) -> None:
        """HTTPServer's own looks up its name, and without a network that may take its time."""
        TCPServer.server_bind(self)


class Handler(BaseHTTPRequestHandler):
    server: Tools

    def do_GET(self) -> None:
        if self.path == "/books":
            self._answer(200, self.server.books())
        else:
            self._work(READS)

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        self.rfile.read(min(size, LARGEST_BODY))
        self._work(WRITES)

    def _work(self, offered: dict[str, str]) -> None:
        name = offered.get(self.path.partition("?")[0])
        if name is None:
            self._answer(404, {"detail": "no such tool"})
            return
        mishap = self.headers.get(MISHAP, "")
        if mishap.isdigit():
            self._answer(int(mishap), {"detail": "not now", "done": False})
            return
        number = self.server.take_effect(name)
        time.sleep(SLOWNESS if mishap == SLOW else self.server.work)
        if mishap == LOSE:
            return  # without a word: the connection ends here
        self._answer(200, {"id": f"{name}-{number}", "done": True})

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as its parent has it)
        pass


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.tools")
    parser.add_argument("--work", type=float, default=0.0, metavar="SECONDS", help="before each answer")
    with Tools(parser.parse_args().work) as tools:
        print(f"the tool API is ready on http://127.0.0.1:{tools.server_address[1]}", flush=True)
        tools.serve_forever()


if __name__ == "__main__":
    main()
