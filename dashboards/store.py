"""Where the record is kept: how fast a commit is durable, how large the store grows, how safe it is."""

from __future__ import annotations

from dashboards import held, store_size
from dashboards import queries as ask
from dashboards.frame import Plan, Section
from dashboards.panels import (
    BAD,
    BYTES,
    CALLS,
    COUNT,
    GOOD,
    INBOX,
    NEUTRAL,
    PER_MINUTE,
    PER_SECOND,
    SECONDS,
    WATCH,
    About,
    Column,
    Panel,
    Query,
    Step,
    lines,
    number,
    rows,
    words,
)

_MINUTE, _DAY = 60, 86400
_WRITE, _READ = 'op="swap"', 'op="get"'
_UNAVAILABLE = 'type="store-unavailable"'
_FORGETFUL = 'store=~"memory|.*best-effort"'


def plan() -> Plan:
    return Plan(
        "store",
        "semel / Store",
        "Where the record is kept: how long a durable commit takes, how large the store is and how fast it "
        "grows, what is in it, who works on it, and whether it keeps what it was given. What the store tells "
        "of itself is the same from every proxy on it: choose proxies of one store.",
        [
            Section("Now", _now()),
            Section("Commits and reads", _commits()),
            Section("Size", store_size.over_time()),
            Section("What is in it, and who works on it", _content()),
        ],
    )


def _now() -> list[Panel]:
    return [
        words(
            About(
                "Store",
                "Which store the proxies use.",
                "embedded, postgres or redis keep what was committed. memory forgets all at a restart; redis "
                "best-effort may lose commits at a failover.",
                "Red: do not let calls with effects depend on it.",
            ),
            Query(f"count by (store) ({ask.of('semel_build_info')})", "{{store}}"),
            "store",
            {
                "embedded": ("embedded", GOOD),
                "postgres": ("PostgreSQL", GOOD),
                "redis": ("Redis", GOOD),
                "redis-best-effort": ("Redis, best effort", BAD),
                "memory": ("memory", BAD),
            },
            width=3,
        ),
        number(
            About(
                "Proxies that may forget",
                "Proxies whose store does not promise to keep what was committed: memory, or redis with "
                "`durability: best-effort`.",
                "0.",
                "Give them a durable store, or make them strict.",
            ),
            COUNT,
            Query(f"count({ask.of('semel_build_info', _FORGETFUL)}) or vector(0)", "may forget"),
            steps=[Step(1, BAD)],
        ),
        number(
            About(
                "Commit p99",
                "How long a write takes until it is durable, over the time range shown. Every call with "
                "effects waits for two.",
                "Below 25 ms on a local disk, below 100 ms on a server.",
                "Slower: the disk's fsync, or the way to the server; then its load.",
            ),
            SECONDS,
            Query(ask.quantile(0.99, "semel_store_seconds", _WRITE, window=ask.RANGE), "p99"),
            steps=[Step(0.05, WATCH), Step(0.25, BAD)],
            without="no writes",
        ),
        number(
            About(
                "Refused: store unavailable",
                "Calls that were refused because the store did not answer; nothing was sent.",
                "0.",
                "Look at /readyz and at the proxy's log: disk full, server away, no permission.",
            ),
            COUNT,
            Query(ask.total_or_zero("semel_problems_total", _UNAVAILABLE), "refused"),
            steps=[Step(1, BAD)],
            decimals=0,
        ),
        number(
            About(
                "Size",
                "All that the store holds.",
                "Grows until what is past its time is collected, then stays.",
                "Too large: shorter `ttl` and `runs.retention`, smaller answers, see what is kept.",
            ),
            BYTES,
            Query(ask.told("semel_store_bytes"), "size"),
            base=NEUTRAL,
            steps=[Step(50 * 2**30, WATCH), Step(200 * 2**30, BAD)],
        ),
        number(
            About(
                "Growth per day",
                "How fast the size changes, by a line through the time range shown.",
                "Near 0 over a retention's length.",
                "Compare it with the room that is left on the disk.",
            ),
            BYTES,
            Query(f"{_DAY} * max(deriv({ask.of('semel_store_bytes')}[{ask.RANGE}]))", "per day"),
            base=NEUTRAL,
            steps=[Step(2**30, WATCH), Step(10 * 2**30, BAD)],
            without="not known yet",
        ),
        number(
            About(
                "Under way now",
                "Calls that are claimed and not settled: sent, or about to be.",
                "As many as agents wait for.",
                "A number that stays while nothing is called: processes that died and are not yet declared "
                "dead, or upstreams that never answer.",
            ),
            COUNT,
            Query(ask.told("semel_calls_in_state", 'state="pending"'), "pending"),
            base=NEUTRAL,
            steps=[Step(500, WATCH)],
            links=[CALLS],
        ),
        number(
            About(
                "Processes alive",
                "Processes that work on the store, by their own sign of life: workers of proxies, and "
                "commands.",
                "All workers that you started.",
                "Fewer than the proxies have: look at their logs.",
            ),
            COUNT,
            Query(ask.told("semel_owners"), "processes"),
            base=BAD,
            steps=[Step(1, GOOD)],
        ),
    ]


def _commits() -> list[Panel]:
    batch = ask.rate("semel_store_batch_rows_sum"), ask.rate("semel_store_batch_rows_count")
    return [
        lines(
            About(
                "Commit latency",
                "One write until it is durable, with the time it waited for others in its batch.",
                "Steady. Peaks are other users of the disk. The dashed line is 250 ms.",
                "A rise with the writes: the disk is at its limit. A rise without: the disk or the server is "
                "in trouble.",
            ),
            SECONDS,
            Query(ask.quantile(0.5, "semel_store_seconds", _WRITE), "p50"),
            Query(ask.quantile(0.99, "semel_store_seconds", _WRITE), "p99"),
            steps=[Step(0.25, BAD)],
        ),
        lines(
            About(
                "Read latency",
                "One look at a call. Most replays need none: what a process wrote it still knows.",
                "Below a millisecond on a local disk, a round trip on a server.",
                "Slower: the machine's memory is too small for the store's hot part, or the server is busy.",
            ),
            SECONDS,
            Query(ask.quantile(0.5, "semel_store_seconds", _READ), "p50"),
            Query(ask.quantile(0.99, "semel_store_seconds", _READ), "p99"),
        ),
        lines(
            About(
                "Writes, commits and reads per second",
                "Writes are claims and settlements, two for each executed call. Rows are those and what is "
                "noted beside them: replays, runs, signs of life. Commits are what the disk sees: under load "
                "one carries many rows.",
                "Writes and rows follow the calls; commits stay below what the disk can do.",
            ),
            "ops",
            Query(ask.rate("semel_store_seconds_count", _WRITE), "writes"),
            Query(ask.rate("semel_store_batch_rows_sum"), "rows"),
            Query(ask.rate("semel_store_batch_rows_count"), "commits"),
            Query(ask.rate("semel_store_seconds_count", _READ), "reads"),
            width=6,
        ),
        lines(
            About(
                "Where the writes come from",
                "Calls per second that went upstream and were recorded, by upstream and rule. Each is two "
                "writes, a claim and a settlement; with a run or a budget a little more.",
                "Follows the work of the agents.",
                "A rule that need not be recorded can have `mode: pass`.",
            ),
            PER_SECOND,
            Query(
                ask.busy_rate("semel_calls_total", 'mode=~"once|cache"', 'status="executed"', by=ask.RULE),
                "{{upstream}} {{rule}}",
            ),
            stacked=True,
            width=6,
        ),
        lines(
            About(
                "Writes in one commit",
                "How many rows a commit carried: the mean, and the 99th percentile as far as the histogram's "
                "buckets tell it.",
                "1 when little is going on; more under load, which is what keeps the disk fast enough.",
                "Near the most that one takes (256, on Redis 64) for long: the disk or the server is at its "
                "limit.",
            ),
            COUNT,
            Query(ask.share(*batch), "mean"),
            Query(ask.whole_quantile(0.99, "semel_store_batch_rows"), "p99"),
            steps=[Step(512, BAD)],
            width=6,
        ),
        lines(
            About(
                "Refused because the store is unavailable",
                "Calls per minute. Nothing was sent; the caller is told to call again.",
                "0.",
                "Look at /readyz and at the proxy's log.",
            ),
            PER_MINUTE,
            Query(f"{_MINUTE} * {ask.rate('semel_problems_total', _UNAVAILABLE)} or vector(0)", "refused"),
            width=6,
        ),
    ]


def _content() -> list[Panel]:
    return [
        lines(
            About(
                "Calls in the store by state",
                "pending is under way, done has its answer, released may be made again, in_doubt, "
                "awaiting_approval and denied are held. The scale is logarithmic.",
                "done grows with the work until retention takes it.",
                "in_doubt above 0: decide on the operator's page.",
            ),
            COUNT,
            Query(ask.told("semel_calls_in_state", by="state"), "{{state}}"),
            logarithmic=1,
            links=[INBOX],
        ),
        lines(
            About(
                "Processes on the store",
                "Living processes by their own sign of life, and proxies that answered Prometheus. With "
                "several workers a proxy is several processes.",
                "Level lines, with a step at each restart.",
                "Processes that vanish: look for calls they left, beside this.",
            ),
            COUNT,
            Query(ask.told("semel_owners"), "processes"),
            Query(f"count({ask.of('semel_build_info')})", "proxies"),
            width=6,
        ),
        held.taken_over(width=6),
        rows(
            About(
                "Proxies and their stores",
                "What answers Prometheus, with version and store.",
                "One store. Two stores are two records: a call known to one is unknown to the other.",
            ),
            {"instance": "Proxy", "store": "Store", "version": "Version"},
            [Column("Running", f"max by (instance, store, version) ({ask.of('semel_build_info')})")],
            height=6,
        ),
    ]
