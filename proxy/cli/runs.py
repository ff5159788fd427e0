"""`semel runs`: what an agent did, attempt by attempt; fork a run, let one leave its record, take it along.

Over the store itself, also while a proxy runs on it, or over a running proxy's HTTP API (--proxy URL).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from proxy.admin.schemas import document
from proxy.cli.call_ids import ANOTHER, looked_in
from proxy.cli.output import DONE, Refused, add_json, counted, print_json, printable, warn
from proxy.cli.parsing import examples, number, reason
from proxy.cli.reach import add_desk_flags, login, opened_desk, same_place
from proxy.cli.runs_diff import RUN_DIFF
from proxy.core.run_record import RunState
from proxy.errors import ConfigurationError, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.admin.desk import Desk
    from proxy.admin.views import Json

# `list` prints a RunPage, `show` a RunDetail, `fork` a Run, `allow` an Allowed: components of the HTTP API.
_API = document("RunPage", "RunDetail", "Run", "Allowed")
_WRITTEN = {
    "type": "object",
    "properties": {
        "output": {"type": "string"},
        "runs": {"type": "integer", "minimum": 0},
        "bytes": {"type": "integer", "minimum": 0},
    },
    "required": ["output", "runs", "bytes"],
    "additionalProperties": False,
}
SCHEMA = _API | {"anyOf": [*_API["anyOf"], RUN_DIFF, _WRITTEN]}
RUN_HELP = "the run's name"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("runs", help="runs: look, compare, fork, export", description=__doc__)
    below = command.add_subparsers(dest="runs_command", required=True, metavar="COMMAND")
    _register_list(below)
    _register_show(below)
    _register_diff(below)
    _register_fork(below)
    _register_allow(below)
    _register_export(below)


def _add(
    below: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    does: Callable[[Desk, argparse.Namespace], Awaitable[int]],
    about: str,
    *lines: str,
) -> argparse.ArgumentParser:
    command = below.add_parser(name, help=about, description=about, epilog=examples(*lines))
    add_desk_flags(command)
    command.add_argument("--tenant", metavar="T", help="whose runs, beside a store that has several tenants'")
    command.set_defaults(run=run, does=does)
    return command


def _register_list(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "list", _list, "runs, in the order in which they were first seen, newest first",
        "semel runs list", "semel runs list --in open --limit 20", "semel runs list --all --json",
    )  # fmt: skip
    states = [state.value for state in RunState]
    command.add_argument("--in", dest="state", choices=states, metavar="STATE",
                         help=f"only this state: {', '.join(states)}")  # fmt: skip
    command.add_argument(
        "--limit", type=_page_size, default=50, metavar="N", help="at most so many (default: 50)"
    )
    command.add_argument("--all", action="store_true", help="page after page, to the first run")
    add_json(command)


def _register_show(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "show", _show, "one run: its attempts, its steps, what is in doubt",
        "semel runs show task-42", "semel runs show task-42 --markdown",
    )  # fmt: skip
    command.add_argument("name", metavar="RUN", help=RUN_HELP)
    how = command.add_mutually_exclusive_group()
    how.add_argument("--markdown", action="store_true",
                     help="a short summary for whoever goes on with it, a person or a model")  # fmt: skip
    add_json(how)


def _register_diff(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "diff", _diff, "what one attempt asked and another did not, side by side",
        "semel runs diff task-42", "semel runs diff task-42 a1 a2",
    )  # fmt: skip
    command.add_argument("name", metavar="RUN", help=RUN_HELP)
    command.add_argument("attempts", metavar="ATTEMPT", nargs="*",
                         help="two of its attempts (default: the two latest)")  # fmt: skip
    add_json(command)


def _register_fork(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "fork", _fork, "a new run that begins with the record of this one up to a step",
        'semel runs fork task-42 --at 14 --as task-42b --reason "try another supplier"',
    )  # fmt: skip
    command.add_argument("name", metavar="RUN", help=RUN_HELP)
    command.add_argument("--at", type=_step, required=True, metavar="N",
                         help="the last step that the fork is given (see `show`; 0: none)")  # fmt: skip
    command.add_argument("--as", dest="new", required=True, metavar="NEW", help="the name of the new run")
    command.add_argument("--resend", action="store_true", help="make the calls with effects after that step "
                         "again; otherwise their answers are taken over")  # fmt: skip
    _add_decision(command)


def _register_allow(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "allow", _allow, "let the latest attempt leave the record: retire the calls it has not asked",
        "semel runs diff task-42", 'semel runs allow task-42 --reason "the new prompt orders elsewhere"',
    )  # fmt: skip
    command.add_argument("name", metavar="RUN", help=RUN_HELP)
    _add_decision(command)


def _register_export(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "export", _export, "a run as JSON Lines: the run, then every step with request and answer",
        "semel runs export task-42 > task-42.jsonl", "semel runs export --all --output runs.jsonl",
    )  # fmt: skip
    command.add_argument("name", metavar="RUN", nargs="?", help=RUN_HELP)
    command.add_argument("--all", action="store_true", help="every run that has not expired, newest first")
    command.add_argument("--output", metavar="FILE",
                         help="as it was until the end, then whole (default: print)")  # fmt: skip
    command.add_argument("--json", action="store_true", help="tell in JSON what was written to FILE")


def _add_decision(command: argparse.ArgumentParser) -> None:
    command.add_argument("--reason", required=True, type=reason, help="why; kept in the run's history")
    add_json(command)


def _page_size(text: str) -> int:
    return number(text, 1, 1000)


def _step(text: str) -> int:
    return number(text, 0, 2**53 - 1)


# ---- what they do ----


def run(options: argparse.Namespace) -> int:
    import asyncio

    async def at_the_desk() -> int:
        async with opened_desk(options) as desk:
            try:
                status: int = await options.does(_of_tenant(desk, options), options)
            except NotFound as missing:
                if "run" not in missing.members and "name" not in options:
                    raise
                raise Refused(
                    f"There is no run {options.name} in {looked_in(options)}. `semel runs list` shows what "
                    f"there is; name {ANOTHER}"
                ) from None
            return status

    return asyncio.run(at_the_desk())


def _of_tenant(desk: Desk, options: argparse.Namespace) -> Desk:
    from proxy.admin.desk import LocalDesk

    if options.tenant is None:
        return desk
    if not isinstance(desk, LocalDesk):
        raise ConfigurationError("A proxy's token says whose runs these are: leave out --tenant.")
    return desk.of(options.tenant)


async def _list(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.cli import runs_text
    from proxy.store.base import RunQuery

    after: int | None = None
    runs: list[Json] = []
    state = None if options.state is None else RunState(options.state)
    while True:
        page = await desk.runs.page(RunQuery(state=state, limit=options.limit, after=after))
        runs += page["runs"]
        after = page["next"]
        if after is None or not options.all:
            break
    if options.json:
        print_json({"runs": runs, "next": after})
        return DONE
    runs_text.print_list(runs)
    if after is not None:
        warn("There are more: --all, or a larger --limit.")
    return DONE


async def _show(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.cli import runs_text
    from proxy.cli.runs_markdown import summary

    detail = await desk.runs.show(options.name)
    if options.json:
        print_json(detail)
    elif options.markdown:
        from proxy.cli.runs_arguments import arguments_of

        effects = [step["call"] for step in detail["steps"] if not step["safe"]]
        print(summary(detail, await arguments_of(desk, detail, effects)), end="")
    else:
        runs_text.print_run(detail, same_place(options))
    return DONE


async def _diff(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.cli import runs_text
    from proxy.cli.runs_arguments import arguments_of
    from proxy.cli.runs_diff import compared, sides

    detail = await desk.runs.show(options.name)
    first, second = sides(detail, options.attempts)
    steps = detail["steps"]
    wanted = [step["call"] for step in steps if (first in step["asked_by"]) != (second in step["asked_by"])]
    diff = compared(detail, first, second, await arguments_of(desk, detail, wanted))
    if options.json:
        print_json(diff)
    else:
        runs_text.print_diff(diff, same_place(options))
    return DONE


async def _fork(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.admin.run_desk import Fork

    fork = Fork(by=login(), reason=options.reason, at=options.at, name=options.new, resend=options.resend)
    made = await desk.runs.fork(options.name, fork)
    if options.json:
        print_json(made)
    else:
        print(f"{printable(made['run'])} begins with {options.name} up to step {options.at}.")
        again = f"semel run --id {printable(made['run'])}{same_place(options)} -- COMMAND"
        print(f"Start it, with the policies of {options.name}: {again}")
    return DONE


async def _allow(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.cli import runs_text

    allowed = await desk.runs.allow(options.name, by=login(), reason=options.reason)
    if options.json:
        print_json(allowed)
    else:
        runs_text.print_allowed(allowed)
    return DONE


async def _export(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.cli.runs_export import export

    if (options.name is None) != bool(options.all):
        raise ConfigurationError("Name a run, or say --all: one of them.")
    if options.json and options.output is None:
        raise ConfigurationError("What is printed is the export: --json tells of a file, with --output FILE.")
    told = await export(desk, options.name, options.output)
    if options.json:
        print_json({"output": options.output, "runs": told.runs, "bytes": told.size})
    elif options.output is not None:
        print(f"{counted(told.runs, 'run')}, {told.size} bytes in {printable(options.output)}")
    return DONE
