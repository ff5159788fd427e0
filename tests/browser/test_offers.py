"""What the page offers follows from the state of the call alone; what it sends is what the contract says."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Request, expect

from proxy.core.intent import State
from tests.admin.scene import damage
from tests.browser.scene import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

OFFERED = {
    State.PENDING: [],
    State.IN_DOUBT: ["It happened", "It did not happen"],
    State.DONE: ["Forget"],
    State.RELEASED: ["Forget"],
    State.AWAITING_APPROVAL: ["Approve", "Deny"],
    State.DENIED: ["Forget"],
}


async def test_each_state_has_its_decisions(here: World) -> None:
    """And no others: a call that is on its way offers none."""
    assert set(OFFERED) == set(State)
    done = str((await here.ask("/mail/1", {})).get("Semel-Call"))
    doubt = await here.doubt()
    for state, wanted in OFFERED.items():
        call_id = done if state is State.DONE else doubt  # what is done has an answer
        damage(here.semel.state, call_id, f"state = '{state}'")
        async with here.page(f"#/calls/call/{call_id}") as page:
            await expect(page.locator(".opened .id")).to_have_text(call_id)
            offered = await page.locator("form.decision .choice > label").all_text_contents()
            alone = await page.locator("form.decision > button").all_text_contents()
            assert (offered or alone) == wanted, state
    damage(here.semel.state, doubt, "state = 'in_doubt'")


@pytest.mark.parametrize(("choice", "button"), [("Approve", "Approve once"), ("Deny", "Deny")])
async def test_a_call_that_waits_is_approved_or_denied(here: World, choice: str, button: str) -> None:
    """It stands in the list of those that wait; the decision has its reason and its version."""
    call_id = await here.doubt()
    damage(here.semel.state, call_id, "state = 'awaiting_approval'")
    sent: list[tuple[str, object]] = []

    def keep(request: Request) -> None:
        if request.method == "POST":
            sent.append((request.url.removeprefix(here.page_url), json.loads(request.post_data or "")))

    async with here.page() as page:
        page.on("request", keep)
        await page.locator(f"a.row[href$='{call_id}']").click()
        await page.get_by_label(choice, exact=True).check()
        await page.get_by_label("Reason").fill("talked to Ann")
        async with page.expect_request(f"**/calls/{call_id}/{choice.lower()}"):
            await page.get_by_role("button", name=button, exact=True).click()
    assert sent == [(f"calls/{call_id}/{choice.lower()}", {"reason": "talked to Ann", "version": 2})]
    damage(here.semel.state, call_id, "state = 'in_doubt'")
