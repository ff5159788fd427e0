"""A real proxy with real calls on its record, and a real browser before its page.

Whatever happens in the page that should not is kept and fails the test: an error of a script, a word of the
browser about its policy, a dialog, a canary that something recorded has set.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, async_playwright, expect

from tests.inside import Answer, call, raw_call, request_bytes
from tests.origin import reset_on_close
from tests.process import SemelProcess

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
JSON = {"Content-Type": "application/json"}
POLICY = """upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - {{name: charge, match: {{method: POST, path: "/charge/**"}}, tool: charge_card, cost: {{usd: 0.25}}}}
  - {{name: mail, match: {{method: POST, path: "/mail/**"}}, tool: send_mail}}
"""
# The page looks every two seconds, and the machine may be busy.
expect.set_options(timeout=15_000)
# What a browser says of a resource that was refused, or of a proxy that is not there, is no mistake of ours.
_EXPECTED = ("Failed to load resource",)
FINE = (b"application/json", b'{"ok": true}')


class Shop:
    """An upstream that answers by path: `…/lost` takes the request and breaks the connection, `…/broken` says
    503, everything else says what it was told to."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer = FINE
        self._busy: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Shop:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.lower().split(b"\r\n")
                               if line.startswith(b"content-length:")), 0)  # fmt: skip
                self.requests.append(head + await reader.readexactly(length))
                path = head.split(b" ")[1].partition(b"?")[0]
                if path.endswith(b"/lost"):
                    reset_on_close(writer.get_extra_info("socket"))
                    break
                status = b"503 No" if path.endswith(b"/broken") else b"200 OK"
                kind, body = self.answer
                writer.write(b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
                             % (status, kind, len(body), body))  # fmt: skip
        writer.close()


@dataclass(slots=True)
class World:
    semel: SemelProcess
    shop: Shop
    browser: Browser
    token: str = ""  # an agent's
    operator: str = ""  # an operator's
    spent: int = 0
    wrong: list[str] = field(default_factory=list)  # what the browser complained of

    @property
    def page_url(self) -> str:
        return f"{self.semel.url}/_semel/"

    async def ask(
        self, path: str, said: object = None, *, run: str = "", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """A call through the proxy, with effects. `run` is RUN+ATTEMPT."""
        target = f"/@{run}/pay{path}" if run else f"/pay{path}"
        given = JSON | ({"Semel-Token": self.token} if self.token else {}) | dict(headers or {})
        return await call(self.semel.port, "POST", target, given, json.dumps(said).encode())

    async def doubt(self, usd: int | None = None, *, run: str = "") -> str:
        """The id of a new call in doubt: without an amount one that no other test has asked."""
        self.spent += 1
        usd = 1000 + self.spent if usd is None else usd
        got = await self.ask("/charge/lost", {"usd": usd}, run=run)
        assert got.status == 409, got
        return str(got.get("Semel-Call"))

    async def diverge(self, run: str) -> None:
        """Its second attempt asks for another charge than the first has made, and is held."""
        assert (await self.ask("/charge/7", {"usd": 7}, run=f"{run}+a1")).status == 200
        held = await self.ask("/charge/8", {"usd": 8}, run=f"{run}+a2")
        assert (held.status, json.loads(held.body)["type"]) == (409, "urn:semel:diverged")

    async def own(self, method: str, path: str, said: object = None) -> Any:
        """semel's API beside the page."""
        given = JSON | ({"Semel-Token": self.operator} if self.operator else {})
        body = b"" if said is None else json.dumps(said).encode()
        host = f"127.0.0.1:{self.semel.port}"
        request = request_bytes(method, f"/_semel/{path}", given, body, host=host)
        return json.loads((await raw_call(self.semel.port, request)).body)

    async def state(self, call_id: str) -> str:
        return str((await self.own("GET", f"calls/{call_id}"))["call"]["state"])

    @asynccontextmanager
    async def page(
        self, at: str = "", *, width: int = 1280, height: int = 860, **look: Any
    ) -> AsyncIterator[Page]:
        context = await self.browser.new_context(viewport={"width": width, "height": height}, **look)
        try:
            page = await context.new_page()
            self.watch(page)
            page.set_default_timeout(15_000)
            await page.goto(self.page_url + at)
            yield page
        finally:
            await context.close()

    def watch(self, page: Page) -> None:
        async def dialog(opened: Dialog) -> None:
            self.wrong.append(f"dialog: {opened.message}")
            await opened.dismiss()

        def console(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
                self.wrong.append(f"console: {message.text}")

        page.on("dialog", dialog)
        page.on("console", console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))

    def begin(self) -> None:
        """For the next test, of several on one proxy."""
        self.shop.requests.clear()
        self.shop.answer = FINE

    def check(self) -> None:
        complaints, self.wrong[:] = list(self.wrong), []
        assert complaints == []


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def world(
    tmp_path: Path, browser: Browser, config: str = "", policy: str = POLICY
) -> AsyncIterator[World]:
    """`config`: the text of a semel.yaml."""
    policies = tmp_path / "policies"
    policies.mkdir(exist_ok=True)
    options: tuple[str, ...] = ()
    if config:
        (tmp_path / "semel.yaml").write_text(config)
        options = ("--config", str(tmp_path / "semel.yaml"))
    async with Shop() as shop:
        (policies / "pay.yaml").write_text(policy.format(port=shop.port))
        async with SemelProcess(tmp_path / "state", policies, options=options) as semel:
            made = World(semel, shop, browser)
            yield made
            made.check()
