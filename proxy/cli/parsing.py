"""argparse with semel's manners: a slip is answered with what was meant, flags are written out in full, and
examples keep their lines.
"""

from __future__ import annotations

import argparse
from typing import Any


class Parser(argparse.ArgumentParser):
    """Commands below this one are of the same class: argparse makes them so."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (handed on to argparse as they are)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # `--st` would mean another flag the day a second one begins so: scripts would change their meaning.
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 (as argparse)
        """What a command does not know is told by that command, with its own usage."""
        known, extra = super().parse_known_args(args, namespace)
        if extra:
            # A flag's name without its value: that may be a secret, and is not what was misspelt.
            first = extra[0].partition("=")[0] if extra[0].startswith("-") else _without_password(extra[0])
            self.error(f"unknown argument {first!r}{_meant(first, list(self._option_string_actions))}")
        return known, extra

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """A wrong word for a command or a choice: with the nearest, as Python does it from 3.14 on."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = _meant(str(value), known) or f": choose from {', '.join(known)}"
        raise argparse.ArgumentError(action, f"there is no {str(value)!r}{near}")


def _without_password(word: str) -> str:
    """An address may hold one; its scheme says enough."""
    return f"{word.partition('://')[0]}://…" if "://" in word else word


def _meant(word: str, known: list[str]) -> str:
    """`: did you mean 'x'?`. The reader of policies has it too, and is loaded only for this."""
    from proxy.policy_file.mistakes import suggestion

    return suggestion(word, known)


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be pasted."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def number(text: str, least: int, most: int) -> int:
    """For argparse: a whole number between two others, both included."""
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {least} to {most}")
    return int(text)


def reason(text: str) -> str:
    """For argparse: every decision says why."""
    if not text.strip():
        raise argparse.ArgumentTypeError("say why, in words that help whoever reads the history")
    return text
