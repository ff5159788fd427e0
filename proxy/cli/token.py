"""`semel token new`: make a token and the lines that let it in. The token itself is stored nowhere."""

from __future__ import annotations

import argparse
import re

from proxy.cli.output import DONE, add_json, print_json
from proxy.cli.parsing import examples
from proxy.tokens import digest, new_token

# What the role is for, and how its token is shown to semel.
ROLES = {
    "agent": "makes calls; send it in the header Semel-Token",
    "operator": "looks into the record and decides; give it with --token, or send it in Semel-Token",
    "metrics": "reads /metrics; send it as Authorization: Bearer, or in the header Semel-Token",
}

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["token", "sha256", "tenant", "role"],
    "additionalProperties": False,
    "properties": {
        "token": {"type": "string", "pattern": "^semel_[A-Za-z0-9_-]{43}$"},
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "tenant": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"},
        "role": {"enum": list(ROLES)},
    },
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser("token", help="make tokens", description="Tokens that let callers in.")
    below = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = below.add_parser(
        "new",
        help="make a token",
        description=__doc__,
        epilog=examples(
            "semel token new --tenant acme --role agent",
            "semel token new --tenant acme --role operator --json",
        ),
    )
    command.add_argument("--tenant", required=True, type=_tenant, help="whose calls these are, e.g. acme")
    command.add_argument("--role", required=True, choices=ROLES, help="what the token may do")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    token = new_token()
    made = {"token": token, "sha256": digest(token), "tenant": options.tenant, "role": options.role}
    if options.json:
        print_json(made)
        return DONE
    print(token)
    print(f"\nThis is a token of {options.tenant}; it {ROLES[options.role]}.")
    print("It is stored nowhere: keep it now, it is not shown again. Add its digest to semel.yaml; a further")
    print("token needs only the last of these lines, under `tokens:`.\n")
    # Quoted, because a tenant may be called 42, and a digest may have the look of a number.
    entry = f'{{sha256: "{made["sha256"]}", tenant: "{options.tenant}", role: {options.role}}}'
    print(f"auth:\n  tokens:\n    - {entry}")
    return DONE


def _tenant(given: str) -> str:
    """As semel.yaml wants it."""
    if re.fullmatch(r"[A-Za-z0-9._-]+", given):
        return given
    raise argparse.ArgumentTypeError(f"{given!r} is not a tenant's name: use letters, digits, . _ and -")
