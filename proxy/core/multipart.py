"""Multipart bodies without their boundary, which clients make anew for every request.

Strict: anything unusual (preamble, missing end, nested boundary trouble) gives None, and the whole body's
digest stands for it.
"""

from __future__ import annotations

import re

MAX_PARTS = 1000
_BOUNDARY = re.compile(rb';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;"\r\n]{1,70}))', re.IGNORECASE)


def split_multipart(content_type: bytes, body: bytes) -> list[tuple[list[str], bytes]] | None:
    """Each part as (header lines with lower-case names, content), in order."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        return None
    delimiter = b"--" + (found[1] or found[2])
    if not body.startswith(delimiter + b"\r\n"):
        return None
    pieces = (b"\r\n" + body).split(b"\r\n" + delimiter)
    if len(pieces) > MAX_PARTS + 2 or pieces[0] or pieces[-1] not in (b"--", b"--\r\n"):
        return None
    parts: list[tuple[list[str], bytes]] = []
    for piece in pieces[1:-1]:
        if not piece.startswith(b"\r\n"):  # the delimiter occurred inside a content
            return None
        head, separator, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not separator:
            return None
        parts.append((_header_lines(head), content))
    return parts


def _header_lines(head: bytes) -> list[str]:
    lines: list[str] = []
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        lines.append(f"{name.strip().lower().decode('latin-1')}:{value.strip().decode('latin-1')}")
    return lines
