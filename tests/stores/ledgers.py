"""Ledgers for tests of copying: everything that a store can hold, in an order that a seed decides."""

from __future__ import annotations

import random
from dataclasses import replace

from proxy.core.budget import FOR_GOOD, Account, Charge, Meter, Posting
from proxy.core.intent import Call, Entry, Place, State
from proxy.core.run_record import End, How, Parent, Run, RunEntry, Serving
from proxy.store.base import Store
from tests.stores import calls
from tests.stores.calls import NOW

# More than any other text has to be carried: what has no place in some stores, and what looks like an escape.
STRANGE = "bad \x00 gateway \x01\x03 \U0001f600 'quoted' é"


class Filling:
    """Through the store's own front door, as proxies would."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.keys: list[bytes] = []

    async def swap(
        self, made: tuple[Call, Entry], served: Serving | None = None, charge: Charge | None = None
    ) -> Call:
        call, entry = made
        swap = await self.store.swap(call, entry, expected=call.version - 1, served=served, charge=charge)
        assert swap.won
        return replace(call, seq=swap.seq) if call.run else call

    def key(self) -> bytes:
        self.keys.append(self.chance.randbytes(16))
        return self.keys[-1]

    async def claimed(self, **changes: object) -> Call:
        call, entry = calls.claim(self.store.owner, self.key(), at=NOW + self.chance.random())
        changed = replace(call, **changes)  # type: ignore[arg-type]
        return await self.swap((changed, entry), charge=self.charge(changed))

    def charge(self, call: Call) -> Charge | None:
        """Of some calls, by what is counted: a bucket of many, or the one that is for good."""
        if self.chance.random() < 0.5:
            return None
        bucket = round(NOW * 1000) + 60_000 * self.chance.randrange(20)
        account = Account(call.tenant, call.run, call.upstream, self.chance.choice(["send", "pay"]))
        counted = Posting(Meter.CALLS, bucket, 1, most=10**6, expires=bucket + 3_600_000)
        paid = Posting(Meter.USD, FOR_GOOD, self.chance.randrange(10**9), peak=7, most=10**15)
        return Charge(account, (counted, paid))

    async def done(self, call: Call) -> Call:
        return await self.swap(calls.settle(call, self.chance.randbytes(self.chance.randrange(2000))))

    async def with_bodies(self, call: Call, size: int) -> Call:
        """Its request is there already; the answer is large as well."""
        ref = await self.store.put_blob([self.chance.randbytes(size)])
        settled, entry = calls.settle(call)
        assert settled.answer is not None
        answer = replace(settled.answer, place=Place.BLOB, body=b"", blob=ref.digest, size=ref.size)
        return await self.swap((replace(settled, answer=answer), entry))

    async def something(self) -> None:
        match self.chance.randrange(9):
            case 0:
                await self.claimed()
            case 1:
                await self.claimed(safe=True)
            case 2:
                lost, entry = calls.lose(await self.claimed())
                assert lost.doubt is not None
                await self.swap((replace(lost, doubt=replace(lost.doubt, excerpt=STRANGE)), entry))
            case 3:
                await self.swap(calls.release(await self.claimed(tool=STRANGE)))
            case 4:
                blob = await self.store.put_blob([self.chance.randbytes(70_000)])
                call = await self.claimed(request_blob=blob.digest)
                await self.with_bodies(call, self.chance.choice([0, 1, 300_000, 600_001]))
            case 5:
                done = await self.done(await self.claimed(cost_usd=0.1))
                await self.store.note(done.key, calls.evidence(done, STRANGE))
                for _ in range(self.chance.randrange(4)):
                    self.store.mark_replayed(done.key, NOW + 7)
            case 6:
                await self.swap(calls.forget(await self.done(await self.claimed())))
            case 7:
                released = await self.swap(calls.release(await self.claimed()))
                await self.done(await self.swap(calls.claim_again(released, self.store.owner)))
            case _:
                await self.done(await self.claimed(tenant=self.chance.choice(["default", "acme", "Zoë"])))

    async def run(self, name: str, *, steps: int, tenant: str = "default") -> None:
        await self.store.open_run(tenant, name, "a1", NOW)
        made = []
        for n in range(steps):
            first, entry = calls.in_run(self.store.owner, name, tenant=tenant, key=self.key(), at=NOW + n)
            call = await self.swap(
                (first, entry), calls.serving(first, 1, at=NOW + n), charge=self.charge(first)
            )
            if self.chance.random() < 0.8:
                call = await self.done(call)
                served = calls.serving(call, 1)
                ended = served.exchange._replace(end=End.COMPLETE)
                self.store.mark_served(served._replace(exchange=ended))
            made.append(call)
        await self.store.open_run(tenant, name, "a2", NOW + 100)
        for call in made[: steps // 2]:
            served = calls.serving(call, 2, attempt="a2", at=NOW + 101)
            exchange = served.exchange._replace(how=How.REPLAYED, final=False)
            self.store.mark_served(served._replace(exchange=exchange))
        await self.store.note_run(tenant, name, RunEntry(NOW + 102, "operator:ada", "allowed", STRANGE))

    async def fork(self, parent: str, name: str) -> None:
        fork = Run(
            tenant="default", name=name, created_at=NOW, active_at=NOW, origin=parent,
            parent=Parent(run=parent, at=1), recipes={"mail": "{}"}, passed=frozenset({"oauth"}),
            retired=frozenset({b"r" * 16}), last_seq=1,
        )  # fmt: skip
        assert await self.store.swap_run(fork, RunEntry(NOW, "operator:ada", "forked", "why"), expected=0)


async def fill(store: Store, *, seed: int, size: int = 60) -> list[bytes]:
    """The keys of its calls. The pending ones are the store's owner's, which is gone when it is closed."""
    filling = Filling(store, seed)
    # Runs whose time is over: the name is left, and what is still open.
    for n in range(3):
        await filling.run(f"over-{n}", steps=3)
    while (await store.collect(NOW, runs_before=NOW + 1e6)).more:
        continue
    filling.keys = [call.key for call in await calls.in_state(store, State.PENDING)]
    for n in range(3):
        await filling.run(f"run-{n}", steps=4)
        for _ in range(size // 3):
            await filling.something()
    await filling.run("run-0", steps=2, tenant="Zoë")
    await filling.fork("run-1", "run-1-fork")
    return filling.keys
