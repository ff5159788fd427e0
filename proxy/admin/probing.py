"""An operator's "probe now": the upstream is asked with the credential that semel itself holds (`inject`), or
with none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from proxy.core.doubt import Finding, Unclear
from proxy.core.intent import Call
from proxy.core.policy import PolicySet
from proxy.doubts import Doubts
from proxy.upstream.base import Outgoing

# For a call in doubt, by whom and why: what the upstream says, written down where it settles the call.
Probes: TypeAlias = Callable[[Call, str, str], Awaitable[Finding]]

FRESH = 1.0


def probes_in(policies: Callable[[], PolicySet], doubts: Doubts) -> Probes:
    async def probe(call: Call, actor: str, reason: str) -> Finding:
        upstream = policies().upstreams.get(call.upstream)
        rule = next((one for one in (upstream.rules if upstream else ()) if one.name == call.rule), None)
        if upstream is None or rule is None or rule.probe is None:
            return Unclear(f"the policies have no probe for the rule {call.rule!r} of {call.upstream!r}")
        own = () if upstream.inject is None else (upstream.inject.pair,)
        out = Outgoing(
            scheme=upstream.scheme,
            host=upstream.host,
            port=upstream.port,
            method=rule.probe.method,
            target=b"/",
            headers=((b"Host", upstream.authority), (b"Accept", b"application/json"), *own),
            body=None,
            timeouts=upstream.timeouts,
            max_idle=FRESH,
            said=upstream.said_of(upstream.host, upstream.port),
        )
        return await doubts.probe(
            call, rule, out, upstream.base_path, actor=actor, reason=reason, nameless=not own
        )

    return probe
