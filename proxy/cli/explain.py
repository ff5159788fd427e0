"""`semel explain`: how a request is named, what would happen to it now, and why it is not another call.

The policies are read as `semel serve` reads them, and the request is named by the code that names it there.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from proxy.cli.given import content_of
from proxy.cli.output import DONE, Refused, add_json, print_json
from proxy.cli.parsing import examples
from proxy.errors import ConfigurationError, Refusal, StoreUnavailable

if TYPE_CHECKING:
    from proxy.explaining.told import Document
    from proxy.settings import Settings
    from proxy.store.base import Store

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_NUMBER_OR_NULL = {"type": ["number", "null"]}


def _object(**members: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def _list_of(item: object) -> dict[str, object]:
    return {"type": "array", "items": item}


_DIFFERENCE = _object(
    part={
        "enum": [
            *("upstream", "tenant", "run", "method", "path", "occurrence"),
            *("header", "credentials", "client_key", "argument"),
        ]
    },
    field=_TEXT,
    here=_TEXT_OR_NULL,
    there=_TEXT_OR_NULL,
    name=_TEXT,
    fixed=_TEXT,
)
SCHEMA = _object(
    request=_object(
        method=_TEXT, upstream=_TEXT, target=_TEXT, tenant=_TEXT, occurrence={"type": "integer", "minimum": 1}
    ),
    rule=_object(
        name=_TEXT_OR_NULL,
        at=_TEXT_OR_NULL,
        mode={"enum": ["once", "cache", "pass", "deny"]},
        safe={"type": "boolean"},
    ),
    arguments=_list_of(_object(field=_TEXT, value=_TEXT)),
    headers=_list_of(_object(name=_TEXT, value=_TEXT)),
    counts_too=_list_of(_TEXT),
    left_out=_list_of(_object(what=_TEXT, why=_TEXT)),
    canonical=_TEXT_OR_NULL,
    call={"type": ["string", "null"], "pattern": "^[0-9a-f]{32}$"},
    now=_object(
        what={
            "enum": [
                *("executed", "replayed", "waits", "in-doubt", "passed", "denied", "key-conflict"),
                *("identity-collision", "answer-unavailable", "awaiting-approval", "joined", "diverged"),
                *("run-expired", "upstream-unreachable", "upstream-timeout", "stale", "budget-exceeded"),
            ]
        },
        detail=_TEXT,
        since=_NUMBER_OR_NULL,
        age=_NUMBER_OR_NULL,
        ttl_left=_NUMBER_OR_NULL,
    ),
    run={
        "oneOf": [
            {"type": "null"},
            _object(
                name=_TEXT,
                attempt=_TEXT_OR_NULL,
                new={"type": "boolean"},
                parent=_TEXT_OR_NULL,
                pinned_otherwise={"type": "boolean"},
                family={"type": ["string", "null"], "pattern": "^[0-9a-f]{32}$"},
                recorded={"type": "integer", "minimum": 0},
                occurrence={"type": ["integer", "null"], "minimum": 1},
                why=_TEXT,
                unasked=_list_of(_object(call=_TEXT, seq={"type": "integer"}, tool=_TEXT, state=_TEXT)),
            ),
        ]
    },
    like={
        "oneOf": [
            {"type": "null"},
            _object(
                call=_TEXT,
                same={"type": "boolean"},
                same_now={"type": "boolean"},
                note=_TEXT,
                assumed=_list_of(_TEXT),
                differences=_list_of(_DIFFERENCE),
                remaining=_list_of(_DIFFERENCE),
                suggestions=_list_of(
                    _object(
                        yaml=_TEXT,
                        whole_rule={"type": "boolean"},
                        replaces={"type": "boolean"},
                        at=_TEXT_OR_NULL,
                        careful=_list_of(_TEXT),
                    )
                ),
            ),
        ]
    },
)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from proxy.cli.reach import add_store_flags

    command = commands.add_parser(
        "explain",
        help="how a request is named, and why it is not another call",
        description=__doc__,
        epilog=examples(
            """semel explain POST /mail/send -d '{"to": "ann@example.com"}'""",
            """semel explain POST /mail/send -d @body.json --like 0123456789abcdef --state-dir DIR""",
            """semel explain POST /mail/send -d @body.json --run task-42+attempt-2""",
        ),
    )
    command.add_argument("method", metavar="METHOD", help="GET, POST, …")
    command.add_argument(
        "url", metavar="URL", help="what the agent calls: the proxy's address, the upstream's, or a path"
    )
    command.add_argument(
        "-H",
        action="append",
        default=[],
        dest="headers",
        metavar="'NAME: VALUE'",
        help="a header; repeatable",
    )
    command.add_argument(
        "-d",
        action="append",
        default=[],
        dest="data",
        metavar="BODY",
        help="the body, @FILE, or @- for stdin",
    )
    command.add_argument(
        "--run",
        dest="run_reference",
        metavar="RUN[+ATTEMPT]",
        help="which call of this run it would be, and why; nothing is written. The address may say it too",
    )
    command.add_argument(
        "--like",
        metavar="CALL",
        help="compare with this recorded call (its id, or the first digits of it), and say what would make "
        "them match; headers that count and were not given are taken over from it",
    )
    command.add_argument("--tenant", metavar="T", help="whose call it is, where there are tokens")
    command.add_argument(
        "--policies",
        action="append",
        metavar="PATH",
        help='file, directory or "presets", in place of the default (presets); repeatable, later ones win',
    )
    add_store_flags(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio

    from proxy.cli.explain_page import print_page
    from proxy.explaining.record import NotComparable
    from proxy.problem import problem_of

    try:
        document = asyncio.run(_explain(options))
    except NotComparable as error:
        raise Refused(str(error)) from None
    except StoreUnavailable:
        raise  # that is the record's trouble, not the request's
    except Refusal as refusal:
        problem = problem_of(refusal)
        told = f"semel would refuse this ({problem.status} {problem.name}): {refusal.detail}"
        raise Refused(told) from None
    if options.json:
        print_json(document)
    else:
        print_page(document)
    return DONE


async def _explain(options: argparse.Namespace) -> Document:
    from proxy.explaining.explain import Question, explain
    from proxy.policy_file import load_policies, presets_directory
    from proxy.settings import load_settings

    flags = {"state": options.state_dir, "store": options.store, "policies": options.policies}
    settings = load_settings(flags, os.environ, options.config)
    policies = load_policies(settings.policies, presets=presets_directory())
    question = Question(
        method=options.method,
        url=options.url,
        headers=tuple(options.headers),
        body=b"&".join(_data(one) for one in options.data),
        tenant=options.tenant,
        run=options.run_reference,
        like=options.like,
    )
    async with _record(options, settings) as store:
        return await explain(question, settings, policies, store)


def _data(given: str) -> bytes:
    return content_of(given[1:], f"-d {given}") if given.startswith("@") else given.encode()


@asynccontextmanager
async def _record(options: argparse.Namespace, settings: Settings) -> AsyncIterator[Store | None]:
    """None without a record: a request can be explained before anything was ever called."""
    from proxy.cli.reach import has_record, opened_store

    in_memory = settings.store == "memory"
    if in_memory or (settings.store == "embedded" and not has_record(settings.state)):
        if options.like is not None:
            what = (
                "A store in memory cannot be read" if in_memory else f"There is no record in {settings.state}"
            )
            raise ConfigurationError(
                f"{what}: name the directory that `semel serve` keeps its record in with --state-dir DIR."
            )
        yield None
        return
    async with opened_store(options) as store:
        yield store
