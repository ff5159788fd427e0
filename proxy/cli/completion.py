"""`semel completion`: shell code that completes commands, flags and known values."""

from __future__ import annotations

import argparse

from proxy.cli.output import DONE
from proxy.cli.parsing import examples

# How a shell loads it, now and at every start.
LOADING = {
    "bash": (
        'eval "$(semel completion bash)"',
        "add that line to ~/.bashrc",
    ),
    "zsh": (
        'eval "$(semel completion zsh)"',
        "add that line to ~/.zshrc, after `autoload -U compinit && compinit`",
    ),
    "fish": (
        "semel completion fish | source",
        "semel completion fish > ~/.config/fish/completions/semel.fish",
    ),
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "completion",
        help="print shell code for completion",
        description=__doc__,
        epilog=examples(*(now for now, _ in LOADING.values())),
    )
    command.add_argument("shell", metavar="SHELL", choices=LOADING, help=f"one of {', '.join(LOADING)}")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    now, always = LOADING[options.shell]
    code = shellcode(["semel"], shell=options.shell)
    # zsh looks for #compdef in a file's first line, so the comment comes last.
    print(f"{code.strip()}\n\n# Now: {now}\n# At every start: {always}")
    return DONE
