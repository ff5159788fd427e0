"""An agent that books a trip: it asks a model what to do next, does it, and tells the model what came of it.

A plain script with the standard library, as many are. It keeps no notes and knows nothing of semel.

    MODEL_URL=https://api.openai.com/v1 TOOLS_URL=https://tools.example python agent.py
"""

from __future__ import annotations

import json
import logging
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

TASK = "Find a train to Ulm on Friday, pay for it with card-7, and mail the ticket to ann@example.com."

logging.basicConfig(format="[%(process)d] %(message)s", level=logging.INFO, stream=sys.stdout)


def ask(name: str, url: str, body: object = None) -> Any:  # noqa: ANN401 (whatever JSON comes back)
    logging.info("%s: asked", name)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    logging.info("%s: done", name)
    return found


def search(query: str) -> Any:  # noqa: ANN401
    return ask("search", f"{os.environ['TOOLS_URL']}/search?{urlencode({'q': query})}")


def charge(card: str, amount: int) -> Any:  # noqa: ANN401
    return ask("charge", f"{os.environ['TOOLS_URL']}/charges", {"card": card, "amount": amount})


def email(to: str, text: str) -> Any:  # noqa: ANN401
    return ask("email", f"{os.environ['TOOLS_URL']}/emails", {"to": to, "text": text})


TOOLS: dict[str, Callable[..., Any]] = {"search": search, "charge": charge, "email": email}
DESCRIBED = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS]


def main() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    while True:
        asked = {"model": "gpt-4.1", "messages": messages, "tools": DESCRIBED}
        answer = ask("model", f"{os.environ['MODEL_URL']}/chat/completions", asked)
        message = answer["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            print(message["content"], flush=True)
            return
        for call in message["tool_calls"]:
            result = TOOLS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


if __name__ == "__main__":
    main()
