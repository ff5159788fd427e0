"""Calls named by the beginning of their ids, over the store and through a proxy."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.admin.desk import Desk
from proxy.cli.call_ids import whole_id
from proxy.cli.calls import SCHEMA
from proxy.cli.output import Refused
from proxy.store.base import Query
from tests.admin.scene import LOST, damage, scene
from tests.cli.test_calls import WAYS, desk_of


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("way", WAYS)
async def test_six_digits_are_enough_for_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Looked at, resolved, its body printed, forgotten; in upper case as well."""
    async with scene(tmp_path, LOST) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged()
        why = ("--reason", "r", "--json")
        for arguments in (
            ("show", call_id[:6], "--json"),
            ("show", call_id[:9].upper(), "--json"),
            ("show", call_id.upper(), "--json"),
            ("resolve", call_id[:6], "--as", "executed", "--status", 204, *why),
            ("forget", call_id[:31], *why),
        ):
            ran = await desk(*arguments)
            assert ran.status == 0, ran.err
            assert ran.document(SCHEMA)["call"]["id"] == call_id
        assert (await desk("show", call_id[:6], "--body")).status == 0


@pytest.mark.parametrize("way", WAYS)
async def test_what_no_call_begins_with_is_told_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Status 1. Too short, too long or no digits: not an id at all."""
    async with scene(tmp_path) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged()
        where = f"the record in {tmp_path / 'state'}" if way == "store" else f"the record of {world.url}"
        other = "000000" if not call_id.startswith("000000") else "111111"
        ran = await desk("show", other)
        assert (ran.status, ran.out) == (1, "")
        assert ran.err == (
            f"None of the newest 5000 calls in {where} begins with {other}. An older one is found by its "
            "whole id, another record with --state-dir DIR, --store URL or --proxy URL.\n"
        )
        for wrong in (call_id[:5], f"{call_id}0", "../stats", "semel!"):
            ran = await desk("forget", wrong, "--reason", "r")
            assert (ran.status, ran.out) == (1, "")
            assert (
                ran.err == f"{wrong!r} is not a call's id: 32 hexadecimal digits, or the first 6 or more.\n"
            )


@pytest.mark.parametrize("way", WAYS)
async def test_an_unreadable_row_is_found_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """And says that it cannot be read."""
    async with scene(tmp_path) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged()
        damage(tmp_path / "state", call_id)
        ran = await desk("show", call_id[:6])
        assert (ran.status, "cannot be read" in ran.err) == (1, True)


class Listing:
    """A desk with these calls, newest first, that counts how often it is asked."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.asked = 0

    async def calls(self, query: Query) -> dict[str, Any]:
        self.asked += 1
        begin = query.after or 0
        end = begin + query.limit
        calls = [{"id": one} for one in self.ids[begin:end]]
        return {"calls": calls, "next": end if end < len(self.ids) else None, "unreadable": []}


async def found(listing: Listing, given: str) -> str:
    options = argparse.Namespace(id=given, state_dir=None, store=None, proxy="http://p:1", config=None)
    return await whole_id(cast("Desk", listing), options)


async def test_an_ambiguous_beginning_names_the_candidates() -> None:
    """Five of them; with one digit more it is unique."""
    ids = [f"abcdef{number}" + "0" * 25 for number in range(7)]
    with pytest.raises(Refused) as refused:
        await found(Listing(*ids), "abcdef")
    assert str(refused.value) == (
        f"More than one call begins with abcdef: {', '.join(ids[:5])} and 2 more. Give more of it."
    )
    assert await found(Listing(*ids), "abcdef4") == ids[4]


async def test_every_page_is_looked_at_and_no_more_than_5000_calls() -> None:
    """A second candidate on the last page is seen; one beyond is not."""
    others = [f"{number:032x}" for number in range(4998)]
    one, two = "abcdef1" + "0" * 25, "abcdef2" + "0" * 25
    with pytest.raises(Refused, match="More than one"):
        await found(Listing(one, *others, two), "abcdef")
    beyond = Listing(one, *others, "f" * 32, two)
    assert await found(beyond, "abcdef") == one
    assert beyond.asked == 10
    whole = Listing()
    assert (await found(whole, two), whole.asked) == (two, 0)
