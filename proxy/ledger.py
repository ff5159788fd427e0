"""The exchange's hand on the store: claims and settlements that survive a store in trouble.

A write that failed may have landed. So after every failure the row is read again, and only the fence
says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.answers import Answers
from proxy.claimed import UNTRIED, Claimed, ClaimResult, RaceLost, Tried, Uncertain
from proxy.clock import Clock
from proxy.core import approval as asking
from proxy.core import decide as core
from proxy.core.budget import Charge, adjustment, used_up
from proxy.core.clauses import UpstreamKey
from proxy.core.intent import NEED_A_PERSON, Answer, Call, Entry, Event, State, evolve
from proxy.core.policy import Rule
from proxy.core.run_record import Serving
from proxy.drafting import Drafts
from proxy.errors import StoreUnavailable
from proxy.intended import Intent
from proxy.keys import mint
from proxy.known_doubts import KnownDoubts
from proxy.observe import RECOVERED, Observer
from proxy.overspent import over_budget
from proxy.plain_ledger import PlainLedger
from proxy.store.base import Query, Store, Swap
from proxy.store.codec import Codec
from proxy.stream import Capture, Whole

# A blob that no row names yet is safe from collection for an hour; long before that it is put again.
PLACED_FOR = 1200.0
# After so many calls without a row the next is taken for new as well.
NEW_IN_A_ROW = 8
# So many are looked at at once.
QUESTIONS = 500
# Waiting for a store to come back: soon at first, then patiently.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5


class Ledger:
    def __init__(
        self,
        *,
        store: Store,
        codec: Codec,
        clock: Clock,
        observer: Observer,
        inline_body: int,
        mint: Callable[[UpstreamKey], str] = mint,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._drafts = Drafts(store=store, codec=codec, clock=clock, inline_body=inline_body, mint=mint)
        self._new_in_a_row = 0
        self.on_row: Callable[[Call], None] = lambda call: None  # hears of every row of a run it has written
        self.known_doubts = KnownDoubts(store, clock)
        self.answers = Answers(store=store, codec=codec, observer=observer, inline_body=inline_body)
        self.plain = PlainLedger(
            store=store, drafts=self._drafts, answers=self.answers, clock=clock, observer=observer
        )

    @property
    def _actor(self) -> str:
        """As the store knows this process now."""
        return f"proxy:{self._store.owner}"

    async def get(self, key: bytes) -> Call | None:
        began = self._clock.monotonic()
        call = await self.answers.row(key)
        self._observer.store_took("get", self._clock.monotonic() - began)
        self._new_in_a_row = 0 if call is not None else self._new_in_a_row + 1
        return call

    def are_new(self) -> bool:
        """Whether the calls of late were."""
        return self._new_in_a_row >= NEW_IN_A_ROW

    def expects_nothing(self, key: bytes) -> bool:
        """Whether it is not worth looking before a claim: the calls before were all new, so this one is too,
        most likely. If not, the claim loses and the row is read then; a wrong guess costs time, no more."""
        return self.are_new() and not self.answers.is_at_hand(key)

    async def _swap(
        self,
        call: Call,
        entry: Entry,
        *,
        expected: int,
        served: Serving | None = None,
        charge: Charge | None = None,
    ) -> Swap:
        began = self._clock.monotonic()
        swap = await self._store.swap(call, entry, expected=expected, served=served, charge=charge)
        self._observer.store_took("swap", self._clock.monotonic() - began)
        if swap.won and call.state in NEED_A_PERSON and entry.before is not call.state:
            self._observer.entered(call)
        if swap.won and call.state is State.IN_DOUBT:
            self.known_doubts.since(call)
        if call.run and swap.won:
            written = evolve(call, seq=swap.seq)
            self.answers.recorded(written)
            self.on_row(written)
        return swap

    # ---- before the send ----

    async def claim(self, intent: Intent, over: Call | None) -> ClaimResult:
        """Over a call in doubt: what is sent again is what was sent before, and is paid for. Raises
        BudgetExceeded, and nothing is claimed."""
        call: Call | None = None
        charge: Charge | None = None
        try:
            if over is not None and over.state is State.IN_DOUBT:
                fresh = self._drafts.fresh(intent._replace(body=None), "")
                call, entry, expected = core.resend(fresh, over, actor=self._actor, now=fresh.created_at)
            else:
                if intent.rule.budget is not None:
                    charge = await self._drafts.charge(intent)
                blob = await self._drafts.blob(intent) if self._drafts.is_long(intent) else ""
                fresh = self._drafts.fresh(intent, blob, charge)
                call, entry, expected = core.claim(fresh, over, actor=self._actor, now=fresh.created_at)
            place = intent.place
            served = None if place is None else place.serving(call.tenant, call.key, call.fence)
            swap = await self._swap(call, entry, expected=expected, served=served, charge=charge)
        except StoreUnavailable as error:
            return self.uncertain(call, error)
        if swap.won:
            return Claimed(evolve(call, seq=swap.seq) if call.run else call)
        if charge is not None and swap.exceeded is not None:
            limit = used_up(charge, swap.exceeded)
            assert limit is not None  # by what the store held when it refused
            raise over_budget(charge.account, limit, self._clock.now())
        return self.lost()

    def lost(self) -> RaceLost:
        """The next is looked at before it is claimed."""
        self._new_in_a_row = 0
        return RaceLost()

    def uncertain(self, call: Call | None, error: StoreUnavailable) -> Uncertain:
        self._new_in_a_row = 0  # a store that cannot be written can perhaps be read
        return Uncertain(call, error)

    async def ask_person(self, intent: Intent, over: Call | None) -> bool:
        """Whether it waits for a person now; False: somebody else was first, look again. Nothing is sent."""
        approval = intent.rule.approval
        assert approval is not None  # else nobody would have to permit it
        blob = await self._drafts.blob(intent) if self._drafts.is_long(intent) else ""
        fresh = self._drafts.fresh(intent, blob)
        call, entry, expected = asking.ask_person(
            fresh,
            over,
            approval=approval,
            bound_to=intent.permission,
            actor=self._actor,
            now=fresh.created_at,
        )
        return (await self._swap(call, entry, expected=expected)).won

    async def lapse_questions(self) -> None:
        """Those that nobody decided in time: nobody shall look at them in vain."""
        now = self._clock.now()
        after: int | None = None
        while True:  # what cannot be read is left out, and keeps no other from lapsing
            query = Query(state=State.AWAITING_APPROVAL, limit=QUESTIONS, after=after)
            page = await self._store.find(query)
            for call in page.calls:
                if asking.has_lapsed(call, now):
                    await self.lapse(call)
            if page.next is None:
                return
            after = page.next

    async def lapse(self, call: Call) -> bool:
        """A question, or a refusal, that is past its time is over; False: somebody else changed it."""
        lapsed, entry = asking.lapse(call, actor=self._actor, now=self._clock.now())
        return (await self._swap(lapsed, entry, expected=call.version)).won

    async def withdraw(self, call: Call) -> None:
        """Take back a claim that may or may not stand. Nothing was sent for it."""
        why = "the store failed while the claim was written"
        ttl = None if call.run else core.NOTHING_CAME_OF_IT
        settlement = core.Settlement(event=Event.NOT_SENT, why=why, ttl=ttl)

        pause = FIRST_PAUSE
        while True:
            try:
                while True:
                    present = await self.get(call.key)
                    if present is None or present.state is not State.PENDING:
                        return  # it never stood, an earlier try took it back, or recovery has it
                    if present.fence != call.fence or not _same_owner(present, call):
                        return
                    if await self._move(present, settlement) is not None:
                        return  # else it was written meanwhile, perhaps with another key and nothing more
            except StoreUnavailable as error:
                self._in_trouble("withdraw", call.id, error)
            pause = await self._wait(pause)

    # ---- after the send ----

    async def settle(
        self,
        call: Call,
        settlement: core.Settlement,
        kept: Whole | Capture | None,
        rule: Rule,
        on_trouble: Callable[[StoreUnavailable], None],
        tried: Tried = UNTRIED,
    ) -> Call | None:
        """The settled row once it is durable; None where another owner has the call by now. Waits out a
        store in trouble; `on_trouble` hears of every failure."""
        placed, failed = tried
        placed_at, pause = 0.0, FIRST_PAUSE
        while True:
            try:
                if failed is not None:
                    error, failed = failed, None
                    raise error
                if isinstance(kept, Whole):
                    placed = placed or self.answers.in_row(call, kept, self._clock.now())
                elif kept is not None and (
                    placed is None or self._clock.monotonic() - placed_at > PLACED_FOR
                ):
                    placed_at = self._clock.monotonic()
                    placed = await self.answers.place(call, kept, rule, self._clock.now())
                return await self._settle_once(call, settlement, placed)
            except StoreUnavailable as error:
                self._in_trouble("settle", call.id, error)
                on_trouble(error)
            pause = await self._wait(pause)

    async def _settle_once(
        self, call: Call, settlement: core.Settlement, answer: Answer | None
    ) -> Call | None:
        expected_by_us = call
        while True:
            settled, entry = core.settle(
                expected_by_us, settlement, actor=self._actor, now=self._clock.now(), answer=answer
            )
            charge = adjustment(expected_by_us, settled)
            swap = await self._swap(settled, entry, expected=expected_by_us.version, charge=charge)
            present = swap.present
            # Or an earlier try had landed after all.
            if swap.won or (present is not None and _is_ours(present, settled)):
                self._tell_spent(settled)
                return settled if swap.won else present
            ours = present is not None and _same_owner(present, call)
            if present is None or not ours or not core.can_settle(present, call.fence, settlement.event):
                await self._keep_as_evidence(call, settlement, present)
                return None
            # What this owner knows of its own sends, the row does not know yet.
            expected_by_us = evolve(
                present,
                sends=call.sends,
                unresolved=call.unresolved or present.unresolved,
                doubt=call.doubt or present.doubt,
            )

    def _tell_spent(self, settled: Call) -> None:
        """Where it is settled, and not where it is answered: whoever asked may have left. A run's call that
        was filled from a shared one cost nothing: the shared one did."""
        filled = settled.in_run is not None and settled.in_run.shared
        if settled.cost_usd and not filled:
            self._observer.spent(settled)

    async def note_resend(self, call: Call, why: str) -> None:
        """Durable before the resend: whoever reads the history knows of every send."""
        entry = Entry(self._clock.now(), self._actor, "resent", call.state, call.state, why, call.fence)
        await self._store.note(call.key, entry)

    async def _keep_as_evidence(self, call: Call, settlement: core.Settlement, present: Call | None) -> None:
        state = present.state if present is not None else None
        entry = Entry(
            at=self._clock.now(),
            actor=self._actor,
            event="evidence",
            before=state,
            after=state,
            why=f"late: {settlement.event}, {settlement.why}",
            fence=call.fence,
        )
        await self._store.note(call.key, entry)
        self._observer.noted("late-outcome", call=call.id, outcome=str(settlement.event), state=str(state))

    # ---- what others left ----

    async def recover(self, call: Call) -> Call | None:
        """Settle a dead owner's pending call. None: somebody else did, or its answer came after all."""
        moved = await self._move(call, core.orphaned(call), actor=f"recovery:{self._store.owner}")
        if moved is not None:
            doubtful = moved.state is State.IN_DOUBT
            told = {"call": call.id, "state": str(moved.state), "tool": call.tool, "doubtful": doubtful}
            self._observer.noted(RECOVERED, **told)
        return moved

    async def find_out(self, call: Call, settlement: core.Settlement, actor: str | None) -> Call | None:
        """Settle a call in doubt by what the upstream itself says of it. None: it is another by now."""
        settled, entry = core.settle(call, settlement, actor=actor or self._actor, now=self._clock.now())
        settled = evolve(settled, in_run=core.by_person(settled))
        swap = await self._swap(settled, entry, expected=call.version, charge=adjustment(call, settled))
        if not swap.won:
            return None
        self._tell_spent(settled)
        return settled

    async def _move(self, call: Call, settlement: core.Settlement, actor: str | None = None) -> Call | None:
        settled, entry = core.settle(call, settlement, actor=actor or self._actor, now=self._clock.now())
        swap = await self._swap(settled, entry, expected=call.version, charge=adjustment(call, settled))
        return settled if swap.won else None

    def _in_trouble(self, what: str, call_id: str, error: StoreUnavailable) -> None:
        self._observer.noted("store-trouble", doing=what, call=call_id, error=error.detail)

    async def _wait(self, pause: float) -> float:
        """For a store to come back. The next pause."""
        await self._clock.sleep(pause)
        return min(2 * pause, LONGEST_PAUSE)


def _same_owner(present: Call, call: Call) -> bool:
    """And the same row: one that was collected and made again is another, whoever made it."""
    return present.owner == call.owner and present.born == call.born


def _is_ours(present: Call, settled: Call) -> bool:
    return (
        present.born == settled.born
        and present.fence == settled.fence
        and present.version == settled.version
        and present.state is settled.state
        and present.answer == settled.answer
        # Recovery may have settled it too, knowing less than we do: of the doubt, of what it cost, and of the
        # problem that its caller is about to be given.
        and (present.doubt, present.terms, present.in_run) == (settled.doubt, settled.terms, settled.in_run)
    )
