"""Speed as ratios: every figure is measured against a bare server in the same run, on the same cores.

    __main__.py    `make bench`: which parts, and what they found as a page
    running.py     programs that are started on a core, and always ended
    load.py        the client; bodies.py, what it sends
    servers.py, nginx.py, uncounted.py   what semel is measured against
    replaying.py   recorded answers; once.py, calls with an effect, beside peers_rates.py
    latency.py, streaming.py, large.py   one call at a time
    stores.py      other stores, several workers
    million.py, growing.py, orphans.py   among many rows
    judging.py     what is wanted, and the mark; table.py, the page

With BENCH_SMALL in the environment (`make bench-smoke`) a twentieth is measured, once: to see that everything
works. Figures then mean nothing, and nothing is judged by them.
"""

from __future__ import annotations

import os

SMALL = bool(os.environ.get("BENCH_SMALL"))


def much(number: int) -> int:
    """How often, how many."""
    return max(1, number // 20) if SMALL else number
