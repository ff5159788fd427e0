"""What every store promises about runs. Mixed into each store's own class, beside contract.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from proxy.core.intent import Answer, Call, Entry, Event, Place, State, advance
from proxy.core.run_record import (
    Attempt,
    Changes,
    End,
    Exchange,
    How,
    InRun,
    Parent,
    Receipt,
    Run,
    RunEntry,
    RunState,
)
from proxy.core.runs import step_of
from proxy.errors import StoreUnavailable
from proxy.store.base import BlobRef, RunPage, RunQuery, Store, Swap
from tests.stores import calls

TENANT = "default"
DAY = 86400.0
ROUNDS = 10
LINE = RunEntry(calls.NOW, "operator:ada", "changed", "to see")


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """What is written lazily is there in a moment."""
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.01)


async def opened(store: Store, name: str = "r", attempt: str = "a1", at: float = calls.NOW) -> Run:
    return await store.open_run(TENANT, name, attempt, at)


async def known(store: Store, name: str = "r") -> Run:
    run = await store.get_run(TENANT, name)
    assert run is not None
    return run


async def changes(store: Store, name: str = "r", attempt: str = "a1", since: int = 0) -> Changes:
    found = await store.run_changes(TENANT, name, attempt, since)
    assert found is not None
    return found


async def claimed(
    store: Store, name: str = "r", *, attempt: str = "a1", at: float = calls.NOW, request_blob: str = ""
) -> Call:
    """A pending call of the run, with somebody who is served by it."""
    call, entry = calls.in_run(store.owner, name, attempt=attempt, at=at)
    call = replace(call, request_blob=request_blob)
    swap = await store.swap(call, entry, expected=0, served=calls.serving(call, at=at))
    assert swap.won
    return replace(call, seq=swap.seq)


async def moved(store: Store, step: tuple[Call, Entry]) -> Call:
    call, entry = step
    assert (await store.swap(call, entry, expected=call.version - 1)).won
    return call


async def done(
    store: Store, name: str = "r", *, at: float = calls.NOW, request_blob: str = "", answer_blob: str = ""
) -> Call:
    call, entry = calls.settle(await claimed(store, name, at=at, request_blob=request_blob), at=at)
    if answer_blob:
        body = Answer(status=200, size=9, recorded_at=at, place=Place.BLOB, blob=answer_blob)
        call = replace(call, answer=body)
    return await moved(store, (replace(call, expires_at=None), entry))


def ended(call: Call, number: int = 1, end: End = End.COMPLETE, how: How = How.EXECUTED) -> Exchange:
    return calls.serving(call, number).exchange._replace(end=end, how=how)


async def collect_all(store: Store, before: float, *, limit: int = 500) -> int:
    total = 0
    async with asyncio.timeout(20):
        while True:
            taken = await store.collect(calls.NOW, limit=limit, runs_before=before)
            assert taken.calls <= limit
            total += taken.calls
            if not taken.more:
                return total


class RunContract:
    async def age(self, blob: BlobRef) -> None:
        """As the other half of the contract has it."""
        raise NotImplementedError

    # --- runs and attempts ---------------------------------------------------------------------------

    async def test_a_run_is_made_on_first_use_and_lists_its_attempts(
        self, store: Store, other: Store
    ) -> None:
        """In the order of their first use, each once; without one none is listed."""
        assert await store.get_run(TENANT, "r") is None
        first = await store.open_run(TENANT, "r", "a1", calls.NOW)
        assert (first.state, first.last_seq, first.version) == (RunState.OPEN, 0, 1)
        await other.open_run(TENANT, "r", "a2", calls.NOW + 1)
        again = await store.open_run(TENANT, "r", "a1", calls.NOW + 2)
        nameless = await other.open_run(TENANT, "r", "", calls.NOW + 3)
        assert again == nameless == await known(store)
        assert again.attempts == (
            Attempt(name="a1", first_at=calls.NOW),
            Attempt(name="a2", first_at=calls.NOW + 1),
        )
        assert (again.created_at, again.active_at) == (calls.NOW, calls.NOW + 1)

    async def test_runs_of_one_name_are_apart_by_tenant(self, store: Store) -> None:
        """Their calls, exchanges and histories too."""
        for tenant in ("one", "two"):
            await store.open_run(tenant, "r", "a1", calls.NOW)
        call, entry = calls.in_run(store.owner, tenant="one")
        await store.swap(call, entry, expected=0, served=calls.serving(call))
        await store.note_run("one", "r", LINE)
        one = await store.run_changes("one", "r", "a1", 0)
        two = await store.run_changes("two", "r", "a1", 0)
        assert one is not None
        assert two is not None
        assert [len(one.steps), len(one.exchanges), len(two.steps), len(two.exchanges)] == [1, 1, 0, 0]
        assert await store.run_history("two", "r") == []
        assert (await store.run_sums("two", "r"), await store.run_asked("two", "r", "a1")) == (
            {},
            frozenset(),
        )

    async def test_attempts_that_begin_at_once_are_all_listed_once(self, store: Store, other: Store) -> None:
        """From two processes, half of them the same."""
        names = [f"a{n}" for n in range(12)] * 2
        await asyncio.gather(
            *((store, other)[n % 2].open_run(TENANT, "r", name, calls.NOW) for n, name in enumerate(names))
        )
        run = await known(other)
        assert sorted(run.attempt_names) == sorted(set(names))
        assert run.version == len(set(names))

    async def test_a_complete_run_is_opened_again_by_a_new_attempt_and_an_expired_one_is_not(
        self, store: Store
    ) -> None:
        """Over is over; complete may go on."""
        run = await opened(store)
        complete = replace(run, state=RunState.COMPLETE, version=run.version + 1)
        assert await store.swap_run(complete, LINE, expected=run.version)
        assert (await opened(store)).state is RunState.COMPLETE
        run = await opened(store, attempt="a2")
        assert run.state is RunState.OPEN
        assert run == await known(store)
        await collect_all(store, calls.NOW + DAY)
        over = await known(store)
        assert over.state is RunState.EXPIRED
        assert await opened(store, attempt="a3", at=calls.NOW + DAY) == over == await known(store)

    async def test_a_run_is_compared_and_swapped(self, store: Store, other: Store) -> None:
        """A stale version changes nothing, neither run nor history; counters and activity are the store's."""
        run = await opened(store)
        call = await done(store, at=calls.NOW + 5)
        before = await known(store)
        richer = replace(
            run,
            version=2,
            recipes={"mail": "{}"},
            passed=frozenset({"upgrade"}),
            pulse=77,
            last_seq=88,
            active_at=calls.NOW - 5,
        )
        assert await other.swap_run(richer, LINE, expected=1)
        after = await known(store)
        assert after == replace(richer, pulse=before.pulse + 1, last_seq=call.seq, active_at=before.active_at)
        assert not await store.swap_run(replace(richer, recipes={}), LINE, expected=1)
        assert not await store.swap_run(replace(richer, version=1), LINE, expected=0)
        assert not await store.swap_run(replace(richer, name="none", version=3), LINE, expected=2)
        assert await known(store) == after
        assert await store.get_run(TENANT, "none") is None
        assert await store.run_history(TENANT, "r") == [LINE]

    async def test_a_fork_is_made_with_one_swap(self, store: Store, other: Store) -> None:
        """Every field comes back; its counter goes on from where it was set."""
        fork = Run(
            tenant=TENANT,
            name="f",
            created_at=calls.NOW,
            active_at=calls.NOW,
            last_seq=7,
            parent=Parent(run="r", at=4, resend=True),
            origin="r",
            recipes={"mail": '{"canonical":1}'},
        )
        await opened(store)
        assert await store.swap_run(fork, LINE, expected=0)
        found = await known(other, "f")
        assert replace(found, pulse=fork.pulse) == fork
        await opened(store, "f", "f1")
        assert (await claimed(store, "f", attempt="f1")).seq == 8

    async def test_swaps_of_a_run_that_are_raced_have_one_winner(self, store: Store, other: Store) -> None:
        """Round after round, also for the creation of a run."""
        run = await opened(store)
        for n in range(ROUNDS):
            present = await known(store)
            tries = [
                replace(present, version=present.version + 1, recipes={"by": f"{n}-{i}"}) for i in range(8)
            ]
            won = await asyncio.gather(
                *(
                    (store, other)[i % 2].swap_run(each, LINE, expected=present.version)
                    for i, each in enumerate(tries)
                )
            )
            assert won.count(True) == 1
            assert (await known(store)).recipes == tries[won.index(True)].recipes
            made = replace(run, name=f"new-{n}")
            won = await asyncio.gather(*(s.swap_run(made, LINE, expected=0) for s in (store, other) * 3))
            assert won.count(True) == 1
        assert len(await store.run_history(TENANT, "r")) == ROUNDS

    async def test_runs_are_listed_newest_first_page_by_page(self, store: Store, other: Store) -> None:
        """By state and by tenant; what comes new meanwhile disturbs no page."""
        for n in range(5):
            await opened((store, other)[n % 2], f"run-{n}")
        await store.open_run("another", "theirs", "a1", calls.NOW)
        complete = await known(store, "run-1")
        await store.swap_run(replace(complete, version=2, state=RunState.COMPLETE), LINE, expected=1)
        names: list[str] = []
        after = None
        for _ in range(3):
            page = await store.list_runs(RunQuery(tenant=TENANT, limit=2, after=after))
            names += [run.name for run in page.runs]
            after = page.next
            await opened(store, f"late-{len(names)}")
        assert after is None
        assert names == ["run-4", "run-3", "run-2", "run-1", "run-0"]
        (found,) = (await other.list_runs(RunQuery(state=RunState.COMPLETE))).runs
        assert found == await known(store, "run-1")
        assert (await store.list_runs(RunQuery(tenant="nobody"))) == RunPage(runs=[])
        assert len((await store.list_runs(RunQuery())).runs) == 9

    # --- calls of a run ------------------------------------------------------------------------------

    async def test_every_field_of_a_runs_call_is_read_back(self, store: Store, other: Store) -> None:
        """What a run remembers of it too, and its place in the order."""
        await opened(store)
        call, entry = calls.in_run(store.owner)
        remembers = InRun(
            family=b"f" * 16,
            group=("call", "POST", "host", "/päth"),
            uses=3,
            tries=2,
            receipts=(Receipt(attempt="a1", problem="in-doubt", position=4),),
            numbered=True,
            resolved=True,
            retired=True,
            shared="ab" * 16,
        )
        call = replace(call, in_run=remembers, occurrence=5, cost_usd=0.5)
        assert await store.swap(call, entry, expected=0) == Swap(True, seq=1)
        assert await other.get(call.key) == replace(call, seq=1)
        (step,) = (await changes(other)).steps
        assert step == step_of(replace(call, seq=1))

    async def test_every_claim_takes_the_next_place_and_nothing_else_does(self, store: Store) -> None:
        """Settling keeps it; a call that is claimed again is made after all that was made meanwhile."""
        await opened(store)
        one, two = await claimed(store), await claimed(store)
        assert (one.seq, two.seq) == (1, 2)
        free, entry = calls.release(one)
        one = await moved(store, (replace(free, expires_at=None), entry))
        two = await moved(store, calls.lose(two))
        rows = [await store.get(call.key) for call in (one, two)]
        assert [row.seq if row else None for row in rows] == [1, 2]
        again, entry = calls.claim_again(one, store.owner)
        swap = await store.swap(again, entry, expected=one.version)
        assert (swap.won, swap.seq) == (True, 3)
        resent, entry = calls.resend(two, store.owner)
        assert (await store.swap(resent, entry, expected=two.version)).seq == 2
        assert (await known(store)).last_seq == 3

    async def test_claims_that_are_raced_have_one_winner_and_no_place_is_lost(
        self, store: Store, other: Store
    ) -> None:
        """Two processes, many calls, each claimed by several: places 1 to n, each once."""
        await opened(store)
        keys = [bytes([n]) * 16 for n in range(1, 21)]
        tries = []
        for key in keys:
            for at in (store, other) * 2:
                call, entry = calls.in_run(at.owner, key=key)
                tries.append(at.swap(call, entry, expected=0, served=calls.serving(call)))
        swaps = await asyncio.gather(*tries)
        assert sorted(swap.seq for swap in swaps if swap.won) == list(range(1, 21))
        found = await changes(store)
        assert sorted(step.seq for step in found.steps) == list(range(1, 21))
        assert found.run.last_seq == 20
        # Only winners serve somebody.
        assert len(found.exchanges) == 20

    async def test_who_is_served_is_written_along_with_the_swap(self, store: Store, other: Store) -> None:
        """Durable with it, in the fork where it is another run than the row's, and not at all if it lost."""
        await opened(store)
        await opened(store, "f", "f1")
        call = await claimed(store)
        assert (await changes(other)).exchanges == [(call.key, calls.serving(call).exchange)]
        used, entry = replace(call, version=2), calls.evidence(call, "used")
        by_fork = calls.serving(call, attempt="f1")._replace(run="f")
        before = await known(store, "f")
        assert (await store.swap(used, entry, expected=1, served=by_fork)).won
        in_fork = await changes(other, "f", "f1", before.pulse)
        assert in_fork.exchanges == [(call.key, by_fork.exchange)]
        assert in_fork.steps == []
        before = await known(store)
        lost = await store.swap(used, entry, expected=1, served=calls.serving(call, 9))
        assert not lost.won
        assert await known(store) == before
        assert len((await changes(store)).exchanges) == 1

    async def test_what_has_changed_since_a_pulse(self, store: Store, other: Store) -> None:
        """Every change raises it, by whomever; only what came after it is told, with this attempt's
        exchanges."""
        run = await opened(store)
        one = await claimed(store)
        two = await claimed(other, attempt="a2")
        everything = await changes(store)
        assert {step.key for step in everything.steps} == {one.key, two.key}
        assert [key for key, _ in everything.exchanges] == [one.key]
        assert (await changes(other, attempt="a2")).exchanges == [(two.key, calls.serving(two).exchange)]
        assert (await changes(store, attempt="")).exchanges == []
        assert everything.run.pulse > run.pulse
        nothing = await changes(other, since=everything.run.pulse)
        assert (nothing.run, nothing.steps, nothing.exchanges) == (everything.run, [], [])
        settled, entry = calls.settle(one)
        settled = await moved(other, (replace(settled, expires_at=None), entry))
        after = await changes(store, since=everything.run.pulse)
        assert after.steps == [step_of(settled)]
        assert after.run.pulse > everything.run.pulse
        assert await store.run_changes(TENANT, "none", "a1", 0) is None

    async def test_changes_are_not_missed_while_many_write(self, store: Store, other: Store) -> None:
        """Who reads on from the pulse of the time before has everything in the end."""
        await opened(store)
        seen: dict[bytes, int] = {}
        writing = True

        async def read() -> None:
            since = 0
            more = True
            while more:
                more = writing
                found = await changes(other, since=since)
                assert found.run.pulse >= since
                since = found.run.pulse
                seen.update({step.key: step.version for step in found.steps})
                await asyncio.sleep(0)

        async def write(at: Store) -> Call:
            return await done(at)

        reader = asyncio.create_task(read())
        made = await asyncio.gather(*(write((store, other)[n % 2]) for n in range(30)))
        writing = False
        await reader
        assert seen == {call.key: 2 for call in made}

    async def test_a_change_by_another_process_changes_the_stamp(self, store: Store, other: Store) -> None:
        """So a stamp that stays says that nothing was missed."""
        await opened(store)
        before = store.runs_stamp()
        await claimed(other)
        after = store.runs_stamp()
        assert before is None or after != before

    async def test_rows_are_read_together(self, store: Store) -> None:
        """Those that are there."""
        await opened(store)
        made = [await claimed(store) for _ in range(3)]
        found = await store.get_many([made[2].key, b"n" * 16, made[0].key])
        assert {call.key: call for call in found} == {call.key: call for call in (made[0], made[2])}
        assert await store.get_many([]) == []

    # --- exchanges -----------------------------------------------------------------------------------

    async def test_marks_arrive_in_a_moment_and_the_last_one_stands(self, store: Store, other: Store) -> None:
        """At every process, with a higher pulse."""
        await opened(store)
        call = await claimed(store)
        since = (await known(other)).pulse
        for end in (End.UNDER_WAY, End.COMPLETE, End.ABANDONED):
            store.mark_served(calls.serving(call)._replace(exchange=ended(call, end=end)))
        wanted = [(call.key, ended(call, end=End.ABANDONED))]

        async def arrived() -> bool:
            return (await changes(other, since=since)).exchanges == wanted

        await until(arrived)
        assert (await known(other)).pulse > since
        assert (await changes(store)).exchanges == wanted

    async def test_a_mark_of_a_run_that_is_not_there_is_no_harm(self, store: Store) -> None:
        """Nor does it make one."""
        await opened(store)
        call = await claimed(store)
        store.mark_served(calls.serving(call)._replace(run="none"))
        await claimed(store)
        assert await store.get_run(TENANT, "none") is None
        assert len((await changes(store)).exchanges) == 2

    async def test_exchanges_of_two_owners_with_one_number_are_two(self, store: Store, other: Store) -> None:
        """Both began before they knew of each other."""
        await opened(store)
        call = await claimed(store)
        other.mark_served(calls.serving(call, owner=other.owner))

        async def arrived() -> bool:
            owners = {exchange.owner for _, exchange in (await changes(store)).exchanges}
            return owners == {store.owner, other.owner}

        await until(arrived)

    async def test_who_was_served_how_is_summed_up(self, store: Store) -> None:
        """By attempt; and which calls an attempt has asked. Marks just made are counted."""
        await opened(store)
        one, two = await claimed(store), await claimed(store)
        for attempt, number, how in (
            ("a1", 2, How.REPLAYED),
            ("a2", 1, How.REPLAYED),
            ("a2", 2, How.REFUSED),
        ):
            exchange = ended(one, number, how=how)._replace(attempt=attempt)
            store.mark_served(calls.serving(one)._replace(exchange=exchange))
        assert await store.run_sums(TENANT, "r") == {
            "a1": Counter({How.EXECUTED: 2, How.REPLAYED: 1}),
            "a2": Counter({How.REPLAYED: 1, How.REFUSED: 1}),
        }
        assert await store.run_asked(TENANT, "r", "a1") == {one.key, two.key}
        assert await store.run_asked(TENANT, "r", "a2") == {one.key}
        assert await store.run_asked(TENANT, "r", "a3") == frozenset()
        tallies = await store.run_tallies(TENANT, "r")
        assert sum(tally[3] for tally in tallies) == 5
        assert (await store.run_sums(TENANT, "none"), await store.tenants_of("r")) == ({}, [TENANT])

    async def test_activity_grows_with_claims_settlements_and_marks_and_never_goes_back(
        self, store: Store
    ) -> None:
        """Replays keep a run alive."""
        await opened(store)
        call = await claimed(store, at=calls.NOW + 10)
        assert (await known(store)).active_at == calls.NOW + 10
        await claimed(store, at=calls.NOW + 5)
        assert (await known(store)).active_at == calls.NOW + 10
        store.mark_served(calls.serving(call, 2, at=calls.NOW + 20))

        async def arrived() -> bool:
            return (await known(store)).active_at == calls.NOW + 20

        await until(arrived)

    # --- history -------------------------------------------------------------------------------------

    async def test_the_history_of_a_run_is_in_order(self, store: Store, other: Store) -> None:
        """Swaps and notes in one; a note on no run is no error."""
        run = await opened(store)
        lines = [replace_why(f"line {n}") for n in range(6)]
        await store.note_run(TENANT, "r", lines[0])
        assert await other.swap_run(replace(run, version=2), lines[1], expected=1)
        for line in lines[2:]:
            await store.note_run(TENANT, "r", line)
        assert await other.run_history(TENANT, "r") == lines
        await store.note_run(TENANT, "none", lines[0])
        assert await store.run_history(TENANT, "none") == []

    # --- collecting ----------------------------------------------------------------------------------

    async def test_a_run_goes_whole_and_its_name_stays(self, store: Store, other: Store) -> None:
        """Calls of all settled states, their history, exchanges; a younger run and calls outside stay."""
        await opened(store, "old")
        free, entry = calls.release(await claimed(store, "old"))
        gone = [
            await done(store, "old"),
            await moved(store, (replace(free, expires_at=None), entry)),
            await done(store, "old"),
        ]
        young_at = calls.NOW + DAY
        await opened(store, "young", at=young_at)
        young = await done(store, "young", at=young_at)
        alone, entry = calls.claim(store.owner)
        await store.swap(alone, entry, expected=0)
        assert await collect_all(store, calls.NOW + 1) == 0  # in its very last moment it stays
        would = await store.collect(calls.NOW, dry_run=True, runs_before=calls.NOW + 2)
        assert (would.calls, would.more) == (3, False)
        assert (await known(store, "old")).state is RunState.OPEN
        assert await collect_all(other, calls.NOW + 2) == 3
        for call in gone:
            assert await store.get(call.key) is None
            assert await store.history(call.key) == []
        assert await store.get(young.key) == young
        assert await store.get(alone.key) is not None
        over = await known(store, "old")
        assert (over.state, over.attempt_names) == (RunState.EXPIRED, ("a1",))
        assert await store.run_asked(TENANT, "old", "a1") == frozenset()
        assert (await changes(store, "old")).steps == []
        assert await collect_all(store, calls.NOW + 2) == 0

    async def test_without_a_time_for_runs_no_run_is_collected(self, store: Store) -> None:
        """Not even what a person forgot: its number stays as long as the run."""
        await opened(store)
        call = await done(store)
        past = await moved(store, calls.forget(call))
        assert (await store.collect(calls.NOW + 99 * DAY)).calls == 0
        assert await store.get(call.key) == past
        (step,) = (await changes(store)).steps
        assert step.state is None

    @pytest.mark.parametrize("limit", [1, 2])
    async def test_a_run_goes_in_portions(self, store: Store, limit: int) -> None:
        """However small; a dry run counts them all."""
        for name in ("one", "two"):
            await opened(store, name)
            for _ in range(3):
                await done(store, name)
        assert (await store.collect(calls.NOW, limit=1, dry_run=True, runs_before=calls.NOW + 1)).calls == 6
        assert await collect_all(store, calls.NOW + 1, limit=limit) == 6
        for name in ("one", "two"):
            assert (await known(store, name)).state is RunState.EXPIRED

    async def test_a_run_is_over_before_the_first_of_its_calls_goes(self, store: Store, other: Store) -> None:
        """Runs expire whole: a caller, or a mark, that comes between two portions must not bring to life what
        is half gone, or its effects would happen again."""
        await opened(store)
        made = [await done(store) for _ in range(3)]
        taken = await store.collect(calls.NOW, limit=1, runs_before=calls.NOW + 1)
        assert taken.calls <= 1
        late = calls.serving(made[2], 2, at=calls.NOW + DAY)
        other.mark_served(late)
        await other.note_run(TENANT, "r", LINE)
        await collect_all(store, calls.NOW + 1)
        assert (await known(other)).state is RunState.EXPIRED
        left = [call for call in made if await store.get(call.key) is not None]
        assert left == [], "half a run is left"

    async def test_what_is_open_stays_when_its_run_goes(self, store: Store) -> None:
        """`pending` and `in_doubt` never expire; the name is over all the same."""
        await opened(store)
        pending = await claimed(store)
        doubt = await moved(store, calls.lose(await claimed(store)))
        await done(store)
        assert await collect_all(store, calls.NOW + DAY) == 1
        assert (await known(store)).state is RunState.EXPIRED
        assert await store.get(pending.key) == pending
        assert await store.get(doubt.key) == doubt
        assert await collect_all(store, calls.NOW + DAY) == 0

    async def test_what_is_settled_in_a_run_that_is_over_can_be_collected(self, store: Store) -> None:
        """Or the last rows of a run would stay for ever."""
        await opened(store)
        doubt = await moved(store, calls.lose(await claimed(store)))
        await collect_all(store, calls.NOW + DAY)
        settled, entry = calls.settle(doubt)
        await moved(store, (replace(settled, expires_at=None), entry))
        assert await collect_all(store, calls.NOW + 99 * DAY) == 1
        assert await store.get(doubt.key) is None

    async def test_relatives_stay_together(self, store: Store) -> None:
        """As long as one of a family lives, what any of them refers to is kept; then all go."""
        await opened(store)
        await opened(store, "stranger")
        rows = [await done(store), await done(store, "stranger")]
        for name, of in (("f", "r"), ("g", "f")):
            fork = Run(
                tenant=TENANT,
                name=name,
                created_at=calls.NOW,
                active_at=calls.NOW + (DAY if name == "g" else 0),
                parent=Parent(run=of, at=1),
                origin="r",
            )
            assert await store.swap_run(fork, LINE, expected=0)
        assert await collect_all(store, calls.NOW + 1) == 1
        assert [await store.get(row.key) is not None for row in rows] == [True, False]
        for name in ("r", "f", "g"):
            assert (await known(store, name)).state is RunState.OPEN
        assert await collect_all(store, calls.NOW + DAY + 1) == 1
        for name in ("r", "f", "g"):
            assert (await known(store, name)).state is RunState.EXPIRED

    async def test_a_dry_run_counts_runs_and_the_bodies_that_go_with_them(
        self, store: Store, other: Store
    ) -> None:
        """It says what collecting then does. A body that somebody else names too stays, and so does one of a
        call that is open."""
        bodies = [await store.put_blob([b"content %d" % n]) for n in range(4)]
        of_request, of_answer, of_two, of_open = bodies
        for name in ("old", "bare"):
            await opened(store, name)
        await opened(store, "young", at=calls.NOW + DAY)
        await done(store, "old", request_blob=of_request.digest, answer_blob=of_answer.digest)
        await done(store, "old", request_blob=of_two.digest)
        await claimed(store, "old", request_blob=of_open.digest)
        await done(store, "young", at=calls.NOW + DAY, request_blob=of_two.digest)
        for body in bodies:
            await self.age(body)
        would = await other.collect(calls.NOW, dry_run=True, runs_before=calls.NOW + 2)
        assert (would.calls, would.runs, would.blobs) == (2, 2, 2)
        assert would == await other.collect(calls.NOW, dry_run=True, runs_before=calls.NOW + 2)
        none = await other.collect(calls.NOW, dry_run=True)
        assert (none.calls, none.runs, none.blobs) == (0, 0, 0)
        portions = [await store.collect(calls.NOW, limit=1, runs_before=calls.NOW + 2) for _ in range(20)]
        assert not portions[-1].more
        did = [sum(getattr(each, what) for each in portions) for what in ("calls", "runs", "blobs", "bytes")]
        assert did == [would.calls, would.runs, would.blobs, would.bytes]
        for body in (of_two, of_open):
            assert len(b"".join([chunk async for chunk in other.read_blob(body)])) == body.size

    async def test_nothing_is_left_of_who_was_served_in_a_run_that_is_over(
        self, store: Store, other: Store
    ) -> None:
        """A fork that was served by its parent's calls alone, and marks that come when all is over."""
        await opened(store)
        row = await done(store)
        fork = Run(
            tenant=TENANT,
            name="f",
            created_at=calls.NOW,
            active_at=calls.NOW,
            parent=Parent(run="r", at=1),
            origin="r",
        )
        assert await store.swap_run(fork, LINE, expected=0)
        for n in range(12):
            store.mark_served(calls.serving(row, n)._replace(run="f"))
        assert (await store.run_sums(TENANT, "f")).keys() == {"a1"}
        assert await collect_all(store, calls.NOW + DAY, limit=1) == 1
        for name in ("r", "f"):
            other.mark_served(calls.serving(row, 99)._replace(run=name))
            assert await other.run_sums(TENANT, name) == {}
            assert await other.run_tallies(TENANT, name) == []
        assert not (await store.collect(calls.NOW, runs_before=calls.NOW + DAY)).more

    async def test_two_who_collect_runs_at_once_take_each_call_once(self, store: Store, other: Store) -> None:
        """While a living run is written to."""
        for n in range(4):
            await opened(store, f"old-{n}")
            for _ in range(5):
                await done(store, f"old-{n}")
        await opened(store, "young", at=calls.NOW + DAY)
        work = [done(store, "young", at=calls.NOW + DAY) for _ in range(10)]
        both = (collect_all(at, calls.NOW + 1, limit=3) for at in (store, other))
        left, right, *_ = await asyncio.gather(*both, *work)
        assert isinstance(left, int)
        assert isinstance(right, int)
        assert left + right == 20
        assert len((await changes(store, "young")).steps) == 10

    # --- the end -------------------------------------------------------------------------------------

    async def test_a_closed_store_says_so_about_runs(self, store: Store, other: Store) -> None:
        """Every operation raises StoreUnavailable; a mark is lost without a word."""
        run = await opened(other)
        call = await claimed(other)
        await other.close()
        other.mark_served(calls.serving(call, 2))
        for operation in (
            other.open_run(TENANT, "r", "a2", calls.NOW),
            other.get_run(TENANT, "r"),
            other.swap_run(replace(run, version=9), LINE, expected=8),
            other.run_changes(TENANT, "r", "a1", 0),
            other.note_run(TENANT, "r", LINE),
            other.run_history(TENANT, "r"),
            other.list_runs(RunQuery()),
            other.run_sums(TENANT, "r"),
            other.run_asked(TENANT, "r", "a1"),
            other.get_many([call.key]),
        ):
            with pytest.raises(StoreUnavailable):
                await operation
        assert len((await changes(store)).exchanges) == 1

    async def test_a_row_of_a_run_may_also_be_awaiting_a_person(self, store: Store) -> None:
        """It is found by state and by run, and released by consent."""
        await opened(store)
        call, entry = calls.in_run(store.owner)
        waiting = replace(call, state=State.AWAITING_APPROVAL, sends=0, terms=calls.WAITING)
        entry = entry._replace(event=Event.NEEDS_APPROVAL, after=State.AWAITING_APPROVAL)
        assert (await store.swap(waiting, entry, expected=0)).won
        (step,) = (await changes(store)).steps
        assert (step.state, step.seq) == (State.AWAITING_APPROVAL, 1)  # others are asked after it
        free, entry = advance(waiting, Event.APPROVE, at=calls.NOW, actor="operator:ada", why="ok")
        await moved(store, (free, entry))
        assert [step.state for step in (await changes(store)).steps] == [State.RELEASED]


def replace_why(why: str) -> RunEntry:
    return LINE._replace(why=why)
