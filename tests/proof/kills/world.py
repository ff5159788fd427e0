"""The upstream: `python -m tests.proof.kills.world BOOKS SEED` says its port and serves until it is killed.

    POST /a, /a-same   safe; answers something new each time
    POST /b   acts once per Idempotency-Key, and answers the same again
    POST /c   acts each time; GET /c?ref=STEP says what was done for that step
    POST /d   acts each time

A request is acted upon when all of it is here, and its line is in the books before that. Answers come after
a random while, some in two parts.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import time
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.proof.kills.books import Books, Line, answer_to, said_to

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
KEY = re.compile(rb"(?i)\r\nidempotency-key: *([^\r]*)")
PAUSES = 0.012  # on average, before it acts and before it answers


class World:
    def __init__(self, path: Path, coin: random.Random) -> None:
        self._books = Books(path).look()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._coin = coin

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                await self._serve(head, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _serve(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        method, target = head.split(b" ", 2)[:2]
        parts = urlsplit(target.decode())
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        key = KEY.search(head)
        if method == b"GET":
            await self._answer(writer, 200, ("application/json", "0"), self._probed(asked.get("ref", "")))
            return
        await self._pause()
        line = self._act(parts.path[1:2], asked["ref"], int(asked["size"]), key[1] if key else b"")
        await self._pause()
        await self._answer(writer, *said_to(line))

    def _probed(self, step: str) -> bytes:
        found = [json.loads(answer_to(line)) for line in self._books.acts.get(step, [])]
        self._write("probe", "c", step, len(found))
        return json.dumps({"items": found}).encode()

    def _act(self, kind: str, step: str, size: int, key: bytes) -> Line:
        """What it did, now or before under this key."""
        named = key.decode() if kind == "b" else ""
        if named in self._books.by_key:
            self._write("again", kind, step, size, named)
            return self._books.by_key[named]
        return self._write("visit" if kind == "a" else "act", kind, step, size, named)

    def _write(self, what: str, kind: str, step: str, size: int, key: str = "") -> Line:
        line = Line(len(self._books.lines) + 1, time.time(), what, kind, step, size, key)
        self._books.append(self._file, line)
        return line

    async def _answer(
        self, writer: asyncio.StreamWriter, status: int, kept: tuple[str, str], body: bytes
    ) -> None:
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        named = f"Content-Type: {kept[0]}\r\nX-Serial: {kept[1]}\r\n"
        whole = f"{head}{named}Content-Length: {len(body)}\r\n\r\n".encode() + body
        cut = self._coin.choice((0, 0, len(whole) - 1, len(whole) // 2))
        if cut:
            writer.write(whole[:cut])
            await self._pause()
        writer.write(whole[cut:])
        await writer.drain()

    async def _pause(self) -> None:
        await asyncio.sleep(min(self._coin.expovariate(1 / PAUSES), 10 * PAUSES))


async def serve(path: Path, seed: int) -> None:
    world = World(path, random.Random(seed))
    server = await asyncio.start_server(world.visit, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
