"""`semel demo`: what semel does, shown in a few seconds: no network, no configuration, nothing left behind.

Exit status 0 only if every count is what was promised.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from proxy.cli.output import DONE, Refused, add_json, print_json, print_table, printable
from proxy.cli.parsing import examples

if TYPE_CHECKING:
    from proxy.demo.acts import Act
    from proxy.demo.scene import Commands

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["acts", "seconds", "ok", "directory"],
    "additionalProperties": False,
    "properties": {
        "acts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["title", "charges", "promised", "statuses", "milliseconds", "seconds", "wrong"],
                "additionalProperties": False,
                "properties": {
                    "title": {"type": "string"},
                    "charges": {"type": "integer", "minimum": 0},
                    "promised": {
                        "type": "object",
                        "required": ["charges", "statuses"],
                        "additionalProperties": False,
                        "properties": {
                            "charges": {"type": "integer"},
                            "statuses": {"type": "array", "items": {"type": "string"}},
                        },
                    },
                    # Of the charge, one for each run of the agent.
                    "statuses": {"type": "array", "items": {"type": "string"}},
                    "milliseconds": {"type": "array", "items": {"type": ["number", "null"]}},
                    "seconds": {"type": "number"},
                    "wrong": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
        "seconds": {"type": "number"},
        "ok": {"type": "boolean"},
        "directory": {"type": ["string", "null"]},
    },
}

NEXT = """
Next:
  semel serve --help          put semel in front of an API that you use
  README.md                   the same by hand, with curl, in a minute
  docs/guarantees.md          what is promised at every fault, and what is not"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "demo",
        help="see what semel does, in seconds",
        description=__doc__,
        epilog=examples("semel demo", "semel demo --keep", "semel demo --json"),
    )
    command.add_argument("--keep", action="store_true", help="keep the directory with records and logs")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace, commands: Commands | None = None) -> int:
    """`commands` is for tests: a broken proxy in the place of `semel serve`."""
    from proxy.demo.acts import play_acts
    from proxy.demo.scene import Commands
    from proxy.demo.stage import Mishap, new_stage, play

    def tell(line: str) -> None:
        if not options.json:
            print("\n".join(map(printable, line.split("\n"))), flush=True)

    async def performed() -> tuple[list[Act], str]:
        async with new_stage(keep=options.keep) as stage:
            tell("An agent pays an invoice, and is killed between paying and noting it.")
            tell("The agent, its command and the API stay the same; only the base URL differs.")
            tell(f"Everything happens on this machine, in {stage.directory}")
            return await play_acts(stage, tell, commands or Commands()), str(stage.directory)

    began = time.monotonic()
    try:
        acts, directory = play(performed())
    except Mishap as error:
        raise Refused(f"The demo could not be played. {error}") from None
    _report(acts, time.monotonic() - began, directory if options.keep else None, as_json=options.json)
    wrong = [each for act in acts for each in act.wrong]
    if wrong:
        raise Refused("This is not what semel promises:\n" + "\n".join(f"  {each}" for each in wrong))
    return DONE


def _report(acts: list[Act], seconds: float, kept: str | None, *, as_json: bool) -> None:
    if as_json:
        ok = not any(act.wrong for act in acts)
        told = [_document(act) for act in acts]
        print_json({"acts": told, "seconds": round(seconds, 3), "ok": ok, "directory": kept})
        return
    print()
    print_table(("", "charges", "first", "asked again", "answered in"), [_row(act) for act in acts])
    print(f"\nCharges as the API counted them. All of this took {seconds:.1f} s.")
    if kept:
        print(f"Kept: {kept}\n  semel calls list --state-dir {kept}/act-3/state")
    print(NEXT)


def _row(act: Act) -> tuple[object, ...]:
    took = act.asked[-1].milliseconds
    first, *again = act.outcomes
    shown = "no answer" if took is None else f"{took:.1f} ms"
    return act.promise.title, act.charges, first, ", then ".join(again), shown


def _document(act: Act) -> dict[str, object]:
    return {
        "title": act.promise.title,
        "charges": act.charges,
        "promised": {"charges": act.promise.charges, "statuses": list(act.promise.outcomes)},
        "statuses": list(act.outcomes),
        "milliseconds": [run.milliseconds for run in act.asked],
        "seconds": round(act.seconds, 3),
        "wrong": act.wrong,
    }
