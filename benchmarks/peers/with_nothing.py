"""An agent that calls its tool directly: without any help, or, with the proxy's address, behind semel."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable

from benchmarks.peers.asking import Order, Told, answered, failed, main, passed, post

ASK_LATER = {"in-progress", "upstream-unreachable", "store-unavailable"}


def told_by(status: int, body: bytes) -> Told:
    """A problem of semel, or any other answer that is not the tool's."""
    try:
        name = str(json.loads(body)["type"]).removeprefix("urn:semel:")
    except (ValueError, KeyError, TypeError):
        return Told("error", f"status {status}")
    return Told("wait" if name in ASK_LATER else "held", f"{status} {name}")


def prepare(order: Order) -> Callable[[], Told]:
    def ask() -> Told:
        try:
            answer = post(order.target, order.call)
        except urllib.error.HTTPError as error:
            return told_by(error.code, error.read())
        except OSError as error:
            return failed(getattr(error, "reason", error), "none")
        passed(order)
        return answered(answer)

    return ask


if __name__ == "__main__":
    main(prepare)
