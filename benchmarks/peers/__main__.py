"""`make peers`: the same crashes against semel and its peers, each from its own package, effects counted.

    python -m benchmarks.peers [--only NAME] [--times N] [--patience SECONDS] [--json] [--keep] [--page FILE]

Loopback only, apart from the installation of the packages. `--keep` leaves the logs and stores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import page
from benchmarks.peers.rows import PEERS
from benchmarks.peers.subjects import world
from benchmarks.peers.trying import Result, try_peer
from tests.proof.report import report


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def run(only: list[str], times: int, patience: float, work: Path) -> list[Result]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    results: list[Result] = []
    async with world(work, patience) as shared:
        for peer in PEERS:
            if not only or peer.name in only:
                results += await try_peer(shared, peer, say, times)
    return results


def as_json(results: list[Result]) -> list[dict[str, object]]:
    return [
        {
            "peer": result.peer.title, "row": result.row.label, "version": result.version,
            "setting": result.row.setting, "why_not": result.why_not,
            "outcomes": {
                name: [{"effects": one.effects, "told": dict(one.told)} for one in outcomes]
                for name, outcomes in result.outcomes.items()
            },
        }
        for result in results
    ]  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(prog="make peers", description=__doc__)
    options.add_argument("--only", action="append", default=[], choices=[peer.name for peer in PEERS])
    options.add_argument("--times", type=int, default=1, help="each scenario so often")
    options.add_argument("--patience", type=float, default=30.0, help="seconds that an agent asks again for")
    options.add_argument("--json", action="store_true")
    options.add_argument("--keep", action="store_true", help="leave logs and stores")
    options.add_argument("--page", type=Path, metavar="FILE", help="write the tables as Markdown")
    chosen = options.parse_args()
    work = Path(tempfile.mkdtemp(prefix="semel-peers-"))
    try:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            results = asyncio.run(run(chosen.only, chosen.times, chosen.patience, work))
            with contextlib.redirect_stdout(sys.stderr):  # what the report prints is not the answer
                for result in results:
                    report("peers", result.row.label, page.figures(result))
            if chosen.page is not None:
                chosen.page.write_text(page.as_markdown(results, chosen.times, chosen.patience))
                say(f"written to {chosen.page}")
            if chosen.json:
                print(json.dumps(as_json(results), indent=2))
            elif chosen.page is None:
                print(page.as_markdown(results, chosen.times, chosen.patience))
            return 0 if all(not result.why_not for result in results) else 1
        say("stopped; everything that was started is ended")
        return 130
    finally:
        if chosen.keep:
            say(f"logs and stores are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
