"""A person decides in a browser, and the proxy does what was decided."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, expect

from tests.browser.scene import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def open_call(page: Page, call_id: str) -> None:
    await page.locator(f"a.row[href$='{call_id}']").click()
    await expect(page.locator(".opened .id")).to_have_text(call_id)


async def decide(page: Page, choice: str, reason: str, button: str) -> None:
    if choice:
        await page.get_by_label(choice, exact=True).check()
    await page.get_by_label("Reason").fill(reason)
    await page.get_by_role("button", name=button).click()


async def test_it_happened_and_this_was_the_answer(here: World) -> None:
    """The call is done, the reason stands in its history, and the agent gets what the person wrote."""
    doubt = await here.doubt(5)
    async with here.page() as page:
        await open_call(page, doubt)
        await expect(page.locator(".part-known")).to_contain_text("connection")
        await expect(page.locator(".part-asked")).to_contain_text('"usd": 5')
        await page.get_by_label("It happened").check()
        await page.get_by_text("The answer, if you know it").click()
        await page.get_by_label("Status").fill("201")
        await page.get_by_label("Body").fill('{"charge": "ch_9"}')
        await decide(page, "", "it is in the bank's books", "Settle as executed")
        await expect(page.locator(".told")).to_contain_text("the call is done now")
        await expect(page.locator(".part-history")).to_contain_text("it is in the bank's books")
        await expect(page.locator("#news")).to_contain_text("It happened")
        await expect(page.locator(f"a.row[href$='{doubt}']")).to_have_count(0)
    again = await here.ask("/charge/lost", {"usd": 5})
    assert (again.status, again.body, again.semel) == (201, b'{"charge": "ch_9"}', "replayed")
    assert len(here.shop.requests) == 1


async def test_it_did_not_happen(here: World) -> None:
    """Released: the next identical call is sent."""
    doubt = await here.doubt(66)
    async with here.page(f"#/inbox/call/{doubt}") as page:
        await decide(page, "It did not happen", "not in the books", "Settle as not executed")
        await expect(page.locator(".told")).to_contain_text("the call is released now")
    assert await here.state(doubt) == "released"
    await here.doubt(66)
    assert len(here.shop.requests) == 2


async def test_a_settled_call_is_forgotten(here: World) -> None:
    """The next identical call is sent as if it were the first."""
    done = str((await here.ask("/mail/x", {"to": "ann"})).get("Semel-Call"))
    assert (await here.ask("/mail/x", {"to": "ann"})).semel == "replayed"
    async with here.page(f"#/calls/call/{done}") as page:
        await decide(page, "", "send it once more", "Forget")
        await expect(page.locator(".part-history")).to_contain_text("send it once more")
        await expect(page.locator("form.decision")).to_have_count(0)
    assert (await here.ask("/mail/x", {"to": "ann"})).semel == "executed"


async def test_a_run_that_left_its_record_is_allowed_to(here: World) -> None:
    """It is listed, its picture and what was not asked are shown; afterwards the agent goes on."""
    await here.diverge("invoice-7")
    async with here.page() as page:
        await page.locator("a.row[href$='/run/invoice-7']").click()
        await expect(page.locator(".part-held")).to_contain_text("has not asked charge_card")
        await expect(page.locator(".part-held .plain li")).to_have_count(1)
        # One step, two attempts: made by the first, not asked by the second.
        await expect(page.locator(".timeline .cell.made.is-done")).to_have_count(1)
        await expect(page.locator(".timeline .cell.not-asked")).to_have_count(1)
        await decide(page, "", "the invoice was changed", "Allow the run to go on")
        await expect(page.locator(".told")).to_contain_text("1 call retired")
        await expect(page.locator("a.row[href$='/run/invoice-7']")).to_have_count(0)
        await expect(page.locator(".part-history")).to_contain_text("the invoice was changed")
    gone_on = await here.ask("/charge/8", {"usd": 8}, run="invoice-7+a2")
    assert (gone_on.status, gone_on.semel) == (200, "executed")


async def test_a_decision_needs_a_choice_and_a_reason(here: World) -> None:
    """Nothing is sent without; the page says what is missing and goes there."""
    doubt = await here.doubt()
    posts: list[str] = []
    async with here.page(f"#/inbox/call/{doubt}") as page:
        page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
        await page.get_by_role("button", name="Choose first").click()
        await expect(page.locator(".wrong:visible")).to_contain_text("Choose")
        await page.get_by_label("It did not happen").check()
        await page.get_by_label("Reason").fill("   ")
        await page.get_by_role("button", name="Settle as not executed").click()
        await expect(page.locator(".wrong:visible")).to_contain_text("Say why")
        await expect(page.get_by_label("Reason")).to_be_focused()
    assert posts == []
    assert await here.state(doubt) == "in_doubt"


async def test_what_the_api_refuses_is_told_and_kept(here: World) -> None:
    """A status that no answer has: the words of the API, and everything typed is still there."""
    doubt = await here.doubt()
    async with here.page(f"#/inbox/call/{doubt}") as page:
        await page.get_by_label("It happened").check()
        await page.get_by_text("The answer, if you know it").click()
        await page.get_by_label("Status").fill("99")
        await decide(page, "", "who knows", "Settle as executed")
        await expect(page.locator(".wrong:visible")).to_contain_text("at least 200")
        await expect(page.get_by_label("Reason")).to_have_value("who knows")


async def test_somebody_else_was_faster(here: World) -> None:
    """What is typed stays while the record moves on; deciding on the old version is refused with the present
    state, and goes on only from there."""
    doubt = await here.doubt()
    sent: list[int] = []
    async with here.page(f"#/inbox/call/{doubt}") as page:
        page.on(
            "request",
            lambda request: (
                sent.append(json.loads(request.post_data or "{}")["version"])
                if request.url.endswith("/resolve")
                else None
            ),
        )
        await page.get_by_label("It did not happen").check()
        await page.get_by_label("Reason").fill("not in the bo")
        said = {"as": "executed", "reason": "seen it", "version": 2}
        assert (await here.own("POST", f"calls/{doubt}/resolve", said))["call"]["state"] == "done"
        await expect(page.locator(".notice")).to_contain_text("it is done now, version 3")
        await expect(page.get_by_label("Reason")).to_have_value("not in the bo")
        await expect(page.get_by_label("It did not happen")).to_be_checked()
        await page.get_by_role("button", name="Settle as not executed").click()
        await expect(page.locator(".notice")).to_contain_text("Nothing was decided here")
        await page.get_by_role("button", name="Decide on the present state").click()
        await expect(page.get_by_role("button", name="Forget")).to_be_visible()
    assert sent == [2]
    assert await here.state(doubt) == "done"


async def test_typing_survives_many_refreshes(here: World) -> None:
    """New calls arrive and the lists change; the focus, the text and the place of the cursor stay."""
    doubt = await here.doubt()
    async with here.page(f"#/inbox/call/{doubt}") as page:
        reason = page.get_by_label("Reason")
        await reason.fill("half a sentence")
        await reason.press("ArrowLeft")
        for _ in range(2):
            arrived = await here.doubt()
            await expect(page.locator(f"a.row[href$='{arrived}']")).to_be_visible()
        await expect(reason).to_have_value("half a sentence")
        await expect(reason).to_be_focused()
        assert await reason.evaluate("node => node.selectionStart") == len("half a sentence") - 1
        there = await page.locator("#list section").first.locator("a.row").count()
        await expect(page.locator("#news")).to_contain_text(f"{there} calls in doubt")
        await expect(page.locator("#count-inbox")).not_to_be_empty()
