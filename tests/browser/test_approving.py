"""A call that waits for a person: approved it goes through once, denied it is refused. In a real browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import TOKENS
from tests.browser.scene import World, world

pytestmark = pytest.mark.asyncio(loop_scope="session")

POLICY = """upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - name: charge
    match: {{method: POST, path: "/charge/**"}}
    tool: charge_card
    key: {{include: [order]}}
    approval: {{when: "usd > `100`", wait: 100ms, expires: 1h}}
  - name: probed
    match: {{method: POST, path: "/probed/**"}}
    tool: send_mail
    probe: {{request: {{path: "/look/{{body.ref}}"}}, found: ok}}
"""


ORDER = {"order": 7, "usd": 500, "note": "<b>for Ann</b>"}


@pytest_asyncio.fixture(loop_scope="session")
async def asking(tmp_path: Path, browser: Browser) -> AsyncIterator[World]:
    async with world(tmp_path, browser, TOKENS, POLICY) as made:
        made.token, made.operator = "semel_ann", "semel_ops"
        yield made


async def decide(page: Page, call_id: str, choice: str, button: str, shown: str = "") -> None:
    await page.get_by_label("Operator token").fill("semel_ops")
    await page.keyboard.press("Enter")
    await page.locator(f"a.row[href$='{call_id}']").click()
    await expect(page.locator(".part-asked")).to_contain_text(shown)
    await page.get_by_label(choice, exact=True).check()
    await page.get_by_label("Reason").fill("talked to Ann")
    await page.get_by_role("button", name=button, exact=True).click()
    await expect(page.locator(".told")).to_be_visible()


async def wait_for_a_person(asking: World) -> str:
    waits = await asking.ask("/charge/1", ORDER)
    assert (waits.status, json.loads(waits.body)["type"]) == (409, "urn:semel:awaiting-approval")
    assert asking.shop.requests == []
    return str(json.loads(waits.body)["call"])


async def test_approved_it_goes_through_once(asking: World) -> None:
    """Nothing is sent before, the identical call is sent after, and a third one is replayed."""
    call_id = await wait_for_a_person(asking)
    async with asking.page() as page:
        sent: list[object] = []
        page.on(
            "request", lambda request: sent.append(request.post_data_json if request.method == "POST" else 0)
        )
        await decide(page, call_id, "Approve", "Approve once", shown='"note": "<b>for Ann</b>"')
        assert {"reason": "talked to Ann", "version": 1} in sent
    assert [(await asking.ask("/charge/1", ORDER)).semel for _ in range(2)] == ["executed", "replayed"]
    assert len(asking.shop.requests) == 1


async def test_denied_it_is_refused(asking: World) -> None:
    """With the person's reason on record, and nothing sent."""
    call_id = await wait_for_a_person(asking)
    async with asking.page() as page:
        await decide(page, call_id, "Deny", "Deny")
        await expect(page.locator(".part-history")).to_contain_text("talked to Ann")
    refused = await asking.ask("/charge/1", ORDER)
    assert (refused.status, json.loads(refused.body)["type"]) == (403, "urn:semel:denied")
    assert asking.shop.requests == []


async def test_a_call_in_doubt_is_asked_about(asking: World) -> None:
    """Where the rule has a probe: the upstream knows it, and it is done."""
    lost = await asking.ask("/probed/lost", {"ref": "m 1"})
    assert json.loads(lost.body)["type"] == "urn:semel:in-doubt"
    async with asking.page() as page:
        await decide(page, json.loads(lost.body)["call"], "Ask the upstream", "Probe now")
    assert asking.shop.requests[-1].startswith(b"GET /look/m%201 ")
    assert (await asking.ask("/probed/lost", {"ref": "m 1"})).semel == "replayed"
