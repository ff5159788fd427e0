"""The embedded store with a thousand and with a million rows: lookups, start, memory.

The rows are written with the store's own columns, in large transactions; everything measured goes through
the store itself, or through a real `semel serve` on top of it.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import apsw
import uvloop

from benchmarks import much
from benchmarks.judging import Found
from benchmarks.running import ROOT, Plan, end, say
from proxy.core.intent import Answer, Call, Place, State
from proxy.store.codec import CALL_COLUMNS, Codec, StoredRequest, call_to_row
from proxy.store.database import FILE_NAME
from proxy.store.embedded import EmbeddedStore

FEW = 1000
LOOKUPS, CALLERS, ROUNDS = much(20_000), 64, much(5)
ALONE = much(4000)
STARTS = much(3)


def key_of(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


def rows(numbers: Iterable[int]) -> Iterator[tuple[object, ...]]:
    """Settled calls as a busy day leaves them: about a kilobyte each."""
    codec = Codec()
    headers = ((b"Content-Type", b"application/json"), (b"Request-Id", b"req_0123456789abcdef"))
    arguments = b'["json",{"body":{"customer":"c-000000000","usd":12.5}}]'
    request = codec.seal_request(
        StoredRequest(method="POST", target=b"/pay", headers=headers, body=b"x" * 90, arguments=arguments)
    )
    answer = Answer(
        status=200,
        size=450,
        recorded_at=1.0,
        place=Place.INLINE,
        head=codec.seal_head(headers),
        body=codec.seal_body(b"y" * 450),
    )
    for number in numbers:
        key = key_of(number)
        yield call_to_row(
            Call(
                key=key,
                fingerprint=key + key,
                tenant="default",
                upstream="bench",
                rule="pay",
                tool="pay",
                safe=False,
                state=State.DONE,
                version=2,
                fence=1,
                owner="gone",
                created_at=1.0,
                sent_at=1.0,
                settled_at=2.0,
                expires_at=4e9,
                sends=1,
                request=request,
                answer=answer,
            )
        )


async def make(directory: Path) -> None:
    await (await EmbeddedStore.open(directory)).close()


def fill(directory: Path, count: int) -> None:
    database = directory / FILE_NAME
    holes = ", ".join("?" * len(CALL_COLUMNS))
    statement = f"INSERT INTO calls ({', '.join(CALL_COLUMNS)}) VALUES ({holes})"
    connection = apsw.Connection(str(database))
    connection.pragma("synchronous", "OFF")
    source, written = rows(range(count)), 0
    while written < count:
        batch = [row for _, row in zip(range(50_000), source, strict=False)]
        with connection:
            connection.executemany(statement, batch)
        written += len(batch)
        say(f"filling: {written:,} of {count:,} rows")
    connection.pragma("wal_checkpoint(TRUNCATE)")
    connection.close()


def filled(work: Path, count: int) -> Path:
    """A ledger with so many rows. Made by the first who asks, and left to the next as it was left."""
    directory = work / f"rows-{count}"
    if not directory.exists():
        directory.mkdir(mode=0o700)
        asyncio.run(make(directory))
        fill(directory, count)
    return directory


async def lookups_per_second(store: EmbeddedStore, count: int, seed: int) -> float:
    chosen = random.Random(seed)
    keys = [key_of(chosen.randrange(count)) for _ in range(LOOKUPS)]
    iterator = iter(keys)

    async def caller() -> None:
        for key in iterator:
            assert await store.get(key) is not None

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return LOOKUPS / (time.perf_counter() - began)


async def lookup_time(store: EmbeddedStore, count: int, seed: int) -> float:
    """The median of one lookup after another, in seconds."""
    chosen = random.Random(seed)
    taken = []
    for _ in range(ALONE):
        key = key_of(chosen.randrange(count))
        began = time.perf_counter()
        assert await store.get(key) is not None
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def lookup_ratios(few: Path, many: Path, count: int) -> tuple[float, float]:
    """How many times longer a lookup takes among many rows: for one caller alone, and when many ask at once
    (what is then left to compare is SQLite's own work, since its callers share the rest). Rounds are
    interleaved."""
    small, large = await EmbeddedStore.open(few), await EmbeddedStore.open(many)
    try:
        alone, crowded = [], []
        for seed in range(ROUNDS + 1):
            rate_few = await lookups_per_second(small, FEW, seed)
            rate_many = await lookups_per_second(large, count, seed)
            time_few = await lookup_time(small, FEW, seed)
            time_many = await lookup_time(large, count, seed)
            if seed:  # the first round only warms up
                crowded.append(rate_few / rate_many)
                alone.append(time_many / time_few)
        return statistics.median(alone), statistics.median(crowded)
    finally:
        await small.close()
        await large.close()


def serve(directory: Path, work: Path) -> tuple[float, float]:
    """Seconds until a real process is ready, and its resident megabytes after some traffic."""
    (work / "none.yaml").write_text("upstream: none\nbase_url: http://127.0.0.1:9\n")
    command = [sys.executable, "-m", "proxy.cli", "serve", "--listen", "127.0.0.1:0"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--state-dir", str(directory), "--policies", str(work / "none.yaml")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        base = process.stdout.readline().decode().split()[-1]
        urllib.request.urlopen(f"{base}/readyz", timeout=30).read()
        ready = time.perf_counter() - began
        for _ in range(50):
            urllib.request.urlopen(f"{base}/metrics", timeout=30).read()
        return ready, resident(process.pid)
    finally:
        end(process)


async def look_up(directory: Path, count: int) -> None:
    store = await EmbeddedStore.open(directory)
    await lookups_per_second(store, count, 1)
    await lookups_per_second(store, count, 2)
    await store.close()


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def measure(plan: Plan, found: Found) -> None:
    few, many = filled(plan.work, FEW), filled(plan.work, plan.rows)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        alone, crowded = runner.run(lookup_ratios(few, many, plan.rows))
    empty_ready, _ = min(serve(few, plan.work) for _ in range(STARTS))
    ready, serving = min(serve(many, plan.work) for _ in range(STARTS))
    command = [sys.executable, "-m", "benchmarks.million", str(many), str(plan.rows)]
    looked_up = float(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    label = f"{plan.rows:,} rows"
    say(f"process ready with {FEW:,} rows: {empty_ready:.2f} s")
    found.judge(f"lookup among {label} against {FEW:,}, p50, times", alone, "at most", 1.3)
    found.judge(f"process ready with {label}, seconds", ready, "at most", 1.0)
    found.judge(f"resident with {label}, serving, MB", serving, "at most", 300)
    found.judge(f"resident with {label}, after {2 * LOOKUPS:,} lookups, MB", looked_up, "at most", 300)
    found.shown[f"lookup among {label} with {CALLERS} callers at once, times"] = crowded


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as main_runner:
        main_runner.run(look_up(Path(sys.argv[1]), int(sys.argv[2])))
    print(resident(os.getpid()))
