"""The pictures of the operator's page in the documents: a real proxy with a small story on its record.

python -m tests.browser.pictures docs/pictures
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import TOKENS
from tests.browser.scene import World, chromium, world

POLICY = """upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - {{name: charge, match: {{method: POST, path: "/v1/charges/**"}}, tool: charge_card, cost: {{usd: 0.25}}}}
  - {{name: refund, match: {{method: POST, path: "/v1/refunds/**"}}, tool: refund_payment}}
  - {{name: mail, match: {{method: POST, path: "/v1/messages/**"}}, tool: send_email, cost: {{usd: 0.001}}}}
  - {{name: find, match: {{method: POST, path: /v1/search}}, tool: search_orders, safe: true, repeat: same}}
  - {{name: ask, match: {{method: POST, path: /v1/model}}, tool: ask_model, safe: true, cost: {{usd: 0.04}}}}
"""
FAILED = (
    b'{"error": {"code": "processor_unavailable", "message": "The card processor timed out after 30 s. '
    b'The charge may or may not have been captured.", "request": "req_9c1f"}}'
)
LARGEST = 150_000


async def tell_the_story(place: World) -> str:
    """The id of the call in doubt that is shown. Agents crash and are started again; an upstream fails."""
    ask = place.ask
    run = "invoices-2024-05"
    for attempt in ("a1", "a2", "a3"):
        who = f"{run}+{attempt}"
        await ask("/v1/model", {"step": "plan"}, run=who)
        await ask("/v1/search", {"customer": "c_881"}, run=who)
        await ask("/v1/charges/", {"customer": "c_881", "usd": 120}, run=who)
        await ask("/v1/model", {"step": "write"}, run=who)
        await ask("/v1/messages/", {"to": "ann@example.com", "invoice": 881}, run=who)
        if attempt == "a1":
            continue
        await ask("/v1/search", {"customer": "c_902"}, run=who)
        await ask("/v1/charges/", {"customer": "c_902", "usd": 75}, run=who)
        await ask("/v1/model", {"step": "write again"}, run=who)
        await ask("/v1/messages/lost", {"to": "bob@example.com", "invoice": 902}, run=who)
        if attempt == "a3":
            await ask("/v1/messages/", {"to": "cyd@example.com", "invoice": 915}, run=who)
    for usd in (12, 48, 99):
        for _ in range(3):
            await ask("/v1/charges/", {"customer": f"c_{usd}", "usd": usd})
    for number in range(5):
        await ask("/v1/search", {"customer": f"c_{number % 2}"})
    await ask("/v1/refunds/", {"charge": "ch_70"}, run="refunds-17+a1")
    held = await ask("/v1/refunds/", {"charge": "ch_71"}, run="refunds-17+a2")
    assert json.loads(held.body)["type"] == "urn:semel:diverged"
    place.shop.answer = (b"application/json", FAILED)
    doubt = await ask("/v1/charges/broken", {"customer": "c_417", "usd": 249, "memo": "Renewal, team plan"})
    await ask("/v1/charges/lost", {"customer": "c_530", "usd": 15})
    return str(doubt.get("Semel-Call"))


GUARDED = """upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - name: charge
    match: {{method: POST, path: "/v1/charges/**"}}
    tool: charge_card
    key: {{include: [invoice]}}
    approval: {{when: "usd > `1000`", wait: 0ms}}
"""


async def take_approval(directory: Path, browser: Browser) -> None:
    """Where calls wait, people sign in."""
    with tempfile.TemporaryDirectory() as place:
        async with world(Path(place), browser, TOKENS, GUARDED) as made:
            made.token = "semel_ann"
            said = {"invoice": "2024-0417", "customer": "c_417", "usd": 2490, "memo": "Renewal, team plan"}
            held = await made.ask("/v1/charges/", said)
            async with made.page(height=780) as page:
                await page.get_by_label("Operator token").fill("semel_ops")
                await page.keyboard.press("Enter")
                await page.locator(f"a.row[href$='{json.loads(held.body)['call']}']").click()
                await page.get_by_label("Approve", exact=True).check()
                await page.locator("h1").click()
                await picture(page, directory / "approval.png")


async def picture(page: Page, place: Path, **how: Any) -> None:
    await expect(page.locator("#link-text")).to_have_text("live")
    await expect(page.locator(".loading")).to_have_count(0)
    content = await page.screenshot(path=place, animations="disabled", **how)
    assert len(content) < LARGEST, f"{place} has {len(content)} bytes"


async def take(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        async with chromium() as browser, world(Path(place), browser, policy=POLICY) as made:
            doubt = await tell_the_story(made)
            opened = f"#/inbox/call/{doubt}"
            for name, scheme in (("in-doubt", "light"), ("dark", "dark")):
                async with made.page(opened, height=780, color_scheme=scheme) as page:
                    await page.get_by_label("It happened").check()
                    await expect(page.locator("#count-inbox")).to_have_text("4")
                    await page.locator("h1").click()
                    await picture(page, directory / f"{name}.png")
            async with made.page("#/runs/run/invoices-2024-05", height=900) as page:
                await expect(page.locator(".timeline .cell").first).to_be_visible()
                await picture(page, directory / "run.png")
            async with made.page(height=600) as page:
                await expect(page.locator(".bars li").first).to_be_visible()
                await picture(page, directory / "overview.png")
            async with made.page(opened, width=375, height=780) as page:
                await expect(page.locator("form.decision")).to_be_visible()
                await picture(page, directory / "phone.png")
            await take_approval(directory, browser)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(take(Path(sys.argv[1])))
