"""A load generator that costs little: N connections, one request at a time on each, for a bounded count.

Prints requests per second. `unique`: every request is another call; `same`: all ask for one; `many`: for
2,000 different ones in turn.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from itertools import count, cycle, islice, repeat
from typing import cast

import uvloop

from benchmarks import much
from benchmarks.bodies import MANY, body, request

WARM_UP = much(300)


class _Client(asyncio.Protocol):
    def __init__(self, load: Load) -> None:
        self._load = load
        self._pending = b""
        self._expected = -1
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        request = next(self._load.requests, None)
        if request is None:
            self._over = True
            self._transport.close()
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        if self._expected < 0:
            end = self._pending.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._pending[:end].lower()
            if not head.startswith(b"http/1.1 200"):
                self._load.failed(self._pending[:300].decode("latin-1"))
                return
            at = head.index(b"content-length:")
            self._expected = end + 4 + int(head[at + 15 : at + 30].split(b"\r\n", 1)[0])
        if len(self._pending) >= self._expected:
            self._pending, self._expected = b"", -1
            self._load.answered()
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._over:
            self._load.failed("the server closed a connection")


def requests(path: str, kind: str, seed: str) -> Iterator[bytes]:
    """Without an end. What is asked for again is written once."""
    match kind:
        case "unique":
            return (request(path, body(seed, number)) for number in count(1))
        case "many":
            return cycle([request(path, body(seed, number)) for number in range(1, MANY + 1)])
        case "same":
            return repeat(request(path, body(seed, 0)))
    raise ValueError(f"no kind of load is called {kind}")


class Load:
    def __init__(self, path: str, kind: str, total: int, seed: str) -> None:
        self.requests = islice(requests(path, kind, seed), total + WARM_UP)
        self._total = total
        self._answered = 0
        self._began = 0.0
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def failed(self, words: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(words))

    def answered(self) -> None:
        self._answered += 1
        if self._answered == WARM_UP:
            self._began = time.perf_counter()
        if self._answered == WARM_UP + self._total and not self.done.done():
            self.done.set_result(self._total / (time.perf_counter() - self._began))


async def run(port: int, path: str, kind: str, total: int, connections: int, seed: str) -> float:
    load = Load(path, kind, total, seed)
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: _Client(load), "127.0.0.1", port)
    async with asyncio.timeout(300):
        return await load.done


if __name__ == "__main__":
    port, path, kind, total, connections, seed = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(run(int(port), path, kind, int(total), int(connections), seed)))
