"""With tokens configured: in with an operator's, out again, and what the browser does with the cookie."""

from __future__ import annotations

import pytest
from playwright.async_api import Request, expect

from tests.browser.scene import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_in_and_out(guarded: World) -> None:
    """A wrong token and an agent's are told why; an operator's opens the desk; afterwards nothing is left."""
    doubt = await guarded.doubt(5)
    async with guarded.page() as page:
        token = page.get_by_label("Operator token")
        await expect(token).to_be_focused()
        await expect(page.locator("#desk")).to_be_hidden()
        for wrong, told in (("nobody", "not known here"), ("semel_ann", "role agent may not sign in")):
            await token.fill(wrong)
            await token.press("Enter")
            await expect(page.locator("#sign-in-wrong")).to_contain_text(told)
        await token.fill("semel_ops")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(f"a.row[href$='{doubt}']")).to_be_visible()
        await expect(token).to_have_value("")
        (cookie,) = await page.context.cookies(guarded.page_url)
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/_semel/")
        assert "semel_ops" not in str(cookie)
        assert await page.evaluate("document.cookie") == ""
        await page.reload()
        await page.locator(f"a.row[href$='{doubt}']").click()
        await page.get_by_label("It did not happen").check()
        await page.get_by_label("Reason").fill("by cookie")
        await page.get_by_role("button", name="Settle as not executed").click()
        await expect(page.locator(".told")).to_contain_text("released")
        await page.get_by_role("button", name="Sign out").click()
        await expect(token).to_be_visible()
        assert await page.context.cookies(guarded.page_url) == []
        assert await page.evaluate("document.body.innerText.includes('charge_card')") is False
    assert await guarded.state(doubt) == "released"


async def test_a_session_that_ends_takes_nothing_with_it(guarded: World) -> None:
    """The page asks for the token again, and what was typed is still there."""
    doubt = await guarded.doubt(6)
    async with guarded.page(f"#/inbox/call/{doubt}") as page:
        token = page.get_by_label("Operator token")
        await token.fill("semel_ops")
        await token.press("Enter")
        await page.get_by_label("Reason").fill("half a reason")
        await page.context.clear_cookies()
        await expect(page.locator("#sign-in-wrong")).to_contain_text("sign in again")
        await token.fill("semel_ops")
        await token.press("Enter")
        await expect(page.get_by_label("Reason")).to_have_value("half a reason")


async def test_only_a_person_keeps_a_session_alive(guarded: World) -> None:
    """An hour of polling renews nothing; a key does, and then not again for a while."""
    renewed: list[str] = []
    async with guarded.page() as page:
        await page.clock.install()
        await page.reload()
        await page.get_by_label("Operator token").fill("semel_ops")
        await page.keyboard.press("Enter")
        await expect(page.locator("#link-text")).to_have_text("live")
        page.on(
            "request", lambda sent: renewed.append(sent.post_data or "") if sent.method == "POST" else None
        )
        await page.clock.fast_forward(3_600_000)
        async with page.expect_request("**/stats"):
            await page.clock.run_for(5_000)
        assert renewed == []
        async with page.expect_response("**/session"):
            await page.keyboard.press("j")
        await page.keyboard.press("k")
        await expect(page.locator("#link-text")).to_have_text("live")
        assert renewed == ["{}"]


async def test_another_tenants_operator_sees_nothing_of_it(guarded: World) -> None:
    """Neither in the lists nor by its address."""
    doubt = await guarded.doubt(7)
    async with guarded.page(f"#/inbox/call/{doubt}") as page:
        await page.get_by_label("Operator token").fill("semel_zops")
        await page.keyboard.press("Enter")
        await expect(page.locator("#detail .empty")).to_contain_text("There is no call")
        await expect(page.locator("#list")).to_contain_text("No call is in doubt")


async def test_the_cookie_stays_with_the_page(guarded: World) -> None:
    """The browser does not send it with a call to the same host; put there by hand, semel takes it out."""
    async with guarded.page() as page:
        await page.get_by_label("Operator token").fill("semel_ops")
        await page.keyboard.press("Enter")
        await expect(page.locator("#sign-out")).to_be_visible()
        status = await page.evaluate(
            "fetch('/pay/mail/1', {headers: {'Semel-Token': 'semel_ann'}}).then(got => got.status)"
        )
        assert status == 200
        (cookie,) = await page.context.cookies(guarded.page_url)
        by_hand = {"Cookie": f"{cookie['name']}={cookie['value']}; mine=1"}
        assert (await guarded.ask("/mail/2", {}, headers=by_hand)).status == 200
    sent = guarded.shop.requests
    assert len(sent) == 2
    assert b"cookie" not in sent[0].lower()
    assert b"\r\nCookie: mine=1\r\n" in sent[1]
    assert cookie["value"].encode() not in b"".join(sent)


ATTACKS = {
    "a form": """(to) => {
        const form = document.createElement('form'), part = document.createElement('input');
        const frame = document.createElement('iframe');
        Object.assign(form, {method: 'post', action: to, enctype: 'text/plain', target: 'there'});
        Object.assign(part, {name: '{"as": "not_executed", "reason": "', value: '"}'});
        form.append(part); frame.name = 'there'; document.body.append(frame, form);
        const over = new Promise(done => { frame.onload = done });
        form.submit();
        return over.then(() => 1) }""",
    "a simple request": """(to) => fetch(to, {method: 'POST', mode: 'no-cors', credentials: 'include',
        body: '{"as": "not_executed", "reason": "x"}'}).then(() => 1)""",
    "a request that asks first": """(to) => fetch(to, {method: 'POST', credentials: 'include',
        headers: {'Content-Type': 'application/json'},
        body: '{"as": "not_executed", "reason": "x"}'}).catch(() => 1)""",
    "a look": "(to) => fetch(to.replace('/resolve', ''), {credentials: 'include'}).catch(() => 1)",
}


async def test_a_page_on_another_port_of_this_host_decides_nothing(guarded: World) -> None:
    """For the browser it is the same site, and it sends the cookie along; semel knows better."""
    doubt = await guarded.doubt(8)
    async with guarded.page() as page:
        await page.get_by_label("Operator token").fill("semel_ops")
        await page.keyboard.press("Enter")
        await expect(page.locator("#sign-out")).to_be_visible()
        guarded.shop.answer = (b"text/html", b"<!doctype html><title>next door</title>")
        other = await page.context.new_page()
        await other.goto(f"http://127.0.0.1:{guarded.shop.port}/")
        cookies: list[str | None] = []

        async def look(request: Request) -> None:
            if "/_semel/" in request.url:
                cookies.append((await request.all_headers()).get("cookie"))

        refused: list[tuple[str, int]] = []
        other.on("requestfinished", look)
        other.on("response", lambda got: refused.append((got.request.method, got.status)))
        for name, attack in ATTACKS.items():
            to = f"{guarded.page_url}calls/{doubt}/resolve"
            assert await other.evaluate(attack, to) == 1, name
            assert await guarded.state(doubt) == "in_doubt", name
        assert any(cookie and cookie.startswith("semel_session_") for cookie in cookies)
        # The form and the simple request arrive, with the cookie, and are known for what they are.
        assert [status for method, status in refused if method == "POST"] == [403, 403]
