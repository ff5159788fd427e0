"""Calls with effects: what was prevented, held, lost, refused, and what it cost.

No label says whether a call has effects, so each panel says what it counts. Exact are: duplicates prevented,
doubt, divergences, calls taken over into doubt. Rules of mode `once` hold the rest, and inside runs they
record reads as well.
"""

from __future__ import annotations

from dashboards import doubt, held, money
from dashboards import queries as ask
from dashboards.frame import Plan, Section
from dashboards.panels import (
    BAD,
    CALLS,
    COUNT,
    DOLLARS,
    INBOX,
    NEUTRAL,
    PER_MINUTE,
    PER_SECOND,
    RUNS,
    SHARE,
    WATCH,
    About,
    Column,
    Panel,
    Query,
    Step,
    lines,
    number,
    rows,
)

_MINUTE, _HOUR = 60, 3600


def plan() -> Plan:
    return Plan(
        "effects",
        "semel / Effects",
        "Calls that do something in the world: payments, mails, messages. What was prevented from happening "
        "twice, what is held and why, what was lost on the way, what it cost. Each panel says what it "
        "counts.",
        [
            Section("Now, and in the time range shown", _now()),
            Section("Sent once", _once()),
            Section("Doubt: where it comes from", doubt.comes_from()),
            Section("Held and refused", doubt.held_and_refused()),
            Section("Agents and answers that changed", _changed()),
            Section("Money and budgets", money.spent_by_rule()),
        ],
    )


def _now() -> list[Panel]:
    return [
        held.prevented(),
        held.in_doubt_now(),
        held.oldest_doubt(),
        held.waiting_now(),
        held.oldest_waiting(),
        number(
            About(
                "Denied",
                "Calls in the store that a person has denied; asked for again they are refused until their "
                "`ttl` is over.",
                "Any number: somebody has decided.",
                "Many of one kind: a rule with `mode: deny` asks nobody.",
            ),
            COUNT,
            Query(ask.told("semel_calls_in_state", 'state="denied"'), "denied"),
            base=NEUTRAL,
            steps=[Step(50, WATCH)],
            links=[CALLS],
        ),
        number(
            About(
                "Divergences",
                "Calls with effects that were held because an attempt left its run's record before them.",
                "0.",
                "Look at the run: what changes at every start belongs into the rule's `key`. Then allow the "
                "run to go on.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_divergences_total"), "divergences"),
            steps=[Step(1, WATCH)],
            decimals=0,
            links=[RUNS],
        ),
        number(
            About(
                "Left by dead processes",
                "Calls with effects that a proxy had under way when it died, found by another or by its next "
                "start, and now or since then in doubt.",
                "0 while no proxy dies.",
                "Settle them on the operator's page; find out why the proxy died.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_recovered_total", 'state="in_doubt"'), "taken over"),
            steps=[Step(1, BAD)],
            decimals=0,
            links=[INBOX],
        ),
    ]


def _once() -> list[Panel]:
    return [
        lines(
            About(
                "Calls of rules with mode once",
                "Per second, by what semel did. These rules hold all calls with effects, and inside runs the "
                "recorded reads as well.",
                "Mostly executed; replayed after a crash.",
            ),
            PER_SECOND,
            Query(ask.rate("semel_calls_total", ask.ONCE, by="status"), "{{status}}"),
            stacked=True,
            width=8,
            links=[CALLS],
        ),
        lines(
            About(
                "Duplicates prevented by rule",
                "Calls with effects per minute that were answered without a second send. Reads are not "
                "counted.",
                "Peaks after crashes and restarts.",
                "A steady line is an agent that asks the same again and again: look at its run.",
            ),
            PER_MINUTE,
            Query(
                ask.busy_rate("semel_duplicates_prevented_total", by=ask.RULE, times=_MINUTE),
                "{{upstream}} {{rule}}",
            ),
            stacked=True,
            width=8,
            links=[RUNS],
        ),
        lines(
            About(
                "Refused of rules with mode once or deny",
                "The share of these rules' calls that semel answered itself: held, denied, over a budget, "
                "or not reachable.",
                "Near 0. A gap is a time without calls.",
                "The types are below.",
            ),
            SHARE,
            Query(
                ask.share(
                    ask.rate("semel_calls_total", 'mode=~"once|deny"', 'status="refused"'),
                    ask.rate("semel_calls_total", 'mode=~"once|deny"'),
                ),
                "refused",
            ),
            maximum=1,
            width=8,
        ),
        rows(
            About(
                "By upstream and rule",
                "Rules with mode once that were called in the time range shown. Lost and not sent count the "
                "exchanges with the upstream, of reads as well where a rule has both.",
                "Executed is what happened in the world; duplicates prevented is what would have happened "
                "twice.",
                "Lost: an `upstream_key` or a `probe` on the rule lets semel settle doubt by itself.",
            ),
            {"upstream": "Upstream", "rule": "Rule"},
            [
                Column("Calls", ask.busy_total("semel_calls_total", ask.ONCE, by=ask.RULE)),
                *(
                    Column(title, ask.busy_total("semel_calls_total", ask.ONCE, matcher, by=ask.RULE))
                    for title, matcher in (
                        ("Executed", 'status="executed"'),
                        ("From the record", ask.AGAIN),
                        ("Refused", 'status="refused"'),
                    )
                ),
                Column(
                    "Duplicates prevented", ask.busy_total("semel_duplicates_prevented_total", by=ask.RULE)
                ),
                *(
                    Column(
                        title,
                        ask.of_once_rules(
                            f"({ask.total('semel_upstream_responses_total', matcher, by=ask.RULE)} > 0)"
                        ),
                        steps=(Step(1, colour),),
                    )
                    for title, matcher, colour in (
                        ("Lost", 'code="lost"', BAD),
                        ("5xx", 'code=~"5.."', WATCH),
                        ("Not sent", 'code="not_sent"', WATCH),
                    )
                ),
                Column("Spent", ask.busy_total("semel_spent_usd_total", by=ask.RULE), DOLLARS, 2, "-"),
            ],
            links=[CALLS],
            nothing="no calls",
        ),
    ]


def _changed() -> list[Panel]:
    return [
        lines(
            About(
                "Divergences and suspected polling",
                "Per minute. Divergences are calls with effects, held because the attempt left its record. "
                "Suspected polls are replays of one call, mostly reads, that look like waiting for a change.",
                "0.",
                "Look at the run. What changes at every start belongs into the rule's `key`; what is polled "
                "needs another rule.",
            ),
            PER_MINUTE,
            Query(f"{_MINUTE} * {ask.rate('semel_divergences_total')} or vector(0)", "divergences"),
            Query(
                ask.busy_rate("semel_suspected_polls_total", by=ask.RULE, times=_MINUTE),
                "polls {{upstream}} {{rule}}",
            ),
            links=[RUNS],
        ),
        lines(
            About(
                "Answers that drifted",
                "Answers per minute, of rules with `stale: revalidate`, that were fetched anew and differ "
                "from the recorded ones. These are safe calls, on whose answers agents decide about effects.",
                "Depends on the upstream: news drift, prices drift, documents should not.",
                "Too many: shorten the rule's `max_age`.",
            ),
            PER_MINUTE,
            Query(
                ask.busy_rate("semel_drifts_total", by=ask.RULE, times=_MINUTE),
                "{{upstream}} {{rule}}",
            ),
        ),
    ]
