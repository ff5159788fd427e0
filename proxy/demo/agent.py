"""An agent that pays an invoice: look it up, charge the card, note "paid". A plain script, as many are.

It does what a careful script does: before it pays it looks into its notes. It does not know whether a proxy
stands between it and the API; it prints the answer's Semel-Status, if there is one, for whoever watches.

    API_URL=http://127.0.0.1:9000 python -m proxy.demo.agent inv-1001

With AGENT_DIES=1 it kills itself at the worst moment: the card is charged, and the note is not written.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NOTES = Path("notes.txt")  # where it was started
PATIENCE = 20.0  # seconds for one answer


def pay(invoice: str) -> None:
    if NOTES.exists() and f"{invoice} paid" in NOTES.read_text():
        print(f"my notes say that {invoice} is paid: nothing to do")
        return
    bill = ask("GET", f"/v1/invoices/{invoice}")
    charge = ask("POST", "/v1/charges", {"invoice": invoice, "amount": bill["amount"], "card": "card-7"})
    if os.environ.get("AGENT_DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    with NOTES.open("a") as notes:
        notes.write(f"{invoice} paid by {charge['id']}\n")
    print(f'noted: "{invoice} paid by {charge["id"]}"')


def ask(method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 (whatever JSON the API answers)
    request = urllib.request.Request(
        os.environ["API_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        tell(method, path, error.code, error.headers.get("Semel-Status"), began)
        problem = json.load(error)
        sys.exit(f"I cannot go on: {problem.get('type')}: {problem.get('detail')}")
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"{method} {path}: no answer ({error}). I do not know what became of it.")
    tell(method, path, answer.status, answer.headers.get("Semel-Status"), began)
    return json.loads(text)


def tell(method: str, path: str, code: int, status: str | None, began: float) -> None:
    told = f", Semel-Status: {status}" if status else ""
    took = (time.monotonic() - began) * 1000
    print(f"{method} {path}: {code}{told}, {took:.1f} ms", flush=True)


if __name__ == "__main__":
    pay(sys.argv[1])
