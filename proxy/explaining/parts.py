"""One difference between two requests, as it is told to people and to `matching.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LONGEST_VALUE = 120


class Part(StrEnum):
    UPSTREAM = "upstream"
    TENANT = "tenant"
    RUN = "run"
    METHOD = "method"
    PATH = "path"
    OCCURRENCE = "occurrence"
    HEADER = "header"
    CREDENTIALS = "credentials"
    CLIENT_KEY = "client_key"
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`name` is what `include`, `exclude` or `headers` call it. `fixed`: why no `key:` can leave it out.
    `here` and `there` are for people; None: it is not there at all."""

    part: Part
    field: str
    here: str | None
    there: str | None
    name: str = ""
    fixed: str = ""


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
