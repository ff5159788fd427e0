"""A call as a person names it: by its id, or by the beginning of one that is unique among the newest calls.

By the measures of `semel explain --like`, but over the desk's listing: so it works on a store opened here and
through a running proxy. What is not found is said together with where it was looked for.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from proxy.cli.output import Refused
from proxy.cli.reach import proxy_of, settings_of
from proxy.store.opening import shown

if TYPE_CHECKING:
    from proxy.admin.desk import Desk

LENGTH = 32
CANDIDATES_SHOWN = 5


async def whole_id(desk: Desk, options: argparse.Namespace) -> str:
    """Of `options.id`. A whole one is not looked up: whoever uses it will see whether it is there."""
    from proxy.explaining.record import LOOKED_THROUGH, SHORTEST_PREFIX

    given: str = options.id
    text = given.lower()
    if re.fullmatch(rf"[0-9a-f]{{{SHORTEST_PREFIX},{LENGTH}}}", text) is None:
        raise Refused(
            f"{given[:64]!r} is not a call's id: {LENGTH} hexadecimal digits, or the first {SHORTEST_PREFIX} "
            "or more."
        )
    if len(text) == LENGTH:
        return text
    found = await _beginning_with(desk, text)
    if not found:
        raise Refused(
            f"None of the newest {LOOKED_THROUGH} calls in {looked_in(options)} begins with {text}. An older "
            f"one is found by its whole id, {ANOTHER}"
        )
    if len(found) > 1:
        named = sorted(found)
        more = f" and {len(named) - CANDIDATES_SHOWN} more" if len(named) > CANDIDATES_SHOWN else ""
        raise Refused(
            f"More than one call begins with {text}: {', '.join(named[:CANDIDATES_SHOWN])}{more}. Give more "
            "of it."
        )
    return found.pop()


async def _beginning_with(desk: Desk, text: str) -> set[str]:
    """Also what the store cannot read: it says so when it is asked for."""
    from proxy.explaining.record import PAGE, ids_beginning_with
    from proxy.store.base import Query

    async def page(after: int | None) -> tuple[list[str], int | None]:
        listed = await desk.calls(Query(limit=PAGE, after=after))
        return [one["id"] for one in listed["calls"] + listed["unreadable"]], listed["next"]

    return await ids_beginning_with(text, page)


ANOTHER = "another record with --state-dir DIR, --store URL or --proxy URL."


def looked_in(options: argparse.Namespace) -> str:
    url = proxy_of(options)
    if url is not None:
        return f"the record of {url}"
    settings = settings_of(options)
    return f"the record in {settings.state if settings.store == 'embedded' else shown(settings.store)}"


def not_there(options: argparse.Namespace) -> Refused:
    return Refused(f"There is no call {options.id} in {looked_in(options)}. Name {ANOTHER}")
