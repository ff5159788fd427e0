"""When something does not answer, or nobody looks: the page says what, keeps what it has, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.scene import World, world
from tests.process import SemelProcess
from tests.servers.valkey import Valkey, valkey

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_proxy_that_is_gone_comes_back(fresh: World) -> None:
    """“Not reachable, trying again”; a decision meanwhile is not lost in silence; then everything goes on."""
    doubt = await fresh.doubt()
    async with fresh.page(f"#/inbox/call/{doubt}") as page:
        await page.get_by_label("It did not happen").check()
        await page.get_by_label("Reason").fill("looked it up")
        await fresh.semel.kill()
        await expect(page.locator("#trouble")).to_contain_text("Not reachable, trying again")
        await page.get_by_role("button", name="Settle as not executed").click()
        await expect(page.locator(".wrong:visible")).to_contain_text("The proxy did not answer")
        await expect(page.get_by_label("Reason")).to_have_value("looked it up")
        options = ("--listen", f"127.0.0.1:{fresh.semel.port}")
        async with SemelProcess(fresh.semel.state, fresh.semel.policies, options=options):
            await expect(page.locator("#trouble")).to_be_hidden(timeout=10_000)
            await page.get_by_role("button", name="Settle as not executed").click()
            await expect(page.locator(".told")).to_contain_text("released")


async def test_a_store_that_does_not_answer_is_told(tmp_path: Path, browser: Browser) -> None:
    """What is wrong and where to look; when it is back the page goes on by itself."""
    (tmp_path / "valkey").mkdir()
    with valkey(tmp_path / "valkey") as server:
        await _see_it_go_and_come(tmp_path, browser, server)


async def _see_it_go_and_come(tmp_path: Path, browser: Browser, server: Valkey) -> None:
    async with world(tmp_path, browser, f"store: {server.url}\n") as away:
        doubt = await away.doubt()
        async with away.page() as page:
            row = page.locator(f"a.row[href$='{doubt}']")
            await expect(row).to_be_visible()
            server.kill()
            await expect(page.locator("#trouble")).to_contain_text(
                "The store does not answer", timeout=20_000
            )
            await expect(row).to_be_visible()
            server.restart()
            await expect(page.locator("#trouble")).to_be_hidden(timeout=20_000)


HIDE = """hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange')) }"""


async def test_a_page_that_nobody_sees_asks_nothing(here: World) -> None:
    """By a clock that is set by hand: a minute in the background is silent, and the first look is fresh."""
    asked: list[str] = []
    async with here.page() as page:
        await page.clock.install()
        await page.reload()
        await expect(page.locator("#link-text")).to_have_text("live")
        page.on("request", lambda request: asked.append(request.url))
        async with page.expect_request("**/stats"):  # it does ask, by that clock
            await page.clock.run_for(2_500)
        await page.evaluate(HIDE, True)
        await page.wait_for_load_state("networkidle")
        asked.clear()
        await page.clock.run_for(60_000)
        assert asked == []
        async with page.expect_request("**/stats"):
            await page.evaluate(HIDE, False)
