"""An agent with three tools of its own, for tests that kill it: `python -m tests.tools.paying_agent PLAN`.

The plan is JSON, see `agents.py`. What its functions do is counted in a file that semel knows nothing of. It
says on stdout, one JSON object a line, where it stands and what each call came to.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import semel

PLAN: dict[str, Any] = json.loads(sys.argv[1])
STANDS: list[str] = PLAN["stands"]


class Declined(Exception):
    pass


def tell(**what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def pass_by(point: str) -> None:
    """Stand here until the test lets us go on, or end here without a word, if the plan says so."""
    if point == PLAN["exits"]:
        os._exit(17)
    if point in STANDS:
        tell(at=point)
        os.read(0, 1)


def do(tool: str, about: str) -> dict[str, object]:
    if PLAN["raises"] == "NotExecuted":
        raise semel.NotExecuted("the bank is closed")
    counted = os.open(PLAN["effects"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(counted, f"{tool} {about}\n".encode())
    os.close(counted)
    pass_by(f"inside {tool}")
    if PLAN["raises"] == "Declined":
        raise Declined("no money")
    return {"tool": tool, "about": about, "pid": os.getpid()}


@semel.tool
def look(about: str) -> dict[str, object]:
    return do("look", about)


@semel.tool
def pay(about: str) -> dict[str, object]:
    return do("pay", about)


@semel.tool
def mail(about: str) -> dict[str, object]:
    return do("mail", about)


@semel.tool(name="look")
async def look_async(about: str) -> dict[str, object]:
    return await asyncio.to_thread(do, "look", about)


@semel.tool(name="pay")
async def pay_async(about: str) -> dict[str, object]:
    return await asyncio.to_thread(do, "pay", about)


@semel.tool(name="mail")
async def mail_async(about: str) -> dict[str, object]:
    return await asyncio.to_thread(do, "mail", about)


SYNC: dict[str, Callable[[str], dict[str, object]]] = {"look": look, "pay": pay, "mail": mail}
ASYNC: dict[str, Callable[[str], Coroutine[Any, Any, dict[str, object]]]] = {
    "look": look_async,
    "pay": pay_async,
    "mail": mail_async,
}


def in_order() -> None:
    """One call after another, until one raises."""
    for tool in PLAN["calls"]:
        try:
            result = SYNC[tool]("order 7") if PLAN["style"] == "sync" else asyncio.run(ASYNC[tool]("order 7"))
        except (semel.SemelError, Declined) as error:
            call = error.problem.get("call") if isinstance(error, semel.SemelError) else None
            tell(error=type(error).__name__, message=str(error), call=call)
            sys.exit(3)
        pass_by(f"after {tool}")
        tell(result=result)


def at_once(many: int) -> None:
    """The same call that often at the same time."""
    (tool,) = PLAN["calls"]
    if PLAN["style"] == "sync":
        together = Barrier(many)

        def one() -> dict[str, object]:
            together.wait(60)
            return SYNC[tool]("order 7")

        with ThreadPoolExecutor(many) as threads:
            results = [each.result() for each in [threads.submit(one) for _ in range(many)]]
    else:

        async def all_of_them() -> list[dict[str, object]]:
            return await asyncio.gather(*(ASYNC[tool]("order 7") for _ in range(many)))

        results = asyncio.run(all_of_them())
    tell(results=results)


if __name__ == "__main__":
    at_once(PLAN["at_once"]) if PLAN["at_once"] else in_order()
