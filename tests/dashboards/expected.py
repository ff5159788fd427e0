"""What each panel must show after the scripted traffic, by dashboard, title and legend.

A number is a sum over what the script did. A line that shows a rate is asked over the whole traffic, so it is
the same sum, per second, minute or hour. What is measured rather than counted has bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from proxy import __version__
from tests.dashboards.playing import Done, Values
from tests.dashboards.scraped import RANGE
from tests.dashboards.world import NAMED, OTHER, WORKERS


@dataclass(frozen=True, slots=True)
class Told:
    """What the panels are about: one proxy, or all. `processes` on the store are the same for everybody."""

    done: Done
    instances: tuple[str, ...]
    outdated: int
    processes: int
    elapsed: float


Sums: TypeAlias = dict[Values, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """By the values of these labels; zeros need not be said. `at_most`: of series that appear with the first
    event, which Prometheus does not take for growth."""

    labels: tuple[str, ...]
    sums: Callable[[Told], Sums]
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """One number, above the first and at most the second."""

    low: float
    high: Callable[[Told], float]


Expected: TypeAlias = Figure | Between
AGAIN = ("replayed", "joined")
ANY = float("inf")
HELD = ("in-doubt", "awaiting-approval", "diverged", "in-progress")
OWN_REFUSALS = (
    "denied", "key-conflict", "budget-exceeded", "answer-unavailable", "identity-collision", "stale",
    "run-expired",
)  # fmt: skip
PLACE = ("upstream", "rule")
SECOND, MINUTE, HOUR = 1, 60, 3600


def total(metric: str, **only: str | Collection[str]) -> Figure:
    return Figure((), lambda told: {(): told.done.total(metric, **only)})


def by(labels: Collection[str], metric: str, **only: str | Collection[str]) -> Figure:
    return Figure(tuple(labels), lambda told: told.done.by(metric, *labels, **only))


def per(seconds: int, figure: Figure) -> Figure:
    def sums(told: Told) -> Sums:
        return {values: amount * seconds / RANGE for values, amount in figure.sums(told).items()}

    return replace(figure, sums=sums)


def at_most(figure: Figure) -> Figure:
    return replace(figure, at_most=True)


def share(part: Figure, *whole: Figure) -> Figure:
    return Figure((), lambda told: {(): part.sums(told)[()] / sum(one.sums(told)[()] for one in whole)})


def exactly(value: Callable[[Told], float]) -> Figure:
    return Figure((), lambda told: {(): value(told)})


def in_state(*states: str) -> Figure:
    return by(["state"], "semel_calls_in_state", state=states)


def now(state: str) -> Figure:
    return total("semel_calls_in_state", state=state)


CALLS, RESPONSES, PROBLEMS = "semel_calls_total", "semel_upstream_responses_total", "semel_problems_total"
PREVENTED, SAVED, SPENT = (
    "semel_duplicates_prevented_total", "semel_saved_usd_total", "semel_spent_usd_total",
)  # fmt: skip
POLLS, NOTIFICATIONS, RECOVERED = (
    "semel_suspected_polls_total", "semel_notifications_total", "semel_recovered_total",
)  # fmt: skip
AGE = Between(0, lambda told: told.elapsed)
POSITIVE = Between(0, lambda told: ANY)
FROM_THE_RECORD = share(total(CALLS, status=AGAIN), total(CALLS))
# Rules with effects, and what stands for no rule; those that are looked on at are counted apart.
EFFECTS_OF = {
    "rule": tuple(
        one.name for one in (*NAMED, OTHER) if one.mode == "once" and not one.shadow and not one.safe
    )
}

# The same panel on two dashboards says the same.
SHARED: dict[tuple[str, str], Expected] = {
    ("Duplicates prevented", "prevented"): total(PREVENTED),
    ("In doubt now", "in doubt"): now("in_doubt"),
    ("Oldest doubt", "oldest"): AGE,
    ("Waiting for approval", "waiting"): now("awaiting_approval"),
    ("Oldest approval asked for", "oldest"): AGE,
}
OVERVIEW: dict[tuple[str, str], Expected] = {
    ("Spent", "spent"): total(SPENT),
    ("Answered from the record", "from the record"): FROM_THE_RECORD,
    ("Saved", "saved"): total(SAVED),
    ("Proxies alive", "proxies"): exactly(lambda told: len(told.instances)),
    ("Calls by what semel did", "{{status}}"): per(SECOND, by(["status"], CALLS)),
    ("Answered from the record over time", "from the record"): FROM_THE_RECORD,
    ("Duplicates prevented by upstream", "{{upstream}}"): per(MINUTE, by(["upstream"], PREVENTED)),
    ("Saved and spent per hour", "spent"): per(HOUR, total(SPENT)),
    ("Saved and spent per hour", "saved"): per(HOUR, total(SAVED)),
    ("Saved of what it would have cost", "saved"): share(total(SAVED), total(SAVED), total(SPENT)),
    ("In doubt and waiting for approval", "{{state}}"): in_state("in_doubt", "awaiting_approval"),
    ("Age of the oldest", "in doubt"): AGE,
    ("Age of the oldest", "waiting for approval"): AGE,
    ("semel's own answers by type", "{{type}}"): per(MINUTE, by(["type"], PROBLEMS)),
    ("semel's own answers in total", "Answers"): by(["type"], PROBLEMS),
    ("Agents that behave unexpectedly", "divergences"): per(MINUTE, total("semel_divergences_total")),
    ("Agents that behave unexpectedly", "suspected polls"): per(MINUTE, total(POLLS)),
    ("By upstream and rule", "Calls"): by(PLACE, CALLS),
    ("By upstream and rule", "From the record"): by(PLACE, CALLS, status=AGAIN),
    ("By upstream and rule", "Duplicates prevented"): by(PLACE, PREVENTED),
    ("By upstream and rule", "Lost"): by(PLACE, RESPONSES, code="lost"),
    ("By upstream and rule", "Saved"): by(PLACE, SAVED),
    ("By upstream and rule", "Spent"): by(PLACE, SPENT),
    ("By upstream and rule", "Upstream p99"): POSITIVE,
    ("By upstream and rule", "Suspected polls"): by(PLACE, POLLS),
    ("What upstreams answered", "{{code}}"): at_most(per(SECOND, by(["code"], RESPONSES))),
    ("Workers with outdated policies", "outdated"): exactly(lambda told: told.outdated),
    ("Policy reloads that failed", "bad"): total("semel_policy_reloads_total", result="bad"),
    ("Policy reloads", "good"): total("semel_policy_reloads_total", result="good"),
    ("Versions running", "versions"): exactly(lambda told: 1),
    ("Proxies by version and store", "Proxies"): Figure(
        ("version", "store"), lambda told: {(__version__, "embedded"): len(told.instances)}
    ),
    ("Duplicates that would have been prevented", "would have been prevented"): total(
        "semel_shadow_duplicates_prevented_total"
    ),
    ("Would have been saved", "would have been saved"): total("semel_shadow_saved_usd_total"),
    ("Looked on at, by what semel would have done", "{{would}}"): per(
        SECOND, by(["would"], "semel_shadow_calls_total")
    ),
    ("What semel would have answered itself", "{{type}}"): per(
        MINUTE, by(["type"], "semel_shadow_problems_total")
    ),
    ("Shadowed rules", "Looked on at"): by(PLACE, "semel_shadow_calls_total"),
    ("Shadowed rules", "Duplicates"): by(PLACE, "semel_shadow_duplicates_prevented_total"),
    ("Shadowed rules", "Saved"): by(PLACE, "semel_shadow_saved_usd_total"),
}
EFFECTS: dict[tuple[str, str], Expected] = {
    ("Denied", "denied"): now("denied"),
    ("Divergences", "divergences"): total("semel_divergences_total"),
    ("Left by dead processes", "taken over"): total(RECOVERED, state="in_doubt"),
    ("Calls of rules with effects", "{{status}}"): per(SECOND, by(["status"], CALLS, **EFFECTS_OF)),
    ("Duplicates prevented by rule", "{{upstream}} {{rule}}"): per(MINUTE, by(PLACE, PREVENTED)),
    ("Refused, of rules with effects", "refused"): share(
        total(CALLS, status="refused", **EFFECTS_OF), total(CALLS, **EFFECTS_OF)
    ),
    ("By upstream and rule", "Calls"): by(PLACE, CALLS, **EFFECTS_OF),
    ("By upstream and rule", "Executed"): by(PLACE, CALLS, status="executed", **EFFECTS_OF),
    ("By upstream and rule", "From the record"): by(PLACE, CALLS, status=AGAIN, **EFFECTS_OF),
    ("By upstream and rule", "Refused"): by(PLACE, CALLS, status="refused", **EFFECTS_OF),
    ("By upstream and rule", "Duplicates prevented"): by(PLACE, PREVENTED),
    ("By upstream and rule", "Lost"): by(PLACE, RESPONSES, code="lost", **EFFECTS_OF),
    ("By upstream and rule", "5xx"): at_most(by(PLACE, RESPONSES, code="500", **EFFECTS_OF)),
    ("By upstream and rule", "Not sent"): by(PLACE, RESPONSES, code="not_sent", **EFFECTS_OF),
    ("By upstream and rule", "Spent"): by(PLACE, SPENT, **EFFECTS_OF),
    ("Lost and not sent, of rules with effects", "{{code}}"): per(
        MINUTE, by(["code"], RESPONSES, code=("lost", "not_sent"), **EFFECTS_OF)
    ),
    ("Calls of dead processes taken over", "{{state}}"): per(MINUTE, by(["state"], RECOVERED)),
    ("Calls in doubt, waiting and denied", "{{state}}"): in_state("in_doubt", "awaiting_approval", "denied"),
    ("Held", "{{type}}"): per(MINUTE, by(["type"], PROBLEMS, type=HELD)),
    ("Refused", "{{type}}"): per(MINUTE, by(["type"], PROBLEMS, type=OWN_REFUSALS)),
    ("Notifications", "{{type}} {{result}}"): per(MINUTE, by(["type", "result"], NOTIFICATIONS)),
    ("Divergences and suspected polling", "divergences"): per(MINUTE, total("semel_divergences_total")),
    ("Divergences and suspected polling", "polls {{upstream}} {{rule}}"): per(MINUTE, by(PLACE, POLLS)),
    ("Answers that drifted", "{{upstream}} {{rule}}"): per(MINUTE, by(PLACE, "semel_drifts_total")),
    ("Spent on effects per hour", "{{upstream}} {{rule}}"): per(HOUR, by(PLACE, SPENT, **EFFECTS_OF)),
    ("Spent on effects", "spent"): total(SPENT, **EFFECTS_OF),
    ("Stopped by a budget", "stopped"): total(PROBLEMS, type="budget-exceeded"),
}
STORE: dict[tuple[str, str], Expected] = {
    ("Store", "{{store}}"): Figure(("store",), lambda told: {("embedded",): len(told.instances)}),
    ("Proxies that may forget", "may forget"): exactly(lambda told: 0),
    ("Commit p99", "p99"): POSITIVE,
    ("Refused: store unavailable", "refused"): total(PROBLEMS, type="store-unavailable"),
    ("Size", "size"): POSITIVE,
    ("Growth per day", "per day"): Between(-ANY, lambda told: ANY),
    ("Under way now", "pending"): now("pending"),
    ("Processes alive", "processes"): exactly(lambda told: told.processes),
    ("Where the writes come from", "{{upstream}} {{rule}}"): per(
        SECOND, by(PLACE, CALLS, mode=("once", "cache"), status="executed")
    ),
    ("Collected", "{{what}}"): per(MINUTE, by(["what"], "semel_collected_total")),
    ("Collected bytes", "collected"): per(SECOND, total("semel_collected_bytes_total")),
    ("Calls in the store by state", "{{state}}"): by(["state"], "semel_calls_in_state"),
    ("Processes on the store", "processes"): exactly(lambda told: told.processes),
    ("Processes on the store", "proxies"): exactly(lambda told: len(told.instances)),
    ("Calls of dead processes taken over", "{{state}}"): per(MINUTE, by(["state"], RECOVERED)),
    ("Proxies and their stores", "Running"): Figure(
        ("instance", "store", "version"),
        lambda told: {(one, "embedded", __version__): 1 for one in told.instances},
    ),
}
BY_DASHBOARD = {"overview": SHARED | OVERVIEW, "effects": SHARED | EFFECTS, "store": STORE}
# The workers of the first proxy, and the second.
PROCESSES = WORKERS + 1
