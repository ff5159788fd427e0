"""A call as it will be claimed: the row, and what it takes out of its budget."""

from __future__ import annotations

from collections.abc import Callable

from proxy.clock import Clock
from proxy.core import budget
from proxy.core.budget import Charge
from proxy.core.clauses import UpstreamKey
from proxy.core.doubt import place_of
from proxy.core.identity import Identity
from proxy.core.intent import Call, State, begun, evolve
from proxy.core.terms import Terms
from proxy.intended import Draw, Intent
from proxy.keys import mint
from proxy.store.base import Store
from proxy.store.codec import Codec


class Drafts:
    def __init__(
        self,
        *,
        store: Store,
        codec: Codec,
        clock: Clock,
        inline_body: int,
        mint: Callable[[UpstreamKey], str] = mint,
    ) -> None:
        self._store = store
        self._codec = codec
        self._clock = clock
        self._inline_body = inline_body
        self._mint = mint

    async def charge(self, intent: Intent) -> Charge | None:
        """What the claim of a rule with a budget reserves; None: another call is charged for it."""
        rule = intent.rule
        if intent.free:
            return None
        run = intent.payer if intent.place is None else intent.place.run
        account = budget.account_of(rule, tenant=intent.tenant, run=run, upstream=intent.upstream)
        spent = await self._store.spent(account) if budget.needs_history(rule) else ()
        return budget.reservation(rule, account, self._clock.now(), spent)

    async def blob(self, intent: Intent) -> str:
        """Where its body lies, durable: for one that lies apart from the row."""
        assert intent.recorded_body is not None
        return (await self._store.put_blob(intent.recorded_body.chunks())).digest

    def is_long(self, intent: Intent) -> bool:
        """Whether its body lies apart from the row."""
        body = intent.recorded_body
        return body is not None and body.size > self._inline_body

    def fresh(self, intent: Intent, blob: str, charge: Charge | None = None) -> Call:
        alike = intent.alike
        if alike is None or blob or charge is not None:
            return self._fresh(intent, blob, charge)
        if alike.draw is None:
            alike.draw = self._drawing(intent)
        body = intent.body
        inline = b"" if body is None else body.whole()
        return alike.draw(intent.identity, inline, self._clock.now(), self._store.owner)

    def _drawing(self, intent: Intent) -> Draw:
        """`_fresh` of all that are alike: outside runs, of nobody's permission, and with nothing veiled."""
        first, seal = self._fresh(intent, "", None), self._codec.sealing(intent.stored(b""))
        assert first.terms is None
        assert not first.run
        assert intent.veiled is None
        like = evolve(first, request=b"", named_by=b"")  # what the first of them said is its own

        def draw(identity: Identity, body: bytes, now: float, owner: str) -> Call:
            key, fingerprint, named_by, arguments = identity
            return evolve(
                like,
                key=key,
                fingerprint=fingerprint,
                named_by=named_by,
                owner=owner,
                born=now,
                created_at=now,
                sent_at=now,
                request=seal(body, arguments),
            )

        return draw

    def _fresh(self, intent: Intent, blob: str, charge: Charge | None) -> Call:
        now, place, body = self._clock.now(), intent.place, intent.recorded_body
        inline = b"" if blob or body is None else body.whole()
        return begun(
            run="" if place is None else place.run,
            attempt="" if place is None else place.attempt,
            in_run=None if place is None else place.in_run,
            key=intent.identity.key,
            fingerprint=intent.identity.fingerprint,
            named_by=intent.identity.named_by,
            tenant=intent.tenant,
            occurrence=intent.occurrence,
            upstream=intent.upstream,
            rule=intent.rule.name,
            tool=intent.tool,
            safe=intent.safe,
            state=State.PENDING,
            version=1,
            fence=1,
            owner=self._store.owner,
            born=now,
            created_at=now,
            sent_at=now,
            sends=1,
            request=self._codec.seal_request(intent.stored(inline)),
            request_blob=blob,
            terms=self._terms(intent, charge, now),
        )

    def _terms(self, intent: Intent, charge: Charge | None, now: float) -> Terms | None:
        """A claim is made only of what a person has permitted, where one has to."""
        key, reserved = intent.key, budget.remembered(charge, intent.rule)
        if key is None and not intent.bound_to:
            return None if reserved is None else Terms(reserved=reserved)
        permission = intent.permission
        if key is None:
            return Terms(bound_to=permission, granted=True, reserved=reserved)
        return Terms(
            key=self._mint(key),
            place=place_of(key),
            keyed_at=now,
            bound_to=permission,
            granted=bool(permission),
            reserved=reserved,
        )
