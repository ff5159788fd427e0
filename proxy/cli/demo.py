"""`semel demo`: what semel does, shown in a few seconds: no network, no configuration, nothing left behind.

Act 1: a payment, killed in the middle. Act 2: an agent, killed at random steps until it finishes. Exit
status 0 only if every count is what was promised.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.cli.output import DONE, Refused, add_json, print_json, print_table, printable
from proxy.cli.parsing import examples

if TYPE_CHECKING:
    from proxy.demo.act_one import Performance
    from proxy.demo.act_two import Journey, Side
    from proxy.demo.scene import Commands

_TEXTS = {"type": "array", "items": {"type": "string"}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


_SIDE = _object(
    {
        "starts": {
            "type": "array",
            "items": _object(
                {
                    "killed": {"type": ["string", "null"]},
                    "done": {"type": "integer"},
                    "replayed": {"type": ["integer", "null"]},
                    "executed": {"type": ["integer", "null"]},
                    "seconds": {"type": "number"},
                }
            ),
        },
        # As the APIs counted: how often the model was asked, what took effect.
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        {
            # Empty: not played.
            "act_one": {
                "type": "array",
                "items": _object(
                    {
                        "title": {"type": "string"},
                        "charges": {"type": "integer", "minimum": 0},
                        "promised": _object({"charges": {"type": "integer"}, "statuses": _TEXTS}),
                        # Of the charge, one for each run of the agent.
                        "statuses": _TEXTS,
                        "milliseconds": {"type": "array", "items": {"type": ["number", "null"]}},
                        "seconds": {"type": "number"},
                        "wrong": _TEXTS,
                    }
                ),
            },
            "act_two": {
                "anyOf": [
                    {"type": "null"},
                    _object(
                        {
                            "seed": {"type": "integer"},
                            "kills": _TEXTS,
                            "without": _SIDE,
                            "with": _SIDE,
                            "promised": {"type": "object", "additionalProperties": {"type": "integer"}},
                            "seconds": {"type": "number"},
                            "wrong": _TEXTS,
                        }
                    ),
                ]
            },
            "seconds": {"type": "number"},
            "ok": {"type": "boolean"},
            "directory": {"type": ["string", "null"]},
        }
    ),
}

NEXT = """
Next:
  semel run --help            an agent of yours, behind semel
  semel serve --help          put semel in front of an API that you use
  README.md                   the same by hand, in a minute
  docs/guarantees.md          what is promised at every fault, and what is not"""


class Played(NamedTuple):
    one: list[Performance]
    two: Journey | None
    directory: str

    @property
    def wrong(self) -> list[str]:
        return [each for scene in self.one for each in scene.wrong] + (self.two.wrong if self.two else [])


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "demo",
        help="see what semel does, in seconds",
        description=__doc__,
        epilog=examples("semel demo", "semel demo --act 2 --seed 7", "semel demo --keep --json"),
    )
    command.add_argument("--act", type=int, choices=(1, 2), help="only this one (default: both)")
    command.add_argument("--seed", type=_seed, metavar="N", help="of act 2's kills (default: a new one)")
    command.add_argument("--keep", action="store_true", help="keep the directory with records and logs")
    add_json(command)
    command.set_defaults(run=run)


def _seed(given: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise argparse.ArgumentTypeError("a whole number from 0 on, of at most nine digits")
    return int(given)


def run(options: argparse.Namespace, commands: Commands | None = None) -> int:
    """`commands` is for tests: a broken proxy in the place of `semel serve`."""
    from proxy.demo.act_one import play_act_one
    from proxy.demo.act_two import play_act_two
    from proxy.demo.kills import new_seed
    from proxy.demo.scene import Commands
    from proxy.demo.stage import Mishap, new_stage, play

    seed = new_seed() if options.seed is None else options.seed

    def tell(line: str) -> None:
        if not options.json:
            print("\n".join(map(printable, line.split("\n"))), flush=True)

    async def performed() -> Played:
        programs = commands or Commands()
        async with new_stage(keep=options.keep) as stage:
            tell(f"Everything happens on this machine, in {stage.directory}")
            one = await play_act_one(stage, tell, programs) if options.act != 2 else []
            two = await play_act_two(stage, tell, programs, seed) if options.act != 1 else None
            return Played(one, two, str(stage.directory))

    began = time.monotonic()
    try:
        played = play(performed())
    except Mishap as error:
        raise Refused(f"The demo could not be played. {error}") from None
    seconds = time.monotonic() - began
    if options.json:
        print_json(_document(played, seconds, keep=options.keep))
    else:
        _report(played, seconds, keep=options.keep)
    if played.wrong:
        raise Refused("This is not what semel promises:\n" + "\n".join(f"  {each}" for each in played.wrong))
    return DONE


# ---- for people ----


def _report(played: Played, seconds: float, *, keep: bool) -> None:
    if played.one:
        print()
        rows = [_scene_row(scene) for scene in played.one]
        print_table(("Act 1", "charges", "first", "asked again", "answered in"), rows)
    if played.two is not None:
        names = list(played.two.behind.counts)
        print()
        sides = [(side.title, len(side.starts), *side.counts.values()) for side in played.two.sides]
        print_table(("Act 2", "starts", *names), sides)
    print(f"\nAs the APIs themselves counted. All of this took {seconds:.1f} s.")
    if keep:
        print(f"Kept: {played.directory}")
        if played.one:
            print(f"  semel calls list --state-dir {played.directory}/act-1-scene-3/state")
        if played.two is not None:
            print(f"  semel runs list --state-dir {played.directory}/act-2-with-semel/state")
    print(NEXT)


def _scene_row(scene: Performance) -> tuple[object, ...]:
    took = scene.asked[-1].milliseconds
    first, *again = scene.outcomes
    shown = "no answer" if took is None else f"{took:.1f} ms"
    return scene.promise.title, scene.charges, first, ", then ".join(again), shown


# ---- for programs ----


def _document(played: Played, seconds: float, *, keep: bool) -> dict[str, object]:
    return {
        "act_one": [_scene_document(scene) for scene in played.one],
        "act_two": _journey_document(played.two) if played.two else None,
        "seconds": round(seconds, 3),
        "ok": not played.wrong,
        "directory": played.directory if keep else None,
    }


def _scene_document(scene: Performance) -> dict[str, object]:
    return {
        "title": scene.promise.title,
        "charges": scene.charges,
        "promised": {"charges": scene.promise.charges, "statuses": list(scene.promise.outcomes)},
        "statuses": list(scene.outcomes),
        "milliseconds": [run.milliseconds for run in scene.asked],
        "seconds": round(scene.seconds, 3),
        "wrong": scene.wrong,
    }


def _journey_document(journey: Journey) -> dict[str, object]:
    from proxy.demo.act_two import ONCE

    return {
        "seed": journey.seed,
        "kills": [str(kill) for kill in journey.kills],
        "without": _side_document(journey.without),
        "with": _side_document(journey.behind),
        "promised": dict(ONCE),
        "seconds": round(journey.seconds, 3),
        "wrong": journey.wrong,
    }


def _side_document(side: Side) -> dict[str, object]:
    starts = [
        {
            "killed": str(start.killed) if start.killed else None,
            "done": start.done,
            "replayed": start.replayed,
            "executed": start.executed,
            "seconds": round(start.seconds, 3),
        }
        for start in side.starts
    ]
    return {"starts": starts, "counts": side.counts}
