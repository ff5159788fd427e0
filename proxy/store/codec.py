"""Records as bytes and as columns. Nothing here is ever unpickled, and a damaged value never becomes garbage.

A value is: one format byte, a checksum, then length-framed parts. The checksum is seeded with the kind of
value, so that a head opened as a body is damage too. Encryption is another format around it, between here and
the store (sealed.py): what that could not open comes up marked, and is damage here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import orjson
import xxhash

from proxy.core.intent import RECORD_VERSION, Answer, Call, Doubt, Entry, Place, State
from proxy.core.terms import Held, Reserved, Terms
from proxy.store.run_codec import in_run_from_json, in_run_to_json

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
Row: TypeAlias = tuple[Any, ...]

PLAIN, UNREADABLE = 1, 3  # 2 is an encrypted one, see sealing.py
_PREFIX = struct.Struct(">BQ")  # format, checksum
_COUNT = struct.Struct(">I")

# The checksum's seed for each kind of sealed value.
_REQUEST, _HEAD, _BODY, _CACHED = 1, 2, 3, 4


class DamagedRecord(Exception):
    """A stored value is not what was written, or was written by a newer semel."""


class StoredRequest(NamedTuple):
    """What a resend needs (credentials are not in it), and the arguments for people."""

    method: str
    target: bytes
    headers: Headers
    body: bytes = b""  # inline; a large one is a blob that the row names
    arguments: bytes = b""  # the canonical form
    redacted: bool = False  # what the rule hides is not in it
    whole: StoredRequest | None = None  # beside a redacted one, where it must be sent again, and is encrypted


class Codec:
    """Frames what only semel reads."""

    def seal_request(self, request: StoredRequest) -> bytes:
        return _seal(_REQUEST, _framed_request(request))

    def sealing(self, like: StoredRequest) -> Callable[[bytes, bytes], bytes]:
        """`seal_request` of all that differ from `like` in body and arguments only."""
        assert not like.redacted
        method, headers = like.method.encode(), _flat(like.headers)
        count = 4 + len(headers)
        lengths, more = _lengths(5), b"".join(len(part).to_bytes(4) for part in headers)
        what, rest = (len(method), len(like.target)), b"".join(headers)
        first = method + like.target

        def seal(body: bytes, arguments: bytes) -> bytes:
            told = lengths(count, *what, len(body), len(arguments))
            return _seal(_REQUEST, b"".join((told, more, first, body, arguments, rest)))

        return seal

    def open_request(self, sealed: bytes) -> StoredRequest:
        return _read_request(_open(_REQUEST, sealed))

    def seal_head(self, headers: Headers) -> bytes:
        return _seal(_HEAD, _frame(_flat(headers)))

    def open_head(self, sealed: bytes) -> Headers:
        return _pairs(_unframe(_open(_HEAD, sealed), at_least=0), 0)

    def seal_body(self, body: bytes) -> bytes:
        return _seal(_BODY, body)

    def open_body(self, sealed: bytes) -> bytes:
        return _open(_BODY, sealed)

    def seal_cached(self, status: int, headers: Headers, body: bytes) -> bytes:
        return _seal(_CACHED, _frame((str(status).encode(), body, *_flat(headers))))

    def open_cached(self, sealed: bytes) -> tuple[int, Headers, bytes]:
        parts = _unframe(_open(_CACHED, sealed), at_least=2)
        return int(parts[0]), _pairs(parts, 2), parts[1]


def _seal(kind: int, payload: bytes) -> bytes:
    return _PREFIX.pack(PLAIN, xxhash.xxh3_64_intdigest(payload, kind)) + payload


def _open(kind: int, sealed: bytes) -> bytes:
    if len(sealed) < _PREFIX.size:
        raise DamagedRecord("a sealed value is cut off")
    version, checksum = _PREFIX.unpack_from(sealed)
    if version == UNREADABLE:
        raise DamagedRecord("a sealed value cannot be decrypted: it was changed, moved, or its key is gone")
    if version != PLAIN:
        raise DamagedRecord(f"a sealed value has format {version}, this semel knows {PLAIN}")
    payload = sealed[_PREFIX.size :]
    if xxhash.xxh3_64_intdigest(payload, kind) != checksum:
        raise DamagedRecord("a sealed value does not match its checksum")
    return payload


def _framed_request(request: StoredRequest) -> bytes:
    """One part too many for headers: it is redacted, and this is the whole, if that is kept."""
    first = (request.method.encode(), request.target, request.body, request.arguments)
    whole = b"" if request.whole is None else _framed_request(request.whole)
    return _frame((*first, *_flat(request.headers), *((whole,) if request.redacted else ())))


def _read_request(payload: bytes) -> StoredRequest:
    parts = _unframe(payload, at_least=4)
    redacted = len(parts) % 2 == 1
    whole = parts.pop() if redacted else b""
    return StoredRequest(
        method=parts[0].decode(),
        target=parts[1],
        body=parts[2],
        arguments=parts[3],
        headers=_pairs(parts, 4),
        redacted=redacted,
        whole=_read_request(whole) if whole else None,
    )


def _flat(headers: Headers) -> list[bytes]:
    return [part for header in headers for part in header]


def _pairs(parts: list[bytes], start: int) -> Headers:
    if (len(parts) - start) % 2:
        raise DamagedRecord("a header without a value")
    return tuple(zip(parts[start::2], parts[start + 1 :: 2], strict=True))


def _frame(parts: Sequence[bytes]) -> bytes:
    """The count, all lengths, all parts: one unpack gives every length when it is read."""
    count = len(parts)
    return _lengths(count + 1)(count, *map(len, parts)) + b"".join(parts)


@lru_cache(maxsize=256)
def _lengths(count: int) -> Callable[..., bytes]:
    return struct.Struct(f">{count}I").pack


def _unframe(payload: bytes, *, at_least: int) -> list[bytes]:
    try:
        (count,) = _COUNT.unpack_from(payload)
        lengths = struct.unpack_from(f">{count}I", payload, _COUNT.size)
    except (struct.error, MemoryError):
        raise DamagedRecord("a sealed value is cut off") from None
    end = _COUNT.size * (count + 1)
    parts = []
    for length in lengths:
        start, end = end, end + length
        parts.append(payload[start:end])
    if end != len(payload) or count < at_least:
        raise DamagedRecord("a sealed value has the wrong length")
    return parts


# --- columns -------------------------------------------------------------------------------------------
# In the order of the table: what is listed or compared first, large values last, so that reading the
# small columns never walks the overflow pages of a large row.
CALL_COLUMNS = (
    "key", "fingerprint", "named_by", "tenant", "run", "attempt", "seq", "occurrence", "upstream", "rule",
    "tool", "safe", "state", "version", "fence", "owner", "created_at", "sent_at", "settled_at", "expires_at",
    "sends", "unresolved", "request_blob", "answer_status", "answer_size", "answer_recorded_at",
    "answer_place", "answer_blob", "answer_why_nowhere", "doubt_since", "doubt_reason", "doubt_status",
    "doubt_excerpt", "record_version", "request", "answer_head", "answer_body", "born", "cost_usd", "in_run",
    "terms",
)  # fmt: skip
ENTRY_COLUMNS = ("at", "actor", "event", "from_state", "to_state", "why", "fence")

_STATES: dict[str | None, State | None] = {None: None, **{state.value: state for state in State}}
_PLACES = {place.value: place for place in Place}
# Columns that are fields as they are, taken together: one by one takes three times as long.
_STATE = CALL_COLUMNS.index("state")
_BEFORE_STATE = itemgetter(*CALL_COLUMNS[:_STATE])
_BEHIND_STATE = itemgetter(*CALL_COLUMNS[_STATE + 1 : CALL_COLUMNS.index("answer_status")])
_NO_ANSWER = (None, None, None, None, None, None)
_NO_DOUBT = (None, None, None, None)


def call_to_row(call: Call) -> Row:
    answer, doubt = call.answer, call.doubt
    told = _NO_ANSWER if answer is None else (
        answer.status, answer.size, answer.recorded_at, str(answer.place), answer.blob, answer.why_nowhere
    )  # fmt: skip
    doubted = _NO_DOUBT if doubt is None else (
        doubt.since, doubt.reason, doubt.upstream_status, doubt.excerpt
    )  # fmt: skip
    return (
        *_BEFORE_STATE(call.__dict__), str(call.state), *_BEHIND_STATE(call.__dict__),
        *told, *doubted, RECORD_VERSION, call.request,
        None if answer is None else answer.head, None if answer is None else answer.body, call.born,
        call.cost_usd, None if call.in_run is None else in_run_to_json(call.in_run),
        None if call.terms is None else terms_to_json(call.terms),
    )  # fmt: skip


def row_to_call(row: Row) -> Call:
    (
        key, fingerprint, named_by, tenant, run, attempt, seq, occurrence, upstream, rule, tool, safe, state,
        version, fence, owner, created_at, sent_at, settled_at, expires_at, sends, unresolved, request_blob,
        status, size, recorded_at, place, blob, why_nowhere, since, reason, doubt_status, excerpt,
        record_version, request, head, body, born, cost_usd, in_run, terms,
    ) = row  # fmt: skip
    if record_version > RECORD_VERSION:
        raise DamagedRecord(
            f"call {key.hex()} was written by a newer semel (record version {record_version}, "
            f"this one knows {RECORD_VERSION}): upgrade this process"
        )
    try:
        answer = None if status is None else Answer(
            status=status, size=size, recorded_at=recorded_at, place=_PLACES[place], head=head, body=body,
            blob=blob, why_nowhere=why_nowhere,
        )  # fmt: skip
        doubt = None if since is None else Doubt(
            since=since, reason=reason, upstream_status=doubt_status, excerpt=excerpt
        )  # fmt: skip
        return Call(
            key=key, fingerprint=fingerprint, named_by=named_by, tenant=tenant, run=run, attempt=attempt,
            seq=seq, occurrence=occurrence, upstream=upstream, rule=rule, tool=tool, safe=bool(safe),
            state=State(state), version=version, fence=fence, owner=owner, created_at=created_at,
            sent_at=sent_at, settled_at=settled_at, expires_at=expires_at, sends=sends,
            unresolved=bool(unresolved), request=request, request_blob=request_blob, answer=answer,
            doubt=doubt, born=born, cost_usd=cost_usd,
            in_run=None if in_run is None else in_run_from_json(in_run),
            terms=None if terms is None else terms_from_json(terms),
        )  # fmt: skip
    except (KeyError, ValueError) as error:
        raise DamagedRecord(f"call {key.hex()} cannot be read: {error}") from error


def terms_to_json(terms: Terms) -> str:
    """What has its default is left out."""
    said: dict[str, Any] = {
        "key": terms.key, "place": terms.place, "keyed_at": terms.keyed_at, "granted": terms.granted,
        "bound_to": terms.bound_to.hex(), "said": terms.said, "until": terms.until,
    }  # fmt: skip
    if terms.reserved is not None:
        run, rule, held, priced_later = terms.reserved
        said["reserved"] = [run, rule, [list(each) for each in held], priced_later]
    return orjson.dumps({name: value for name, value in said.items() if value}).decode()


def terms_from_json(text: str) -> Terms:
    said = orjson.loads(text)
    if "reserved" in said:
        run, rule, held, priced_later = said["reserved"]
        said["reserved"] = Reserved(run, rule, tuple(Held(*each) for each in held), priced_later)
    return Terms(bound_to=bytes.fromhex(said.pop("bound_to", "")), **said)


def entry_to_row(entry: Entry) -> Row:
    return (entry.at, entry.actor, str(entry.event), entry.before, entry.after, entry.why, entry.fence)


def row_to_entry(row: Row) -> Entry:
    at, actor, event, before, after, why, fence = row
    return Entry(
        at=at, actor=actor, event=event, before=_STATES[before], after=_STATES[after], why=why, fence=fence
    )
