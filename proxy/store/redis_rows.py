"""Records as the bytes of a Redis value: a line that scripts read, a small part, the large parts.

The line is made by swaps.lua, which gives a row its number, its pulse and its place in the run. The small
part is JSON, the large ones (request, head and body of the answer) follow as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from proxy.core.budget import Account, Charge, Spent
from proxy.core.intent import Call, Entry
from proxy.core.run_record import Exchange, Run, Serving, Step
from proxy.store.codec import (
    CALL_COLUMNS,
    ENTRY_COLUMNS,
    DamagedRecord,
    call_to_row,
    entry_to_row,
    row_to_call,
    row_to_entry,
)
from proxy.store.run_codec import (
    EXCHANGE_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    exchange_to_row,
    row_to_exchange,
    row_to_run,
    row_to_step,
    run_to_row,
)

_AT = {name: place for place, name in enumerate(CALL_COLUMNS)}
_LARGE = tuple(_AT[name] for name in ("request", "answer_head", "answer_body"))
_BYTES = tuple(_AT[name] for name in ("fingerprint", "named_by"))
_KEY, _SEQ = _AT["key"], _AT["seq"]
_STEP = tuple(_AT[name] for name in STEP_COLUMNS)
_CREDENTIALS = EXCHANGE_COLUMNS.index("credentials")


class Line(NamedTuple):
    """The first line of a row."""

    version: int
    born: str
    state: str
    number: int
    pulse: int
    seq: int
    size: int
    small: int
    request_blob: str
    answer_blob: str


class Written(NamedTuple):
    """What a swap sends of a call."""

    small: bytes
    large: bytes


def write_call(call: Call) -> Written:
    row = list(call_to_row(call))
    large = [row[place] for place in _LARGE]
    for place, value in zip(_LARGE, large, strict=True):
        row[place] = None if value is None else len(value)
    for place in _BYTES:
        row[place] = row[place].hex()
    row[_KEY] = None  # the name of the value says it
    return Written(orjson.dumps(row), b"".join(value for value in large if value))


def read_line(stored: bytes) -> tuple[Line, int]:
    """And where it ends."""
    end = stored.find(b"\n", 0, 400)
    words = stored[:end].decode("ascii", "replace").split(" ") if end > 0 else []
    try:
        version, born, state, number, pulse, seq, size, small, request_blob, answer_blob = words
        line = Line(
            int(version), born, state, int(number), int(pulse), int(seq), int(size), int(small),
            request_blob, answer_blob,
        )  # fmt: skip
    except ValueError:
        raise DamagedRecord("a row does not begin as one") from None
    return line, end + 1


def read_small(key: bytes, stored: bytes) -> tuple[Line, list[Any], int]:
    """The line, the columns without what is large, and where that begins."""
    line, start = read_line(stored)
    try:
        row = orjson.loads(stored[start : start + line.small])
        row += [None] * (len(CALL_COLUMNS) - len(row))  # columns that came after it was written
        row[_KEY], row[_SEQ] = key, line.seq
        for place in _BYTES:
            row[place] = bytes.fromhex(row[place])
    except (ValueError, IndexError, TypeError) as error:
        raise DamagedRecord(f"call {key.hex()} cannot be read: {error}") from error
    return line, row, start + line.small


def read_call(key: bytes, stored: bytes) -> Call:
    _, row, at = read_small(key, stored)
    for place in _LARGE:
        if row[place] is not None:
            length = row[place]
            row[place] = stored[at : at + length]
            at += length
    if at != len(stored):
        raise DamagedRecord(f"call {key.hex()} is cut off")
    return row_to_call(tuple(row))


class Facts(NamedTuple):
    """What calls are looked for by."""

    tenant: str
    state: str
    upstream: str
    tool: str
    run: str
    rule: str
    expires_at: float | None
    created_at: float


_FACTS = tuple(_AT[name] for name in Facts._fields)


def read_facts(key: bytes, stored: bytes) -> Facts:
    _, row, _ = read_small(key, stored)
    return Facts(*(row[place] for place in _FACTS))


def read_step(key: bytes, stored: bytes) -> Step:
    _, row, _ = read_small(key, stored)
    return row_to_step(tuple(row[place] for place in _STEP))


def write_entry(entry: Entry) -> bytes:
    return orjson.dumps(entry_to_row(entry))


def read_entry(stored: bytes) -> Entry:
    row = orjson.loads(stored)
    if len(row) != len(ENTRY_COLUMNS):
        raise DamagedRecord("a line of history cannot be read")
    return row_to_entry(tuple(row))


# ---- runs ----


def run_id(tenant: str, name: str) -> str:
    """Tenants are free text: the length tells where one ends."""
    return f"{len(tenant)}:{tenant}:{name}"


def write_run(run: Run) -> list[str]:
    """Created, active, state, version, pulse, last place, record: as run_swaps.lua takes them."""
    row = dict(zip(RUN_COLUMNS, run_to_row(run), strict=True))
    return [
        repr(row["created_at"]), repr(row["active_at"]), row["state"], str(row["version"]),
        str(row["pulse"]), str(row["last_seq"]), row["record"],
    ]  # fmt: skip


def read_run(fields: list[bytes]) -> tuple[int, Run]:
    """Its number, and itself."""
    try:
        tenant, name, created_at, active_at, state, version, pulse, last_seq, record, number = (
            field.decode() for field in fields
        )
        run = row_to_run(
            (tenant, name, float(created_at), float(active_at), state, int(version), int(pulse),
             int(last_seq), record)
        )  # fmt: skip
    except (ValueError, KeyError, AttributeError) as error:
        raise DamagedRecord(f"a run cannot be read: {error}") from error
    return int(number), run


def attempt_mark(attempt: str) -> str:
    """What the fields of its exchanges begin with, and no other's."""
    return f"{len(attempt)}:{attempt}:"


def write_serving(served: Serving) -> tuple[str, str, bytes, str]:
    """Run, field, value, time: as serve.lua takes them."""
    exchange = served.exchange
    field = f"{attempt_mark(exchange.attempt)}{served.key.hex()}:{exchange.number}:{exchange.owner}"
    row = list(exchange_to_row(exchange))
    row[_CREDENTIALS] = row[_CREDENTIALS].hex()
    value = orjson.dumps([served.key.hex(), *row])
    return run_id(served.tenant, served.run), field, value, repr(exchange.at)


def read_exchange(value: bytes) -> tuple[bytes, Exchange]:
    key, *row = orjson.loads(value)
    row[_CREDENTIALS] = bytes.fromhex(row[_CREDENTIALS])
    return bytes.fromhex(key), row_to_exchange(tuple(row))


# ---- accounts ----


def account_id(account: Account) -> bytes:
    return orjson.dumps(list(account))


def purse_of(account: Account) -> str:
    """Whose accounts go together: the run's; empty outside runs."""
    return run_id(account.tenant, account.run) if account.run else ""


def write_charge(charge: Charge) -> bytes:
    """As swaps.lua takes it."""
    postings = [
        (p.meter.value, p.bucket, p.amount, p.peak, p.since, False if p.most is None else p.most, p.expires)
        for p in charge.postings
    ]
    return orjson.dumps((account_id(charge.account).decode(), purse_of(charge.account), postings))


def read_spent(held: list[bytes]) -> list[Spent]:
    """Fields and values, as they come."""
    return [spent for spent, _ in read_held(held)]


def read_held(held: list[bytes]) -> list[tuple[Spent, int]]:
    """And when each is past."""
    found = []
    for field, value in zip(held[::2], held[1::2], strict=True):
        meter, bucket = field.decode().split(" ")
        amount, peak, expires = map(int, value.split(b" "))
        found.append((Spent(meter, int(bucket), amount, peak), expires))
    return sorted(found)
