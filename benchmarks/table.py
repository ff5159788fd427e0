"""The figures of one run as a page: what was measured, on what, with which versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

import apsw

from benchmarks import nginx
from benchmarks.million import Check

_PACKAGES = ("aiohttp", "uvloop", "httptools", "apsw", "orjson", "xxhash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`shown` is measured along and not judged."""

    rates: dict[str, float]
    checks: list[Check]
    shown: dict[str, float]
    failed: list[str]
    rounds: int
    requests: int
    connections: int


def as_markdown(figures: Figures) -> str:
    return "\n".join([*_page(figures), ""])


def _page(figures: Figures) -> Iterator[str]:
    rounds, requests, connections = figures.rounds, f"{figures.requests:,}", figures.connections
    yield f"""# Benchmarks

Written by `make bench`. Machines are noisy, so the ratios are taken within one round of one run, and are the
median of {rounds} interleaved rounds of {requests} requests over {connections} connections. The server
under test has one core, load and upstream share another. A POST of 90 bytes, an answer of 450; semel with
full durability (two commits with fdatasync for a call made once), metrics and log on.
"""
    yield "| ratio or figure | measured | wanted | |"
    yield "| --- | --- | --- | --- |"
    for name, value, relation, bound in figures.checks:
        mark = "missed" if name in figures.failed else "met"
        yield f"| {name} | {value:.2f} | {relation} {bound:g} | {mark} |"
    for name, value in figures.shown.items():
        yield f"| {name} | {value:.2f} | | not judged |"
    if figures.rates:
        yield "\n| server | requests/s, median |"
        yield "| --- | --- |"
        for name, rate in figures.rates.items():
            yield f"| {name} | {rate:,.0f} |"
    yield f"\n{', '.join(_versions())}; {len(os.sched_getaffinity(0))} cores."


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    yield f"{platform.system()} {platform.machine()}"
    for package in _PACKAGES:
        yield f"{package} {version(package)}"
    yield f"SQLite {apsw.sqlitelibversion()}"
    program = nginx.find()
    if program is not None:
        yield f"nginx {nginx.version(program)}"
