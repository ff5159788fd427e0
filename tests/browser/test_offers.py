"""What the page offers follows from the state of the call alone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

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
        damage(here.semel.state, call_id, f"""state = '{state}', terms = '{{"bound_to": "00"}}'""")
        async with here.page(f"#/calls/call/{call_id}") as page:
            await expect(page.locator(".opened .id")).to_have_text(call_id)
            offered = await page.locator("form.decision .choice > label").all_text_contents()
            alone = await page.locator("form.decision > button").all_text_contents()
            assert (offered or alone) == wanted, state
    damage(here.semel.state, doubt, "state = 'in_doubt'")
