"""Shadow mode: calls that semel only looked on at, by what it would have done. A row of the overview."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.panels import (
    COUNT,
    DOLLARS,
    GOOD,
    NEUTRAL,
    PER_MINUTE,
    PER_SECOND,
    About,
    Column,
    Panel,
    Query,
    Step,
    lines,
    number,
    rows,
)


def looked_on() -> list[Panel]:
    return [
        number(
            About(
                "Duplicates that would have been prevented",
                "Calls with effects of shadowed rules that were sent, and would have been answered without a "
                "second send.",
                "Any number; above 0 these were effects that happened twice.",
                "Take `shadow: true` off the rule to prevent them.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_shadow_duplicates_prevented_total"), "would have been prevented"),
            base=NEUTRAL,
            steps=[Step(1, GOOD)],
            decimals=0,
            width=4,
            height=8,
        ),
        number(
            About(
                "Would have been saved",
                "What answers cost that would have been given again; of shadowed rules with a `cost`.",
                "Any number.",
            ),
            DOLLARS,
            Query(ask.total_or_zero("semel_shadow_saved_usd_total"), "would have been saved"),
            base=NEUTRAL,
            steps=[Step(0.005, GOOD)],
            decimals=2,
            width=4,
            height=8,
        ),
        lines(
            About(
                "Looked on at, by what semel would have done",
                "Calls of shadowed rules per second. All of them were forwarded.",
                "Mostly executed. Nothing is drawn while no rule is shadowed.",
            ),
            PER_SECOND,
            Query(ask.busy_rate("semel_shadow_calls_total", by="would"), "{{would}}"),
            stacked=True,
            width=8,
        ),
        lines(
            About(
                "What semel would have answered itself",
                "Problems per minute that callers of shadowed rules would have been given.",
                "Few.",
                "Each is a call that would have been held or refused: read the log's `shadow` lines before "
                "the rule is put in force.",
            ),
            PER_MINUTE,
            Query(ask.busy_rate("semel_shadow_problems_total", by="type", times=60), "{{type}}"),
            width=8,
        ),
        rows(
            About(
                "Shadowed rules",
                "What would have been, in the time range shown, by upstream and rule.",
                "Empty while no rule is shadowed.",
            ),
            {"upstream": "Upstream", "rule": "Rule"},
            [
                Column(title, ask.busy_total(metric, by=ask.RULE), unit, decimals)
                for title, metric, unit, decimals in (
                    ("Looked on at", "semel_shadow_calls_total", COUNT, 0),
                    ("Duplicates", "semel_shadow_duplicates_prevented_total", COUNT, 0),
                    ("Saved", "semel_shadow_saved_usd_total", DOLLARS, 2),
                )
            ],
            height=8,
            nothing="no shadowed calls",
        ),
    ]
