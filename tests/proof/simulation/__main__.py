"""python -m tests.proof.simulation --seed 7 | --seeds 100000 [--from 0]"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.proof.simulation.fate import Fate, Violation
from tests.proof.simulation.history import play


def tell(seed: int) -> int:
    """One history, line by line."""
    fates: list[Fate] = []
    try:
        play(seed, fates.append)
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    for at, what in fates[0].told:
        print(f"{at:10.3f}  {what}")
    print(f"digest {fates[0].digest()}")
    return status


def many(first: int, seeds: int) -> int:
    found: list[int] = []
    began = time.monotonic()
    for number in range(seeds):
        try:
            play(first + number)
        except Exception as error:
            found.append(first + number)
            kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            print(f"\r{kind}{error}"[:600], flush=True)
        if sys.stderr.isatty() and number % 100 == 0:
            print(f"\r{number} of {seeds}, {len(found)} broken", end="", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{seeds} histories in {seconds:.0f} s, {len(found)} in which something did not hold: {found[:20]}")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.simulation")
    parser.add_argument("--seed", type=int, help="tell this history, line by line")
    parser.add_argument("--seeds", type=int, default=2000, help="play so many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="beginning with this seed")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds is 1 or more: of no history nothing can be said")
    return many(options.first, options.seeds) if options.seed is None else tell(options.seed)


if __name__ == "__main__":
    sys.exit(main())
