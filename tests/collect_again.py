"""`semel gc` over and over, in a process of its own, until its standard input ends.

python -m tests.collect_again GRACE --state-dir … | --store …

GRACE: how long a call stays beyond its time, in seconds. Prints a line for each time: calls, runs, blobs.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading

from proxy import collecting
from proxy.cli import main


def again(options: list[str]) -> None:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.is_set():
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            status = main(["gc", "--json", *options])
        if status != 0:
            sys.exit(status)
        did = json.loads(told.getvalue())
        print(did["calls"], did["runs"], did["blobs"], flush=True)


if __name__ == "__main__":
    collecting.GRACE = float(sys.argv[1])
    again(sys.argv[2:])
