"""Which policies and versions are in force: a row of the overview."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.panels import BAD, COUNT, NEUTRAL, WATCH, About, Column, Panel, Query, Step, number, rows


def in_force() -> list[Panel]:
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
