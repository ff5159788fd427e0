"""The upstream: it acts, counts, and holds its answer or hangs up when it is told to. Nothing but Python.

POST /plain    acts each time
POST /asked    acts each time; GET /acts?ref=R says what it did
POST /keyed    acts once per Idempotency-Key, and answers the same again
GET /saved     an agent passes here when its library has given it the result
POST /_arm     {"hold": N, "reset": N, "hold_saved": N, "delay": SECONDS}: for the next N requests
POST /_release answers what is held
GET /_figures?ref=R   what was done for R
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HELD_AT_MOST = 120.0


class Books:
    """What was done, for whom, and what is to happen to the next answers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acts: list[dict[str, Any]] = []
        self.known: dict[str, dict[str, Any]] = {}
        self.saved: list[str] = []
        self.plan: dict[str, float] = {}
        self.released = threading.Event()

    def arm(self, plan: dict[str, float]) -> None:
        with self.lock:
            self.released.set()  # nobody waits for a plan that is over
            self.plan, self.released = dict(plan), threading.Event()

    def take(self, what: str) -> bool:
        """One of the planned ones, if any is left."""
        with self.lock:
            left = self.plan.get(what, 0)
            self.plan[what] = max(0, left - 1)
            return left > 0

    def act(self, ref: str, key: str) -> dict[str, Any]:
        with self.lock:
            if key and key in self.known:
                return self.known[key]
            number = 1 + sum(act["ref"] == ref for act in self.acts)
            act = {"ref": ref, "number": number}
            self.acts.append(act)
            if key:
                self.known[key] = act
            return act

    def done_for(self, ref: str) -> list[dict[str, Any]]:
        with self.lock:
            return [act for act in self.acts if act["ref"] == ref]


BOOKS = Books()


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path == "/_arm":
            BOOKS.arm(body)
            return self.answer({})
        if self.path == "/_release":
            BOOKS.released.set()
            return self.answer({})
        released = BOOKS.released
        act = BOOKS.act(body["ref"], self.headers.get("Idempotency-Key", "") if self.path == "/keyed" else "")
        if BOOKS.take("hold"):
            released.wait(HELD_AT_MOST)
        if BOOKS.take("reset"):
            return self.reset()
        time.sleep(BOOKS.plan.get("delay", 0))
        return self.answer(act)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        ref = parse_qs(address.query).get("ref", [""])[0]
        if address.path == "/saved":
            released = BOOKS.released
            BOOKS.saved.append(ref)
            if BOOKS.take("hold_saved"):
                released.wait(HELD_AT_MOST)
            return self.answer({})
        if address.path == "/_figures":
            return self.answer({"effects": len(BOOKS.done_for(ref)), "saved": BOOKS.saved.count(ref)})
        return self.answer({"items": BOOKS.done_for(ref)})

    def answer(self, said: dict[str, Any]) -> None:
        text = json.dumps(said).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:  # whoever asked is dead: that is what is tried here
            self.close_connection = True

    def reset(self) -> None:
        """RST, without an answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the base class)
        """Nothing: what counts is counted."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke: that is what is tried here."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Upstream)
    print(json.dumps({"ready": True, "port": server.server_address[1]}), flush=True)
    server.serve_forever()
