"""Calls and history lines for store tests: small, valid, and made through the transition table."""

from __future__ import annotations

import os
from dataclasses import replace

from proxy.core import decide
from proxy.core.approval import ask_person, deny
from proxy.core.clauses import Approval
from proxy.core.intent import Answer, Call, Doubt, Entry, Event, Place, State, advance
from proxy.core.run_record import Exchange, How, InRun, Serving
from proxy.core.terms import Terms
from proxy.store.base import Query, Store

NOW = 1_700_000_000.0
WAITING = Terms(bound_to=b"this request", until=NOW + 3600)


def claim(owner: str, key: bytes | None = None, *, at: float = NOW) -> tuple[Call, Entry]:
    """A first claim, to be swapped in with expected=0."""
    key = key or os.urandom(16)
    call = Call(
        key=key, fingerprint=key * 2, named_by=b"", tenant="default", upstream="mail", rule="send",
        tool="POST /send", safe=False, state=State.PENDING, version=1, fence=1, owner=owner, born=at,
        created_at=at, sent_at=at, sends=1, request=b"sealed request",
    )  # fmt: skip
    entry = Entry(
        at=at,
        actor=f"proxy:{owner}",
        event=Event.CLAIM,
        before=None,
        after=State.PENDING,
        why="first",
        fence=1,
    )
    return call, entry


async def in_state(store: Store, state: State) -> list[Call]:
    """All of them, in the order of first sight; none may be unreadable."""
    found: list[Call] = []
    after: int | None = None
    while True:
        page = await store.find(Query(state=state, after=after))
        assert not page.unreadable
        found += page.calls
        if (after := page.next) is None:
            return found[::-1]


def ask(key: bytes | None = None, *, at: float = NOW) -> tuple[Call, Entry]:
    """A person is asked, to be swapped in with expected=0."""
    call, _ = claim("nobody", key, at=at)
    approval = Approval(when=None, wait=0.0, expires=3600.0)
    row, entry, _ = ask_person(call, None, approval=approval, bound_to=b"this", actor="proxy:x", now=at)
    return row, entry


def settle(call: Call, body: bytes = b"sealed body", *, at: float = NOW + 1) -> tuple[Call, Entry]:
    answer = Answer(
        status=201, size=len(body), recorded_at=at, place=Place.INLINE, head=b"sealed head", body=body
    )
    return advance(
        call, Event.ANSWERED, at=at, actor=f"proxy:{call.owner}", why="201", answer=answer, settled_at=at,
        expires_at=at + 86400, doubt=None,
    )  # fmt: skip


def lose(call: Call, *, at: float = NOW + 1) -> tuple[Call, Entry]:
    doubt = Doubt(since=at, reason="the connection broke", upstream_status=502, excerpt="bad gateway")
    return advance(
        call, Event.LOST, at=at, actor=f"proxy:{call.owner}", why="reset", doubt=doubt, unresolved=True
    )


def refuse(call: Call, *, at: float = NOW + 10) -> tuple[Call, Entry]:
    """By a person who was asked."""
    return deny(call, ttl=3600.0, actor="operator:x", now=at, why="not this one")


def release(call: Call, *, at: float = NOW + 1) -> tuple[Call, Entry]:
    return advance(
        call, Event.NOT_SENT, at=at, actor=f"proxy:{call.owner}", why="refused", settled_at=at,
        expires_at=at + 60,
    )  # fmt: skip


def claim_again(call: Call, owner: str, *, at: float = NOW + 2) -> tuple[Call, Entry]:
    """From released, with the next fence."""
    return advance(
        call, Event.CLAIM, at=at, actor=f"proxy:{owner}", why="again", owner=owner, fence=call.fence + 1,
        settled_at=None, expires_at=None, answer=None, sends=call.sends + 1,
    )  # fmt: skip


def resend(call: Call, owner: str, *, at: float = NOW + 3) -> tuple[Call, Entry]:
    return advance(
        call, Event.RESEND, at=at, actor=f"proxy:{owner}", why="same key", owner=owner, fence=call.fence + 1,
        sends=call.sends + 1,
    )  # fmt: skip


def forget(call: Call, *, at: float = NOW + 4) -> tuple[Call, Entry]:
    """A person's decision about a settled call."""
    return decide.forget(call, actor="operator:ada", now=at, why="wrong address")


def claim_anew(call: Call, owner: str, *, at: float = NOW + 5) -> tuple[Call, Entry]:
    """Over a row that has lapsed."""
    fresh, _ = claim(owner, call.key, at=at)
    anew, entry, expected = decide.claim(fresh, call, actor=f"proxy:{owner}", now=at)
    assert expected == call.version
    return anew, entry


def evidence(call: Call, why: str) -> Entry:
    return Entry(
        at=NOW + 9, actor="proxy:late", event="evidence", before=None, after=None, why=why, fence=call.fence
    )


def by(call: Call, owner: str) -> Call:
    return replace(call, owner=owner)


def in_run(
    owner: str,
    run: str = "r",
    *,
    attempt: str = "a1",
    tenant: str = "default",
    at: float = NOW,
    key: bytes | None = None,
) -> tuple[Call, Entry]:
    """A first claim in a run."""
    call, entry = claim(owner, key, at=at)
    remembers = InRun(family=call.key, group=("rule", "mail", "send"))
    return replace(call, run=run, attempt=attempt, tenant=tenant, in_run=remembers), entry


def serving(call: Call, number: int = 1, *, attempt: str = "", owner: str = "", at: float = NOW) -> Serving:
    """Somebody is served from this call."""
    exchange = Exchange(
        number=number,
        attempt=attempt or call.attempt,
        fence=call.fence,
        owner=owner or call.owner,
        tokens=frozenset({"t1", "t2"}),
        wording="3b",
        credentials=b"who",
        how=How.EXECUTED,
        at=at,
    )
    return Serving(call.tenant, call.run, call.key, exchange)
