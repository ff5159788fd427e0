"""Numbers as Grafana writes them: three digits that count, the unit scaled to the number.

A unit is by Grafana's name. One that the dashboards do not use is not known here, and that is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Scale(NamedTuple):
    """From this value on, the number is divided by `by` and has this behind it."""

    start: float
    by: float
    behind: str


class Unit(NamedTuple):
    scales: Sequence[Scale]
    before: str = ""
    behind: str = ""
    grouped: bool = False  # thousands apart
    nice: Sequence[float] = ()  # between two lines of an axis, where 1, 2 and 5 are not what people count in


_THOUSANDS = [Scale(0, 1, ""), Scale(1e3, 1e3, " K"), Scale(1e6, 1e6, " Mil"), Scale(1e9, 1e9, " Bil")]
_BINARY = [Scale(0, 1, " B")] + [
    Scale(1024.0**power, 1024.0**power, f" {name}")
    for power, name in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)
]
_TIME = [
    Scale(0, 1e-9, " ns"),
    Scale(1e-6, 1e-6, " µs"),
    Scale(1e-3, 1e-3, " ms"),
    Scale(1, 1, " s"),
    Scale(60, 60, " mins"),
    Scale(3600, 3600, " hours"),
    Scale(86400, 86400, " days"),
]
_POWERS_OF_TWO = tuple(2.0**power for power in range(45))
_WHOLE = tuple(size * 10.0**power for power in range(12) for size in (1, 2, 5))
_CLOCK = (15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800)

UNITS = {
    "locale": Unit([Scale(0, 1, "")], nice=_WHOLE, grouped=True),
    "string": Unit(_THOUSANDS),
    "reqps": Unit(_THOUSANDS, behind=" req/s"),
    "ops": Unit(_THOUSANDS, behind=" ops/s"),
    "cpm": Unit(_THOUSANDS, behind=" c/m"),
    "percentunit": Unit([Scale(0, 0.01, "%")]),
    "currencyUSD": Unit(_THOUSANDS, before="$"),
    "s": Unit(_TIME, nice=_CLOCK),
    "bytes": Unit(_BINARY, nice=_POWERS_OF_TWO),
    "binBps": Unit(_BINARY, behind="/s", nice=_POWERS_OF_TWO),
}
_SINGULAR = {" mins": " min", " hours": " hour", " days": " day"}


def _decimals(value: float) -> int:
    """Three digits that count; a whole number has none behind the point."""
    if value == 0 or value.is_integer():
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def shown(value: float, unit: str, decimals: int | None = None, *, tidy: bool = False) -> str:
    """`tidy`: as at an axis, without zeros at the end."""
    known = UNITS[unit]
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    smallest, *larger = known.scales
    chosen = smallest
    if value != 0:
        for scale in larger:
            # 999.96 with one decimal would be shown as 1000.0: it is the next unit's
            chosen = scale if abs(value) >= scale.start * (1 - 1e-9) else chosen
    elif smallest.by < 1 and len(known.scales) > 1:  # 0 s, not 0 ns
        chosen = next(scale for scale in larger if scale.by == 1)
    number = value / chosen.by
    text = f"{number:,.{_decimals(round(number, 9)) if decimals is None else decimals}f}"
    text = text if known.grouped else text.replace(",", "")
    if tidy and "." in text:
        text = text.rstrip("0").rstrip(".")
    behind = _SINGULAR.get(chosen.behind, chosen.behind) if text == "1" else chosen.behind
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    return f"{sign}{known.before}{text}{behind}{known.behind}"


def lines_of_an_axis(largest: float, unit: str, most: int) -> list[float]:
    """From 0 to the first one at or above `largest`: at most `most` steps of a size that people count in."""
    nice = [size for size in UNITS[unit].nice if largest / size <= most]
    if nice and largest >= nice[0]:
        step = float(nice[0])
    else:
        magnitude = 10.0 ** math.floor(math.log10(largest / most))
        step = next(
            size * magnitude for size in (1, 2, 2.5, 5, 10, 20) if largest / (size * magnitude) <= most
        )
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]
