"""`make bench`: ratios in one run, rounds interleaved, medians; the requirement beside the measurement.

nginx and peers are measured along where they can be had. `--table FILE` writes the figures down with versions
and settings. Ends with 1 when something was missed by more than a tenth; `make bench-smoke` judges nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import SMALL, growing, large, latency, million, once, orphans, replaying, stores, streaming
from benchmarks.judging import Found, missed, said
from benchmarks.running import STOPPING, Plan, say
from benchmarks.table import as_markdown

Measure = Callable[[Plan, Found], None]

# In the order of the page. Among many rows: those who only look, before those who add and change.
PARTS: dict[str, tuple[Measure, ...]] = {
    "replaying": (replaying.measure,),
    "once": (once.measure,),
    "latency": (latency.measure,),
    "streaming": (streaming.measure,),
    "large": (large.measure,),
    "rows": (million.measure, growing.measure, orphans.measure),
    "metrics": (replaying.measure_metrics,),
    "stores": (stores.measure,),
}


def as_json(found: Found) -> dict[str, object]:
    return {
        "rates": {name: rates.median for name, rates in found.rates.items()},
        "checks": [[*check, said(check, small=SMALL)] for check in found.checks],
        "shown": found.shown,
        "unmeasured": found.unmeasured,
        "missed": missed(found.checks, small=SMALL),
    }


def tell(found: Found) -> None:
    for name, rates in found.rates.items():
        print(f"{name:60} {rates.median:10,.0f} requests/s")
    for check in found.checks:
        mark = said(check, small=SMALL)
        print(f"{check.name:60} {check.value:10.2f}   {check.relation} {check.bound:g}   {mark}")
    for name, _, _, why in found.unmeasured:
        print(f"{name:60} not measured: {why}")
    for name, value in found.shown.items():
        print(f"{name:60} {value:10.2f}   not judged")
    if SMALL:
        print("A small run: everything was done, and the figures mean nothing.")


def main() -> int:
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("--rounds", type=int, default=1 if SMALL else 9)
    options.add_argument("--rows", type=int, default=1500 if SMALL else 1_000_000)
    options.add_argument("--only", action="append", choices=[*PARTS], help="a part; may be given again")
    options.add_argument("--json", action="store_true")
    options.add_argument("--table", type=Path, metavar="FILE", help="write the figures as Markdown")
    chosen = options.parse_args()
    STOPPING.listen()
    found = Found()
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as folder:
        plan = Plan(rounds=chosen.rounds, rows=chosen.rows, work=Path(folder))
        for name in chosen.only or PARTS:
            began = time.monotonic()
            for measure in PARTS[name]:
                measure(plan, found)
            say(f"{name}: {time.monotonic() - began:.1f} s")
    if chosen.table is not None:
        chosen.table.write_text(as_markdown(found, chosen.rounds))
        say(f"written to {chosen.table}")
    if chosen.json:
        print(json.dumps(as_json(found), indent=2))
    else:
        tell(found)
    return 1 if missed(found.checks, small=SMALL) else 0


if __name__ == "__main__":
    sys.exit(main())
