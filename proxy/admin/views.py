"""Records as the documents of schemas.py: pure, and nothing in them that sounds secret.

What cannot be read is said, never left out in silence: a call with a damaged request still shows its state,
its history and what can be decided about it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from proxy.admin import redact
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers
from proxy.core.intent import Answer, Call, Doubt, Entry, Place, State
from proxy.core.redaction import sounds_secret
from proxy.recorded import lies_apart
from proxy.store.base import Census, Page
from proxy.store.codec import Codec, DamagedRecord, StoredRequest

Json: TypeAlias = dict[str, Any]
Segments: TypeAlias = Callable[[str], Mapping[str, str]]

# What the record has for a status that nobody knows (proxy/operator.py).
_UNKNOWN_STATUS = 0
# Beyond so many digits a number is easier to read with its exponent.
LONGEST_NUMBER = 60
# A longer body of a request is not shown.
LONGEST_BODY = 1024 * 1024
# How the body of each kind is called, where it is not shown in words.
_BODY_NAMES = {"digest": "body_digest", "multipart": "body_parts"}


def moment(at: float | None) -> str | None:
    """None also for what no calendar has: a damaged number must not hide the rest of its call."""
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def call(record: Call, replays: int, codec: Codec) -> Json:
    """The contract's members, in the contract's order."""
    answer = record.answer
    return {
        "id": record.id,
        "run": record.run or None,
        "attempt": record.attempt or None,
        "seq": record.seq,
        "occurrence": record.occurrence,
        "upstream": record.upstream,
        "rule": record.rule,
        "tool": record.tool,
        "safe": record.safe,
        "args": _arguments_of(record, codec),
        "state": record.state.value,
        "created_at": moment(record.created_at),
        "sent_at": moment(record.sent_at),
        "settled_at": moment(record.settled_at),
        "expires_at": moment(record.expires_at),
        "sends": record.sends,
        "status_code": None if answer is None else _status(answer),
        "size": None if answer is None else answer.size,
        "replays": replays,
        "cost_usd": record.cost_usd,
        "fence": record.fence,
        "version": record.version,
    }


def page(found: Page, replays: Sequence[int], codec: Codec) -> Json:
    return {
        "calls": [call(one, count, codec) for one, count in zip(found.calls, replays, strict=True)],
        "next": found.next,
        "unreadable": [{"id": call_id, "why": why} for call_id, why in found.unreadable.items()],
    }


def detail(
    record: Call,
    replays: int,
    history: Sequence[Entry],
    codec: Codec,
    segments: Segments = lambda _: {},
    body: bytes = b"",
    settled_by: str | None = None,
) -> Json:
    """`segments`: the named segments of a path, also where the arguments do not hold them. `body`: the
    request's, where it does not lie in the row. `settled_by`: what its rule does about doubt."""
    damage: list[str] = []
    return {
        "call": call(record, replays, codec),
        "events": [_event(entry) for entry in history],
        "request": _request(record, codec, damage, segments, body),
        "doubt": None if record.doubt is None else _doubt(record.doubt),
        "answer": None if record.answer is None else _answer(record.answer, codec, damage),
        "damage": damage,
        "settled_by": settled_by,
    }


def stats(census: Census, store: str, now: float, evictions: int | None) -> Json:
    oldest = census.oldest_doubt_at
    return {
        "store": store,
        "calls": {state.value: census.by_state.get(state, 0) for state in State},
        "oldest_in_doubt_at": moment(oldest),
        "oldest_in_doubt_seconds": _age(oldest, now),
        "store_bytes": census.bytes_used,
        "cache_evictions": evictions,
    }


def _age(at: float | None, now: float) -> float | None:
    return None if at is None or moment(at) is None else round(max(0.0, now - at), 3)


def _status(answer: Answer) -> int | None:
    return None if answer.status == _UNKNOWN_STATUS else answer.status


def _event(entry: Entry) -> Json:
    return {
        "at": moment(entry.at),
        "actor": entry.actor,
        "event": str(entry.event),
        "from": entry.before,
        "to": entry.after,
        "why": entry.why,
        "fence": entry.fence,
    }


def _doubt(doubt: Doubt) -> Json:
    return {
        "since": moment(doubt.since),
        "reason": doubt.reason,
        "upstream_status": doubt.upstream_status,
        "excerpt": doubt.excerpt,
    }


def _answer(answer: Answer, codec: Codec, damage: list[str]) -> Json:
    headers: list[list[str]] = []
    if answer.head:  # an answer in the shared cache has its headers there
        try:
            headers = redact.headers(codec.open_head(answer.head))
        except DamagedRecord as error:
            damage.append(f"the answer's headers: {error}")
    return {
        "status_code": _status(answer),
        "headers": headers,
        "size": answer.size,
        "place": answer.place.value,
        "recorded_at": moment(answer.recorded_at),
        "unavailable": answer.why_nowhere if answer.place is Place.NOWHERE else None,
    }


def _request(record: Call, codec: Codec, damage: list[str], segments: Segments, body: bytes) -> Json | None:
    try:
        stored = codec.open_request(record.request)
    except (DamagedRecord, UnicodeDecodeError) as error:
        damage.append(f"the request: {error}")
        return None
    target, apart = stored.target.decode("latin-1"), lies_apart(record, stored)
    names = {**segments(target.partition("?")[0]), **_path_names(stored)}
    return {
        "method": stored.method,
        "target": redact.target(target, names),
        "headers": redact.headers(stored.headers),
        "body_size": None if apart else len(stored.body),
        "body": _text(stored.headers, body or stored.body) if body or not apart else None,
    }


def _text(headers: Headers, body: bytes) -> str | None:
    """For a person who has to decide: what was asked, all of it. None where it is no text."""
    try:
        return decode(body, codings(headers), LONGEST_BODY).decode()
    except (Undecodable, UnicodeDecodeError):
        return None


# ---- arguments ---------------------------------------------------------------------------------


def _arguments_of(record: Call, codec: Codec) -> Json | None:
    try:
        return arguments(codec.open_request(record.request).arguments)
    except (DamagedRecord, ValueError):
        return None


def arguments(canonical: bytes) -> Json:
    """The canonical form, `[kind, {source: …}]`, as a person would have written it."""
    if not canonical:
        return {}
    kind, chosen = _parsed(canonical)
    if isinstance(chosen, str):
        return {"digest": chosen}  # too long to be told: front/naming.py
    if "include" in chosen:
        return {"include": {name: _unwrapped(kind, name, v) for name, v in chosen["include"].items()}}
    shown: Json = {}
    if "path" in chosen:
        shown["path"] = redact.values(chosen["path"])
    if "query" in chosen:
        query = chosen["query"]  # a string where it has no single meaning
        shown["query"] = redact.pairs(query) if isinstance(query, str) else redact.values(query)
    if "body" in chosen:
        shown[_BODY_NAMES.get(kind, "body")] = chosen["body"]
    return shown


def _parsed(canonical: bytes) -> tuple[str, Any]:
    kind, chosen = json.loads(canonical, parse_float=_number)
    return kind, chosen


def _unwrapped(kind: str, name: str, found: list[Any]) -> object:
    """Found values lie in a list, so that absent differs from null; people see the value itself."""
    source = name.partition(".")[0]
    # A name without a source means the body if there is a parsed one, else the query.
    in_body = source == "body" or (source not in ("query", "path") and kind in ("json", "form"))
    if not in_body and sounds_secret(name):
        return redact.HIDDEN
    found = found if in_body else redact.texts(found)
    return found[0] if len(found) == 1 and "[]" not in name else found


def _number(text: str) -> int | float | str:
    """`15e-1` -> 1.5. What no float holds exactly is a text with all its digits: never a wrong number."""
    value = float(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of many digits
        return text
    if math.isfinite(value) and Decimal(repr(value)) == exact:
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return f"{exact:f}" if abs(exact.adjusted()) < LONGEST_NUMBER else text


def _path_names(stored: StoredRequest) -> Mapping[str, object]:
    try:
        _, chosen = _parsed(stored.arguments)
        names: Mapping[str, object] = chosen["path"]
    except (ValueError, KeyError, TypeError):
        return {}
    return names
