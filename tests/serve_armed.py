"""`semel serve` with fault points armed: the last mile of a crash test is a real process that really dies.

python -m tests.serve_armed '{"claimed": {"action": "kill", "after": 0}}' serve --listen …

TEST_PRAGMAS='{"synchronous": "OFF"}' opens the ledger as no semel would, to see a test of durability fail.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from proxy import faults
from proxy.cli import main
from proxy.faults import Point
from proxy.store import database


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pause() -> None:
    """SIGSTOP, so that a test can act while the process stands exactly here; SIGCONT lets it go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _block() -> None:
    """Hold this thread until the process ends."""
    threading.Event().wait()


def _fail() -> None:
    raise RuntimeError("a fault point was armed to fail")


def _stamp() -> None:
    """Say when this point was passed, on the clock that all processes of this machine share."""
    sys.stderr.write(f"stamp {time.monotonic():.6f}\n")
    sys.stderr.flush()


ACTIONS: dict[str, Callable[[], None]] = {
    "kill": _kill,
    "pause": _pause,
    "block": _block,
    "fail": _fail,
    "stamp": _stamp,
}


def arm_from(text: str) -> None:
    for point, plan in json.loads(text).items():
        faults.arm(Point(point), ACTIONS[plan["action"]], after=plan.get("after", 0), times=plan.get("times"))


if __name__ == "__main__":
    arm_from(sys.argv[1])
    database.PRAGMAS.update(json.loads(os.environ.get("TEST_PRAGMAS", "{}")))
    sys.exit(main(sys.argv[2:]))
