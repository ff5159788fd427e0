"""The command line. One small file per command; exit status 0 done, 1 refused or not found, 2 bad usage."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
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
    keys,
    mcp,
    notify,
    policies,
    run,
    runs,
    serve,
    stats,
    store,
    token,
)
from proxy.cli.given import require_text
from proxy.cli.output import REFUSED, USAGE, Refused, warn
from proxy.cli.parsing import Parser
from proxy.errors import ConfigurationError, DecisionRefused, Refusal

# In the order of `semel --help`.
COMMANDS = (
    serve,
    run,
    mcp,
    demo,
    check,
    explain,
    calls,
    runs,
    stats,
    gc,
    keys,
    store,
    policies,
    token,
    notify,
    ca,
    doctor,
    completion,
)
_NOT_TAKEN = (errno.EPIPE, errno.ENOSPC)  # by whoever was to take the output
INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended


def parser() -> Parser:
    top = Parser(
        prog="semel",
        description="An HTTP proxy between AI agents and the APIs they call: every tool call happens once.",
        epilog="`semel COMMAND --help` has examples. Exit status: 0 done, 1 refused or not found, 2 usage.",
    )
    top.add_argument("--version", action="version", version=f"semel {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        command.register(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    _write_what_cannot_be_encoded_as_escapes()
    try:
        top = parser()
        argcomplete.autocomplete(top)
        words = sys.argv[1:] if arguments is None else arguments
        require_text(run.without_command(words))
        options = top.parse_args(words)
        if options.command is None:
            top.print_help(sys.stderr)
            return USAGE
        status: int = options.run(options)
        if sys.stdout is not None:  # None: started with a closed one, and print says nothing to nobody
            sys.stdout.flush()
    except ConfigurationError as error:
        warn(str(error))
        return USAGE
    except (Refused, DecisionRefused, Refusal) as error:
        warn(str(error))
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # the last resort: a person gets a sentence, not a traceback
        if isinstance(error, OSError) and error.errno in _NOT_TAKEN:
            return _unwritten(error)
        return _defect(error)
    return status


def _write_what_cannot_be_encoded_as_escapes() -> None:
    """Others' text in a locale that does not have its letters is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _defect(error: Exception) -> int:
    if os.environ.get("SEMEL_DEBUG"):
        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}"
    warn(f"semel failed: {what}. This is a defect; run with SEMEL_DEBUG=1 to see where.")
    return REFUSED


def _unwritten(error: OSError) -> int:
    """Output that nobody takes. What is still buffered goes nowhere, or the interpreter would try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.ENOSPC:  # EPIPE: whoever reads our output has seen enough
        warn("The output could not be written: no space is left.")
    return REFUSED
