"""Nothing that was recorded is taken for more than text: not by the page, and not by a mistake in it."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from tests.browser.payloads import PAYLOADS, RUN
from tests.browser.scene import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Names that a careless page would find on every object.
NAMES = ("__proto__", "constructor", "toString", "hasOwnProperty", "valueOf")
WATCH = (
    "document.addEventListener('securitypolicyviolation', e => console.error('CSP: ' + e.violatedDirective))"
)


async def assert_harmless(world: World, page: Page) -> None:
    assert await page.evaluate("window.canary") is None
    assert await page.locator("iframe, object, embed, script:not([src]), #detail img, base").count() == 0
    world.check()


async def test_fifty_payloads_stay_text(fresh: World) -> None:
    """In arguments and their names, queries, headers, labels, the upstream's words and headers, reasons; in
    every view. No dialog, no violation of the policy, no canary; and each is shown as it is."""
    calls: dict[str, str] = {}
    for number, payload in enumerate(PAYLOADS):
        fresh.shop.answer = (b"text/html", payload.encode())
        got = await fresh.ask(
            f"/charge/{number}/broken?q={quote(payload, safe='')}",
            {"memo": payload, payload: [payload]},
            run=f"{NAMES[number % 5]}+{NAMES[number % 5]}" if number % 2 else "",
            headers={"Semel-Tool": payload, "X-Note": payload},
        )
        assert got.status == 409, got
        calls[payload] = str(got.get("Semel-Call"))
    done = str((await fresh.ask("/mail/1", {"n": PAYLOADS[0]})).get("Semel-Call"))
    said = {"reason": PAYLOADS[5], "version": 2}
    assert (await fresh.own("POST", f"calls/{done}/forget", said))["call"]["version"] == 3
    async with fresh.page() as page:
        await page.evaluate(WATCH)
        await expect(page.locator("#list a.row")).to_have_count(50)
        titles = await page.locator("#list a.row strong").all_text_contents()
        assert sorted(titles) == sorted(PAYLOADS)
        for payload, call_id in calls.items():
            await page.evaluate("id => { location.hash = `#/inbox/call/${id}` }", call_id)
            await page.locator(f".opened:has(.id:text-is('{call_id}'))").wait_for()
            told = await page.locator(".opened").inner_text()
            assert told.count(payload) >= 2, payload  # the title, the words of the upstream
            assert json.dumps(payload, ensure_ascii=False) in told
            await page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        await assert_harmless(fresh, page)
        for address in (
            "#/calls",
            "#/runs",
            f"#/calls/call/{done}",
            *(f"#/runs/run/{name}" for name in NAMES),
        ):
            await page.evaluate("hash => { location.hash = hash }", address)
            await expect(page.locator(".loading")).to_have_count(0)
            await expect(page.locator("#list a.row").first).to_be_visible()
        await expect(page.locator(".opened .heading")).to_have_text(NAMES[-1])
        for payload in PAYLOADS[::7]:
            await page.get_by_role("searchbox").fill(payload)
            await expect(page.locator("#list")).to_contain_text(payload)
        await assert_harmless(fresh, page)


async def test_an_address_made_by_somebody_else_does_nothing(here: World) -> None:
    """What stands behind # is a place to look, and no more."""
    async with here.page() as page:
        await page.evaluate(WATCH)
        for payload in PAYLOADS[::5]:
            for address in (
                f"#/{payload}",
                f"#/calls/call/{quote(payload, safe='')}",
                f"#/runs/run/{payload}",
                "#/runs/run/%",
            ):
                await page.evaluate("hash => { location.hash = hash }", address)
                await page.evaluate("() => new Promise(done => setTimeout(done))")
        await page.evaluate("location.hash = '#/inbox'")
        await expect(page.locator(".overview .totals")).to_be_visible()
        await assert_harmless(here, page)


async def test_the_browser_would_refuse_what_the_page_never_does(here: World) -> None:
    """The policy is a second wall: markup from a text throws, inline scripts and handlers do not run. And the
    watch of these tests sees it."""
    async with here.page() as page:
        await page.evaluate(WATCH)
        await expect(page.locator("#link-text")).to_have_text("live")
        threw = await page.evaluate(
            f"""() => {{ try {{ document.body['inner' + 'HTML'] = "<img src=x onerror={RUN}>"; return '' }}
            catch (error) {{ return error.name }} }}"""
        )
        assert threw == "TypeError"
        await page.evaluate(
            f"""() => {{ const node = document.createElement('p'); document.body.append(node);
            try {{ node.setAttribute('onclick', '{RUN}') }} catch {{ }} node.click();
            const code = document.createElement('script');
            try {{ code.textContent = '{RUN}' }} catch {{ }} document.body.append(code) }}"""
        )
        assert await page.evaluate("window.canary") is None
        assert [one for one in here.wrong if "Content Security Policy" in one or "CSP:" in one]
        here.wrong.clear()
