"""The command line. One small file per command; exit status 0 done, 1 refused or not found, 2 bad usage."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import argcomplete

from proxy import __version__
from proxy.cli import (
    ca,
    calls,
    check,
    completion,
    demo,
    doctor,
    explain,
    gc,
    policies,
    serve,
    stats,
    token,
)
from proxy.cli.output import REFUSED, USAGE, Refused, warn
from proxy.errors import ConfigurationError, DecisionRefused, Refusal

# In the order of `semel --help`.
COMMANDS = (serve, demo, check, explain, calls, stats, gc, policies, token, ca, doctor, completion)
INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="semel",
        description="An HTTP proxy between AI agents and the APIs they call: every tool call happens once.",
    )
    top.add_argument("--version", action="version", version=f"semel {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.register(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    top = parser()
    argcomplete.autocomplete(top)
    options = top.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except ConfigurationError as error:
        warn(str(error))
        return USAGE
    except (Refused, DecisionRefused, Refusal) as error:
        warn(str(error))
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    return status
