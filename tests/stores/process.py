"""Another process on the same store, driven by lines: `python -m tests.stores.process COMMAND PLACE`, where
the place is a directory or an address."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proxy import faults
from proxy.store.base import Store
from proxy.store.embedded import EmbeddedStore
from proxy.store.opening import Place, open_store
from tests.stores import budget_contract as budgets
from tests.stores import calls

ROOT = Path(__file__).parents[2]
# Of owners in stores that cannot ask the kernel.
HEARTBEAT, DEAD_AFTER = 0.2, 1.0


def say(*words: object) -> None:
    print(*words, flush=True)


async def hear() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def race(store: Store) -> None:
    """For each key heard: claim it, eight times at once, and say who won."""
    while key := await hear():
        swaps = await asyncio.gather(
            *(store.swap(*calls.claim(store.owner, bytes.fromhex(key)), expected=0) for _ in range(8))
        )
        wins = sum(swap.won for swap in swaps)
        seen = {swap.present.owner for swap in swaps if swap.present}
        say(wins, *seen)


async def spend(store: Store) -> None:
    """For each rule and limit heard: sixteen distinct calls at once out of its budget; say how many won."""
    while heard := await hear():
        rule, most = heard.split()
        taken = budgets.charge(budgets.calls_of(int(most)), of=budgets.account(rule=rule))
        claims = [store.swap(*calls.claim(store.owner), expected=0, charge=taken) for _ in range(16)]
        say(sum(swap.won for swap in await asyncio.gather(*claims)))


async def spend_and_die(store: Store, point: str, after: str) -> None:
    """Spend without end, say what was acknowledged, and be killed at a fault point."""
    faults.arm(faults.Point(point), lambda: os.kill(os.getpid(), signal.SIGKILL), after=int(after))

    async def spends() -> None:
        taken = budgets.charge(budgets.calls_of(10**6), budgets.money(10**9, 3))
        while (await store.swap(*calls.claim(store.owner), expected=0, charge=taken)).won:
            say("won")

    await asyncio.gather(*(spends() for _ in range(8)))


async def watch(store: Store) -> None:
    """Watch one row from the version heard on; say when each change was noticed."""
    key, version, rounds = (await hear()).split()
    for seen in range(int(version), int(version) + int(rounds)):
        assert await store.changed(bytes.fromhex(key), seen, 30.0)
        say(time.monotonic())


async def claim_and_die(store: Store, point: str, after: str) -> None:
    """Claim without end, say what was acknowledged, and be killed at a fault point."""
    faults.arm(faults.Point(point), lambda: os.kill(os.getpid(), signal.SIGKILL), after=int(after))

    async def claims() -> None:
        while True:
            call, entry = calls.claim(store.owner)
            assert (await store.swap(call, entry, expected=0)).won
            say(call.id)

    await asyncio.gather(*(claims() for _ in range(8)))


async def forget(store: Store, point: str = "") -> None:
    """For each key heard: end its time to live, and say when that is durable. Or be killed at a fault point
    meanwhile."""
    if point:
        faults.arm(faults.Point(point), lambda: os.kill(os.getpid(), signal.SIGKILL))
    while key := await hear():
        call = await store.get(bytes.fromhex(key))
        assert call is not None
        assert (await store.swap(*calls.forget(call), expected=call.version)).won
        say(call.version + 1)


async def collect(store: Store, point: str = "") -> None:
    """For each moment heard: collect one portion, and say how many calls that were. Or be killed at a fault
    point meanwhile."""
    if point:
        faults.arm(faults.Point(point), lambda: os.kill(os.getpid(), signal.SIGKILL))
    while now := await hear():
        say((await store.collect(float(now))).calls)


async def hold(store: Store) -> None:
    """Stay until told to go."""
    await hear()


async def owns(store: Store) -> None:
    """For each line heard: say whether this process may act, and as whom."""
    while await hear():
        say(store.owns(), store.owner)


async def hold_on(store: Store) -> None:
    """Say without end whether this process may act, and under which name; say when it stood still."""
    before = time.monotonic()
    while True:
        now = time.monotonic()
        if now - before > DEAD_AFTER / 2:
            say("woke", store.owner)
        before = now
        say(store.owns(), store.owner)
        await asyncio.sleep(0.02)


async def claim_on(store: Store) -> None:
    """Claim without end, and say what was acknowledged."""

    async def claims() -> None:
        while True:
            call, entry = calls.claim(store.owner)
            assert (await store.swap(call, entry, expected=0)).won
            say(call.id)

    await asyncio.gather(*(claims() for _ in range(8)))


async def claim(store: Store) -> None:
    """For each key heard: claim it, and say so."""
    while key := await hear():
        say((await store.swap(*calls.claim(store.owner, bytes.fromhex(key)), expected=0)).won)


async def fork(store: Store) -> None:
    """Leave a copy of this process behind that does nothing; say its number."""
    if os.fork() == 0:
        say(os.getpid())
        os.close(0)  # or whoever waits for the end of the pipes waits for this copy
        os.close(1)
        signal.alarm(60)  # it ends by itself if nobody ends it
        signal.pause()
    await hear()


COMMANDS = {
    "race": race,
    "spend": spend,
    "spend_and_die": spend_and_die,
    "watch": watch,
    "claim_and_die": claim_and_die,
    "forget": forget,
    "collect": collect,
    "hold": hold,
    "owns": owns,
    "claim": claim,
    "hold_on": hold_on,
    "claim_on": claim_on,
    "fork": fork,
}


async def opened(place: str) -> Store:
    if "://" not in place:
        return await EmbeddedStore.open(Path(place))
    return await open_store(Place(store=place, state=Path(), heartbeat=HEARTBEAT, dead_after=DEAD_AFTER))


async def main(command: str, place: str, *args: str) -> None:
    store = await opened(place)
    say(store.owner)
    await COMMANDS[command](store, *args)  # type: ignore[operator]
    await store.close()


class Child:
    def __init__(self, process: asyncio.subprocess.Process, owner: str) -> None:
        self.process = process
        self.owner = owner

    async def read(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 30)).decode().strip()

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())


@asynccontextmanager
async def child(command: str, place: Path | str, *args: str) -> AsyncIterator[Child]:
    """Runs until the block ends, and never longer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stores.process", command, str(place), *args,
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        made = Child(process, "")
        made.owner = await made.read()
        assert made.owner
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
