"""What a request's head decides: worked out when it comes for the second time, for all that have the same.

An agent's requests to one place mostly differ in their bodies only. Address, speaker, upstream, rule, what
goes out before the body and what is recorded of it are the same then; the body names the call and nothing
more. Nothing is decided otherwise here: a plan is made by those who decide for every other request. It holds
as long as the policies do. What may hang on more than the head has no plan and takes the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from proxy.asking import Ask, Boards, Live
from proxy.core.amended import amended
from proxy.core.clauses import Wire
from proxy.core.identity import Identity
from proxy.core.matching import Match
from proxy.core.outcome import reads_answers
from proxy.core.policy import Mode, PolicySet, Rule, Upstream
from proxy.errors import Refusal
from proxy.front.address import UpstreamAddress, parse_target
from proxy.front.connection import Connection
from proxy.front.door import Door
from proxy.front.incoming import (
    Asked,
    Incoming,
    Labels,
    RequestLimits,
    check_asker,
    find_upstream,
    said_to_semel,
    sending_of,
    to_name,
)
from proxy.front.naming import NAMED_INLINE, Namer, named_by_head
from proxy.front.run_ref import agree
from proxy.front.sending import Prepared, Sending
from proxy.front.turns import HttpRequest
from proxy.intended import Intent
from proxy.observe import TellsCall
from proxy.spool import Spool
from proxy.stream import Capture

# How the answers of such calls are caught in parts, if they may fly without stops.
CaptureOf: TypeAlias = Callable[[Intent], Callable[[], Capture] | None]
_BODY = Sending._fields.index("body")


class Plan(NamedTuple):
    """`sending` has no body yet. `labels`: what is told of each. `capture`: how its answers are caught in
    parts, where it may fly without stops; `tellers`: how those are told of then, by their status."""

    policies: PolicySet
    upstream: Upstream
    match: Match
    name: Callable[[bytes], Identity]
    sending: Sending
    labels: Labels
    capture: Callable[[], Capture] | None
    tellers: dict[int, TellsCall]

    def prepared(self, identity: Identity, body: bytes) -> Prepared:
        """What is sent and written down of a call of this name."""
        return self.sending.prepared_for(identity, Spool.of(body))

    def incoming(self, body: bytes, boards: Boards) -> Incoming:
        """Raises BadRequest where the body is no call, as naming does."""
        _, upstream, match, name, sending, *_ = self
        identity = name(body)
        sending = amended(sending, (_BODY, Spool.of(body)))
        ask = Ask(identity, match.rule, False, False, sending, boards=boards)
        return Incoming(upstream, match, False, sending, ask)


class NoPlan(NamedTuple):
    policies: PolicySet


class Boarded(NamedTuple):
    """A call by a plan that has taken off, and who waits for it."""

    plan: Plan
    live: Live
    began: float


class Plans:
    def __init__(
        self,
        *,
        policies: Callable[[], PolicySet],
        door: Door,
        namer: Namer,
        limits: RequestLimits,
        capture_of: CaptureOf,
    ) -> None:
        self._policies = policies
        self._door = door
        self._namer = namer
        self._limits = limits
        self._capture_of = capture_of

    def of(self, request: HttpRequest, connection: Connection) -> Plan | None:
        """None: the long way, where also whatever is wrong with it is said."""
        head, policies = request.known, self._policies()
        if head is None or connection.inside is not None:
            return None
        plan = head.plan
        if not isinstance(plan, Plan | NoPlan) or plan.policies is not policies:
            plan = head.plan = self._made(request, policies) or NoPlan(policies)
        return plan if isinstance(plan, Plan) else None

    def _made(self, request: HttpRequest, policies: PolicySet) -> Plan | None:
        # What is long is named beside the loop, and that is for the long way to do.
        if not request.whole or len(request.whole) > min(self._limits.body, NAMED_INLINE):
            return None
        try:
            return self._make(request, policies)
        except Refusal:
            return None

    def _make(self, request: HttpRequest, policies: PolicySet) -> Plan | None:
        address, told = parse_target(request.raw_path), said_to_semel(request.raw_headers)
        if not isinstance(address, UpstreamAddress):
            return None
        speaker = agree(told.speaker, address.speaker)
        visitor, upstream = self._door.for_calls(speaker.token), find_upstream(policies, address)
        check_asker(upstream, visitor, request.raw_headers, forward=False)
        if speaker.run or upstream.protocol is not Wire.HTTP or upstream.shadows:
            return None
        method, headers, body = request.method, request.raw_headers, Spool.of(request.whole)
        asked = Asked(method, headers, address, policies, upstream, body, told, speaker, visitor.tenant)
        found = named_by_head(to_name(asked), self._namer.veiling.secret, self._limits.body)
        if found is None:
            return None
        named, name = found
        if named.safe or named.identity is None or not _is_plain(named.match.rule):
            return None
        sending = sending_of(asked, upstream, named.match, named.safe, self._namer).prepare(named.identity)
        labels = Incoming(upstream, named.match, named.safe, sending, None).labels()
        # What is said of the body's length in the head holds for all of them.
        intent = sending.prepared_for(named.identity, body).intent
        capture = None if method == "HEAD" else self._capture_of(intent)
        return Plan(policies, upstream, named.match, name, sending, labels, capture, {})


def _is_plain(rule: Rule) -> bool:
    """Done once, and nothing more is asked of it."""
    return (
        rule.mode is Mode.ONCE
        and rule.budget is None
        and rule.cost is None
        and rule.upstream_key is None
        and not reads_answers(rule.outcome)
    )
