"""What calls cost, and what answers that were given again had cost; of rules with a `cost`."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.panels import (
    COUNT,
    DOLLARS,
    GOOD,
    NEUTRAL,
    RUNS,
    SHARE,
    WATCH,
    About,
    Panel,
    Query,
    Step,
    lines,
    number,
)

_HOUR = 3600
_SAVED, _SPENT = ask.total("semel_saved_usd_total"), ask.total("semel_spent_usd_total")


def _spent(about: About, dollars: str) -> Panel:
    return number(
        about,
        DOLLARS,
        Query(dollars, "spent"),
        base=NEUTRAL,
        steps=[Step(1000, WATCH)],
        decimals=2,
        width=4,
        height=8,
    )


def saved_and_spent() -> list[Panel]:
    return [
        lines(
            About(
                "Saved and spent per hour",
                "What calls cost that were executed, and what answers had cost that were given again; of "
                "rules with a `cost`.",
                "Spent follows the work that is done; saved follows crashes and shared answers.",
                "Spent that runs away: give the rule a `budget`.",
            ),
            DOLLARS,
            Query(f"{_HOUR} * {ask.rate('semel_spent_usd_total')} or vector(0)", "spent"),
            Query(f"{_HOUR} * {ask.rate('semel_saved_usd_total')} or vector(0)", "saved"),
            width=16,
        ),
        _spent(
            About(
                "Spent",
                "What executed calls cost. Only rules with a `cost` are counted.",
                "What you expect for the work done.",
                "More: the table of upstreams and rules below says where; a `budget` on a rule stops it.",
            ),
            f"{_SPENT} or vector(0)",
        ),
        number(
            About(
                "Saved of what it would have cost",
                "Saved, as a share of saved and spent together.",
                "Near 0 while nothing crashes and nothing is shared.",
            ),
            SHARE,
            Query(ask.share(_SAVED, f"({_SAVED} + {_SPENT})"), "saved"),
            base=NEUTRAL,
            steps=[Step(0.001, GOOD)],
            without="no costs",
            decimals=1,
            width=4,
            height=8,
        ),
    ]


def spent_on_effects() -> list[Panel]:
    spent = ask.with_effects(ask.total("semel_spent_usd_total", by=ask.RULE), ask.RANGE)
    return [
        lines(
            About(
                "Spent on effects per hour",
                "What executed calls cost, of rules with effects and a `cost`. Reads and models are left "
                "out: the overview has all that was spent.",
                "What you expect for the work done.",
                "A rule that runs away: give it a `budget`.",
            ),
            DOLLARS,
            Query(
                ask.with_effects(ask.busy_rate("semel_spent_usd_total", by=ask.RULE, times=_HOUR), ask.RATE),
                "{{upstream}} {{rule}}",
            ),
            stacked=True,
            width=16,
        ),
        _spent(
            About(
                "Spent on effects",
                "What executed calls of rules with effects cost. Only rules with a `cost` are counted.",
                "What you expect for the work done.",
            ),
            f"sum({spent}) or vector(0)",
        ),
        number(
            About(
                "Stopped by a budget",
                "Calls that were refused because a budget was used up; nothing was sent.",
                "0.",
                "Raise the rule's `budget`, or look at what the agent does.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_problems_total", 'type="budget-exceeded"'), "stopped"),
            steps=[Step(1, WATCH)],
            decimals=0,
            width=4,
            height=8,
            links=[RUNS],
        ),
    ]
