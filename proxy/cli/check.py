"""`semel check`: read policy files and say everything that is wrong with them, without starting anything."""

from __future__ import annotations

import argparse

from proxy.policy_file import load_policies, presets_directory


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("check", help="check policy files", description=__doc__)
    command.add_argument(
        "files", nargs="*", metavar="FILE", help='policy files or directories (default: "presets")'
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """PolicyMistakes is a ConfigurationError: main prints it and exits with 2."""
    policies = load_policies(options.files or ["presets"], presets=presets_directory())
    rules = sum(len(upstream.rules) for upstream in policies.upstreams.values())
    print(f"no mistakes (upstreams: {len(policies.upstreams)}, rules: {rules})")
    return 0
