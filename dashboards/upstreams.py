"""What semel answered itself, and what upstreams and rules had to do: rows of the overview."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.panels import (
    BAD,
    CALLS,
    DOLLARS,
    INBOX,
    PER_MINUTE,
    PER_SECOND,
    RUNS,
    SECONDS,
    WATCH,
    About,
    Column,
    Panel,
    Query,
    Step,
    lines,
    rows,
)

_MINUTE = 60


def own_answers() -> list[Panel]:
    return [
        lines(
            About(
                "semel's own answers by type",
                "Problems per minute: what semel answered itself instead of an upstream. The type is the "
                "last word of the problem's `type`.",
                "Few. in-doubt and awaiting-approval repeat while an agent asks again.",
                "store-unavailable or internal-error: look at the log. Others: troubleshooting has each type "
                "with its cause and its cure.",
            ),
            PER_MINUTE,
            Query(ask.busy_rate("semel_problems_total", by="type", times=_MINUTE), "{{type}}"),
            links=[INBOX],
        ),
        rows(
            About(
                "semel's own answers in total",
                "How many of each type in the time range shown.",
                "Few, or none.",
            ),
            {"type": "Type"},
            [Column("Answers", ask.busy_total("semel_problems_total", by="type"))],
            width=6,
            height=8,
            nothing="none",
        ),
        lines(
            About(
                "Agents that behave unexpectedly",
                "Divergences: calls held because an attempt left its run's record. Suspected polls: one call "
                "replayed so often that the agent seems to wait for a change that a replay cannot show. Both "
                "per minute.",
                "0.",
                "Divergence: look at the run, then allow it or mend the rule's `key`. Polling: give the rule "
                "`repeat: ordinal`, or let it pass.",
            ),
            PER_MINUTE,
            Query(f"{_MINUTE} * {ask.rate('semel_divergences_total')} or vector(0)", "divergences"),
            Query(f"{_MINUTE} * {ask.rate('semel_suspected_polls_total')} or vector(0)", "suspected polls"),
            width=6,
            links=[RUNS],
        ),
    ]


def by_rule() -> list[Panel]:
    return [
        rows(
            About(
                "By upstream and rule",
                "What was called in the time range shown. Calls matched by no rule are `default`, hosts that "
                "no policy names are `unlisted`.",
                "Answered from the record and duplicates prevented differ: reads are given again, too.",
                "Lost is where doubt comes from: an `upstream_key` or a `probe` on that rule lets semel "
                "settle it by itself.",
            ),
            {"upstream": "Upstream", "rule": "Rule"},
            [
                Column("Calls", ask.busy_total("semel_calls_total", by=ask.RULE)),
                Column("From the record", ask.busy_total("semel_calls_total", ask.AGAIN, by=ask.RULE)),
                Column(
                    "Duplicates prevented", ask.busy_total("semel_duplicates_prevented_total", by=ask.RULE)
                ),
                Column(
                    "Lost",
                    ask.busy_total("semel_upstream_responses_total", 'code="lost"', by=ask.RULE),
                    steps=(Step(1, BAD),),
                ),
                Column("Saved", ask.busy_total("semel_saved_usd_total", by=ask.RULE), DOLLARS, 2, "-"),
                Column("Spent", ask.busy_total("semel_spent_usd_total", by=ask.RULE), DOLLARS, 2, "-"),
                Column(
                    "Upstream p99",
                    ask.quantile(0.99, "semel_upstream_seconds", by=ask.RULE, window=ask.RANGE),
                    SECONDS,
                    2,
                    "-",
                ),
                Column(
                    "Suspected polls",
                    ask.busy_total("semel_suspected_polls_total", by=ask.RULE),
                    steps=(Step(1, WATCH),),
                ),
            ],
            links=[CALLS],
            nothing="no calls",
        ),
        lines(
            About(
                "What upstreams answered",
                "Answers per second by HTTP status. lost: sent, and no whole answer came back. not_sent: "
                "proven that nothing was sent.",
                "Mostly 2xx.",
                "5xx and lost of calls with effects become doubt. not_sent: the upstream cannot be reached.",
            ),
            PER_SECOND,
            Query(ask.busy_rate("semel_upstream_responses_total", by="code"), "{{code}}"),
            stacked=True,
        ),
        lines(
            About(
                "Upstream time by upstream, p99",
                "One exchange with an upstream, from connecting to the answer's end, with a second try where "
                "that is allowed.",
                "Models take seconds, other APIs less.",
                "Slower than usual: the upstream's status page, then the network.",
            ),
            SECONDS,
            Query(ask.quantile(0.99, "semel_upstream_seconds", by="upstream"), "{{upstream}}"),
            logarithmic=0.001,
        ),
    ]
