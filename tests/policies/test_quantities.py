"""Durations, sizes, money, rates."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.quantities import (
    parse_allowance,
    parse_duration,
    parse_money,
    parse_rate,
    parse_size,
    show_duration,
    show_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("24h", 86400.0), ("30d", 2592000.0), ("0s", 0.0)],
)
def test_durations_of_the_contract(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 s", "1.5h", "-1s", "5S", "1h30m", "٣s", "9" * 20, "3651d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|too long"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("0B", 0), ("64KiB", 65536), ("10MiB", 10 << 20), ("1GiB", 1 << 30)]
)
def test_sizes_of_the_contract(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "hint"), [("10MB", "10MiB"), ("64k", "64KiB"), ("1g", "1GiB"), ("512", "512B"), ("x", "64KiB")]
)
def test_what_is_no_size_gets_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_size(text)


def test_money_is_exact() -> None:
    assert sum([parse_money("0.10")] * 10) == Decimal(1)
    for text in ("1e3", "-1", "$5", "1,5", ".5", "0.1234567", "nan"):
        with pytest.raises(ValueError, match="not an amount of money"):
            parse_money(text)


def test_rates() -> None:
    assert parse_rate("100/1h") == (100, 3600.0)
    for text in ("100", "0/1h", "5/0s", "/1h", "5/hour"):
        with pytest.raises(ValueError):
            parse_rate(text)


@given(st.integers(0, 10**9))
def test_what_is_shown_reads_back(count: int) -> None:
    """Milliseconds and bytes alike."""
    assert round(parse_duration(show_duration(count / 1000)) * 1000) == count
    assert parse_size(show_size(count)) == count


def test_money_for_a_time() -> None:
    """With and without one; neither side may be nothing."""
    assert parse_allowance("5.00") == (Decimal(5), None)
    assert parse_allowance("0.000001/24h") == (Decimal("0.000001"), 86400.0)
    for text in ("0", "0.00/1h", "5/0s", "5/", "/1h", "5/1h/1h", "5 /1h", "5/1", "-5"):
        with pytest.raises(ValueError, match=r"\S"):
            parse_allowance(text)
