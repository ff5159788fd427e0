"""The second seam of a store: all that it keeps, as plain records, to be read through and written down again.

Used by `semel store copy` alone. A record has every column as it is, whatever it means; stores differ in how
they keep it, and agree in what they give. A source is only read. What a target has, it keeps: `write` adds
what is not there, and gives back what stands in the way of the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from proxy.errors import ConfigurationError
from proxy.store.base import BlobRef
from proxy.store.codec import CALL_COLUMNS, ENTRY_COLUMNS, Row
from proxy.store.run_codec import EXCHANGE_COLUMNS, RUN_COLUMNS

# A page of records, and no more bytes of sealed values than this: memory stays small whatever is copied.
PORTION = 500
MOST_BYTES = 4 * 1024 * 1024
# Under this name a store says that it is not whole: the copy into it is under way, or was broken off.
MARK = "copying"


class Kind(StrEnum):
    """In the order in which they are copied: what is named comes before what names it."""

    RUNS = "runs"
    EXCHANGES = "exchanges"
    BUDGETS = "budgets"
    BLOBS = "blobs"
    CALLS = "calls"


# ---- records ----

_REAL = frozenset(
    {
        "created_at", "sent_at", "settled_at", "expires_at", "answer_recorded_at", "doubt_since", "born",
        "cost_usd", "at", "active_at",
    }
)  # fmt: skip
_WHOLE = frozenset(
    {
        "seq", "occurrence", "version", "fence", "sends", "answer_status", "answer_size", "doubt_status",
        "record_version", "pulse", "last_seq", "number", "bucket", "amount", "peak", "expires",
    }
)  # fmt: skip
_TRUTH = frozenset({"safe", "unresolved", "final"})
_BYTES = frozenset({"key", "fingerprint", "named_by", "request", "answer_head", "answer_body", "credentials"})
LINE_COLUMNS = ("at", "actor", "event", "why")  # of a run's history


def type_of(column: str) -> type:
    for names, kind in ((_REAL, float), (_WHOLE, int), (_TRUTH, bool), (_BYTES, bytes)):
        if column in names:
            return kind
    return str


class Columns:
    """Values as every store gives them: one has no truth values, another no whole numbers for times."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._as: tuple[Callable[[Any], Any], ...] = tuple(map(type_of, names))

    def of(self, values: Iterable[Any]) -> Row:
        return tuple(
            None if value is None else as_(value) for as_, value in zip(self._as, values, strict=True)
        )


CALL, ENTRY = Columns(CALL_COLUMNS), Columns(ENTRY_COLUMNS)
RUN, LINE, EXCHANGE = Columns(RUN_COLUMNS), Columns(LINE_COLUMNS), Columns(EXCHANGE_COLUMNS)
SPENDING = Columns(("tenant", "run", "upstream", "rule", "meter", "bucket", "amount", "peak", "expires"))
_SEALED = tuple(CALL_COLUMNS.index(name) for name in ("request", "answer_head", "answer_body"))
_ATTEMPT, _NUMBER, _OWNER = (EXCHANGE_COLUMNS.index(name) for name in ("attempt", "number", "owner"))


@dataclass(frozen=True, slots=True)
class CallDump:
    """`row` as the codec has it; `history` in its order. When it was replayed last is for nobody to decide
    by, and not every store keeps it."""

    row: Row
    pulse: int
    history: tuple[Row, ...]
    replays: int
    replayed_at: float = field(default=0.0, compare=False)

    @property
    def key(self) -> bytes:
        key: bytes = self.row[0]
        return key

    @property
    def identity(self) -> object:
        return self.key

    @property
    def told(self) -> str:
        return f"call {self.key.hex()}"

    def facts(self) -> tuple[object, ...]:
        row = list(self.row)
        for place in _SEALED:
            row[place] = _short(row[place])
        return (row, self.pulse, self.history, self.replays)


@dataclass(frozen=True, slots=True)
class RunDump:
    row: Row
    cleared: bool
    history: tuple[Row, ...]

    @property
    def identity(self) -> object:
        return self.row[:2]

    @property
    def told(self) -> str:
        return f"run {self.row[1]} of tenant {self.row[0]}"

    def facts(self) -> tuple[object, ...]:
        return (self.row, self.cleared, self.history)


@dataclass(frozen=True, slots=True)
class ExchangeDump:
    tenant: str
    run: str
    call: bytes
    pulse: int
    row: Row

    @property
    def name(self) -> tuple[str, bytes, int, str]:
        """Within its run."""
        return (self.row[_ATTEMPT], self.call, self.row[_NUMBER], self.row[_OWNER])

    @property
    def identity(self) -> object:
        return (self.tenant, self.run, self.name)

    @property
    def told(self) -> str:
        return f"an exchange of run {self.run} over call {self.call.hex()}"

    def facts(self) -> tuple[object, ...]:
        return (self.tenant, self.run, self.call, self.pulse, self.row)


@dataclass(frozen=True, slots=True)
class BudgetDump:
    """What an account holds in one bucket."""

    row: Row

    @property
    def identity(self) -> object:
        """Account, meter and bucket."""
        return self.row[:6]

    @property
    def told(self) -> str:
        tenant, run, upstream, rule, *_ = self.row
        return f"the budget of rule {rule} of {upstream} ({f'run {run}, ' if run else ''}tenant {tenant})"

    def facts(self) -> tuple[object, ...]:
        return self.row


@dataclass(frozen=True, slots=True)
class BlobDump:
    """Its content was read and fits its name; `size` None: it is lost."""

    digest: str
    size: int | None

    @property
    def identity(self) -> object:
        return self.digest

    @property
    def told(self) -> str:
        return f"body {self.digest}"

    def facts(self) -> tuple[object, ...]:
        return (self.digest, self.size)


Dump: TypeAlias = CallDump | RunDump | ExchangeDump | BudgetDump | BlobDump
# Where the next page begins; only the store that gave it knows what it means. None: at the beginning.
Cursor: TypeAlias = tuple[Any, ...] | None


def _short(value: object) -> object:
    """A long one by its digest: the text of a record is made for every one of them."""
    if isinstance(value, bytes) and len(value) > 64:
        return (len(value), hashlib.blake2b(value, digest_size=32).digest())
    return value


def same(one: Dump, other: Dump) -> bool:
    """By what is written, not by what Python takes for equal: 0.0 is not -0.0, nor 1 true."""
    return repr(one.facts()) == repr(other.facts())


# These have no order of their own: they are found by their names.
_UNORDERED = frozenset({Kind.EXCHANGES, Kind.BUDGETS, Kind.BLOBS})


class Sums:
    """How many there are of each kind, and one digest over all of them. Two stores have the same digest if
    they hold the same records, calls and runs in the same order."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Kind, 0)
        self._sums = dict.fromkeys(Kind, 0)

    def add(self, kind: Kind, dumps: Iterable[Dump]) -> None:
        for dump in dumps:
            self.counts[kind] += 1
            place = 0 if kind in _UNORDERED else self.counts[kind]
            text = repr((place, dump.facts())).encode("utf-8", "surrogatepass")
            self._sums[kind] += int.from_bytes(hashlib.blake2b(text, digest_size=32).digest())
            self._sums[kind] %= 2**256

    @property
    def digest(self) -> str:
        text = repr([(kind.value, self.counts[kind], self._sums[kind]) for kind in Kind])
        return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


# ---- stores ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`unfinished`: of what it is a copy, as people write it; None: it is whole."""

    secret: bytes
    unfinished: str | None
    empty: bool


class Portion(NamedTuple):
    """`after` None: nothing comes after it."""

    dumps: list[Dump]
    after: Cursor


class Written(NamedTuple):
    """`fresh` are new, and durable. `present` is what stands in the place of the others."""

    fresh: int
    present: list[Dump]


class Source(Protocol):
    """Raises StoreUnavailable. Nothing in it is changed."""

    @property
    def shown(self) -> str:
        """For people; never a password."""

    async def standing(self) -> Standing: ...

    async def living(self) -> int:
        """How many processes use it, this one not counted. May take as long as an owner may be silent."""

    async def tide(self) -> object:
        """Equal to an earlier one: nobody has changed anything in between."""

    async def totals(self) -> dict[Kind, int]:
        """About how many there are, for people who wait."""

    async def read(self, kind: Kind, after: Cursor) -> Portion:
        """Runs and calls in the order of first sight. Not for blobs."""

    async def blob_names(self, after: str) -> list[str]:
        """Digests that calls name, from there on, in an order of the store's own; at most PORTION."""

    async def blob_size(self, digest: str) -> int | None: ...

    def read_blob(self, ref: BlobRef) -> AsyncIterator[bytes]:
        """Raises BlobLost, at the latest in place of the last chunk."""

    async def close(self) -> None: ...


class Target(Source, Protocol):
    """Everything is durable when it returns."""

    async def begin(self, origin: str) -> None:
        """From now on it is not whole: nobody opens it to work with it."""

    async def adopt(self, secret: bytes) -> None: ...

    async def write(self, kind: Kind, dumps: Sequence[Dump]) -> Written:
        """All or none of the new ones; nothing that is there is touched. Not for blobs."""

    async def put_blob(self, chunks: Iterable[bytes]) -> BlobRef: ...

    async def finish(self) -> None:
        """It is whole."""


def portions(sizes: Iterable[tuple[Any, int]]) -> list[Any]:
    """Of what comes with its size, as much as a page may hold; at least one."""
    found: list[Any] = []
    total = 0
    for name, size in sizes:
        total += size
        if found and total > MOST_BYTES:
            break
        found.append(name)
    return found


def not_whole(shown: str, origin: str) -> ConfigurationError:
    """Told to everybody but the copy that goes on with it."""
    return ConfigurationError(
        f"{shown} is an unfinished copy of {origin}: calls are missing in it, and would be made again. Run "
        "`semel store copy FROM TO` again until it says that all is copied; it goes on where it was."
    )
