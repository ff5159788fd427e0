"""What semel is measured against, and what stands behind it. `python -m benchmarks.servers NAME` runs one.

constant   a bare aiohttp.web.Server that reads the body and answers a constant
forward    a bare aiohttp reverse proxy: one session, nothing recorded
origin     the upstream: answers 450 bytes to whatever comes (httptools, so that it is never the bottleneck)
sized      another upstream: POST /large/BYTES answers so many; POST /stream/BYTES is an event stream, its
           first event sent at once
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import cast

import aiohttp
import httptools
import uvloop
from aiohttp import web

ANSWER = b'{"result": "' + b"x" * 436 + b'"}'


async def constant(_: str) -> int:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.Response(body=ANSWER, content_type="application/json")

    return await _listen(web.Server(handle, access_log=None))


async def forward(target: str) -> int:
    """As one writes it: body and headers go on, the answer is handed on part by part."""
    session = _session()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        async with session.request(
            request.method,
            target + request.raw_path,
            headers=_without(request.headers, "host"),
            data=request.content if request.body_exists else None,
            allow_redirects=False,
        ) as answer:
            reply = web.StreamResponse(status=answer.status, headers=_without(answer.headers))
            await reply.prepare(request)
            async for part in answer.content.iter_any():
                await reply.write(part)
            await reply.write_eof()
            return reply

    return await _listen(web.Server(handle, access_log=None))


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    )


def _without(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    dropped = {"connection", "keep-alive", "transfer-encoding", *names}
    return {name: value for name, value in headers.items() if name.lower() not in dropped}


class _Origin(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(ANSWER), ANSWER)
        )


async def origin(_: str) -> int:
    return await _listen(_Origin)


EVENT = b"data: " + b"x" * 92 + b"\n\n"  # 100 bytes
PART = 64 * 1024


async def _sized(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            kind, _, size = head.split(b" ", 2)[1].removeprefix(b"/").partition(b"/")
            await (_stream if kind == b"stream" else _large)(writer, int(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _stream(writer: asyncio.StreamWriter, size: int) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
    left = size - len(EVENT)
    events = EVENT * (PART // len(EVENT))
    while left > 0:
        part = events[:left]
        writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        left -= len(part)
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def _large(writer: asyncio.StreamWriter, size: int) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % size
    )
    part = b"y" * PART
    while size > 0:
        writer.write(part[:size])
        size -= len(part)
        await writer.drain()


async def sized(_: str) -> int:
    server = await asyncio.start_server(_sized, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _listen(factory: Callable[[], asyncio.BaseProtocol]) -> int:
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


NAMES = {"constant": constant, "forward": forward, "origin": origin, "sized": sized}


async def _main(name: str, target: str) -> None:
    port = await NAMES[name](target)
    print(f"ready on http://127.0.0.1:{port}", flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
