"""`make peers`: the same crashes against semel and its peers, each from its own package, effects counted.

    python -m benchmarks.peers [--only NAME] [--times N] [--jobs N] [--json] [--keep] [--page FILE]

Each project has an upstream process and stores of its own. Loopback only, apart from the installation of the
packages. `--keep` leaves the logs and stores.
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
from benchmarks.peers.rows import PEERS, Peer
from benchmarks.peers.subjects import world
from benchmarks.peers.trying import Result, try_peer
from tests.proof.report import report


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def run(only: list[str], times: int, patience: float, jobs: int, work: Path) -> list[Result]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    room = asyncio.Semaphore(jobs)

    async def tried(peer: Peer) -> list[Result]:
        place = work / peer.name
        place.mkdir()
        async with room, world(place, patience) as own:
            return await try_peer(own, peer, say, times)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tried(peer)) for peer in PEERS if not only or peer.name in only]
    return [result for one in tasks for result in one.result()]


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
    options.add_argument("--jobs", type=int, default=1, help="so many projects at a time")
    options.add_argument("--patience", type=float, default=30.0, help="seconds that an agent asks again for")
    options.add_argument("--json", action="store_true")
    options.add_argument("--keep", action="store_true", help="leave logs and stores")
    options.add_argument("--page", type=Path, metavar="FILE", help="write the tables as Markdown")
    chosen = options.parse_args()
    if chosen.only:
        chosen.page = None  # a page is of all; of some they are printed
    work = Path(tempfile.mkdtemp(prefix="semel-peers-"))
    try:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            results = asyncio.run(run(chosen.only, chosen.times, chosen.patience, chosen.jobs, work))
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
