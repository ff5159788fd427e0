"""The first look: what semel does, what it is worth, what it costs in time, whether a person is needed."""

from __future__ import annotations

from dashboards import held, money, policies, upstreams
from dashboards import queries as ask
from dashboards.frame import Plan, Section
from dashboards.panels import (
    BAD,
    CALLS,
    COUNT,
    DOLLARS,
    GOOD,
    NEUTRAL,
    PER_MINUTE,
    PER_SECOND,
    RUNS,
    SECONDS,
    SHARE,
    About,
    Panel,
    Query,
    Step,
    lines,
    number,
)
from dashboards.shadow import looked_on

_MINUTE, _HOUR = 60, 3600
_ALL, _AGAIN = ask.total("semel_calls_total"), ask.total("semel_calls_total", ask.AGAIN)
_SAVED, _SPENT = ask.total("semel_saved_usd_total"), ask.total("semel_spent_usd_total")


def plan() -> Plan:
    return Plan(
        "overview",
        "semel / Overview",
        "What semel does with the calls of agents, what that is worth, what it costs in time, and whether a "
        "person is needed. Totals are over the time range shown.",
        [
            Section("The promise", _promise()),
            Section("Calls", _calls()),
            Section("Money", money.saved_and_spent()),
            Section("Time", _time()),
            Section("Held for a person", held.over_time()),
            Section("semel's own answers", upstreams.own_answers()),
            Section("Upstreams and rules", upstreams.by_rule()),
            Section("Policies and versions", policies.in_force()),
            Section("Shadow mode", looked_on(), collapsed=True),
        ],
    )


def _promise() -> list[Panel]:
    return [
        held.prevented(),
        number(
            About(
                "Answered from the record",
                "The share of all calls that was replayed or joined, and not sent.",
                "Near 0 while every agent finishes at its first start; high after crashes, and where answers "
                "are shared.",
                "A rise without crashes: look at suspected polling below.",
            ),
            SHARE,
            Query(ask.share(_AGAIN, _ALL), "from the record"),
            base=NEUTRAL,
            steps=[Step(0.001, GOOD)],
            without="no calls",
            decimals=1,
        ),
        number(
            About(
                "Saved",
                "What the answers that were given again had cost. Only rules with a `cost` are counted.",
                "Any number. 0 where no rule says what a call costs.",
            ),
            DOLLARS,
            Query(f"{_SAVED} or vector(0)", "saved"),
            base=NEUTRAL,
            steps=[Step(0.005, GOOD)],
            decimals=2,
        ),
        held.in_doubt_now(),
        held.oldest_doubt(),
        held.waiting_now(),
        held.oldest_waiting(),
        number(
            About(
                "Proxies alive",
                "Proxies that answered Prometheus when it last asked.",
                "As many as you started.",
                "Fewer: look at the proxies' logs and at Prometheus's targets. None: nothing else on this "
                "page can be believed.",
            ),
            COUNT,
            Query(f"count({ask.of('semel_build_info')}) or vector(0)", "proxies"),
            base=BAD,
            steps=[Step(1, GOOD)],
        ),
    ]


def _calls() -> list[Panel]:
    return [
        lines(
            About(
                "Calls by what semel did",
                "executed went upstream now, replayed came from the record, joined waited for the same call "
                "under way, passed was forwarded without a record, refused was answered by semel itself.",
                "Mostly executed; replayed after a crash.",
                "refused that grows: see semel's own answers below.",
            ),
            PER_SECOND,
            Query(ask.rate("semel_calls_total", by="status"), "{{status}}"),
            stacked=True,
            links=[CALLS],
        ),
        lines(
            About(
                "Answered from the record over time",
                "The share of calls that was replayed or joined, and not sent.",
                "Peaks after crashes and restarts. A gap is a time without calls.",
            ),
            SHARE,
            Query(
                ask.share(ask.rate("semel_calls_total", ask.AGAIN), ask.rate("semel_calls_total")),
                "from the record",
            ),
            maximum=1,
            width=6,
        ),
        lines(
            About(
                "Duplicates prevented by upstream",
                "Calls with effects per minute that were answered without a second send.",
                "Peaks after crashes and restarts. A steady line is an agent that asks the same again and "
                "again: look at its run.",
            ),
            PER_MINUTE,
            Query(
                ask.busy_rate("semel_duplicates_prevented_total", by="upstream", times=_MINUTE),
                "{{upstream}}",
            ),
            stacked=True,
            width=6,
            links=[RUNS],
        ),
    ]


def _time() -> list[Panel]:
    return [
        lines(
            About(
                "Added by semel, against the upstream's own time",
                "Of executed and passed calls: what semel added, and what the exchange with the upstream "
                "took. The scale is logarithmic.",
                "Added is a few milliseconds (two durable commits), far below the upstream.",
                "Added that nears the upstream: look at commits on the store's dashboard, then at the "
                "machine's processor.",
            ),
            SECONDS,
            Query(ask.quantile(0.5, "semel_added_seconds"), "added p50"),
            Query(ask.quantile(0.99, "semel_added_seconds"), "added p99"),
            Query(ask.quantile(0.5, "semel_upstream_seconds"), "upstream p50"),
            Query(ask.quantile(0.99, "semel_upstream_seconds"), "upstream p99"),
            logarithmic=0.001,
        ),
        lines(
            About(
                "Replays",
                "From the request's head to the reply's end, of calls answered from the record. One that "
                "waited for the same call of another process is among them.",
                "About a millisecond; the p99 more, where several processes are asked the same at once.",
                "Slower: look at reads on the store's dashboard. Large answers take as long as the client "
                "reads.",
            ),
            SECONDS,
            Query(ask.quantile(0.5, "semel_call_seconds", 'status="replayed"'), "p50"),
            Query(ask.quantile(0.99, "semel_call_seconds", 'status="replayed"'), "p99"),
            width=6,
        ),
        lines(
            About(
                "Whole calls by what semel did, p99",
                "From the request's head to the reply's end. joined waits for another call's answer.",
                "executed, passed and joined are as slow as the upstream, replayed is fast. refused is, too, "
                "unless the upstream did not answer, or an agent diverged, which takes two seconds to say.",
            ),
            SECONDS,
            Query(ask.quantile(0.99, "semel_call_seconds", by="status"), "{{status}}"),
            logarithmic=0.001,
            width=6,
        ),
    ]
