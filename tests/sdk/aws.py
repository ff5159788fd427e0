"""A small AWS: moto as a process of its own, and before it a door that can fail, with TLS and without."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter, deque
from typing import Any, NamedTuple, Self

import aiohttp
from aiohttp import web

from tests.sdk.scene import Served

CUT = 0  # among the faults: done, but nobody hears of it


class Refusal(NamedTuple):
    """Among the faults: an error in AWS's own words, and nothing is done."""

    status: int
    text: str
    media_type: str = "text/xml"


class Aws(Served):
    """`async with Aws() as aws`; the next requests get `faults`: a status or a refusal instead of being done,
    or CUT."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: deque[int | Refusal] = deque()
        self.asked = 0
        self._moto = ""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._moto = await self._address()
        self._session = aiohttp.ClientSession(auto_decompress=False)
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self._session.close()
        self._process.kill()
        await self._process.wait()
        self._reading.cancel()

    async def _address(self) -> str:
        stderr = self._process.stderr
        assert stderr is not None
        seen = ""
        async with asyncio.timeout(60):
            while line := (await stderr.readline()).decode():
                seen += line
                if found := re.search(r"Running on (http://\S+)", line):
                    self._reading = asyncio.create_task(stderr.read())  # or it would stand still one day
                    return found[1]
        raise RuntimeError(f"moto did not start: {seen}")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Refusal):
            return web.Response(status=fault.status, text=fault.text, content_type=fault.media_type)
        if fault:
            return web.Response(status=fault, text="<ErrorResponse/>", content_type="text/xml")
        headers = {name: value for name, value in request.headers.items() if name != "Connection"}
        body = await request.read()
        url = self._moto + request.path_qs
        async with self._session.request(request.method, url, headers=headers, data=body) as got:
            content = await got.read()
            kept = [(k, v) for k, v in got.headers.items() if k not in ("Connection", "Content-Length")]
        if fault == CUT and request.transport is not None:
            request.transport.abort()
        return web.Response(status=got.status, headers=kept, body=content)

    async def sent(self, mark: str) -> dict[str, int]:
        """How often a mail or a message with this text was really sent."""
        data = await self._record()
        mails = [one for one in data["ses"]["Message"] if one["body"] == mark]
        messages = [one for one in data["sqs"]["Message"] if mark in one.values()]
        return {"ses": len(mails), "sqs": len(messages)}

    async def texts(self, mark: str) -> Counter[tuple[str, str]]:
        """All mails and messages that begin so: their texts, and the ids that AWS gave them."""
        data = await self._record()
        both = [*data.get("ses", {}).get("Message", []), *data.get("sqs", {}).get("Message", [])]
        return Counter((one["body"], one["id"]) for one in both if one["body"].startswith(mark))

    async def _record(self) -> dict[str, Any]:
        async with self._session.get(f"{self._moto}/moto-api/data.json") as got:
            data: dict[str, Any] = await got.json(content_type=None)
        return data
