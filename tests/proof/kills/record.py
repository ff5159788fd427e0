"""What the store holds in the end: every call, what it is now, and what became of it on the way.

Read as one more process beside the semels, from the store itself and not through what is checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from proxy.answers import Answers
from proxy.core.intent import Entry, State
from proxy.observe import Everyone
from proxy.store.base import Query, Store
from proxy.store.codec import Codec
from tests import ambient
from tests.proof.kills.agent import digest_of
from tests.proof.kills.clerk import step_of


class Row(NamedTuple):
    id: str
    step: str
    rule: str
    state: State
    occurrence: int
    answered: str  # the digest of what is given to whoever asks; empty: nothing can be
    history: list[Entry]


async def rows_in(state: Path) -> list[Row]:
    store = await ambient.opened(state)
    try:
        rows: list[Row] = []
        after: int | None = None
        while True:
            page = await store.find(Query(limit=500, after=after))
            assert not page.unreadable, page.unreadable
            rows += [await _row(store, call_key) for call_key in [found.key for found in page.calls]]
            after = page.next
            if after is None:
                return rows
    finally:
        await store.close()


async def _row(store: Store, key: bytes) -> Row:
    call = await store.get(key)
    assert call is not None
    answered = ""
    if call.answer is not None and call.state is State.DONE:
        answers = Answers(store=store, codec=Codec(), observer=Everyone(), inline_body=0)
        given = await answers.produce(call, call.answer)
        if given is not None:
            body = (
                given.body if isinstance(given.body, bytes) else b"".join([part async for part in given.body])
            )
            headers = {name.lower(): value.decode() for name, value in given.headers}
            kept = (headers.get(b"content-type", ""), headers.get(b"x-serial", ""))
            answered = digest_of(given.status, kept, body)
    target = Codec().open_request(call.request).target.decode()
    return Row(
        call.id, step_of(target), call.rule, call.state, call.occurrence, answered, await store.history(key)
    )
