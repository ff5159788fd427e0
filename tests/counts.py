"""How often a random or repeated test runs: a small count in `make test`, the full one in `make soak`."""

from __future__ import annotations

import os

SOAK = bool(os.environ.get("SEMEL_SOAK"))


def count(test: int, soak: int) -> int:
    return soak if SOAK else test
