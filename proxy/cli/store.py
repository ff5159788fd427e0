"""`semel store copy FROM TO`: a whole ledger from one store into another, verified.

FROM and TO are stores: a directory (as for --state-dir; also written embedded:DIR), postgres://… or redis://…
as for --store. Stop every semel on both first. Calls, their history and answers, runs and exchanges, large
bodies and the secret that names them are copied; FROM is only read. Not copied: the shared cache, which may
be lost at any time, and who was working on FROM: what was on its way there is in doubt in TO, or released.

Until the copy has been verified no semel works with TO. Broken off, the same command goes on where it was.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from proxy.cli.output import DONE, Refused, add_json, print_json, warn
from proxy.cli.parsing import examples
from proxy.cli.store_progress import Bar
from proxy.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from proxy.store.copying import Copied
    from proxy.store.opening import Place

SCHEMA = {
    "type": "object",
    "properties": {
        "from": {"type": "string"},
        "to": {"type": "string"},
        "runs": {"type": "integer", "minimum": 0},
        "exchanges": {"type": "integer", "minimum": 0},
        "budgets": {"type": "integer", "minimum": 0},
        "blobs": {"type": "integer", "minimum": 0},
        "calls": {"type": "integer", "minimum": 0},
        "written": {"type": "integer", "minimum": 0},
        "lost_bodies": {"type": "array", "items": {"type": "string"}},
        "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    },
    "required": [
        "from",
        "to",
        "runs",
        "exchanges",
        "budgets",
        "blobs",
        "calls",
        "written",
        "lost_bodies",
        "digest",
    ],
    "additionalProperties": False,
}
_EMBEDDED = "embedded:"
_AGAIN = "Nothing is lost: run the same command again, and it goes on where it was."


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "store", help="copy a ledger to another store", description="What concerns a whole store."
    )
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    copy = actions.add_parser(
        "copy",
        help="copy a ledger to another store",
        description=__doc__,
        epilog=examples(
            "semel store copy ~/.local/state/semel postgres://semel@db.internal/semel",
            "semel store copy postgres://semel@db.internal/semel /var/lib/semel --json",
        ),
    )
    copy.add_argument("source", metavar="FROM", help="a directory, postgres://… or redis://…")
    copy.add_argument("target", metavar="TO", help="the same; empty, or an unfinished copy of FROM")
    copy.add_argument(
        "--leave-lost-bodies",
        action="store_true",
        help="copy also if FROM has lost large bodies; their calls answer 410 answer-unavailable, as in FROM",
    )
    copy.add_argument("--quiet", action="store_true", help="no progress, only the result")
    add_json(copy)
    copy.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio

    from proxy.store.copying import CopyRefused

    source, target = _place(options.source, "FROM"), _place(options.target, "TO")
    if (source.store, source.state.resolve()) == (target.store, target.state.resolve()):
        raise ConfigurationError("FROM and TO are the same store.")
    bar = Bar(quiet=options.quiet or options.json)
    bar.begin()
    try:
        copied = asyncio.run(_copy(source, target, bar, options.leave_lost_bodies))
    except CopyRefused as error:
        raise Refused(str(error)) from None
    except StoreUnavailable as error:
        raise Refused(f"{error.detail}. {_AGAIN}") from None
    except KeyboardInterrupt:
        warn(_AGAIN)
        raise
    finally:
        bar.clear()
    _report(copied, source, target, options)
    return DONE


async def _copy(source: Place, target: Place, bar: Bar, leave_lost: bool) -> Copied:
    from proxy.store.copying import copy, examine
    from proxy.store.opening import open_source, open_target

    reading = await open_source(source)
    try:
        await examine(reading)  # before anything is made
        writing = await open_target(target)
        try:
            return await copy(reading, writing, bar.show, leave_lost=leave_lost)
        finally:
            await writing.close()
    finally:
        await reading.close()


def _place(given: str, name: str) -> Place:
    """What is meant by an address, or by a directory."""
    from pathlib import Path

    from proxy.store.opening import SCHEMES, Place

    scheme, mark, _ = given.partition("://")
    if mark:
        if scheme not in SCHEMES:
            known = ", ".join(f"{each}://…" for each in SCHEMES)
            raise ConfigurationError(f"{name}: there is no store {scheme}://…: write a directory, or {known}")
        return Place(store=given, state=Path(), note=_told)
    directory = given.removeprefix(_EMBEDDED)
    if directory in ("", "embedded", "memory"):
        raise ConfigurationError(
            f"{name}: write the directory of an embedded store (that of --state-dir), postgres://… or redis://…"
        )
    return Place(store="embedded", state=Path(directory).expanduser())


def _told(event: str, **fields: object) -> None:
    if "detail" in fields:
        warn(f"{event}: {fields['detail']}")


def _report(copied: Copied, source: Place, target: Place, options: argparse.Namespace) -> None:
    counts = {kind.value: number for kind, number in copied.counts.items()}
    if options.json:
        ends = {"from": source.shown, "to": target.shown}
        more = {"written": copied.fresh, "lost_bodies": list(copied.lost), "digest": copied.digest}
        print_json({**ends, **counts, **more})
        return
    for digest in copied.lost:
        warn(f"body {digest} is lost in {source.shown}: its call answers 410 answer-unavailable")
    told = ", ".join(f"{kind}: {number:,}" for kind, number in counts.items())
    there = "" if copied.fresh else "; all of it was there"
    print(f"all copied and verified ({told}){there}")
    print(f"digest {copied.digest}")
