"""Calls with effects: what was prevented, held, lost, refused, and what it cost.

No label says whether a call has effects, so each panel says what it counts. Exact are: duplicates prevented,
doubt, divergences, calls taken over into doubt. The rest is counted by rule, and rules are known to have
effects by `queries.with_effects`.
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
            Section("Money and budgets", money.spent_on_effects()),
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
                "start. They were in doubt from then on, until settled.",
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


def _total(title: str, metric: str, *more: str) -> Column:
    return Column(title, ask.with_effects(ask.busy_total(metric, *more, by=ask.RULE), ask.RANGE))


def _once() -> list[Panel]:
    by_status = ask.rate("semel_calls_total", ask.ONCE, by=f"{ask.RULE}, status")
    refused = ask.rate("semel_calls_total", ask.ONCE, 'status="refused"', by=ask.RULE)
    called = ask.rate("semel_calls_total", ask.ONCE, by=ask.RULE)
    return [
        lines(
            About(
                "Calls of rules with effects",
                "Per second, by what semel did, of rules whose calls do something in the world. The rule "
                "`default` is among them, with the reads that it records inside runs.",
                "Mostly executed; replayed after a crash.",
            ),
            PER_SECOND,
            Query(f"sum by (status) ({ask.with_effects(by_status, ask.RATE)})", "{{status}}"),
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
                "Refused, of rules with effects",
                "The share of these rules' calls that semel answered itself: held, denied, over a budget, "
                "or not reachable.",
                "Near 0. A gap is a time without calls.",
                "The types are below.",
            ),
            SHARE,
            Query(
                ask.share(
                    f"sum({ask.with_effects(refused, ask.RATE)})",
                    f"sum({ask.with_effects(called, ask.RATE)})",
                ),
                "refused",
            ),
            maximum=1,
            width=8,
        ),
        rows(
            About(
                "By upstream and rule",
                "Rules with effects that were called in the time range shown. `default` has reads as well, "
                "those of runs. Lost, 5xx and not sent count exchanges with the upstream.",
                "Executed is what happened in the world; duplicates prevented is what would have happened "
                "twice.",
                "Lost: an `upstream_key` or a `probe` on the rule lets semel settle doubt by itself.",
            ),
            {"upstream": "Upstream", "rule": "Rule"},
            [
                _total("Calls", "semel_calls_total", ask.ONCE),
                _total("Executed", "semel_calls_total", ask.ONCE, 'status="executed"'),
                _total("From the record", "semel_calls_total", ask.ONCE, ask.AGAIN),
                _total("Refused", "semel_calls_total", ask.ONCE, 'status="refused"'),
                Column(
                    "Duplicates prevented",
                    ask.busy_total("semel_duplicates_prevented_total", by=ask.RULE),
                ),
                *(
                    _total(title, "semel_upstream_responses_total", code)._replace(steps=(Step(1, colour),))
                    for title, code, colour in (
                        ("Lost", 'code="lost"', BAD),
                        ("5xx", 'code=~"5.."', WATCH),
                        ("Not sent", 'code="not_sent"', WATCH),
                    )
                ),
                _total("Spent", "semel_spent_usd_total")._replace(unit=DOLLARS, decimals=2, empty="-"),
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
