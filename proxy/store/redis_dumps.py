"""Records of a copy as Redis keeps them: read from its values, and as the scripts of a copy take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from proxy.core.budget import FOR_GOOD, Account
from proxy.core.intent import SETTLED_STATES, State
from proxy.store.archive import (
    CALL,
    ENTRY,
    EXCHANGE,
    RUN,
    BudgetDump,
    CallDump,
    ExchangeDump,
    Kind,
    RunDump,
)
from proxy.store.codec import CALL_COLUMNS, DamagedRecord, Row
from proxy.store.redis_pipe import unavailable
from proxy.store.redis_rows import account_id, attempt_mark, purse_of, read_held, read_small, run_id
from proxy.store.redis_wire import Part
from proxy.store.run_codec import EXCHANGE_COLUMNS

_AT = {name: place for place, name in enumerate(CALL_COLUMNS)}
_LARGE = tuple(_AT[name] for name in ("request", "answer_head", "answer_body"))
_HEX = tuple(_AT[name] for name in ("fingerprint", "named_by"))
_CREDENTIALS = EXCHANGE_COLUMNS.index("credentials")


def call_of(key: bytes, stored: bytes, replays: int, lines: Sequence[bytes]) -> CallDump:
    try:
        line, row, at = read_small(key, stored)
    except DamagedRecord as error:
        raise unavailable(f"call {key.hex()} is damaged: {error}") from error
    for place in _LARGE:
        if row[place] is not None:
            length = row[place]
            row[place] = stored[at : at + length]
            at += length
    if at != len(stored):
        raise unavailable(f"call {key.hex()} is damaged: it is cut off")
    history = tuple(ENTRY.of(orjson.loads(entry)) for entry in lines)
    return CallDump(CALL.of(row), line.pulse, history, replays)


def exchange_of(tenant: str, run: str, stored: bytes, pulse: int) -> ExchangeDump:
    key, *row = orjson.loads(stored)
    row[_CREDENTIALS] = bytes.fromhex(row[_CREDENTIALS])
    return ExchangeDump(tenant, run, bytes.fromhex(key), pulse, EXCHANGE.of(row))


def buckets_of(account: bytes, held: list[bytes]) -> list[BudgetDump]:
    """Of an account, by its name."""
    owner = orjson.loads(account)
    return [BudgetDump((*owner, *spent, expires)) for spent, expires in read_held(held)]


def field_of(dump: ExchangeDump) -> str:
    attempt, call, number, owner = dump.name
    return f"{attempt_mark(attempt)}{call.hex()}:{number}:{owner}"


# ---- as the scripts take them ----


def _call_words(dump: CallDump) -> list[Part]:
    of = dict(zip(CALL_COLUMNS, dump.row, strict=True))
    row: list[Any] = list(dump.row)
    large = [row[place] for place in _LARGE]
    for place, value in zip(_LARGE, large, strict=True):
        row[place] = None if value is None else len(value)
    for place in _HEX:
        row[place] = row[place].hex()
    row[_AT["key"]] = None  # the name of the value says it
    settled = State(of["state"]) in SETTLED_STATES and not of["run"]
    expires = of["expires_at"] if settled else None
    return [
        dump.key, of["version"], repr(of["born"]), of["state"], dump.pulse, of["seq"],
        sum(len(value or b"") for value in large), orjson.dumps(row), b"".join(v or b"" for v in large),
        "" if expires is None else repr(expires),
        "" if of["doubt_since"] is None else repr(of["doubt_since"]), of["request_blob"] or "-",
        of["answer_blob"] or "-", run_id(of["tenant"], of["run"]) if of["run"] else "", of["owner"],
        dump.replays, len(dump.history), *(orjson.dumps(line) for line in dump.history),
    ]  # fmt: skip


def _run_words(dump: RunDump) -> list[Part]:
    of = dict(zip(RUN.names, dump.row, strict=True))
    tenant, name = of["tenant"], of["name"]
    origin = orjson.loads(of["record"]).get("origin") or name
    return [
        run_id(tenant, name), tenant, name, run_id(tenant, origin), repr(of["created_at"]),
        repr(of["active_at"]), of["state"], of["version"], of["pulse"], of["last_seq"], of["record"],
        int(dump.cleared), len(dump.history), *(orjson.dumps(line) for line in dump.history),
    ]  # fmt: skip


def _exchange_words(dump: ExchangeDump) -> list[Part]:
    row: Row = tuple(v.hex() if n == _CREDENTIALS else v for n, v in enumerate(dump.row))
    return [run_id(dump.tenant, dump.run), field_of(dump), orjson.dumps([dump.call.hex(), *row]), dump.pulse]


def _bucket_words(dump: BudgetDump) -> list[Part]:
    account, (meter, bucket, amount, peak, expires) = Account(*dump.row[:4]), dump.row[4:]
    past = "" if expires == FOR_GOOD else expires
    return [account_id(account), purse_of(account), f"{meter} {bucket}", f"{amount} {peak} {expires}", past]


WRITERS: dict[Kind, tuple[str, Callable[[Any], list[Part]]]] = {
    Kind.RUNS: ("copy_runs", _run_words),
    Kind.EXCHANGES: ("copy_exchanges", _exchange_words),
    Kind.BUDGETS: ("copy_spending", _bucket_words),
    Kind.CALLS: ("copy_calls", _call_words),
}
