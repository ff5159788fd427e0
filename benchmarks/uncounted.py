"""semel without metrics: nothing is counted, and /metrics shows zeros. What counting costs is measured
against it. `python -m benchmarks.uncounted serve …` takes what `semel serve` takes."""

from __future__ import annotations

import sys

from proxy import app, cli
from proxy.metrics import MetricsObserver
from proxy.observe import Deaf


class Uncounted(MetricsObserver):
    """Who does not listen is not even called."""

    served = Deaf.served
    sent = Deaf.sent
    store_took = Deaf.store_took
    noted = Deaf.noted

    def batched(self, rows: int) -> None:
        """Not listening."""


if __name__ == "__main__":
    vars(app)["MetricsObserver"] = Uncounted
    sys.exit(cli.main())
