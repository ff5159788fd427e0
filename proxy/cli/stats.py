"""`semel stats`: how many calls are in which state, how old the oldest doubt is, how large the record is."""

from __future__ import annotations

import argparse

from proxy.admin.schemas import document
from proxy.cli.output import DONE, add_json, print_json, print_table
from proxy.cli.parsing import examples
from proxy.cli.reach import add_desk_flags, opened_desk

SCHEMA = document("Stats")
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "stats",
        help="figures of the record",
        description=__doc__,
        epilog=examples("semel stats", "semel stats --proxy http://127.0.0.1:8080 --json"),
    )
    add_desk_flags(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio

    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with opened_desk(options) as desk:
        found = await desk.stats()
    if options.json:
        print_json(found)
        return DONE
    seconds, evictions = found["oldest_in_doubt_seconds"], found["cache_evictions"]
    rows: list[tuple[str, object]] = [(f"calls {state}", number) for state, number in found["calls"].items()]
    rows += [
        (
            "oldest in doubt",
            "none" if seconds is None else f"{_ago(seconds)} ({found['oldest_in_doubt_at']})",
        ),
        ("record", f"{_size(found['store_bytes'])} ({found['store']})"),
        ("cache evictions", "counted by the proxy: use --proxy" if evictions is None else evictions),
    ]
    print_table(("figure", "value"), rows)
    return DONE


def _ago(seconds: float) -> str:
    for worth, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= worth:
            return f"{seconds / worth:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _size(size: int) -> str:
    for worth, unit in UNITS:
        if size >= worth:
            return f"{size / worth:.1f} {unit}"
    return f"{size} bytes"
