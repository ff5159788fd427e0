"""A toy API for the examples: it counts how often it was really called, and loses one kind of answer.

POST /send takes effect and answers; POST /lose takes effect and hangs up; GET / says how many effects there
were.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Toy(BaseHTTPRequestHandler):
    effects = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Toy.effects += 1
        if self.path != "/lose":
            self.answer(f'{{"sent": true, "number": {Toy.effects}}}\n', "application/json")

    def do_GET(self) -> None:
        self.answer(f"effects so far: {Toy.effects}\n", "text/plain")

    def answer(self, text: str, media_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Toy).serve_forever()
