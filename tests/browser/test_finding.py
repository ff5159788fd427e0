"""Finding one's way: search, the keyboard alone, what is said where there is nothing."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.scene import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def focused(page: Page) -> str:
    return str(
        await page.evaluate("document.activeElement?.getAttribute('href') ?? document.activeElement?.id")
    )


async def test_where_there_is_nothing_it_says_what_would_come(fresh: World) -> None:
    """In each list, and in the overview; a search that finds nothing says how one is found."""
    async with fresh.page() as page:
        await expect(page.locator("#list")).to_contain_text("No call is in doubt")
        await expect(page.locator("#list")).to_contain_text("No call waits")
        await expect(page.locator("#list")).to_contain_text("No run is held")
        await expect(page.locator(".overview")).to_contain_text("No calls are recorded yet")
        await page.get_by_role("link", name="Runs").click()
        await expect(page.locator("#list")).to_contain_text("No runs are recorded yet")
        await page.get_by_role("link", name="Calls").click()
        await expect(page.locator("#list")).to_contain_text("No calls are recorded yet")
        await page.get_by_role("searchbox").fill("nothing-like-this")
        await expect(page.locator("#list")).to_contain_text("Nothing found for “nothing-like-this”")


async def test_a_call_is_found_by_id_run_tool_and_upstream(here: World) -> None:
    """Each word leads to it; a whole id opens it; what does not fit is not shown."""
    label = {"Semel-Tool": "refund-47"}
    wanted = str((await here.ask("/mail/find", {"n": 1}, run="find-me+a", headers=label)).get("Semel-Call"))
    await here.ask("/mail/find", {"n": 2})
    async with here.page("#/calls") as page:
        row = page.locator(f"a.row[href$='{wanted}']")
        for word in ("find-me", "find-", "refund-47", "REFUND", wanted[:12]):
            await page.get_by_role("searchbox").fill(word)
            await expect(page.locator("#list a.row")).to_have_count(1)
            await expect(row).to_be_visible()
        await page.get_by_role("searchbox").fill("pay")
        await expect(page.locator("#list a.row").nth(1)).to_be_visible()
        await expect(row).to_be_visible()
        await page.get_by_role("searchbox").fill(wanted)
        await page.keyboard.press("Enter")
        await expect(page.locator(".opened .id")).to_have_text(wanted)
        await page.get_by_role("link", name="Runs").click()
        await page.get_by_role("searchbox").fill("find-me")
        await expect(page.locator("#list a.row strong")).to_have_text(["find-me"])


async def test_a_call_that_is_not_there_is_told(here: World) -> None:
    """A link to a call that is gone, or was never there."""
    async with here.page(f"#/calls/call/{'0' * 32}") as page:
        await expect(page.locator("#detail .empty")).to_contain_text("There is no call")
        await page.keyboard.press("Escape")
        await expect(page.locator(".overview")).to_be_visible()


async def test_everything_with_the_keyboard_alone(fresh: World) -> None:
    """Move, open, close, search, help, and decide; the focus is always visible and never lost."""
    first, second = await fresh.doubt(1), await fresh.doubt(2)
    async with fresh.page() as page:
        await expect(page.locator("a.row")).to_have_count(2)
        press = page.keyboard.press
        await press("j")
        assert (await focused(page)).endswith(second)
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await page.evaluate(outline) == "solid"
        await press("ArrowDown")
        assert (await focused(page)).endswith(first)
        await press("j")  # the end of the list
        assert (await focused(page)).endswith(first)
        await press("k")
        assert (await focused(page)).endswith(second)
        await press("Enter")
        await expect(page.locator(".opened .id")).to_have_text(second)
        await expect(page.locator(".opened .heading")).to_be_focused()
        await press("Escape")
        await expect(page.locator(".opened")).to_have_count(0)
        assert (await focused(page)).endswith(second)
        await press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await press("?")
        await page.get_by_role("button", name="Close").press("Enter")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await press("/")
        assert await focused(page) == "query"
        await page.keyboard.type("jk?/1")  # letters where somebody types are letters
        await expect(page.get_by_role("searchbox")).to_have_value("jk?/1")
        await page.get_by_role("searchbox").fill("")
        await press("Escape")
        await press("1")
        await expect(page.get_by_role("link", name="Decide")).to_have_attribute("aria-current", "page")
        await press("j")
        await press("Enter")
        await expect(page.locator("form.decision")).to_be_visible()
        await press("d")
        await press("Space")
        await expect(page.get_by_label("It happened")).to_be_checked()
        await press("ArrowDown")
        await expect(page.get_by_label("It did not happen")).to_be_checked()
        await press("Tab")
        await expect(page.get_by_label("Reason")).to_be_focused()
        await page.keyboard.type("by hand")
        await press("Enter")
        await expect(page.locator(".told")).to_contain_text("released")
    assert await fresh.state(second) == "released"


async def test_every_control_has_a_name(here: World) -> None:
    """For those who hear the page: each field and button is called something, in each view."""
    doubt = await here.doubt()
    unnamed = """() => [...document.querySelectorAll('input, textarea, select, button, a[href]')]
        .filter(node => node.offsetParent !== null)
        .filter(node => !(node.labels?.length || node.getAttribute('aria-label') || node.textContent.trim()))
        .map(node => node.outerHTML)"""
    async with here.page(f"#/inbox/call/{doubt}") as page:
        await page.get_by_label("It happened").check()
        await page.get_by_text("The answer, if you know it").click()
        await expect(page.get_by_label("Content-Type")).to_be_visible()
        assert await page.evaluate(unnamed) == []
        await page.goto(here.page_url + "#/calls")
        await expect(page.get_by_label("State")).to_be_visible()
        assert await page.evaluate(unnamed) == []
