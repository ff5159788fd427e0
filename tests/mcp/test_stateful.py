"""`stateful: true`: what a session of the server remembers, the next one's does not.

A later attempt has a new session. It is given what the record holds; beyond it nothing goes out, since the
server would find another state than the agent believes.
"""

from __future__ import annotations

from pathlib import Path

from tests.mcp.clients import DOORS, ERAS, LEGACY, Told, call, client, problem_of
from tests.mcp.scene import behind, inside
from tests.mcp.servers import Shop

STATEFUL = "stateful: true"


@ERAS
@DOORS
async def test_a_later_attempt_ends_with_the_record(tmp_path: Path, shop: Shop, era: str, door: str) -> None:
    """The first attempt is hindered by nothing."""
    async with inside(tmp_path, shop.ports[door], STATEFUL) as semel:
        async with client(semel.url("night+a1"), era) as at:
            for order in ("1", "2"):
                assert await call(at, "pay", {"order": order}) == Told(f"payment {order}")
        async with client(semel.url("night+a2"), era) as at:
            await at.list_tools()
            for order in ("1", "2"):
                assert await call(at, "pay", {"order": order}) == Told(f"payment {order}")
            for _ in range(2):
                problem = await problem_of(at, "pay", {"order": "3"})
                assert (problem["type"], problem["status"]) == ("urn:semel:denied", 403)
                assert "stateful" in problem["detail"]
                assert "session" in problem["detail"]
        assert await semel.states() == ["done", "done"]
    assert shop.ledger.lines == ["pay 1", "pay 2"]


async def test_what_is_not_stateful_goes_on(tmp_path: Path, shop: Shop) -> None:
    """The same without the word: the second attempt does what the first one did not."""
    async with inside(tmp_path, shop.ports["json"]) as semel:
        for attempt, orders in (("a1", "12"), ("a2", "123")):
            async with client(semel.url(f"night+{attempt}"), LEGACY) as at:
                for order in orders:
                    assert await call(at, "pay", {"order": order}) == Told(f"payment {order}")
    assert shop.ledger.count() == 3


async def test_an_attempt_that_was_given_nothing_goes_on(tmp_path: Path, shop: Shop) -> None:
    """The first one made no call: the second is in the same place as a first."""
    async with inside(tmp_path, shop.ports["json"], STATEFUL) as semel:
        async with client(semel.url("night+a1"), LEGACY) as at:
            await at.list_tools()
        async with client(semel.url("night+a2"), LEGACY) as at:
            assert await call(at, "pay", {"order": "1"}) == Told("payment 1")


async def test_a_retry_within_the_attempt_is_no_other_session(tmp_path: Path, shop: Shop) -> None:
    """An attempt that hears its own answer again goes on."""
    async with inside(tmp_path, shop.ports["json"], STATEFUL) as semel:
        wire = await semel.wire(LEGACY, "night+a1")
        key = {"Idempotency-Key": "k1"}
        first, again = [await wire.call("pay", {"order": "1"}, n, key) for n in (1, 2)]
        assert (first.semel, again.semel) == ("executed", "replayed")
        assert (await wire.call("pay", {"order": "2"}, 3)).semel == "executed"
    assert shop.ledger.count() == 2


async def test_after_a_crash_of_semel(tmp_path: Path, shop: Shop) -> None:
    """What it knows of the run is on record, not in its memory."""
    async with (
        behind(tmp_path, shop.ports["json"], STATEFUL) as semel,
        client(semel.url("night+a1"), LEGACY) as at,
    ):
        await call(at, "pay", {"order": "1"})
    async with (
        behind(tmp_path, shop.ports["json"], STATEFUL) as semel,
        client(semel.url("night+a2"), LEGACY) as at,
    ):
        assert await call(at, "pay", {"order": "1"}) == Told("payment 1")
        assert (await problem_of(at, "pay", {"order": "2"}))["type"] == "urn:semel:denied"
    assert shop.ledger.lines == ["pay 1"]
