"""Four kinds of calls (semantics 4): safe, with an upstream key, with a probe, with neither; and the last
once more where a person has to permit each of them.

A call's body says its name, so that the upstream knows which call a request is, and a probe what it asks for.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum

from proxy.asking import Ask
from proxy.core.clauses import Approval, OnDoubt, Probe, UpstreamKey
from proxy.core.identity import Identity
from proxy.core.policy import Rule
from proxy.intended import Intent
from proxy.upstream.base import Headers, Outgoing
from tests.exchange.stage import Prepared
from tests.runs.stage import identity_of

TOTAL, SETTLE, WAIT = 30.0, 5.0, 60.0
# How long the upstream remembers a key: little more than semel's margin and a few of the longest pauses.
RETENTION = 900.0
FOR_GOOD = 1e9
HEADERS: Headers = ((b"Host", b"upstream"), (b"Content-Type", b"application/json"))


class Kind(StrEnum):
    SAFE = "a"
    KEYED = "b"
    PROBED = "c"
    PLAIN = "d"
    PERMITTED = "e"

    @property
    def safe(self) -> bool:
        return self is Kind.SAFE


PROBE = Probe(
    method="GET", target="/probe?name={body.name}", found="executed", result="answer", settle=SETTLE
)
KEY = UpstreamKey(header="idempotency-key", retention=RETENTION, mismatch=frozenset({422}))
_PLAIN = Rule(name="d", safe=False, ttl=FOR_GOOD, wait=WAIT)
RULES = {
    Kind.SAFE: replace(_PLAIN, name="a", safe=True),
    Kind.KEYED: replace(_PLAIN, name="b", upstream_key=KEY, in_doubt=OnDoubt.RESEND),
    Kind.PROBED: replace(_PLAIN, name="c", probe=PROBE, in_doubt=OnDoubt.PROBE),
    Kind.PLAIN: _PLAIN,
    Kind.PERMITTED: replace(_PLAIN, name="e", approval=Approval(wait=5.0, expires=300.0)),
}


def kind_of(name: str) -> Kind:
    """Names end in their kind: `pay-d`."""
    return Kind(name[-1])


class Tag(nullcontext[None]):
    """Goes out with a request, and says to the upstream of the simulation which row it was claimed for. No
    part of semel looks at it."""

    row = b""


class Tagged(Prepared):
    def outgoing(self) -> Outgoing:
        return super().outgoing()._replace(aloft=Tag())

    def intent(self, identity: Identity, outgoing: Outgoing) -> Intent:
        assert isinstance(outgoing.aloft, Tag)
        outgoing.aloft.row = identity.key
        return super().intent(identity, outgoing)


def sending(name: str) -> Tagged:
    kind = kind_of(name)
    return Tagged(
        rule=RULES[kind],
        safe=kind.safe,
        body=b'{"name": "%b"}' % name.encode(),
        total=TOTAL,
        target=f"/{name}".encode(),
        headers=HEADERS,
        bound_to=name.encode() if kind is Kind.PERMITTED else b"",
    )


def asked(name: str) -> Ask:
    """Outside a run."""
    kind = kind_of(name)
    return Ask(identity_of(name), RULES[kind], kind.safe, False, sending(name))
