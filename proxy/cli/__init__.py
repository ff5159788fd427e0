"""The command line. One small file per command; exit status 0 done, 1 refused or not found, 2 bad usage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from proxy import __version__
from proxy.cli import check, serve
from proxy.errors import ConfigurationError

_COMMANDS = (serve, check)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="semel",
        description="An HTTP proxy between AI agents and the APIs they call: every tool call happens once.",
    )
    top.add_argument("--version", action="version", version=f"semel {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.register(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    return status
