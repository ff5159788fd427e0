"""The first look: what semel does, what it is worth, what it costs in time, whether a person is needed."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.frame import Plan, Section
from dashboards.panels import (
    BAD,
    CALLS,
    COUNT,
    DOLLARS,
    GOOD,
    INBOX,
    NEUTRAL,
    PER_MINUTE,
    PER_SECOND,
    RUNS,
    SECONDS,
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
            Section("Money", _money()),
            Section("Time", _time()),
            Section("Held for a person", _held()),
            Section("semel's own answers", _answers()),
            Section("Upstreams and rules", _upstreams()),
            Section("Policies and versions", _policies()),
            Section("Shadow mode", looked_on(), collapsed=True),
        ],
    )


def in_doubt_now(*, width: int = 3) -> Panel:
    return number(
        About(
            "In doubt now",
            "Calls with effects that were sent and whose outcome nobody knows. They are not sent again until "
            "that is settled.",
            "0 is normal.",
            "Find out at the upstream what happened, and settle them on the operator's page.",
        ),
        COUNT,
        Query(ask.told("semel_calls_in_state", 'state="in_doubt"'), "in doubt"),
        steps=[Step(1, BAD)],
        width=width,
        links=[INBOX],
    )


def oldest_doubt(*, width: int = 3) -> Panel:
    return number(
        About(
            "Oldest doubt",
            "How long the oldest call in doubt has been held; 0 when there is none.",
            "Minutes are normal where somebody is told of doubt: an agent waits for it.",
            "Settle it on the operator's page.",
        ),
        SECONDS,
        Query(ask.told("semel_oldest_in_doubt_seconds"), "oldest"),
        steps=[Step(1, WATCH), Step(_HOUR, BAD)],
        width=width,
        links=[INBOX],
    )


def waiting_now(*, width: int = 3) -> Panel:
    return number(
        About(
            "Waiting for approval",
            "Calls that a rule holds until a person approves exactly that request. Nothing was sent.",
            "0, or a few that somebody is looking at.",
            "Approve or deny them on the operator's page.",
        ),
        COUNT,
        Query(ask.told("semel_calls_in_state", 'state="awaiting_approval"'), "waiting"),
        steps=[Step(1, WATCH), Step(20, BAD)],
        width=width,
        links=[INBOX],
    )


def oldest_waiting(*, width: int = 3) -> Panel:
    return number(
        About(
            "Oldest approval asked for",
            "How long the oldest call has waited for approval; 0 when there is none.",
            "Less than the rule's `expires`: after that the question is void and is asked anew.",
            "Approve or deny it on the operator's page.",
        ),
        SECONDS,
        Query(ask.told("semel_oldest_awaiting_approval_seconds"), "oldest"),
        steps=[Step(15 * _MINUTE, WATCH), Step(4 * _HOUR, BAD)],
        width=width,
        links=[INBOX],
    )


def prevented(*, width: int = 3) -> Panel:
    return number(
        About(
            "Duplicates prevented",
            "Calls with effects that were asked for again and answered without a second send: payments not "
            "made twice, mails not sent twice.",
            "Any number. It grows when agents crash, retry or are started again.",
        ),
        COUNT,
        Query(ask.total_or_zero("semel_duplicates_prevented_total"), "prevented"),
        base=NEUTRAL,
        steps=[Step(1, GOOD)],
        decimals=0,
        width=width,
    )


def _promise() -> list[Panel]:
    return [
        prevented(),
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
        in_doubt_now(),
        oldest_doubt(),
        waiting_now(),
        oldest_waiting(),
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


def _money() -> list[Panel]:
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
        number(
            About(
                "Spent",
                "What executed calls cost. Only rules with a `cost` are counted.",
                "What you expect for the work done.",
                "More: the table of upstreams and rules below says where; a `budget` on a rule stops it.",
            ),
            DOLLARS,
            Query(f"{_SPENT} or vector(0)", "spent"),
            base=NEUTRAL,
            steps=[Step(1000, WATCH)],
            decimals=2,
            width=4,
            height=8,
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
            logarithmic=True,
        ),
        lines(
            About(
                "Replays",
                "From the request's head to the reply's end, of calls answered from the record.",
                "About a millisecond.",
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
                "executed and joined are as slow as the upstream, the others fast.",
            ),
            SECONDS,
            Query(ask.quantile(0.99, "semel_call_seconds", by="status"), "{{status}}"),
            logarithmic=True,
            width=6,
        ),
    ]


def _held() -> list[Panel]:
    return [
        lines(
            About(
                "In doubt and waiting for approval",
                "Calls that only a person, a probe or the upstream's own key can settle.",
                "0, with short peaks.",
                "A line that does not fall: nobody decides. Open the operator's page, and see that "
                "notifications arrive.",
            ),
            COUNT,
            Query(
                ask.told("semel_calls_in_state", 'state=~"in_doubt|awaiting_approval"', by="state"),
                "{{state}}",
            ),
            links=[INBOX],
        ),
        lines(
            About(
                "Age of the oldest",
                "How long the oldest call in doubt, and the oldest that waits for approval, have been held.",
                "0, with short ramps. The dashed line is an hour.",
                "A ramp that goes on is a call that somebody has to decide.",
            ),
            SECONDS,
            Query(ask.told("semel_oldest_in_doubt_seconds"), "in doubt"),
            Query(ask.told("semel_oldest_awaiting_approval_seconds"), "waiting for approval"),
            steps=[Step(_HOUR, BAD)],
            links=[INBOX],
        ),
    ]


def _answers() -> list[Panel]:
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


def _upstreams() -> list[Panel]:
    pair = "upstream, rule"
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
                Column("Calls", ask.busy_total("semel_calls_total", by=pair)),
                Column("From the record", ask.busy_total("semel_calls_total", ask.AGAIN, by=pair)),
                Column("Duplicates prevented", ask.busy_total("semel_duplicates_prevented_total", by=pair)),
                Column(
                    "Lost",
                    ask.busy_total("semel_upstream_responses_total", 'code="lost"', by=pair),
                    steps=(Step(1, BAD),),
                ),
                Column("Saved", ask.busy_total("semel_saved_usd_total", by=pair), DOLLARS, 2, "-"),
                Column("Spent", ask.busy_total("semel_spent_usd_total", by=pair), DOLLARS, 2, "-"),
                Column(
                    "Upstream p99",
                    ask.quantile(0.99, "semel_upstream_seconds", by=pair, window=ask.RANGE),
                    SECONDS,
                    2,
                    "-",
                ),
                Column(
                    "Suspected polls",
                    ask.busy_total("semel_suspected_polls_total", by=pair),
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
                "One exchange with an upstream, from the first byte sent to the answer's end.",
                "Models take seconds, other APIs less.",
                "Slower than usual: the upstream's status page, then the network.",
            ),
            SECONDS,
            Query(ask.quantile(0.99, "semel_upstream_seconds", by="upstream"), "{{upstream}}"),
            logarithmic=True,
        ),
    ]


def _policies() -> list[Panel]:
    return [
        number(
            About(
                "Workers with outdated policies",
                "Workers that go on with older policies because the files on disk are bad.",
                "0.",
                "Run `semel check` on the policy files, and mend what it names.",
            ),
            COUNT,
            Query(f"sum({ask.of('semel_policies_outdated')})", "outdated"),
            steps=[Step(1, BAD)],
            width=4,
        ),
        number(
            About(
                "Policy reloads that failed",
                "Policy files that were changed and could not be loaded; the older policies stay in force.",
                "0.",
                "Run `semel check` on the policy files, and mend what it names.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_policy_reloads_total", 'result="bad"'), "bad"),
            steps=[Step(1, WATCH)],
            decimals=0,
            width=4,
        ),
        number(
            About(
                "Policy reloads",
                "Policy files that were changed and are in force.",
                "As many as there were changes, times the number of workers.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_policy_reloads_total", 'result="good"'), "good"),
            base=NEUTRAL,
            decimals=0,
            width=4,
        ),
        number(
            About(
                "Versions running",
                "How many versions of semel answer Prometheus.",
                "1; two while a new one is rolled out.",
                "Two for long: a proxy was left behind. The table has them.",
            ),
            COUNT,
            Query(f"count(count by (version) ({ask.of('semel_build_info')}))", "versions"),
            steps=[Step(2, WATCH)],
            width=4,
        ),
        rows(
            About(
                "Proxies by version and store",
                "What answers Prometheus.",
                "One line. Two stores are two records: a call known to one is unknown to the other.",
            ),
            {"version": "Version", "store": "Store"},
            [Column("Proxies", f"count by (version, store) ({ask.of('semel_build_info')})")],
            width=8,
            height=4,
        ),
    ]
