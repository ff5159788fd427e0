"""Which paths and which tools a rule is for.

Path patterns split on literal `/`; segments compare percent-decoded, so `%2F` never splits. A tool stands
where a path does (identity.py), as its only segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Segment:
    """One path segment of a pattern: a literal, `{name}`, `*`, or `**` (the rest, at least one segment). For
    tools: a name with `*` for anything, anywhere in it."""

    kind: str  # "literal" | "name" | "any" | "rest" | "tool"
    text: str = ""


@dataclass(frozen=True, slots=True)
class PathPattern:
    text: str
    segments: tuple[Segment, ...]

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        """Raises ValueError with a sentence for people."""
        if not text.startswith("/"):
            raise ValueError("a path pattern starts with /")
        segments: list[Segment] = []
        names: set[str] = set()
        parts = text[1:].split("/")
        for position, part in enumerate(parts):
            if part == "**":
                if position != len(parts) - 1:
                    raise ValueError("** stands for the rest of the path and must come last")
                segments.append(Segment("rest"))
            elif part == "*":
                segments.append(Segment("any"))
            elif part.startswith("{") and part.endswith("}"):
                name = part[1:-1]
                if not name.isidentifier():
                    raise ValueError(f"{part} is not a name: use letters, digits and _")
                if name in names:
                    raise ValueError(f"{part} appears twice")
                names.add(name)
                segments.append(Segment("name", name))
            elif any(mark in part for mark in "{}*"):
                raise ValueError(f"{part!r} mixes a wildcard with text: a wildcard is a whole segment")
            else:
                segments.append(Segment("literal", unquote(part)))
        return cls(text, tuple(segments))

    @classmethod
    def of_tools(cls, text: str) -> PathPattern:
        """Which tools, by name; `*` stands for anything."""
        return cls(text, (Segment("tool", text),))

    @classmethod
    def read(cls, text: str) -> PathPattern:
        """As `text` was made: a path begins with a slash, which no tool's name does."""
        return cls.parse(text) if text.startswith("/") else cls.of_tools(text)

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """The named segments, or None. `segments` are percent-decoded."""
        pattern = self.segments
        rest = bool(pattern) and pattern[-1].kind == "rest"
        if len(segments) < len(pattern) if rest else len(segments) != len(pattern):
            return None
        names: dict[str, str] = {}
        for wanted, found in zip(pattern, segments, strict=False):
            if wanted.kind == "literal" and wanted.text != found:
                return None
            if wanted.kind == "tool" and not is_like(found, wanted.text):
                return None
            if wanted.kind == "name":
                names[wanted.text] = found
        return names


def split_path(raw_path: str) -> tuple[str, ...]:
    """`/a/b%2Fc` -> ("a", "b/c"). The raw path starts with a slash."""
    parts = raw_path[1:].split("/")
    return tuple(parts if "%" not in raw_path else map(unquote, parts))


def is_like(value: str, pattern: str) -> bool:
    """`*` stands for anything. Piece by piece from the left: no value makes it take long."""
    first, *pieces = pattern.split("*")
    if not pieces:
        return value == pattern
    at, last = len(first), pieces.pop()
    for piece in pieces:
        found = value.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return value.startswith(first) and value.endswith(last) and at + len(last) <= len(value)
