"""`semel policies`: what ships with semel and what is configured, and the rules as semel understands them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.cli import policy_rules
from proxy.cli.configuration import add_config_flag, add_policies_flag, settings_beside
from proxy.cli.output import DONE, Refused, add_json, print_json, print_table, printable, warn
from proxy.cli.parsing import examples

if TYPE_CHECKING:
    from proxy.core.policy import Upstream

_POLICY = {
    "name": {"type": "string"},
    "about": {"type": ["string", "null"]},
    "preset": {"type": "boolean"},
    "verified": {"type": ["string", "null"], "format": "date"},  # null: nobody says that it was checked
    "in_use": {"type": "boolean"},
    "base_url": {"type": "string", "pattern": "^https?://"},
    "file": {"type": "string"},
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "oneOf": [
        {
            "title": "semel policies list",
            "type": "object",
            "required": ["policies"],
            "additionalProperties": False,
            "properties": {
                "policies": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": [*_POLICY, "rules"],
                        "additionalProperties": False,
                        "properties": {**_POLICY, "rules": {"type": "integer", "minimum": 0}},
                    },
                }
            },
        },
        {
            "title": "semel policies show",
            "type": "object",
            "required": [*_POLICY, "rules", "text"],
            "additionalProperties": False,
            "properties": {
                **_POLICY,
                "rules": {"type": "array", "items": policy_rules.RULE},
                "text": {"type": "string"},
            },
        },
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy file. `in_use`: a proxy with these settings serves it."""

    name: str
    preset: bool
    in_use: bool
    upstream: Upstream
    file: Path

    @property
    def base_url(self) -> str:
        return f"{self.upstream.scheme}://{self.upstream.authority.decode()}{self.upstream.base_path}"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser("policies", help="list and show policies", description=__doc__)
    below = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = below.add_parser(
        "list",
        help="list presets and configured upstreams",
        description="List what ships with semel, and the upstreams that are configured.",
        epilog=examples("semel policies list", "semel policies list --policies my-policies/ --json"),
    )
    listing.set_defaults(run=run_list)
    showing = below.add_parser(
        "show",
        help="show a policy file, or its rules",
        description="Show a policy file as it is, or its rules as semel understands them.",
        epilog=examples(
            "semel policies show mail --policies mail.yaml --rules",
            "semel policies show mail --policies mail.yaml > copy.yaml",
        ),
    )
    name = showing.add_argument("name", metavar="NAME", help="a preset, or a configured upstream")
    name.completer = policy_names  # type: ignore[attr-defined]
    showing.add_argument("--rules", action="store_true", help="the rules, first match first")
    showing.set_defaults(run=run_show)
    for command in (listing, showing):
        add_config_flag(command)
        add_policies_flag(command)
        add_json(command)


def run_list(options: argparse.Namespace) -> int:
    policies = known_policies(options)
    if options.json:
        print_json({"policies": [{**_said(one), "rules": len(one.upstream.rules)} for one in policies]})
        return DONE
    if not policies:
        print("No presets ship with this version of semel, and no upstream is configured.")
        print("Write a policy file and name it with --policies PATH, or under `policies` in semel.yaml.")
        return DONE
    rows = [
        (
            one.name,
            one.upstream.about,
            one.base_url,
            len(one.upstream.rules),
            one.upstream.verified or "no",
            "yes" if one.in_use else "no",
            one.file.name if one.preset else one.file,
        )
        for one in policies
    ]
    print_table(("NAME", "WHAT", "BASE URL", "RULES", "CHECKED", "IN USE", "FILE"), rows)
    if not any(one.preset for one in policies):
        warn("No presets ship with this version of semel.")
    return DONE


def run_show(options: argparse.Namespace) -> int:
    from proxy.policy_file.mistakes import suggestion

    policies = known_policies(options)
    named = [one for one in policies if one.name == options.name]
    if not named:
        names = sorted({one.name for one in policies})
        every = f": there are {', '.join(names)}." if names else ": there are none."
        near = suggestion(options.name, names) or every
        raise Refused(
            f"There is no policy {options.name!r}{near} `semel policies list` shows them; your own files are "
            "named with --policies PATH or in semel.yaml."
        )
    chosen = max(named, key=lambda one: one.in_use)  # the one that counts, where a preset was replaced
    rules = [policy_rules.told(rule) for rule in chosen.upstream.rules]
    text = chosen.file.read_bytes().decode()
    if options.json:
        print_json({**_said(chosen), "rules": rules, "text": text})
    elif options.rules:
        policy_rules.print_rules(chosen.upstream)
    else:
        _print_file(text)
    return DONE


def _print_file(text: str) -> None:
    """Byte for byte, so that it can be saved; to a terminal without what could drive it."""
    if sys.stdout is None or not sys.stdout.isatty():
        print(text, end="")
        return
    for line in text.splitlines():
        print(printable(line.expandtabs()))


def known_policies(options: argparse.Namespace) -> list[Policy]:
    """Presets first, then what is configured beside them. Raises Mistakes for files that are wrong."""
    from proxy.policy_file import load_policies, presets_directory
    from proxy.policy_file.load import PRESETS

    sources = settings_beside({"policies": options.policies}, options.config).policies
    presets = presets_directory()
    load_policies([PRESETS, *sources], presets=presets)  # all mistakes of all files at once
    last = {name: file for source in sources for file, name, _ in _files(source, presets)}
    shipped = [
        Policy(name=file.stem, preset=True, in_use=last.get(name) == file, upstream=upstream, file=file)
        for file, name, upstream in _files(PRESETS, presets)
    ]
    configured = [
        Policy(name=name, preset=False, in_use=last[name] == file, upstream=upstream, file=file)
        for source in dict.fromkeys(sources)
        if source != PRESETS
        for file, name, upstream in _files(source, presets)
    ]
    return shipped + configured


def _files(source: str, presets: Path) -> Iterator[tuple[Path, str, Upstream]]:
    """Every file of a source with the upstream that it describes."""
    from proxy.policy_file import load_policies
    from proxy.policy_file.load import PRESETS, policy_files

    path = presets if source == PRESETS else Path(source)
    for file in policy_files(path) if path.is_dir() else [path]:
        for name, upstream in load_policies([file], presets=presets).upstreams.items():
            yield file, name, upstream


def policy_names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """For completion, of any command: a shell wants names, never a reason why there are none."""
    from proxy.errors import ConfigurationError

    given = {name: getattr(parsed_args, name, None) for name in ("config", "policies")}
    try:
        return sorted({one.name for one in known_policies(argparse.Namespace(**given))})
    except (ConfigurationError, OSError):
        return []


def _said(policy: Policy) -> dict[str, object]:
    return {
        "name": policy.name,
        "about": policy.upstream.about or None,
        "preset": policy.preset,
        "verified": policy.upstream.verified or None,
        "in_use": policy.in_use,
        "base_url": policy.base_url,
        "file": str(policy.file),
    }
