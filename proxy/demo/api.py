"""A toy payments API. It keeps books, and its books are what the demo counts.

    GET  /v1/invoices/ID    what is to be paid
    POST /v1/charges        charges the card (takes effect), then answers 201
    GET  /v1/charges        all charges that took effect

It has no idempotency keys: it charges as often as it is asked, as many APIs do. With `--hang N` the first N
charges take effect and are never answered.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

# Seconds for one charge. Payment APIs take about as long; a replay does not.
WORK = 0.2
LARGEST_BODY = 64 * 1024
AMOUNT = 4900


class Books:
    """Every charge that took effect, in order."""

    def __init__(self) -> None:
        self._charges: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def charge(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            number = len(self._charges) + 1
            made = {"id": f"ch_{number}", **asked}
            self._charges.append(made)
        return number, made

    def all(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._charges)


class Api(ThreadingHTTPServer):
    daemon_threads = True  # a charge that hangs does not keep the process

    def __init__(self, hang: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.books = Books()
        self.hang = hang

    def server_bind(self) -> None:
        """HTTPServer's own looks up its name, and without a network that may take its time."""
        TCPServer.server_bind(self)


class Handler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        if self.path == "/v1/charges":
            self._answer(200, {"charges": self.server.books.all()})
        elif self.path.startswith("/v1/invoices/"):
            self._answer(200, {"id": self.path.rsplit("/", 1)[1], "amount": AMOUNT, "currency": "EUR"})
        else:
            self._answer(404, {"detail": "no such page"})

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        if self.path != "/v1/charges" or size > LARGEST_BODY:
            self._answer(404, {"detail": "POST /v1/charges, with a small body, is all there is"})
            return
        asked = json.loads(self.rfile.read(size))
        time.sleep(WORK)
        number, made = self.server.books.charge(asked)
        if number <= self.server.hang:
            threading.Event().wait()  # until this process ends
        self._answer(201, made)

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.api")
    parser.add_argument("--hang", type=int, default=0, metavar="N")
    with Api(parser.parse_args().hang) as api:
        print(f"the toy API is ready on http://127.0.0.1:{api.server_address[1]}", flush=True)
        api.serve_forever()


if __name__ == "__main__":
    main()
