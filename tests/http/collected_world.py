"""An origin that says what it was asked and how often, so that every answer proves which send it came from.

The content of an answer is made from the path and the number of the send. A path says how large it is:
`/once/blob/3`. Bodies come back: each is that of the send before the last, and what is called `same` has one
content for everybody.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SIZES = {"small": 400, "blob": 100_000, "same": 100_000, "huge": 9 * 1024 * 1024}


def content(path: str, n: int) -> bytes:
    kind = path.split("/")[2]
    head = b"same for all\n" if kind == "same" else f"{path} {n}\n".encode()
    noise = hashlib.blake2b(head).digest()
    size = SIZES[kind]
    return (head + noise * (size // len(noise) + 1))[:size]


class Telling:
    def __init__(self) -> None:
        self.port = 0
        self.sends: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # came, was answered

    def is_answer(self, path: str, body: bytes) -> bool:
        """Whether it is, byte for byte, the answer to one of the sends."""
        head = body.split(b"\n", 1)[0].decode(errors="replace").split(" ")
        n = 0 if path.split("/")[2] == "same" else int(head[-1]) if head[-1].isdigit() else -1
        return 0 <= n <= len(self.sends[path]) and bool(self.sends[path]) and body == content(path, n)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                came = time.time()
                lengths = [
                    int(line.split(":")[1])
                    for line in head.split("\r\n")
                    if line.lower().startswith("content-length:")
                ]
                await reader.readexactly(sum(lengths))
                path = head.split(" ")[1]
                sends = self.sends[path]
                body = content(path, 1 + len(sends) % 2)
                sends.append((came, time.time()))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def telling() -> AsyncIterator[Telling]:
    origin = Telling()
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, limit=2**20)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()
