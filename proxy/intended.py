"""What is about to be sent, as it will be written down before."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from proxy.core.approval import for_occurrence
from proxy.core.clauses import UpstreamKey
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.core.policy import Rule
from proxy.core.run_record import Exchange, InRun, Serving
from proxy.core.scrubbing import Secrets
from proxy.judge import Judgement
from proxy.spool import Spool
from proxy.store.codec import StoredRequest
from proxy.upstream.base import Headers


class RunPlace(NamedTuple):
    """Where in a run a call is claimed, and who is served by it."""

    run: str
    attempt: str
    in_run: InRun
    served: Exchange

    def serving(self, tenant: str, key: bytes, fence: int) -> Serving:
        return Serving(tenant, self.run, key, self.served._replace(fence=fence))


class Veiled(NamedTuple):
    """The request as its record shows it, where the rule redacts something."""

    target: bytes
    headers: Headers
    body: bytes
    arguments: bytes
    keeps_whole: bool  # beside it, encrypted: it may have to be sent again


# Of calls alike: how one of this name and body, claimed now by this owner, is written down.
Draw: TypeAlias = Callable[[Identity, bytes, float, str], Call]


class Alike:
    """What calls have in common that are intended alike, worked out when the first of them needs it: how they
    are written down, and what they come to, by the status that they got."""

    __slots__ = ("draw", "judged")

    def __init__(self) -> None:
        self.draw: Draw | None = None
        self.judged: dict[int, Judgement] = {}


class Intent(NamedTuple):
    """What is about to be sent, as it will be written down."""

    identity: Identity
    rule: Rule
    safe: bool
    tenant: str
    upstream: str
    tool: str
    occurrence: int
    method: str
    target: bytes
    headers: Headers  # without credentials; those in the target are hidden
    body: Spool | None
    place: RunPlace | None = None  # in a run
    key: UpstreamKey | None = None  # how the upstream will know it
    bound_to: bytes = b""  # what a person has to permit, whichever occurrence it is
    veiled: Veiled | None = None
    payer: str = ""  # the run that asks for it, where it is not a call of that run
    free: bool = False  # the answer comes from another call, which is charged
    secrets: Callable[[], Secrets] = Secrets  # in clear: no word of an upstream may hold them
    alike: Alike | None = None  # of many that differ in name and body only

    @property
    def permission(self) -> bytes:
        """What a person has to permit of this very occurrence; empty: nobody has to."""
        return for_occurrence(self.bound_to, self.occurrence) if self.bound_to else b""

    @property
    def recorded_body(self) -> Spool | None:
        """What is recorded of the body beside what people are shown."""
        return self.body if self.veiled is None or self.veiled.keeps_whole else None

    def stored(self, inline: bytes) -> StoredRequest:
        """What a resend needs; a large body is a blob instead."""
        whole = StoredRequest(self.method, self.target, self.headers, inline, self.identity.arguments)
        veiled = self.veiled
        if veiled is None:
            return whole
        return StoredRequest(
            method=self.method,
            target=veiled.target,
            headers=veiled.headers,
            body=veiled.body,
            arguments=veiled.arguments,
            redacted=True,
            whole=whole._replace(arguments=b"") if veiled.keeps_whole else None,
        )
