"""`semel check`: read semel.yaml and policy files, and say everything that is wrong with them.

Each mistake is one line, `file:line:col: message`. Nothing is started and nothing is sent.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proxy.cli.configuration import add_config_flag
from proxy.cli.output import DONE, USAGE, add_json, print_json
from proxy.cli.parsing import examples
from proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from proxy.core.policy import PolicySet
    from proxy.notifying.schema import Notify
    from proxy.policy_file import Mistake, Mistakes
    from proxy.policy_file.mistakes import Log

_PLACES = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["file", "line", "column", "message"],
        "additionalProperties": False,
        "properties": {
            "file": {"type": "string", "minLength": 1},
            # 0: not in a file, but in a variable (`file` is then its name).
            "line": {"type": "integer", "minimum": 0},
            "column": {"type": "integer", "minimum": 0},
            "message": {"type": "string", "minLength": 1},
        },
    },
}

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["mistakes", "warnings", "upstreams", "rules"],
    "additionalProperties": False,
    "properties": {
        "mistakes": _PLACES,
        # What keeps a semel from starting here, and is no mistake of the files: credentials are not at hand
        # wherever files are checked.
        "warnings": _PLACES,
        "upstreams": {"type": "integer", "minimum": 0},
        "rules": {"type": "integer", "minimum": 0},
    },
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "check",
        help="check semel.yaml and policy files",
        description=__doc__,
        epilog=examples(
            "semel check                          # semel.yaml here, and the policies it names",
            "semel check policies/ mail.yaml",
            "semel check --config deploy/semel.yaml --json",
        ),
    )
    command.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help='policy files or directories (default: what semel.yaml names, or "presets")',
    )
    add_config_flag(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Mistakes is a ConfigurationError: main prints its lines and exits with 2."""
    from proxy.policy_file import Mistakes
    from proxy.policy_file.mistakes import Log

    unset = Log()
    try:
        policies = _load(options, unset)
    except Mistakes as found:
        if not options.json:
            raise
        told = {"mistakes": _told(found.mistakes), "warnings": _told(unset.noted)}
        print_json({**told, "upstreams": 0, "rules": 0})
        return USAGE
    upstreams = len(policies.upstreams)
    rules = sum(len(upstream.rules) for upstream in policies.upstreams.values())
    if options.json:
        warnings = _told(unset.noted)
        print_json({"mistakes": [], "warnings": warnings, "upstreams": upstreams, "rules": rules})
    else:
        for one in sorted(unset.noted):
            print(f"warning: {one}. Where semel serves it has to be set.", file=sys.stderr)
        print(f"no mistakes (upstreams: {upstreams}, rules: {rules})")
    return DONE


def _signs(notify: Notify | None, unset: Log) -> list[Mistakes]:
    """Whether there is a secret to sign notifications with."""
    from proxy.notifying.signing import SecretMissing, read_secret
    from proxy.policy_file import Mistake, SettingsMistakes
    from proxy.policy_file.mistakes import Place

    if notify is None:
        return []
    try:
        read_secret(notify.secret_env, os.environ)
    except SecretMissing as missing:
        unset.add(Place(notify.secret_env), str(missing))
    except ConfigurationError as error:
        return [SettingsMistakes([Mistake(notify.secret_env, 0, 0, str(error))])]
    return []


def _told(mistakes: Iterable[Mistake]) -> list[dict[str, object]]:
    return [
        {"file": one.file, "line": one.line, "column": one.col, "message": one.message}
        for one in sorted(mistakes)
    ]


def _load(options: argparse.Namespace, unset: Log) -> PolicySet:
    """All mistakes at once: those of semel.yaml do not keep those of the files from being told."""
    from proxy.policy_file import Mistakes, SettingsMistakes, load_policies, presets_directory
    from proxy.settings import load_settings

    wrong: list[Mistakes] = []
    sources = options.files
    operators = encrypted = True  # files that are named are checked for themselves
    try:
        settings = load_settings({}, os.environ, options.config)
        operators = bool(sources) or settings.has_operators
        encrypted = bool(sources) or settings.is_encrypted
        sources = sources or settings.policies
        wrong += _signs(settings.notify, unset)
    except SettingsMistakes as found:
        wrong.append(found)
    try:
        policies = load_policies(
            sources,
            presets=presets_directory(),
            environ=os.environ,
            unset=unset,
            operators=operators,
            encrypted=encrypted,
        )
    except Mistakes as found:
        wrong.append(found)
    if wrong:
        raise Mistakes(one for found in wrong for one in found.mistakes)
    return policies
