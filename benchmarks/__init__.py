"""Speed as ratios: every figure is measured against a bare server in the same run, on the same cores.

With BENCH_SMALL in the environment a twentieth is measured: to see that everything works. Figures then mean
nothing.
"""

from __future__ import annotations

import os

SMALL = bool(os.environ.get("BENCH_SMALL"))


def much(number: int) -> int:
    """How often, how many."""
    return max(1, number // 20) if SMALL else number
