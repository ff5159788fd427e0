"""What every store promises. One class; each store subclasses it and says how to open one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from proxy.core.intent import Answer, Call, Place, State
from proxy.core.terms import Terms
from proxy.errors import StoreUnavailable
from proxy.store.base import BlobLost, BlobRef, Collected, Orphans, Page, Query, Store, Swap
from tests.counts import count
from tests.stores import calls

HOUR = 3600.0

ROUNDS = 20
# Past the time of every call that is settled in these tests.
AFTER_ALL = calls.NOW + 10 * 86400


# Over the network nobody knows without asking what others have changed: these never have a stamp.
WITHOUT_STAMP = ("postgres", "redis")


async def known_stamp(store: Store) -> int:
    """As soon as the store knows it: a change may be under way for a moment. Zero where it never does."""
    if store.name in WITHOUT_STAMP:
        return 0
    async with asyncio.timeout(10):
        while (stamp := store.settled_stamp()) is None:
            await asyncio.sleep(0.001)
    return stamp


class StoreContract:
    """`open` gives a store; a second one opened in the same test stands for another process on it."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = await self.open()
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, store: Store) -> AsyncIterator[Store]:
        other = await self.open()
        yield other
        await other.close()

    async def open(self) -> Store:
        raise NotImplementedError

    async def die(self, store: Store) -> None:
        """End the process that `store` stands for, without ceremony where that can be done."""
        await store.close()

    async def expire(self, key: bytes) -> None:
        """Give a row, past the store and whatever its state, a time that is long over."""
        raise NotImplementedError

    async def age(self, blob: BlobRef) -> None:
        """Let it look untouched for more than an hour."""
        raise NotImplementedError

    # --- compare and swap ----------------------------------------------------------------------------

    async def test_what_was_swapped_in_is_read_back_field_by_field(self, store: Store) -> None:
        """Every field of a row comes back as it was written, through claim, doubt and answer."""
        call, entry = calls.claim(store.owner)
        call = replace(call, named_by=b"n" * 32, occurrence=2, request_blob="ab", cost_usd=0.25)
        assert await store.get(call.key) is None
        assert await store.swap(call, entry, expected=0) == Swap(True)
        assert await store.get(call.key) == call
        doubtful, entry = calls.lose(call)
        assert (await store.swap(doubtful, entry, expected=1)).won
        assert await store.get(call.key) == doubtful
        done, entry = calls.settle(doubtful)
        assert (await store.swap(done, entry, expected=2)).won
        assert await store.get(call.key) == done

    async def test_a_row_that_is_known_is_read_again_only_if_it_changed(
        self, store: Store, other: Store
    ) -> None:
        """Unchanged: the very object brought along. Changed, by anybody: the row of now. Gone: None."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        known = replace(call)
        assert await store.get(call.key, known) is known
        done, entry = calls.settle(call)
        assert (await other.swap(done, entry, expected=1)).won
        assert await store.get(call.key, known) == done
        assert await store.get(call.key, done) is done
        await other.collect(AFTER_ALL)
        assert await store.get(call.key, done) is None
        assert await store.get(call.key) is None

    async def test_a_swap_against_another_version_changes_nothing_and_shows_what_is_there(
        self, store: Store
    ) -> None:
        """A loser gets the present row; neither row nor history moves."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        assert await store.swap(calls.by(call, "somebody else"), entry, expected=0) == Swap(False, call)
        done, settled = calls.settle(call)
        ahead = replace(done, version=5)
        assert await store.swap(ahead, settled, expected=4) == Swap(False, call)
        assert await store.get(call.key) == call
        assert await store.history(call.key) == [entry]

    async def test_a_swap_on_a_missing_row_loses(self, store: Store) -> None:
        """Expecting a version where nothing is: lost, and nothing is made."""
        call, entry = calls.claim(store.owner)
        assert await store.swap(replace(call, version=3), entry, expected=2) == Swap(False, None)
        assert await store.get(call.key) is None
        assert await store.history(call.key) == []

    async def test_identical_claims_raced_by_tasks_have_one_winner(self, store: Store, other: Store) -> None:
        """Twenty rounds of identical claims from two stores at once: one winner, and all losers see it."""
        for _ in range(ROUNDS):
            key = os.urandom(16)
            contenders = [store, other] * 16
            swaps = await asyncio.gather(
                *(s.swap(*calls.claim(s.owner, key), expected=0) for s in contenders)
            )
            winners = [s.owner for s, swap in zip(contenders, swaps, strict=True) if swap.won]
            assert len(winners) == 1
            assert {swap.present.owner for swap in swaps if swap.present} == set(winners)
            assert sum(swap.present is not None for swap in swaps) == len(contenders) - 1
            row = await other.get(key)
            assert row is not None
            assert row.owner == winners[0]
            assert len(await store.history(key)) == 1

    async def test_one_winner_in_every_later_claim_round_too(self, store: Store, other: Store) -> None:
        """A released row claimed by many at once, twenty rounds: one winner each, the fence grows by one."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        for _ in range(ROUNDS):
            free, entry = calls.release(call)
            assert (await store.swap(free, entry, expected=call.version)).won
            swaps = await asyncio.gather(
                *(
                    s.swap(*calls.claim_again(free, s.owner), expected=free.version)
                    for s in [store, other] * 8
                )
            )
            assert sum(swap.won for swap in swaps) == 1
            claimed = await other.get(call.key)
            assert claimed is not None
            assert claimed.fence == call.fence + 1
            call = claimed

    async def test_what_was_read_as_done_stands_while_the_stamp_does(
        self, store: Store, other: Store
    ) -> None:
        """Whoever changes a done row changes the stamp for everybody, before that is acknowledged; the claims
        and settlements of other calls leave it alone."""
        done = await self._done(store)
        stamp = await known_stamp(other)
        for at in (store, other):
            await self._done(at)
            free, entry = calls.release(await self._pending(at))
            await at.swap(free, entry, expected=1)
            await at.swap(*calls.claim_again(free, at.owner), expected=2)
            assert await known_stamp(store) == await known_stamp(other) == stamp
        past, entry = calls.forget(done)
        assert (await store.swap(past, entry, expected=done.version)).won
        assert stamp not in (store.settled_stamp(), other.settled_stamp())
        forgotten = await known_stamp(other)
        assert forgotten == await known_stamp(store)
        anew, entry = calls.claim_anew(past, other.owner)
        assert (await other.swap(anew, entry, expected=past.version)).won
        assert forgotten not in (store.settled_stamp(), other.settled_stamp())
        assert await known_stamp(store) not in (stamp, forgotten)

    async def test_a_lost_swap_leaves_the_stamp_alone(self, store: Store, other: Store) -> None:
        """Nothing was changed, so everything that was read still stands."""
        done = await self._done(store)
        stamp = await known_stamp(store)
        past, entry = calls.forget(done)
        assert not (await other.swap(replace(past, version=9), entry, expected=8)).won
        assert await known_stamp(store) == await known_stamp(other) == stamp

    async def test_a_closed_store_has_no_stamp(self, other: Store) -> None:
        """Nobody answers from the record of a store that is closed."""
        await other.close()
        assert other.settled_stamp() is None

    async def _pending(self, store: Store) -> Call:
        call, entry = calls.claim(store.owner)
        assert (await store.swap(call, entry, expected=0)).won
        return call

    async def _done(self, store: Store) -> Call:
        done, entry = calls.settle(await self._pending(store))
        assert (await store.swap(done, entry, expected=1)).won
        return done

    async def test_a_swap_must_write_the_next_version(self, store: Store) -> None:
        """A caller that gets this wrong has a bug, and is told so before anything is written."""
        call, entry = calls.claim(store.owner)
        with pytest.raises(ValueError):
            await store.swap(call, entry, expected=1)

    async def test_a_cancelled_swap_still_lands(self, store: Store) -> None:
        """The waiter leaves at once; the claim is there all the same, or was never begun."""
        call, entry = calls.claim(store.owner)
        task = asyncio.create_task(store.swap(call, entry, expected=0))
        await asyncio.sleep(0)  # let it start
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await store.changed(call.key, 0, 5.0)
        assert await store.get(call.key) == call

    async def test_cancelled_reads_disturb_nobody(self, store: Store) -> None:
        """Half of the readers leave; the other half is answered."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        tasks = [asyncio.create_task(store.get(call.key)) for _ in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[1::2] == [call] * 20

    # --- history -------------------------------------------------------------------------------------

    async def test_history_is_in_order_and_evidence_stands_between_changes(self, store: Store) -> None:
        """Changes and notes share one order; a note does not touch the row."""
        call, claimed = calls.claim(store.owner)
        await store.swap(call, claimed, expected=0)
        late = calls.evidence(call, "an answer with an old fence")
        await store.note(call.key, late)
        done, settled = calls.settle(call)
        assert (await store.swap(done, settled, expected=1)).won
        later = calls.evidence(call, "another")
        await asyncio.gather(*(store.note(call.key, later) for _ in range(5)))
        assert await store.history(call.key) == [claimed, late, settled] + [later] * 5
        assert await store.get(call.key) == done

    async def test_evidence_for_a_call_that_is_gone_is_gone_too(self, store: Store) -> None:
        """History is kept with its call: a note without a row has no place, and is no error."""
        call, entry = calls.claim(store.owner)
        await store.note(call.key, entry)
        assert await store.history(call.key) == []
        await store.swap(call, entry, expected=0)
        assert await store.history(call.key) == [entry]

    async def test_replays_are_counted(self, store: Store) -> None:
        """Marks add up; an unknown call has none."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        for _ in range(5):
            store.mark_replayed(call.key, calls.NOW)
        assert await store.replays(call.key) == 5
        store.mark_replayed(call.key, calls.NOW)
        assert await store.replays(call.key) == 6
        assert await store.replays(os.urandom(16)) == 0

    # --- waiting -------------------------------------------------------------------------------------

    async def test_a_watcher_wakes_for_a_change_by_anybody(self, store: Store, other: Store) -> None:
        """Both the store that writes and the other one see the change."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        waits = [asyncio.create_task(s.changed(call.key, 1, 10.0)) for s in (store, other) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert not any(wait.done() for wait in waits)
        done, entry = calls.settle(call)
        await store.swap(done, entry, expected=1)
        assert await asyncio.gather(*waits) == [True] * 6

    async def test_a_watcher_that_comes_late_is_told_at_once(self, store: Store, other: Store) -> None:
        """The version is looked at before waiting: no wake-up is lost."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        assert await other.changed(call.key, 0, 10.0)
        assert await store.changed(call.key, 7, 10.0)

    async def test_a_watcher_is_not_woken_by_other_rows_and_gives_up_in_time(self, store: Store) -> None:
        """Changes elsewhere do not count."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        wait = asyncio.create_task(store.changed(call.key, 1, 0.05))
        await store.swap(*calls.claim(store.owner), expected=0)
        assert await wait is False

    async def test_the_appearance_of_a_row_can_be_watched(self, store: Store, other: Store) -> None:
        """Version 0 stands for no row."""
        call, entry = calls.claim(store.owner)
        wait = asyncio.create_task(other.changed(call.key, 0, 10.0))
        await asyncio.sleep(0.02)
        await store.swap(call, entry, expected=0)
        assert await wait

    # --- listing, owners, census ---------------------------------------------------------------------

    async def test_calls_are_listed_by_state(self, store: Store) -> None:
        """In the order of first sight, whatever has become of them since; no more than asked for."""
        claimed = []
        for n in range(5):
            call, entry = calls.claim(store.owner, at=calls.NOW + n)
            await store.swap(call, entry, expected=0)
            claimed.append(call)
        assert await calls.in_state(store, State.PENDING) == claimed
        assert (await store.find(Query(state=State.PENDING, limit=2))).calls == [claimed[4], claimed[3]]
        young, entry = calls.lose(claimed[0], at=calls.NOW + 20)
        await store.swap(young, entry, expected=1)
        old, entry = calls.lose(claimed[3], at=calls.NOW + 10)
        await store.swap(old, entry, expected=1)
        free, entry = calls.release(claimed[1])
        await store.swap(free, entry, expected=1)
        done, entry = calls.settle(claimed[2])
        await store.swap(done, entry, expected=1)
        assert await calls.in_state(store, State.IN_DOUBT) == [young, old]
        assert await calls.in_state(store, State.RELEASED) == [free]
        assert await calls.in_state(store, State.DONE) == [done]
        assert await calls.in_state(store, State.PENDING) == [claimed[4]]
        for state in (State.DENIED, State.AWAITING_APPROVAL):
            assert await calls.in_state(store, state) == []

    async def test_the_latest_time_is_kept_whoever_tells_it(self, store: Store, other: Store) -> None:
        """A clock that is set back shows; a later one counts for all."""
        ahead = time.time() + 10 * HOUR
        assert await store.clock_mark(ahead) == ahead
        assert await other.clock_mark(ahead - HOUR) == ahead
        assert await other.clock_mark(ahead + HOUR) == ahead + HOUR
        assert await store.clock_mark(ahead) == ahead + HOUR

    async def test_the_terms_of_a_call_are_kept(self, store: Store) -> None:
        """Its upstream key, and what a person permitted."""
        call, entry = calls.claim(store.owner)
        call = replace(
            call,
            terms=Terms(
                key="k1",
                place="header x",
                keyed_at=5.5,
                bound_to=b"\0\xff",
                granted=True,
                said="é",
                until=7.0,
            ),
        )
        await store.swap(call, entry, expected=0)
        assert await store.get(call.key) == call

    async def test_calls_are_found_newest_first_page_by_page(self, store: Store, other: Store) -> None:
        """Every call once, in the order of first sight, whoever made it and whatever became of it since; what
        comes new meanwhile disturbs no page."""
        made = []
        for n in range(7):
            at = (store, other)[n % 2]
            call, entry = calls.claim(at.owner)
            await at.swap(call, entry, expected=0)
            made.append(call)
        done, entry = calls.settle(made[0])
        await store.swap(done, entry, expected=1)
        wanted = [*reversed(made[1:]), done]
        whole = await store.find(Query())
        assert whole == await other.find(Query()) == Page(calls=wanted)
        assert await store.find(Query(limit=7)) == whole
        found: list[Call] = []
        after = None
        for _ in range(4):
            page = await store.find(Query(limit=2, after=after))
            found += page.calls
            after = page.next
            await store.swap(*calls.claim(store.owner), expected=0)
        assert after is None
        assert found == wanted
        with pytest.raises(ValueError):
            Query(limit=0)

    async def test_calls_are_found_by_what_they_are(self, store: Store) -> None:
        """State, upstream, tool and run, each alone and together; nothing that fits is an empty last page."""
        by_state = {}
        for state, step in (
            (State.PENDING, None), (State.DONE, calls.settle), (State.IN_DOUBT, calls.lose),
            (State.RELEASED, calls.release), (State.AWAITING_APPROVAL, None), (State.DENIED, None),
        ):  # fmt: skip
            await store.open_run("default", f"run-{state}", "a1", calls.NOW)
            call, entry = calls.in_run(store.owner, f"run-{state}")
            call = replace(call, tool=f"tool of {state}", seq=1)
            if state in (State.AWAITING_APPROVAL, State.DENIED):
                call = replace(call, state=state, upstream="post", terms=calls.WAITING)
            await store.swap(call, entry, expected=0)
            if step is not None:
                call, entry = step(call)
                await store.swap(call, entry, expected=1)
            by_state[state] = call
        for state, call in by_state.items():
            for query in (
                Query(state=state), Query(tool=call.tool), Query(run=call.run),
                Query(state=state, upstream=call.upstream, tool=call.tool, run=call.run, limit=1),
            ):  # fmt: skip
                assert await store.find(query) == Page(calls=[call])
            assert await store.find(Query(state=state, tool="another")) == Page(calls=[])
        newest = [by_state[State.DENIED], by_state[State.AWAITING_APPROVAL]]
        assert (await store.find(Query(upstream="post"))).calls == newest
        first = await store.find(Query(upstream="post", limit=1))
        assert first.calls == newest[:1]
        assert await store.find(Query(upstream="post", limit=1, after=first.next)) == Page(calls=newest[1:])

    async def test_pages_of_one_state_follow_each_other_too(self, store: Store) -> None:
        """Also where the store has an order of its own for that state."""
        made = [calls.claim(store.owner) for _ in range(5)]
        for call, entry in made:
            await store.swap(call, entry, expected=0)
        assert await self._paged(store, State.PENDING) == [call for call, _ in reversed(made)]
        # In doubt the longest is whoever came last.
        lost = [calls.lose(call, at=calls.NOW - n) for n, (call, _) in enumerate(made)]
        for call, entry in lost:
            await store.swap(call, entry, expected=1)
        assert await self._paged(store, State.IN_DOUBT) == [call for call, _ in reversed(lost)]

    async def _paged(self, store: Store, state: State) -> list[Call]:
        """All of five, in pages of two."""
        found: list[Call] = []
        after = None
        for pages_left in (2, 1, 0):
            page = await store.find(Query(state=state, limit=2, after=after))
            found += page.calls
            after = page.next
            assert (after is None) == (pages_left == 0)
        return found

    async def test_the_census_counts_and_names_the_oldest_doubt(self, store: Store, other: Store) -> None:
        """Counts follow the rows through every change, whoever makes it; the other process is seen."""
        empty = await store.census()
        assert empty.by_state == dict.fromkeys(State, 0)
        assert (empty.oldest_doubt_at, empty.oldest_question_at, empty.owners) == (None, None, 2)
        made = [calls.claim(store.owner) for _ in range(5)]
        await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in made))
        await other.swap(*calls.settle(made[0][0]), expected=1)
        await store.swap(*calls.lose(made[1][0], at=calls.NOW + 7), expected=1)
        await other.swap(*calls.lose(made[2][0], at=calls.NOW + 5), expected=1)
        await store.swap(*calls.settle(made[0][0]), expected=1)  # loses
        for call, entry in made:
            assert not (await other.swap(call, entry, expected=0)).won  # nor do these count
        census = await store.census()
        expected = {State.PENDING: 2, State.DONE: 1, State.IN_DOUBT: 2}
        assert census.by_state == dict.fromkeys(State, 0) | expected
        assert (census.oldest_doubt_at, census.oldest_question_at) == (calls.NOW + 5, None)
        assert census.bytes_used > 0
        await other.close()
        assert (await store.census()).owners == 1

    async def test_the_census_names_the_oldest_question(self, store: Store) -> None:
        """By when it was first asked for; one that was answered waits no longer."""
        asked = [calls.ask(at=calls.NOW + second) for second in (9, 4, 6)]
        for call, entry in asked:
            await store.swap(call, entry, expected=0)
        assert (await store.census()).oldest_question_at == calls.NOW + 4
        await store.swap(*calls.refuse(asked[1][0]), expected=1)
        assert (await store.census()).oldest_question_at == calls.NOW + 6

    async def test_live_calls_are_those_of_the_rule_that_have_not_lapsed(self, store: Store) -> None:
        """What is open never lapses; what is settled does, in the very second; other rules do not count."""
        made = [calls.claim(store.owner) for _ in range(4)]
        elsewhere = [(replace(call, upstream="post"), entry) for call, entry in [calls.claim(store.owner)]]
        elsewhere += [(replace(call, rule="look"), entry) for call, entry in [calls.claim(store.owner)]]
        for call, entry in made + elsewhere:
            await store.swap(call, entry, expected=0)
        done, entry = calls.settle(made[0][0])
        await store.swap(done, entry, expected=1)
        free, entry = calls.release(made[1][0])
        await store.swap(free, entry, expected=1)
        await store.swap(*calls.lose(made[2][0]), expected=1)
        assert done.expires_at is not None
        assert free.expires_at is not None
        assert free.expires_at < done.expires_at
        for now, live in (
            (calls.NOW, 4),
            (free.expires_at - 1, 4),
            (free.expires_at, 3),
            (done.expires_at, 2),
            (done.expires_at + 1e9, 2),
        ):
            assert await store.live_calls("mail", "send", now) == live
        assert await store.live_calls("mail", "look", calls.NOW) == 1
        assert await store.live_calls("post", "send", calls.NOW) == 1
        assert await store.live_calls("post", "look", calls.NOW) == 0

    async def test_the_pending_calls_of_the_dead_are_orphans_and_nobody_elses(self, store: Store) -> None:
        """A living owner's calls never are; a dead one's are, at once, and only what is still pending."""
        doomed = await self.open()
        mine, entry = calls.claim(store.owner)
        await store.swap(mine, entry, expected=0)
        theirs, entry = calls.claim(doomed.owner)
        await doomed.swap(theirs, entry, expected=0)
        finished, entry = calls.claim(doomed.owner)
        await doomed.swap(finished, entry, expected=0)
        await doomed.swap(*calls.settle(finished), expected=1)
        assert store.owns()
        assert doomed.owns()
        assert await store.orphans() == Orphans(calls=[])
        assert not await store.owner_is_dead(doomed.owner)
        await self.die(doomed)
        assert not doomed.owns()
        assert await store.owner_is_dead(doomed.owner)
        assert not await store.owner_is_dead(store.owner)
        assert await store.orphans() == Orphans(calls=[theirs])
        assert await store.owner_is_dead("never heard of")

    async def test_all_processes_of_a_store_share_one_secret_and_no_epoch(
        self, store: Store, other: Store
    ) -> None:
        """The secret names calls, so all must agree on it; the epoch names a process."""
        assert store.secret == other.secret
        assert len(store.secret) == 32
        assert store.owner != other.owner

    # --- collecting ----------------------------------------------------------------------------------

    async def test_a_call_past_its_time_goes_with_all_that_belongs_to_it(
        self, store: Store, other: Store
    ) -> None:
        """Row, history, replays and its place in the counts; in its very last moment it stays."""
        done = await self._done(store)
        kept = await self._done(store)
        lasting = replace(kept, version=3, expires_at=None)
        await store.swap(lasting, calls.evidence(kept, "for ever"), expected=2)
        free, entry = calls.release(await self._pending(other))
        await other.swap(free, entry, expected=1)
        for key in (done.key, free.key, kept.key):
            store.mark_replayed(key, calls.NOW)
            assert await store.replays(key) == 1
        assert free.expires_at is not None
        assert done.expires_at is not None
        assert await store.collect(free.expires_at) == Collected(calls=0, blobs=0, bytes=0, more=False)
        first = await store.collect(free.expires_at + 1)
        assert (first.calls, first.blobs, first.more) == (1, 0, False)
        assert first.bytes == len(free.request)
        assert await store.get(free.key) is None
        assert await other.get(done.key) == done
        assert done.answer is not None
        second = await other.collect(done.expires_at + 1)
        assert second.calls == 1
        assert second.bytes == len(done.request) + len(done.answer.head) + len(done.answer.body)
        for key in (free.key, done.key):
            for at in (store, other):
                assert await at.get(key) is None
                assert await at.history(key) == []
                assert await at.replays(key) == 0
        assert await store.find(Query()) == Page(calls=[lasting])
        assert len(await store.history(kept.key)) == 3
        assert await store.replays(kept.key) == 1
        assert (await store.census()).by_state == dict.fromkeys(State, 0) | {State.DONE: 1}
        assert (await store.collect(AFTER_ALL)).calls == 0

    async def test_what_is_open_or_waits_for_a_person_is_never_collected(self, store: Store) -> None:
        """Not even if its fields say that its time is over; a denial that has lapsed is."""
        made = [calls.claim(store.owner) for _ in range(4)]
        states = (State.PENDING, State.IN_DOUBT, State.AWAITING_APPROVAL, State.DENIED)
        for (call, entry), state in zip(made, states, strict=True):
            given = (
                replace(call, state=state, terms=calls.WAITING)
                if state not in (State.PENDING, State.IN_DOUBT)
                else call
            )
            await store.swap(given, entry, expected=0)
        await store.swap(*calls.lose(made[1][0]), expected=1)
        for call, _ in made:
            await self.expire(call.key)
        assert (await store.collect(AFTER_ALL, dry_run=True)).calls == 1
        assert (await store.collect(AFTER_ALL)).calls == 1
        left = dict.fromkeys(states[:3], 1)
        assert (await store.census()).by_state == dict.fromkeys(State, 0) | left
        for call, _ in made[:3]:
            assert await store.history(call.key)

    async def test_collecting_takes_portions_and_a_dry_run_takes_nothing(self, store: Store) -> None:
        """No more calls at a time than asked for; the dry run counts all of them, and changes nothing."""
        for _ in range(5):
            await self._done(store)
        pending = await self._pending(store)
        stamp = await known_stamp(store)
        would = await store.collect(AFTER_ALL, limit=2, dry_run=True)
        assert (would.calls, would.blobs, would.more) == (5, 0, False)
        assert await known_stamp(store) == stamp
        assert (await store.census()).by_state[State.DONE] == 5
        portions = [await store.collect(AFTER_ALL, limit=2) for _ in range(3)]
        assert [(each.calls, each.more) for each in portions] == [(2, True), (2, True), (1, False)]
        assert sum(each.bytes for each in portions) == would.bytes > 0
        assert await store.find(Query()) == Page(calls=[pending])

    async def test_the_longest_over_go_first(self, store: Store) -> None:
        """So that a backlog shrinks from its old end."""
        for n in (3, 1, 2):
            call = await self._pending(store)
            await store.swap(*calls.settle(call, b"%d" % n, at=calls.NOW + n), expected=1)
        await store.collect(AFTER_ALL, limit=2)
        (left,) = (await store.find(Query())).calls
        assert left.answer is not None
        assert left.answer.body == b"3"

    async def test_two_who_collect_at_once_take_each_call_once(self, store: Store, other: Store) -> None:
        """Together they remove what there is."""
        for _ in range(20):
            await self._done(store)
        taken = await asyncio.gather(*(at.collect(AFTER_ALL, limit=3) for at in (store, other) * 5))
        assert sum(each.calls for each in taken) == 20
        assert (await other.census()).by_state == dict.fromkeys(State, 0)

    async def test_the_stamp_changes_when_a_done_call_is_collected(self, store: Store, other: Store) -> None:
        """What was at hand as done is gone for everybody, before the collector is told; a released call was
        at nobody's hand."""
        done = await self._done(store)
        free, entry = calls.release(await self._pending(store))
        await store.swap(free, entry, expected=1)
        stamp = await known_stamp(store)
        assert free.expires_at is not None
        assert (await other.collect(free.expires_at + 1)).calls == 1
        assert await known_stamp(store) == await known_stamp(other) == stamp
        assert (await other.collect(AFTER_ALL)).calls == 1
        assert stamp not in (store.settled_stamp(), other.settled_stamp())
        assert await known_stamp(store) == await known_stamp(other) != stamp
        assert await store.get(done.key, done) is None

    async def test_a_claim_over_a_row_read_before_it_was_collected_loses(
        self, store: Store, other: Store
    ) -> None:
        """It sees that nothing is there, and makes nothing; a first claim then wins, from version one."""
        done = await self._done(store)
        anew, entry = calls.claim_anew(done, store.owner, at=AFTER_ALL)
        assert (await other.collect(AFTER_ALL)).calls == 1
        assert await store.swap(anew, entry, expected=done.version) == Swap(False, None)
        assert await store.history(done.key) == []
        again, entry = calls.claim(store.owner, done.key, at=AFTER_ALL)
        assert (await store.swap(again, entry, expected=0)).won
        assert await other.history(done.key) == [entry]
        assert await other.replays(done.key) == 0

    async def test_a_late_owner_cannot_settle_a_row_that_was_made_again(
        self, store: Store, other: Store
    ) -> None:
        """Released, collected, claimed again by another: version and fence are those of the old claim, and
        still its answer is not taken for the new call's."""
        old = await self._pending(store)
        free, entry = calls.release(old)
        await other.swap(free, entry, expected=1)
        assert (await other.collect(AFTER_ALL)).calls == 1
        anew, claimed = calls.claim(other.owner, old.key, at=AFTER_ALL)
        assert (await other.swap(anew, claimed, expected=0)).won
        assert (anew.version, anew.fence) == (old.version, old.fence)
        assert await store.swap(*calls.settle(old), expected=1) == Swap(False, anew)
        assert await store.history(old.key) == [claimed]

    async def test_a_row_that_was_made_again_is_not_taken_for_the_one_that_is_known(
        self, store: Store, other: Store
    ) -> None:
        """The same key in the same version, born later: it is read, not confirmed."""
        known = await self._done(store)
        assert (await other.collect(AFTER_ALL)).calls == 1
        anew, entry = calls.claim(other.owner, known.key, at=AFTER_ALL)
        await other.swap(anew, entry, expected=0)
        done, entry = calls.settle(anew, b"another answer", at=AFTER_ALL)
        await other.swap(done, entry, expected=1)
        assert done.version == known.version
        assert await store.get(known.key, known) == done

    async def test_who_watches_a_call_is_told_when_it_is_collected(self, store: Store, other: Store) -> None:
        """Whoever collects it."""
        done = await self._done(store)
        waits = [asyncio.create_task(at.changed(done.key, done.version, 10.0)) for at in (store, other)]
        await asyncio.sleep(0.02)
        assert not any(wait.done() for wait in waits)
        await store.collect(AFTER_ALL)
        assert await asyncio.gather(*waits) == [True, True]

    async def test_a_blob_goes_when_no_row_names_it_and_nobody_touched_it(
        self, store: Store, other: Store
    ) -> None:
        """Named by a request or an answer it stays, however old; young it stays, though nobody names it; with
        its last row it goes."""
        of_request, of_answer, of_both, young, old = [
            await store.put_blob([f"content {n}".encode()]) for n in range(5)
        ]
        pending, entry = calls.claim(store.owner)
        pending = replace(pending, request_blob=of_both.digest)
        await store.swap(pending, entry, expected=0)
        call, entry = calls.claim(store.owner)
        call = replace(call, request_blob=of_request.digest)
        await store.swap(call, entry, expected=0)
        done, entry = calls.settle(call, b"")
        answer = Answer(status=200, size=9, recorded_at=1.0, place=Place.BLOB, blob=of_answer.digest)
        await store.swap(replace(done, answer=answer), entry, expected=1)
        for blob in (of_request, of_answer, of_both, old):
            await self.age(blob)
        assert await store.collect(calls.NOW) == Collected(calls=0, blobs=1, bytes=old.size, more=False)
        await self._present(other, of_request, of_answer, of_both, young)
        with pytest.raises(BlobLost):
            await self._present(other, old)
        would = await other.collect(AFTER_ALL, dry_run=True)
        assert (would.calls, would.blobs) == (1, 2)
        await self._present(other, of_request, of_answer, of_both, young)
        assert await other.collect(AFTER_ALL) == would
        await self._present(store, of_both, young)
        for gone in (of_request, of_answer):
            with pytest.raises(BlobLost):
                await self._present(store, gone)

    async def test_a_blob_that_is_put_again_is_safe_until_its_row_names_it(
        self, store: Store, other: Store
    ) -> None:
        """Its content was there and old; putting it again renews it, before any row can name it."""
        blob = await store.put_blob([b"content"])
        await self.age(blob)
        assert await store.put_blob([b"content"]) == blob
        assert (await other.collect(AFTER_ALL)).blobs == 0
        call, entry = calls.claim(store.owner)
        await store.swap(replace(call, request_blob=blob.digest), entry, expected=0)
        await self.age(blob)
        assert (await other.collect(AFTER_ALL)).blobs == 0
        await self._present(other, blob)

    async def test_a_blob_that_is_put_while_it_is_collected_is_there_for_its_row(
        self, store: Store, other: Store
    ) -> None:
        """Nobody named it, and it was old: whoever is faster, the row that is written in the end has it."""

        async def settle(content: bytes) -> BlobRef:
            ref = await store.put_blob([content])
            call, entry = calls.claim(store.owner)
            assert (await store.swap(replace(call, request_blob=ref.digest), entry, expected=0)).won
            return ref

        for n in range(count(test=15, soak=200)):
            content = b"%d" % n * 100_000
            await self.age(await store.put_blob([content]))
            settling = asyncio.create_task(settle(content))
            while not settling.done():
                await asyncio.gather(*(at.collect(AFTER_ALL) for at in (store, other)))
            await self._present(other, settling.result())

    async def test_who_has_begun_to_read_a_blob_reads_it_to_its_end(self, store: Store, other: Store) -> None:
        """It is collected meanwhile; whoever comes later finds none. Put again, it is whole for everybody."""
        content = os.urandom(3_000_000)
        blob = await store.put_blob([content])
        reading = store.read_blob(blob)
        parts = [await anext(reading)]
        await self.age(blob)
        assert (await other.collect(AFTER_ALL)).blobs == 1
        with pytest.raises(BlobLost):
            await self._present(store, blob)
        assert await other.put_blob([content]) == blob
        assert b"".join([*parts, *[part async for part in reading]]) == content
        await self._present(store, blob)

    async def _present(self, store: Store, *blobs: BlobRef) -> None:
        for blob in blobs:
            assert len(b"".join([chunk async for chunk in store.read_blob(blob)])) == blob.size

    # --- blobs and the cache -------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 256 * 1024, 1_000_000])
    async def test_a_blob_comes_back_whole(self, store: Store, other: Store, size: int) -> None:
        """Named by its digest, readable by every process, twice the same is the same."""
        content = os.urandom(size)
        pieces = [content[start : start + 100_000] for start in range(0, size, 100_000)]
        ref = await store.put_blob(iter(pieces))
        assert ref == BlobRef(hashlib.blake2b(content, digest_size=32).hexdigest(), size)
        assert await other.put_blob([content]) == ref
        assert b"".join([chunk async for chunk in other.read_blob(ref)]) == content

    async def test_a_blob_that_is_missing_or_of_another_size_is_lost(self, store: Store) -> None:
        """Never an empty or a half body instead."""
        ref = await store.put_blob([b"content"])
        for wrong in (BlobRef("0" * 64, 7), BlobRef(ref.digest, 8), BlobRef("../../etc/passwd", 7)):
            with pytest.raises(BlobLost):
                [chunk async for chunk in store.read_blob(wrong)]

    async def test_the_cache_keeps_bytes_until_they_expire(self, store: Store, other: Store) -> None:
        """Small and large values; another process finds them; a passed time to live is a miss."""
        for size in (0, 10, 100_000):
            key, value = os.urandom(16), os.urandom(size)
            assert await store.cache_get(key) is None
            await store.cache_put(key, value, 60.0)
            assert await other.cache_get(key) == value
            await store.cache_put(key, b"newer", 60.0)
            assert await store.cache_get(key) == b"newer"
            await store.cache_put(key, value, -1.0)
            assert await store.cache_get(key) is None

    async def test_the_census_counts_every_body(self, store: Store, other: Store) -> None:
        """Rows, blobs and what lies in the cache; a store that tells them apart leaves nothing out."""
        before = await store.census()
        await store.put_blob([os.urandom(2_000_000)])
        await store.cache_put(os.urandom(16), os.urandom(1_000_000), 60.0)
        call, entry = calls.claim(store.owner)
        await store.swap(replace(call, request=os.urandom(1_000_000)), entry, expected=0)
        after = await store.census()
        assert after.bytes_used - before.bytes_used >= 3_500_000
        if after.parts:
            assert sum(after.parts.values()) == after.bytes_used
            grown = {part: size - before.parts.get(part, 0) for part, size in after.parts.items()}
            assert grown["blobs"] >= 2_000_000
            assert grown["cache"] >= 1_000_000
            assert grown["rows"] >= 900_000

    # --- the end -------------------------------------------------------------------------------------

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        """Every operation raises StoreUnavailable, waiting watchers too, and closing twice is nothing."""
        call, entry = calls.claim(store.owner)
        await store.swap(call, entry, expected=0)
        watcher = asyncio.create_task(store.changed(call.key, 1, 30.0))
        await asyncio.sleep(0.01)
        await store.ping()
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await watcher
        assert not store.owns()
        store.mark_replayed(call.key, calls.NOW)
        for operation in (
            store.get(call.key),
            store.swap(*calls.settle(call), expected=1),
            store.note(call.key, entry),
            store.history(call.key),
            store.replays(call.key),
            store.changed(call.key, 1, 1.0),
            store.find(Query()),
            store.orphans(),
            store.owner_is_dead("x"),
            store.census(),
            store.live_calls("mail", "send", calls.NOW),
            store.collect(AFTER_ALL),
            store.collect(AFTER_ALL, dry_run=True),
            store.put_blob([b""]),
            store.read_blob(BlobRef("0" * 64, 0)).__anext__(),
            store.cache_put(b"k", b"v", 1.0),
            store.cache_get(b"k"),
            store.ping(),
        ):
            with pytest.raises(StoreUnavailable):
                await operation

    async def test_writes_under_way_at_close_are_done(self, store: Store, other: Store) -> None:
        """What was asked for before close is written, and answered."""
        made = [calls.claim(store.owner) for _ in range(50)]
        tasks = [asyncio.create_task(store.swap(call, entry, expected=0)) for call, entry in made]
        await asyncio.sleep(0)
        await store.close()
        assert all(swap.won for swap in await asyncio.gather(*tasks))
        for call, _ in made:
            assert await other.get(call.key) == call
