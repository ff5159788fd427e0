"""`semel gc`: remove settled calls past their time, with their history, runs without activity, and blobs that
no call names.

`semel serve` does the same by itself, every `gc.every`. Calls that are pending or in doubt are never removed,
and outside runs none that awaits approval. A call stays for a minute beyond its time, a blob for an hour
after it was last touched. Runs go whole, `runs.retention` after their last activity: name the configuration
that `semel serve` has.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from proxy.cli.output import DONE, add_json, print_json
from proxy.cli.parsing import examples
from proxy.cli.reach import add_store_flags, opened_store, settings_of
from proxy.errors import ConfigurationError
from proxy.quantities import show_duration

if TYPE_CHECKING:
    from proxy.store.base import Collected

SCHEMA = {
    "type": "object",
    "properties": {
        "dry_run": {"type": "boolean"},
        "calls": {"type": "integer", "minimum": 0},
        "runs": {"type": "integer", "minimum": 0},
        "blobs": {"type": "integer", "minimum": 0},
        "bytes": {"type": "integer", "minimum": 0},
    },
    "required": ["dry_run", "calls", "runs", "blobs", "bytes"],
    "additionalProperties": False,
}
# A person who has waited this long, in seconds, wants to see that something happens.
LONG = 1.0
_CLEAR_LINE = "\r\x1b[K"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "gc",
        help="remove what is past its time",
        description=__doc__,
        epilog=examples("semel gc --dry-run", "semel gc --state-dir /var/lib/semel --json"),
    )
    command.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_json(command)
    add_store_flags(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio

    if settings_of(options).store == "memory":
        raise ConfigurationError(
            "The memory store lives inside the process that serves, and that one collects by itself: there "
            "is nothing to do here."
        )
    removed = asyncio.run(_collect(options))
    if options.json:
        counts = {"calls": removed.calls, "runs": removed.runs, "blobs": removed.blobs}
        print_json({"dry_run": options.dry_run, **counts, "bytes": removed.bytes})
    elif removed:
        print(f"{'would remove' if options.dry_run else 'removed'} {_said(removed)}")
        if removed.runs:
            kept = show_duration(settings_of(options).runs.retention)
            print(f"runs are kept for {kept} after their last activity (runs.retention)")
    else:
        print("nothing to remove")
    return DONE


async def _collect(options: argparse.Namespace) -> Collected:
    import asyncio

    from proxy.clock import SystemClock
    from proxy.collecting import collectable, collecting

    retention = settings_of(options).runs.retention
    async with opened_store(options) as store:
        progress = _Progress()
        try:
            if options.dry_run:
                # One long look: it has no parts to tell of.
                looking = asyncio.get_running_loop().call_later(LONG, progress.show, "looking")
                try:
                    return await collectable(store, SystemClock(), retention)
                finally:
                    looking.cancel()
            async for removed in collecting(store, SystemClock(), retention):
                progress.show(f"removed so far {_said(removed)}")
        finally:
            progress.clear()
        return removed


class _Progress:
    """One line on a terminal, written over and over and gone at the end; elsewhere nothing."""

    def __init__(self) -> None:
        self._from = time.monotonic() + LONG
        self._shown = False

    def show(self, line: str) -> None:
        if time.monotonic() >= self._from and sys.stderr.isatty():
            print(f"{_CLEAR_LINE}{line}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


def _said(removed: Collected) -> str:
    runs = f" runs: {removed.runs:,}," if removed.runs else ""
    return f"(calls: {removed.calls:,},{runs} blobs: {removed.blobs:,}, bytes: {removed.bytes:,})"
