"""The figures of one run as a page: what was measured, on what, with which versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version

import apsw

from benchmarks import SMALL
from benchmarks.judging import Found, said

_PACKAGES = ("aiohttp", "uvloop", "httptools", "apsw", "orjson", "xxhash")

WORDS = """# Benchmarks

Written by `make bench`. Machines are noisy, so every ratio is taken within one round of one run, and is the
median of {rounds} interleaved rounds; how many requests and connections a round has is said beside each rate.
A figure that falls short by at most a tenth is marked so, since two runs differ by as much; only what falls
short by more is missed.

The server under test has one core, load and upstream share another. A POST of 90 bytes of JSON, an answer of
450 bytes, arguments canonicalised; semel with one worker, full durability (two commits with fdatasync for a
call made once), metrics and log on. Peers make the same calls in their own process on the server's core, as
many at once as semel has connections, their stores on any core with durable commits.

Added latency is the p50 of a call made once through semel, while nothing else goes on, less the p50 of the
same call straight to the upstream; a commit is of one row of a kilobyte with the store's own settings. A
stream's first byte may come at most 1 ms later than direct, whatever its size; that it does not grow with the
size means that the p50 of the largest is at most 1.5 times that of the smallest and 0.2 ms. The client of
these streams goes before the upstream on the core that they share, and asks for a small one before each.
"""


def as_markdown(found: Found, rounds: int) -> str:
    return "\n".join([*_page(found, rounds), ""])


def _page(found: Found, rounds: int) -> Iterator[str]:
    yield WORDS.format(rounds=rounds)
    yield "| ratio or figure | measured | wanted | |"
    yield "| --- | --- | --- | --- |"
    for check in found.checks:
        mark = said(check, small=SMALL)
        yield f"| {check.name} | {check.value:.2f} | {check.relation} {check.bound:g} | {mark} |"
    for name, relation, bound, why in found.unmeasured:
        yield f"| {name} | not measured: {_in_a_cell(why)} | {relation} {bound:g} | |"
    for name, value in found.shown.items():
        yield f"| {name} | {value:.2f} | | not judged |"
    if found.rates:
        yield "\n| server | connections | requests a round | requests/s, median |"
        yield "| --- | --- | --- | --- |"
        for name, rates in found.rates.items():
            yield f"| {name} | {rates.connections} | {rates.requests:,} | {rates.median:,.0f} |"
    yield f"\n{', '.join([*_versions(), *found.versions])}; {len(os.sched_getaffinity(0))} cores."


def _in_a_cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    yield f"{platform.system()} {platform.machine()}"
    for package in _PACKAGES:
        yield f"{package} {version(package)}"
    yield f"SQLite {apsw.sqlitelibversion()}"
