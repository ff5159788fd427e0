"""An agent for the picture of a run: it thinks, searches, pays and mails, one after the other, and says so.

It keeps no notes: started again it begins at its beginning. `SEMEL_URL` is where its APIs are.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request

from proxy.demo.tools import MISHAP, SLOW


def thought(about: str) -> tuple[str, object]:
    return "/model/v1/chat/completions", {
        "model": "gpt-4.1",
        "messages": [{"role": "user", "content": about}],
    }


STEPS: tuple[tuple[str, object], ...] = (
    thought("Find a train to Ulm on Friday."),
    ("/search/search?q=trains+to+Ulm", None),
    thought("There is one at nine."),
    ("/payments/charges", {"order": "train-9", "card": "card-7", "usd": 49}),
    thought("It is paid. Who gets the ticket?"),
    ("/mail/emails", {"to": "ann@example.com", "ticket": "train-9"}),
    thought("Everything is done. Say so."),
)
# Seconds that it does something else between two calls.
PAUSE = 0.15


def main() -> None:
    for number, (path, body) in enumerate(STEPS, 1):
        print(f"step {number}", flush=True)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if path.startswith("/payments"):
            headers[MISHAP] = SLOW
        request = urllib.request.Request(os.environ["SEMEL_URL"] + path, data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
