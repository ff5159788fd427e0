"""How a claim can end, and a first try to settle that did not come to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from proxy.core.intent import Answer, Call
from proxy.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class Claimed:
    call: Call


@dataclass(frozen=True, slots=True)
class RaceLost:
    """Somebody else claimed it first."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The store failed while writing: the claim may stand or not. Nothing was sent."""

    call: Call | None
    error: StoreUnavailable


class Tried(NamedTuple):
    """With which answer, which may stand there by now; and what the store said, if it failed."""

    answer: Answer | None = None
    failed: StoreUnavailable | None = None


UNTRIED = Tried()
ClaimResult: TypeAlias = Claimed | RaceLost | Uncertain
