"""How large the store is, what makes it grow, what goes: a row of the store's dashboard."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.panels import BYTES, BYTES_PER_SECOND, PER_MINUTE, About, Panel, Query, lines

_MINUTE, _DAY = 60, 86400
_GROWTH_WINDOW = "30m"


def over_time() -> list[Panel]:
    return [
        lines(
            About(
                "Size by part",
                "rows are the calls and runs, blobs the larger bodies, cache the shared answers, unused is "
                "room that the next rows take. Not every store tells its parts.",
                "Level, once retention takes as much as calls bring.",
                "blobs that grow: large answers are kept. unused that grows: much was collected.",
            ),
            BYTES,
            Query(ask.told("semel_store_part_bytes", by="part"), "{{part}}"),
            stacked=True,
            width=8,
        ),
        lines(
            About(
                "Size and growth",
                "The whole size, and what it gains in a day at the pace of the half hour before.",
                "Growth follows the work, and is 0 while collecting gives room back.",
            ),
            BYTES,
            Query(ask.told("semel_store_bytes"), "size"),
            Query(
                f"{_DAY} * clamp_min(max(deriv({ask.of('semel_store_bytes')}[{_GROWTH_WINDOW}])), 0)",
                "growth per day",
            ),
            width=8,
        ),
        lines(
            About(
                "Shared answers evicted",
                "Answers of `cache` rules per minute that had to go before their time, because the cache was "
                "full. What is recorded for runs and effects is never evicted.",
                "0, or few.",
                "Many: shorter `ttl`, or fewer cached answers.",
            ),
            PER_MINUTE,
            Query(
                f"{_MINUTE} * {ask.rate('semel_cache_evictions_total')}",
                "evicted",
            ),
            width=8,
        ),
        lines(
            About(
                "Collected",
                "Calls, runs and blobs per minute that were past their time and are gone.",
                "A peak every hour, by `gc.every`.",
                "None for a day while the store grows: look at the log for what collecting says.",
            ),
            PER_MINUTE,
            Query(f"{_MINUTE} * {ask.rate('semel_collected_total', by='what')}", "{{what}}"),
        ),
        lines(
            About(
                "Collected bytes",
                "Content per second that collecting has removed.",
                "Over a day about as much as the store gains.",
            ),
            BYTES_PER_SECOND,
            Query(f"{ask.rate('semel_collected_bytes_total')} or vector(0)", "collected"),
        ),
    ]
