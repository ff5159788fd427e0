"""`semel gc`: remove settled calls past their time, with their history, and blobs that no call names.

`semel serve` does the same by itself, every `gc.every`. Calls that are pending, in doubt or awaiting approval
are never removed. A call stays for a minute beyond its time, a blob for an hour after it was last touched.
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

if TYPE_CHECKING:
    from proxy.store.base import Collected

SCHEMA = {
    "type": "object",
    "properties": {
        "dry_run": {"type": "boolean"},
        "calls": {"type": "integer", "minimum": 0},
        "blobs": {"type": "integer", "minimum": 0},
        "bytes": {"type": "integer", "minimum": 0},
    },
    "required": ["dry_run", "calls", "blobs", "bytes"],
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
        figures = {"calls": removed.calls, "blobs": removed.blobs, "bytes": removed.bytes}
        print_json({"dry_run": options.dry_run, **figures})
    elif removed.calls or removed.blobs:
        print(f"{'would remove' if options.dry_run else 'removed'} {_said(removed)}")
    else:
        print("nothing to remove")
    return DONE


async def _collect(options: argparse.Namespace) -> Collected:
    from proxy.clock import SystemClock
    from proxy.collecting import collectable, collecting

    retention = settings_of(options).runs.retention
    async with opened_store(options) as store:
        if options.dry_run:
            return await collectable(store, SystemClock(), retention)
        progress = _Progress()
        try:
            async for removed in collecting(store, SystemClock(), retention):
                progress.show(removed)
        finally:
            progress.clear()
        return removed


class _Progress:
    """One line on a terminal, written over and over and gone at the end; elsewhere nothing."""

    def __init__(self) -> None:
        self._from = time.monotonic() + LONG
        self._shown = False

    def show(self, removed: Collected) -> None:
        if time.monotonic() >= self._from and sys.stderr.isatty():
            print(f"{_CLEAR_LINE}removed so far {_said(removed)}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


def _said(removed: Collected) -> str:
    return f"(calls: {removed.calls:,}, blobs: {removed.blobs:,}, bytes: {removed.bytes:,})"
