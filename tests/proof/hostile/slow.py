"""Sockets that only hold their place: half a head, a byte a second, a body or a hello that never comes.

`python -m tests.proof.hostile.slow PORT ORIGIN COUNT RATE` opens so many against a semel and sends so many
hostile requests per second meanwhile. A first line says that it begins; when all are cut off, the second says
how long the last one was there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import TypeAlias

from proxy.settings_values import Limits
from tests.origin import LOOPS
from tests.proof.hostile.corpus import ORIGIN, SEMEL
from tests.proof.hostile.playing import Line, innocent, line_to, play
from tests.proof.hostile.requests import REQUESTS
from tests.proof.hostile.targets import TLS_HELLO

Slow: TypeAlias = Callable[[Line], Coroutine[None, None, None]]
# Nobody is there for longer than this.
CUT_WITHIN = 20.0
# So much of it is beyond the timer that cuts them: for the rest of the way, on a machine that has other work.
BEYOND = CUT_WITHIN - Limits().header_timeout
BEGINS = "begins"


def _says(data: bytes) -> Slow:
    async def slow(line: Line) -> None:
        await line.send([data])

    return slow


async def _drips(line: Line) -> None:
    """A head, a byte a second."""
    for byte in b"POST /pay/slow HTTP/1.1\r\nHost: semel\r\nX-Slow: " + b"s" * 100:
        if line.ended.is_set():
            return
        await line.send([bytes([byte])])
        await asyncio.sleep(1.0)


POST = b"POST /pay/slow HTTP/1.1\r\nHost: semel\r\n"
# By name: what it does, and whether it comes through a CONNECT first.
KINDS: dict[str, tuple[Slow, bool]] = {
    "silence": (_says(b""), False),
    "empty lines": (_says(b"\r\n\r\n"), False),
    "half a head": (_says(POST[:30]), False),
    "a byte a second": (_drips, False),
    "a body that never comes": (_says(POST + b"Content-Length: 1000\r\n\r\n"), False),
    "half a body": (_says(POST + b"Content-Length: 1000\r\n\r\nhalf"), False),
    "a chunk that never comes": (_says(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n"), False),
    "a body that was waited for": (_says(POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"), False),
    "silence behind a CONNECT": (_says(b""), True),
    "half a hello": (_says(TLS_HELLO[:40]), True),
    "half a head behind a CONNECT": (_says(POST[:30]), True),
}


async def one_slow(port: int, origin: bytes, kind: str) -> float:
    """Seconds until semel ended it."""
    slow, through = KINDS[kind]
    began = time.monotonic()
    async with line_to(port, origin if through else b"") as line:
        speaking = asyncio.create_task(slow(line))
        try:
            await line.ended.wait()
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
    return time.monotonic() - began


async def many_slow(port: int, origin: bytes, count: int) -> list[tuple[float, str]]:
    """Of each the seconds, and its kind."""
    kinds = list(itertools.islice(itertools.cycle(KINDS), count))
    took = await asyncio.gather(*(one_slow(port, origin, kind) for kind in kinds))
    return list(zip(took, kinds, strict=True))


async def flood(port: int, origin: bytes, rate: int) -> int:
    """Hostile requests, one after another, until it is cancelled: how many."""
    entries = [one for one in REQUESTS.values() if len(one.raw) < 1000 and one.answers != (413,)]
    sent, began = 0, time.monotonic()
    try:
        for entry in itertools.cycle(entries):
            request, marked = innocent()
            raw = entry.raw.replace(ORIGIN, origin).replace(SEMEL, b"127.0.0.1:%d" % port)
            await play(port, [raw + request], marked)
            sent += 1
            await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
    except asyncio.CancelledError:
        pass
    return sent


async def _attack(port: int, origin: bytes, count: int, rate: int) -> dict[str, float]:
    flooding = asyncio.create_task(flood(port, origin, rate))
    cut = await many_slow(port, origin, count)
    flooding.cancel()
    return {"sockets": len(cut), "longest": round(max(cut)[0], 2), "hostile requests": await flooding}


if __name__ == "__main__":
    _port, _origin, _count, _rate = sys.argv[1:]
    print(BEGINS, flush=True)
    with asyncio.Runner(loop_factory=LOOPS["uvloop"]) as runner:
        print(json.dumps(runner.run(_attack(int(_port), _origin.encode(), int(_count), int(_rate)))))
