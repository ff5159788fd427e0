"""What is told of a call, and under which name.

The name follows from what is told alone: whoever finds the same call in the same doubt tells it under the
same one, in whatever process and however late. Receivers take a second one for the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import orjson

from proxy.admin.views import moment
from proxy.core.identity import frame
from proxy.core.intent import Call, State
from proxy.notifying.schema import Kind

Json: TypeAlias = dict[str, Any]

TEST = "test"
OF_STATE = {State.IN_DOUBT: Kind.IN_DOUBT, State.AWAITING_APPROVAL: Kind.AWAITING_APPROVAL}
# What a person does about it, below the page's address; as in the `resolve` of a problem.
_RESOLVE = {
    Kind.IN_DOUBT: "calls/{call}/resolve",
    Kind.AWAITING_APPROVAL: "calls/{call}/approve",
    Kind.DIVERGED: "runs/{run}/allow",
}


class Event(NamedTuple):
    id: str
    type: str
    document: Json
    since: float
    key: bytes = b""  # of the call, where a row stands behind it
    state: State | None = None
    fence: int = 0

    def body(self, base: str) -> bytes:
        """`base`: where people reach semel, or nothing where that is not known."""
        return orjson.dumps({**self.document, **self._links(base)})

    def _links(self, base: str) -> Json:
        path = _RESOLVE.get(Kind(self.type)) if self.type in tuple(Kind) else None
        if not base or path is None:
            return {"resolve": None, "page": f"{base}/_semel/" if base else None}
        call = self.document["call"]
        return {
            "resolve": f"{base}/_semel/{path.format(call=call['id'], run=call['run'])}",
            "page": f"{base}/_semel/",
        }


def of_call(call: Call) -> Event:
    """Of one that is in doubt or waits for approval: no arguments, no body, no headers."""
    kind, doubt = OF_STATE[call.state], call.doubt
    in_doubt = doubt is not None and kind is Kind.IN_DOUBT
    since = doubt.since if doubt is not None and in_doubt else (call.settled_at or call.created_at)
    # A call that was sent again and is in doubt again is another matter (the fence), and so is one that waits
    # for another approval (the version). A row that was collected and made anew is another (`born`).
    mark = b"%d" % (call.fence if in_doubt else call.version)
    told = {
        "id": call.id,
        "tenant": call.tenant,
        "run": call.run or None,
        "attempt": call.attempt or None,
        "upstream": call.upstream,
        "rule": call.rule,
        "tool": call.tool,
        "state": call.state.value,
        "version": call.version,
        "since": moment(since),
        "reason": doubt.reason if doubt is not None and in_doubt else None,
        "upstream_status": doubt.upstream_status if doubt is not None and in_doubt else None,
        "excerpt": doubt.excerpt if doubt is not None and in_doubt else None,
    }
    name = _name(kind, call.key, repr(call.born).encode(), mark)
    return Event(name, kind, _document(kind, name, since, told), since, call.key, call.state, call.fence)


def of_divergence(fields: Mapping[str, object], now: float) -> Event:
    """Of an agent that left its record and was held. No row stands behind it: the next ask is judged afresh,
    and is told again if this one was lost. While nothing changes it is told once."""
    told = {
        "id": None,
        "tenant": _text(fields, "tenant"),
        "run": _text(fields, "run"),
        "attempt": _text(fields, "attempt"),
        "upstream": None,
        "rule": _text(fields, "rule"),
        "tool": None,
        "state": None,
        "version": None,
        "since": moment(now),
        "reason": _text(fields, "why"),
        "upstream_status": None,
        "excerpt": None,
    }
    parts = [str(fields.get(key, "")).encode() for key in ("tenant", "run", "attempt", "rule", "why")]
    name = _name(Kind.DIVERGED, *parts)
    return Event(name, Kind.DIVERGED, _document(Kind.DIVERGED, name, now, told), now)


def of_test(now: float, nonce: bytes) -> Event:
    """To see whether somebody receives and verifies."""
    name = _name(TEST, nonce)
    return Event(name, TEST, _document(TEST, name, now, None), now)


def _document(kind: str, name: str, at: float, call: Json | None) -> Json:
    return {"type": kind, "id": name, "at": moment(at), "call": call}


def _text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    return None if value in (None, "") else str(value)


def _name(kind: str, *parts: bytes) -> str:
    """Without a dot: it is one of the parts that dots separate where it is signed."""
    return "semel_" + blake2b(frame((kind.encode(), *parts)), digest_size=16).hexdigest()
