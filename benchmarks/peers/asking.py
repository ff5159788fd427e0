"""The agent: it makes one call, in the way of the library it is started with, and says what it was told.

Run in the environment of that library, so nothing is imported here but Python's own. It says `ready`, waits
for a line, asks, and prints what it was told. Told to wait, it asks again for as long as it has patience.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

AGAIN_AFTER = 0.5
HTTP_TIMEOUT = 60.0
LONGEST = 160


class Order(NamedTuple):
    """What an agent is started with. The same `call` is the same call, whoever asks for it."""

    mode: str
    target: str  # where the call with effects is posted to
    control: str  # where the upstream is asked about it
    store: str
    call: str
    patience: float = 0.0
    callers: int = 1  # in this process, at once
    name: str = "0"  # of this process among several
    setup: bool = False  # the first of all: makes the tables
    recovering: bool = False  # after a crash, when those that worked before are known to be dead


class Told(NamedTuple):
    """`kind`: answer, wait (ask later), held (a person is needed), error, none (the connection broke or the
    time was over)."""

    kind: str
    words: str


def answered(answer: dict[str, Any]) -> Told:
    return Told("answer", f"answer {answer['number']}")


def failed(error: BaseException, kind: str = "error") -> Told:
    return Told(kind, f"{type(error).__name__}: {error}"[:LONGEST].split("\n")[0])


def post(target: str, call: str, key: str | None = None) -> dict[str, Any]:
    """The tool: one POST with an effect, without retries of its own."""
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    asked = urllib.request.Request(target, json.dumps({"ref": call}).encode(), headers)
    with urllib.request.urlopen(asked, timeout=HTTP_TIMEOUT) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


def passed(order: Order) -> None:
    """The library has given the result: it is saved. An agent that is to die here is kept here."""
    urllib.request.urlopen(f"{order.control}/saved?ref={order.call}", timeout=HTTP_TIMEOUT).close()


def persist(ask: Callable[[], Told], patience: float) -> Told:
    """Ask, and again while told to wait; the words are all that was said, once each."""
    until, said = time.monotonic() + patience, list[str]()
    while True:
        try:
            told = ask()
        except Exception as error:  # whatever the library raises is what the agent was told
            told = failed(error)
        if told.words not in said:
            said.append(told.words)
        if told.kind != "wait" or time.monotonic() >= until:
            break
        time.sleep(AGAIN_AFTER)
    still = f", still after {patience:.0f} s" if told.kind == "wait" and patience else ""
    return Told(told.kind, ", then ".join(said) + still)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main(prepare: Callable[[Order], Callable[[], Told]]) -> None:
    order = Order(**json.loads(sys.argv[1]))
    ask = prepare(order)
    say({"ready": True})
    if sys.stdin.readline().strip() == "go":
        with ThreadPoolExecutor(order.callers) as pool:
            for told in pool.map(lambda _: persist(ask, order.patience), range(order.callers)):
                say({"kind": told.kind, "words": told.words})
    os._exit(0)  # whatever threads the library still has: the agent is done
