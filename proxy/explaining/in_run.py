"""A run as a call made now would meet it: read as the proxy reads it, and nothing is written.

A run or an attempt that is not in the record would come into being with the call; here it only seems so.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.clock import SystemClock
from proxy.core.divergence import is_expired
from proxy.core.recipe import UnknownRecipe, pinned, recipe_of
from proxy.core.run_record import Run, RunState
from proxy.errors import BadRequest
from proxy.front.naming import ToName
from proxy.front.run_ref import Speaker
from proxy.observe import Everyone
from proxy.runs.book import Book
from proxy.runs.books import RunBooks
from proxy.store.base import Store


class Viewed(NamedTuple):
    """`is_new`: the run would begin with this call; `is_over`: its retention is."""

    book: Book
    is_new: bool
    is_over: bool


async def view(store: Store | None, tenant: str, speaker: Speaker, retention: float, now: float) -> Viewed:
    """Raises StoreUnavailable, also where a fork's parent is missing."""
    known = None if store is None else await store.get_run(tenant, speaker.run)
    if store is None or known is None:
        begun = Run(tenant=tenant, name=speaker.run, created_at=now, active_at=now)
        return Viewed(Book(begun, speaker.attempt, ""), is_new=True, is_over=False)
    book = Book(known, speaker.attempt, store.owner)
    expired = is_expired(last_activity=known.active_at, retention=retention, now=now)
    if expired or known.state is RunState.EXPIRED:
        return Viewed(book, is_new=False, is_over=True)
    books = RunBooks(store=store, clock=SystemClock(), observer=Everyone(), retention=retention)
    await books.refresh(book)
    return Viewed(book, is_new=False, is_over=False)


def as_named_in(run: Run, request: ToName) -> ToName:
    """By the recipe that the run is pinned to, or would be by this call; in a fork, as its parent's calls."""
    recipe = run.recipes.get(request.upstream.name) or recipe_of(request.upstream)
    try:
        upstream, canonical = pinned(request.upstream, recipe)
    except UnknownRecipe as error:
        raise BadRequest(str(error)) from None
    return request._replace(upstream=upstream, origin=run.origin or run.name, canonical=canonical)


def is_pinned_otherwise(run: Run, request: ToName) -> bool:
    """Whether the policies have changed since the run first called this upstream. `request`: as it came."""
    recipe = run.recipes.get(request.upstream.name)
    return recipe is not None and recipe != recipe_of(request.upstream)
