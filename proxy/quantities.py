"""Durations, sizes, money and rates as people write them, read exactly.

A quantity without its unit is refused, never guessed. Every function raises ValueError with a sentence
that shows what to write instead.
"""

from __future__ import annotations

import re
from decimal import Decimal

# In seconds. The order matters to `show_duration`: it takes the first unit that divides evenly.
DURATION_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
SIZE_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}

# Nothing here is kept longer than this. The bound also keeps deadlines far away from overflow.
LONGEST_DURATION = 3650 * 86400.0
LARGEST_SIZE = 1 << 50

_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]{1,16})(B|KiB|MiB|GiB)")
_DECIMAL_SIZE = re.compile(r"([0-9]{1,16}) ?([KMG])i?B?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,12}")
_MONEY = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_RATE = re.compile(r"([0-9]{1,9})/([0-9a-z]+)")

# What a message repeats of a value is cut, so that a pasted file does not become an error message.
_LONGEST_QUOTE = 40


def quoted(text: str) -> str:
    """`text` for a message: quoted, escaped, not too long."""
    return repr(text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…")


def parse_duration(text: str) -> float:
    """`500ms`, `30s`, `15m`, `24h`, `30d` -> seconds."""
    found = _DURATION.fullmatch(text)
    if not found:
        if _NUMBER.fullmatch(text):
            raise ValueError(f"{text} has no unit: did you mean {text}s?")
        raise ValueError(
            f"{quoted(text)} is not a duration: a whole number and a unit, as 500ms, 30s, 15m, 24h, 30d"
        )
    seconds = int(found[1]) * DURATION_UNITS[found[2]]
    if seconds > LONGEST_DURATION:
        raise ValueError(f"{text} is too long: at most {show_duration(LONGEST_DURATION)}")
    return seconds


def show_duration(seconds: float) -> str:
    """The shortest spelling that `parse_duration` reads back to the same value."""
    milliseconds = round(seconds * 1000)
    for unit, worth in DURATION_UNITS.items():
        count, rest = divmod(milliseconds, round(worth * 1000))
        if not rest and (count or unit == "s"):
            return f"{count}{unit}"
    return f"{milliseconds}ms"


def parse_size(text: str) -> int:
    """`64KiB`, `10MiB` -> bytes."""
    found = _SIZE.fullmatch(text)
    if not found:
        if _NUMBER.fullmatch(text):
            raise ValueError(f"{text} has no unit: did you mean {text}B, {text}KiB or {text}MiB?")
        if near := _DECIMAL_SIZE.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not a size: did you mean {near[1]}{near[2].upper()}iB?")
        raise ValueError(
            f"{quoted(text)} is not a size: a whole number and a unit, as 512B, 64KiB, 10MiB, 1GiB"
        )
    size = int(found[1]) * SIZE_UNITS[found[2]]
    if size > LARGEST_SIZE:
        raise ValueError(f"{text} is too large: at most {show_size(LARGEST_SIZE)}")
    return size


def show_size(size: int) -> str:
    for unit, worth in SIZE_UNITS.items():
        if size and size % worth == 0:
            return f"{size // worth}{unit}"
    return f"{size}B"


def parse_money(text: str) -> Decimal:
    """`5.00` -> exact dollars. Floats would make a budget of ten times 0.10 not quite 1."""
    if not _MONEY.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} is not an amount of money: digits with up to six decimals, as 0.10 or 5.00"
        )
    return Decimal(text)


def parse_allowance(text: str) -> tuple[Decimal, float | None]:
    """`5.00` -> (5.00, None), `5.00/1h` -> (5.00, 3600.0)."""
    amount, slash, time = text.partition("/")
    usd, period = parse_money(amount), parse_duration(time) if slash else None
    if not usd or period == 0:
        raise ValueError(f"{quoted(text)} allows nothing: write an amount over zero, as 5.00 or 5.00/1h")
    return usd, period


def parse_rate(text: str) -> tuple[int, float]:
    """`100/1h` -> (100, 3600.0)."""
    found = _RATE.fullmatch(text)
    if not found:
        raise ValueError(f"{quoted(text)} is not a rate: a whole number, / and a duration, as 100/1h")
    count, period = int(found[1]), parse_duration(found[2])
    if not count or not period:
        raise ValueError(f"{quoted(text)} allows nothing: both sides of / are over zero")
    return count, period
