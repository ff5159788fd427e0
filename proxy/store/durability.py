"""What is done with calls with effects where a store's server may lose what it has acknowledged."""

from __future__ import annotations

from enum import StrEnum


class Durability(StrEnum):
    STRICT = "strict"  # they are refused
    BEST_EFFORT = "best-effort"  # they are sent all the same, and logs and metrics say so
