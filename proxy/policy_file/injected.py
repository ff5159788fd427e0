"""The credential that semel holds: one variable of the environment, as the bytes of a header.

What is wrong with it is said without showing it, not even in part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# A tab is the one control character that a header may hold (RFC 9110, 5.5).
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST = 16 * 1024


def read_value(variable: str, environ: Mapping[str, str]) -> bytes:
    """Raises KeyError where there is none, and ValueError where it cannot be sent, with words for people."""
    value = environ.get(variable, "")
    if not value.strip(" \t"):
        said = "is empty" if variable in environ else "is not set"
        raise KeyError(f"the variable {variable} {said}: set it to what the header is to hold")
    if "\n" in value or "\r" in value:
        raise ValueError(
            f"the value of {variable} has a line break, which no header can hold: take it out, it is often "
            "the last character of a file"
        )
    if _CONTROL.search(value) is not None:
        raise ValueError(f"the value of {variable} has a control character, which no header can hold")
    if value != value.strip(" \t"):
        raise ValueError(f"the value of {variable} begins or ends with white space: take it out")
    if len(value) > _LONGEST:
        raise ValueError(f"the value of {variable} is over {_LONGEST} characters, too long for a header")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(
            f"the value of {variable} has a character that no header can hold (it is not in Latin-1)"
        ) from None
