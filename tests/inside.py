"""semel inside the test's own event loop, for what needs no dying process; a client that hides nothing."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proxy.app import App
from proxy.log import LogObserver
from proxy.settings import Token, load_settings
from tests import ambient


@asynccontextmanager
async def semel(
    tmp_path: Path,
    policy: str,
    *,
    settings: Mapping[str, object] | None = None,
    store: str | None = None,
    tokens: Sequence[Token] = (),
    log: io.StringIO | None = None,
) -> AsyncIterator[App]:
    """`policy` is the text of one policy file."""
    policies = tmp_path / "policies"
    policies.mkdir(exist_ok=True)
    (policies / "test.yaml").write_text(policy)
    flags: dict[str, object] = {
        "listen": "127.0.0.1:0",
        "state": str(tmp_path / "state"),
        **(ambient.settings() if store is None else {"store": store}),
        "policies": [str(policies)],
        "recall": ambient.RECALL,
        **(settings or {}),
    }
    app = await App.start(load_settings(flags, {}, tokens=tokens), log=LogObserver(log or io.StringIO()))
    try:
        yield app
    finally:
        await app.stop(5.0)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    complete: bool  # False: the connection ended before the answer did

    def get(self, name: str) -> str | None:
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)

    @property
    def semel(self) -> str | None:
        return self.get("Semel-Status")


def request_bytes(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    host: str = "semel",
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def call(
    port: int,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    within: float = 30,
) -> Answer:
    return await raw_call(
        port, request_bytes(method, target, headers, body), is_head=method == "HEAD", within=within
    )


async def raw_call(port: int, request: bytes, *, is_head: bool = False, within: float = 30) -> Answer:
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        try:
            writer.write(request)
            return await read_answer(reader, is_head=is_head)
        finally:
            writer.close()


async def until(condition: Callable[[], object], *, within: float = 15) -> None:
    """For what nobody tells of: the origin's counters, another process's log."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.002)


async def read_answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> Answer:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(0, [], b"", complete=False)
    status_line, *lines = head[:-4].split(b"\r\n")
    headers = [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
    status = int(status_line.split(b" ")[1])
    known = {name.lower(): value for name, value in headers}
    body = bytearray()
    try:
        if is_head or status < 200 or status in (204, 304):
            return Answer(status, headers, b"", complete=True)
        if known.get(b"transfer-encoding", b"").lower() == b"chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        elif b"content-length" in known:
            body += await reader.readexactly(int(known[b"content-length"]))
        else:
            body += await reader.read()
    except asyncio.IncompleteReadError as error:
        return Answer(status, headers, bytes(body) + error.partial, complete=False)
    except (ConnectionError, ValueError):
        return Answer(status, headers, bytes(body), complete=False)
    return Answer(status, headers, bytes(body), complete=True)
