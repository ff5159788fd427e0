"""What a command line gives: words that are text, and bytes from a file or from standard input.

The shell hands over bytes. What is no text in this locale arrives as lone surrogates, which no header, no
JSON and no record can carry: it is refused before anything is done with it, and never repeated, since it
may be a secret.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from proxy.errors import ConfigurationError

STDIN = "-"


def is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_text(arguments: Sequence[str]) -> None:
    for place, word in enumerate(arguments, start=1):
        if not is_text(word):
            raise ConfigurationError(
                f"Argument {place} is not UTF-8 text. Write it in UTF-8, in a locale that knows it (LC_ALL="
                "C.UTF-8); bytes that are no text belong into a file."
            )


def content_of(name: str, flag: str) -> bytes:
    """Of the file, or of standard input. `flag` is what was written, for the message."""
    try:
        if name != STDIN:
            return Path(name).read_bytes()
        if sys.stdin is None:
            raise ConfigurationError(f"{flag}: standard input is closed. Give it something, or name a file.")
        return sys.stdin.buffer.read()
    except OSError as error:
        raise ConfigurationError(f"{flag}: the file cannot be read: {error.strerror}.") from None
