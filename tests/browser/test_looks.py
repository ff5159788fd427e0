"""How it looks where people look at it: on a phone, by day and by night."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect

from tests.browser.scene import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

NARROW = 375
# Colours of all texts that are seen, each with the first ground under it that is not transparent.
SEEN = """() => [...document.querySelectorAll('body *')].filter(node => node.offsetParent !== null
    && [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())).map(node => {
  let under = node, ground = 'rgba(0, 0, 0, 0)';
  while (under && ground.startsWith('rgba(0, 0, 0, 0')) {
    ground = getComputedStyle(under).backgroundColor; under = under.parentElement;
  }
  return [node.textContent.trim().slice(0, 40), getComputedStyle(node).color, ground];
})"""


async def assert_no_sideways(page: Page) -> None:
    widths = await page.evaluate(
        "[document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth]"
    )
    assert max(widths[:2]) <= widths[2] == NARROW, widths


async def test_nothing_scrolls_sideways_on_a_phone(here: World) -> None:
    """In every view, with long names and long arguments; what is opened takes the place of the list."""
    long = "x" * 300
    await here.ask("/charge/lost", {"memo": long, long: 1}, run=f"{'r' * 100}+{'a' * 60}")
    await here.ask("/mail/1", {"n": long}, headers={"Semel-Tool": "t" * 120})
    doubt = await here.doubt()
    for number in range(12):
        await here.ask(f"/mail/{number}", {"n": number}, run="many-steps+first")
    async with here.page(width=NARROW, height=700, has_touch=True) as page:
        await expect(page.locator("a.row").first).to_be_visible()
        await expect(page.locator(".overview .totals")).to_be_visible()
        await assert_no_sideways(page)
        await page.locator(f"a.row[href*='{doubt}']").tap()
        await expect(page.locator("form.decision")).to_be_visible()
        await expect(page.locator("#list")).to_be_hidden()
        await page.get_by_label("It happened").check()
        await page.get_by_text("The answer, if you know it").tap()
        await assert_no_sideways(page)
        await page.get_by_role("button", name="Back to the list").tap()
        await expect(page.locator("#list")).to_be_visible()
        for address in ("#/calls", "#/runs", f"#/runs/run/{'r' * 100}", "#/runs/run/many-steps"):
            await page.goto(here.page_url + address)
            await expect(page.locator(".opened" if "/run/" in address else "a.row").first).to_be_visible()
            await assert_no_sideways(page)
        await expect(page.locator(".timeline .cell")).to_have_count(12)
        await page.get_by_role("button", name="Help").tap()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await assert_no_sideways(page)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read_by_day_and_by_night(
    here: World, scheme: Literal["light", "dark"]
) -> None:
    """The browser's scheme is followed, and each text stands out from its ground by 4.5 to 1 (WCAG AA)."""
    doubt = await here.doubt()
    done = str((await here.ask("/mail/seen", {"n": 1}, run="seen+a")).get("Semel-Call"))
    async with here.page(f"#/inbox/call/{doubt}", color_scheme=scheme, reduced_motion="reduce") as page:
        await expect(page.locator("form.decision")).to_be_visible()
        ground = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (luminance(ground) > 0.5) == (scheme == "light")
        seen: list[Any] = []
        for choice in ("It happened", "It did not happen"):
            await page.get_by_label(choice).check()
            await page.get_by_role("button", name="Settle").click()  # without a reason: says what is wrong
            seen += await page.evaluate(SEEN)
        for address in (f"#/calls/call/{done}", "#/runs/run/seen", "#/inbox"):
            await page.goto(here.page_url + address)
            await expect(page.locator(".opened, .overview .totals").first).to_be_visible()
            seen += await page.evaluate(SEEN)
        assert len(seen) > 100
        faint = [one for one in seen if contrast(one[1], one[2]) < 4.5]
        assert faint == []


async def test_the_measure_of_contrast_measures() -> None:
    """Black on white is 21 to 1, and the known gray is just enough."""
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(118, 118, 118)", "rgb(255, 255, 255)") == pytest.approx(4.54, abs=0.01)
