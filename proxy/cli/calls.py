"""`semel calls`: look into the record, and decide what nobody can decide automatically.

Over the store itself, also while a proxy runs on it, or over a running proxy's HTTP API (--proxy URL).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from proxy.admin.schemas import document
from proxy.cli.call_ids import not_there, whole_id
from proxy.cli.configuration import add_policies_flag
from proxy.cli.given import content_of
from proxy.cli.output import DONE, Refused, add_json, print_json, warn
from proxy.cli.parsing import examples, number, reason
from proxy.cli.reach import add_desk_flags, login, opened_desk, same_place
from proxy.core.intent import State
from proxy.errors import ConfigurationError, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.admin.desk import Body, Desk
    from proxy.admin.views import Json

# `list` prints a CallPage, everything else a CallDetail: the components of the HTTP API.
SCHEMA = document("CallPage", "CallDetail")
ID_HELP = "the call's id as in the header Semel-Call, or its first 6 digits or more if no other begins so"
# A call that is sent anew after it was forgotten keeps its place.
ORDER = "in the order in which calls were first seen, newest first"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("calls", help="the record: look, and decide", description=__doc__)
    below = command.add_subparsers(dest="calls_command", required=True, metavar="COMMAND")
    _register_list(below)
    _register_show(below)
    _register_resolve(below)
    _register_decisions(below)


def _add(
    below: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    does: Callable[[Desk, argparse.Namespace], Awaitable[int]],
    about: str,
    *lines: str,
) -> argparse.ArgumentParser:
    command = below.add_parser(name, help=about, description=about, epilog=examples(*lines))
    add_desk_flags(command)
    command.set_defaults(run=run, does=does)
    return command


def _register_list(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "list", _list, f"recorded calls, {ORDER}",
        "semel calls list --in in_doubt", "semel calls list --tool send_email --limit 20",
        "semel calls list --all --json",
    )  # fmt: skip
    command.add_argument("--in", dest="state", choices=[state.value for state in State], metavar="STATE",
                         help=f"only this state: {', '.join(state.value for state in State)}")  # fmt: skip
    for name in ("run", "tool", "upstream"):
        # Not `run`: that is the function that does it.
        command.add_argument(
            f"--{name}", dest=f"of_{name}", default="", metavar=name.upper(),
            help=f"only this {name}",
        )  # fmt: skip
    command.add_argument(
        "--limit", type=_page_size, default=50, metavar="N", help="at most so many (default: 50)"
    )
    command.add_argument("--all", action="store_true", help="page after page, to the first call")
    add_json(command)


def _register_show(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "show", _show, "one call: what was asked, what is known, its history",
        "semel calls show 4f0c…", "semel calls show 4f0c… --body > answer.json",
    )  # fmt: skip
    command.add_argument("id", metavar="ID", help=ID_HELP)
    how = command.add_mutually_exclusive_group()
    how.add_argument("--body", action="store_true", help="print the recorded answer's body")
    add_json(how)


def _register_resolve(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        below, "resolve", _resolve, "settle a call in doubt: it was executed, or it was not",
        'semel calls resolve 4f0c… --as not-executed --reason "the mail log has no such message"',
        'semel calls resolve 4f0c… --as executed --body-file answer.json --reason "charge ch_123 exists"',
    )  # fmt: skip
    command.add_argument("id", metavar="ID", help=ID_HELP)
    command.add_argument("--as", dest="verdict", required=True, choices=["executed", "not-executed"],
                         help="what came of it, as you found out at the upstream")  # fmt: skip
    command.add_argument("--status", type=_status, metavar="N",
                         help="the answer's status, 200 to 599 (default: 200 with a body)")  # fmt: skip
    command.add_argument("--body-file", metavar="FILE", help="the answer's body, replayed to identical calls "
                         "(- is standard input); without one they are told that it happened")  # fmt: skip
    command.add_argument("--content-type", metavar="TYPE", help="the answer's type (default: by its content)")
    # With the proxy's policies the decision is kept as long as the rule says; without, until it is forgotten.
    add_policies_flag(command)
    _add_decision(command)


# What else can be decided, each a method of the desk: what it does, and an example's reason.
DECISIONS = {
    "approve": ("permit a call that awaits approval: made again, it goes out once", "order 17 is right"),
    "deny": ("refuse a call that awaits approval", "the amount is wrong"),
    "probe": (
        "ask the upstream what became of a call in doubt, by the rule's probe (needs --proxy)",
        "the upstream is back",
    ),
    "forget": (
        "let a settled call go live again: the next identical call is sent",
        "wrong address, sent again on purpose",
    ),
}


def _register_decisions(below: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, (about, why) in DECISIONS.items():
        command = _add(below, name, _decide, about, f'semel calls {name} 4f0c… --reason "{why}"')
        command.add_argument("id", metavar="ID", help=ID_HELP)
        if name == "deny":  # with the proxy's policies a refusal stands as long as the rule says
            add_policies_flag(command)
        command.set_defaults(decision=name)
        _add_decision(command)


def _add_decision(command: argparse.ArgumentParser) -> None:
    command.add_argument("--reason", required=True, type=reason, help="why; kept in the call's history")
    command.add_argument("--version", type=_version, metavar="N",
                         help="decide only if the call still has this version (see `show`)")  # fmt: skip
    add_json(command)


def _page_size(text: str) -> int:
    return number(text, 1, 1000)


def _status(text: str) -> int:
    return number(text, 200, 599)


def _version(text: str) -> int:
    return number(text, 1, 2**53 - 1)


# ---- what they do ----


def run(options: argparse.Namespace) -> int:
    import asyncio

    async def at_the_desk() -> int:
        async with opened_desk(options) as desk:
            if "id" in options:
                options.id = await whole_id(desk, options)
            try:
                status: int = await options.does(desk, options)
            except NotFound as missing:
                if "call" in missing.members:  # it is there; what is not is its answer
                    raise
                raise not_there(options) from None
            return status

    return asyncio.run(at_the_desk())


async def _list(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.cli import calls_text
    from proxy.store.base import Query

    after: int | None = None
    pages: list[Json] = []
    while not pages or (options.all and after is not None):
        query = Query(
            state=None if options.state is None else State(options.state),
            run=options.of_run,
            tool=options.of_tool,
            upstream=options.of_upstream,
            limit=options.limit,
            after=after,
        )
        pages.append(await desk.calls(query))
        after = pages[-1]["next"]
    whole: Json = {
        "calls": [call for page in pages for call in page["calls"]],
        "next": after,
        "unreadable": [one for page in pages for one in page["unreadable"]],
    }
    if options.json:
        print_json(whole)
        return DONE
    calls_text.print_list(whole)
    if after is not None:
        warn("There are more: --all, or a larger --limit.")
    return DONE


async def _show(desk: Desk, options: argparse.Namespace) -> int:
    if options.body:
        if sys.stdout is None:
            raise Refused("Standard output is closed: there is nowhere to print the body to.")
        _print_body(await _whole(await desk.body(options.id)))
        return DONE
    return _print_detail(await desk.call(options.id), options)


async def _resolve(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.admin.decision import Resolution
    from proxy.operator import Verdict

    verdict = Verdict(options.verdict.replace("-", "_"))
    answers = (options.status, options.body_file, options.content_type)
    if verdict is Verdict.NOT_EXECUTED and any(given is not None for given in answers):
        raise ConfigurationError(
            "What was not executed has no answer: leave out --status, --body-file and --content-type."
        )
    if options.content_type is not None and options.body_file is None:
        raise ConfigurationError("--content-type says what a body is: give one with --body-file.")
    name = options.body_file
    resolution = Resolution(
        by=login(),
        verdict=verdict,
        reason=options.reason,
        version=options.version,
        status=options.status,
        body=None if name is None else content_of(name, f"--body-file {name}"),
        content_type=options.content_type,
    )
    return _print_detail(await desk.resolve(options.id, resolution), options)


async def _decide(desk: Desk, options: argparse.Namespace) -> int:
    from proxy.admin.decision import Decision

    decision = Decision(by=login(), reason=options.reason, version=options.version)
    decide: Callable[[str, Decision], Awaitable[Json]] = getattr(desk, options.decision)
    return _print_detail(await decide(options.id, decision), options)


def _print_detail(detail: Json, options: argparse.Namespace) -> int:
    from proxy.cli import calls_text

    if options.json:
        print_json(detail)
    else:
        calls_text.print_call(detail, same_place(options))
    return DONE


async def _whole(body: Body) -> bytes:
    """Decoded for people; what cannot be decoded is given as it is."""
    from proxy.core.encoding import Undecodable, codings, decode
    from proxy.errors import AnswerUnavailable
    from proxy.store.base import BlobLost

    try:
        data = (
            body.content
            if isinstance(body.content, bytes)
            else b"".join([part async for part in body.content])
        )
    except BlobLost as error:
        raise AnswerUnavailable(f"The answer is damaged: {error}.") from None
    applied = codings([(b"content-encoding", body.content_encoding.encode("latin-1"))])
    try:
        return decode(data, applied, LARGEST_DECODED) if applied else data
    except Undecodable:
        return data


# As limits.response_body: what is larger was not kept.
LARGEST_DECODED = 256 * 1024 * 1024


def _print_body(body: bytes) -> None:
    """To a file or a pipe byte for byte; to a terminal as text that cannot drive it."""
    from proxy.cli.calls_text import harmless

    if sys.stdout.isatty():
        print(harmless(body))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
