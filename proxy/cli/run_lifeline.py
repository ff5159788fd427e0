"""The proxy that `semel run` starts: `semel serve`, for as long as somebody holds the other end of its stdin.

That is `semel run` alone. However it ends, SIGKILL included, the kernel closes that end, and the proxy stops
as on SIGTERM: calls in flight are finished or marked. This works the same on every system, and there is no
moment at the start in which it would not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from threading import Thread

from proxy.cli import main as semel

# Longer than calls in flight are given to finish: a second signal does not wait for them.
AGAIN = 60.0


def main(arguments: Sequence[str]) -> int:
    # `semel run` keeps its signals blocked, and a new process begins with the mask of its parent.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    Thread(target=_end_with_the_other_side, name="lifeline", daemon=True).start()
    return semel(["serve", *arguments])


def _end_with_the_other_side() -> None:
    while os.read(0, 1024):
        pass
    while True:  # nobody is left who would look whether it worked
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(AGAIN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
