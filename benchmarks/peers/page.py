"""docs/peers.md: what one run found, in tables, with versions, settings and date."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.peers.scenarios import ANSWERS_AFTER, Outcome
from benchmarks.peers.trying import Result
from tests.proof.report import Figure


class Section(NamedTuple):
    title: str
    words: str


SECTIONS = {
    "crash": Section(
        "Killed after the effect, before the result was saved",
        """\
What does the work is killed with SIGKILL when the upstream has acted and holds its answer. Then it is
recovered as its documentation says, and the agent asks again.""",
    ),
    "saved": Section(
        "Killed after the result was saved, before anybody had it",
        "Recovered in the same way, and asked again.",
    ),
    "at once": Section(
        "Twenty at once",
        f"""\
The same call, asked for by twenty at the same time: libraries in twenty processes (DBOS in two of ten threads
each), servers by twenty clients (semel through two proxies on one record). The upstream answers after
{ANSWERS_AFTER:g} seconds. Each asks once; who is told to wait or to try later would ask again.""",
    ),
    "reset": Section(
        "The connection breaks after the effect",
        """\
The upstream acts and resets the connection without an answer. The agent asks once more. Nothing is killed
here.""",
    ),
}

INTRODUCTION = """\
# Against peers

Written by `make peers` on {day}: the same faults against semel and other projects that guard
calls with effects, each installed from its package, in the version and setting named [below](#settings).
The upstream is a plain HTTP server that acts and counts. **Effects** is its count for one call; the
agent wanted one. `answer 1` is what the upstream said of its first effect, `answer 2` of its second. An agent
that is told to wait asks again for {patience:.0f} seconds. Every line was measured {often}; where it
was not the same each time, all is named.

How to read it:

- **With an upstream that honours an idempotency key** each of them comes to one effect, if it sends the same
  key again: the lines with a key. Where there is such an upstream, use its key, with whichever project.
- **Without one** there is a choice after a crash: to call again, and perhaps act twice, or to hold the call
  until somebody has looked. DBOS, Restate, Powertools and agent-ledger with recovery call again, as they
  document. effect-ledger and semel hold, and so do DBOS and agent-ledger without recovery, and Powertools
  without a context for as long as its record is kept. Holding is not free: what semel calls `in-doubt` stays
  held [until it is settled](how-to/settle-doubt.md) by a person, a key or a probe.
- **They are different things.** DBOS and Restate run whole workflows, agent-ledger and effect-ledger are
  libraries around a function, Powertools guards a Lambda handler. semel is a proxy and sees HTTP alone."""
TABLE = "| | effects | the agent was told |\n| --- | --- | --- |"


def counts(outcomes: Sequence[Outcome]) -> str:
    """`2`, or `1 or 2` where it was not the same each time."""
    return " or ".join(str(number) for number in sorted({one.effects for one in outcomes}))


def told(outcomes: Sequence[Outcome]) -> str:
    """Each time once."""
    return " / ".join(dict.fromkeys(one.in_words() for one in outcomes)).replace("|", "\\|")


def figures(result: Result) -> Mapping[str, Figure]:
    """For the proof's own report."""
    found: dict[str, Figure] = {"version": result.version, "setting": result.row.setting}
    if result.why_not:
        found["why not"] = result.why_not
    for name, outcomes in result.outcomes.items():
        found[name] = counts(outcomes)
        found[f"{name}, told"] = told(outcomes)
    return found


def as_markdown(results: Sequence[Result], times: int, patience: float) -> str:
    return "\n".join([*_page(results, times, patience), ""])


def _page(results: Sequence[Result], times: int, patience: float) -> Iterator[str]:
    day = datetime.datetime.now(datetime.UTC).date()
    yield INTRODUCTION.format(day=day, patience=patience, often="once" if times == 1 else f"{times} times")
    for name, section in SECTIONS.items():
        yield f"\n## {section.title}\n\n{section.words}\n\n{TABLE}"
        for result in results:
            if outcomes := result.outcomes.get(name):
                yield f"| {result.row.label} | {counts(outcomes)} | {told(outcomes)} |"
            else:
                yield f"| {result.row.label} | | {result.why_not or 'not tried'} |"
    yield "\n## Settings\n\n| | version | setting |\n| --- | --- | --- |"
    for result in results:
        yield f"| {result.row.label} | {result.version} | {result.row.setting} |"
    yield "\n## What their documentation says\n\n| | |\n| --- | --- |"
    for peer in dict.fromkeys(result.peer for result in results):
        if peer.says:
            yield f"| [{peer.title}]({peer.where}) | {peer.says} |"
    yield (
        f"\nPython {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores. PostgreSQL and Valkey on loopback, durable.\n"
        'Run it yourself: `make peers`; one project alone: `make peers ARGS="--only dbos"`.'
    )
