"""How a claim can end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from proxy.core.intent import Call
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


ClaimResult: TypeAlias = Claimed | RaceLost | Uncertain
