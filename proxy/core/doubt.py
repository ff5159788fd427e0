"""Ways out of doubt: sending again under the same upstream key, or asking the upstream what became of it.

A resend is proven safe by the key alone, so everything that could make the upstream forget or not know the
key keeps the call held. Absence is proven only when whatever was on its way has had its time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, assert_never

from proxy.core.clauses import OnDoubt, Probe, UpstreamKey
from proxy.core.document import Json, holds
from proxy.core.intent import Call
from proxy.core.policy import Rule

# Clocks of several machines differ a little. More than this, and the present one was set back.
SKEW = 10.0
# Of `retention`, and at least so many seconds: how much earlier semel stops relying on it. For the way there,
# for clocks that run apart, and for a mark of the time that is written once a minute only.
MARGIN_SHARE, LEAST_MARGIN = 0.05, 90.0
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Resend:
    """Same bytes, same key."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the upstream first."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class Held:
    """Only a person settles it, or time. `why`: what keeps semel from doing more; may be empty."""

    why: str


WayOut: TypeAlias = Resend | Ask | Held


def place_of(key: UpstreamKey) -> str:
    """Where the key goes, and with what: one that was sent elsewhere, or without what makes it count, is not
    known there."""
    if key.header is not None:
        return f"header {key.header}"
    beside = "".join(f" with {name}={json.dumps(value)}" for name, value in key.beside)
    return f"body {key.body}{beside}"


def way_out(call: Call, rule: Rule, *, now: float, mark: float) -> WayOut:
    """For a call in doubt. `mark`: the latest time that any process has had on this store."""
    match rule.in_doubt:
        case OnDoubt.HOLD:
            return Held("")
        case OnDoubt.RESEND:
            return _resend(call, rule.upstream_key, now=now, mark=mark)
        case OnDoubt.PROBE:
            return Ask(rule.probe) if rule.probe is not None else Held("the rule has no probe any more")
        case _:
            assert_never(rule.in_doubt)


def _resend(call: Call, key: UpstreamKey | None, *, now: float, mark: float) -> WayOut:
    terms = call.terms
    if terms is None or not terms.key:
        return Held("it was sent without an upstream key, so a second send could act twice")
    if key is None or terms.place != place_of(key):
        return Held(f"its upstream key went into the {terms.place}, and the rule says otherwise by now")
    if max(mark, terms.keyed_at) - now > SKEW:
        return Held("the clock was set back, so it cannot be said how old its upstream key is")
    if max(now, mark) > terms.keyed_at + usable_for(key.retention):
        return Held("the upstream may have forgotten its key by now, and a second send could act twice")
    return Resend()


def usable_for(retention: float) -> float:
    """How long after minting a key may be relied on."""
    return retention - min(max(LEAST_MARGIN, MARGIN_SHARE * retention), retention / 2)


# ---- what a probe found ----


class Found(NamedTuple):
    result: Json  # of the expression `result`; None: the whole answer


class Absent(NamedTuple):
    pass


class Unclear(NamedTuple):
    why: str


Finding: TypeAlias = Found | Absent | Unclear


def absence_counts_from(known_since: float, total_timeout: float, probe: Probe) -> float:
    """`known_since`: when its owner had been found dead or, if it lived, had sent its last byte, as far as
    whoever asks has seen for itself (known_doubts.py)."""
    return known_since + total_timeout + probe.settle


class Unread:
    """An answer that is no JSON: whatever an expression says of it, it says of nothing."""


def finding(
    probe: Probe, status: int, answer: Json | Unread, *, is_repeat: bool, counts_from: float, now: float
) -> Finding:
    """What a complete answer to the probe says. Only an honest true or false about a 2xx, or a false about a
    404, is an answer. `is_repeat`: an identical call may have been executed before it. `now`: when it was
    asked, by the clock that `counts_from` goes by."""
    if not 200 <= status < 300 and status != NOT_FOUND:
        return Unclear(f"the upstream answered the probe with {status}")
    if isinstance(answer, Unread):
        return Unclear(f"the upstream's answer ({status}) to the probe is no JSON")
    said = holds(probe.found, answer)
    if said is True and status == NOT_FOUND:
        return Unclear("the upstream says that there is no such thing, and `found` says that there is")
    if said is True:
        if is_repeat and not probe.tells_repeats_apart:
            return Unclear(
                "the probe found it, but cannot tell this call from an identical one before it: use "
                "{upstream_key} or {sent_at} in its path"
            )
        return Found(None if probe.result is None else holds(probe.result, answer))
    if said is False:
        if now < counts_from:
            left = counts_from - now
            return Unclear(
                f"the probe did not find it, which counts only in {left:.0f} s, when what was on its way has "
                "had its time: call again then"
            )
        return Absent()
    return Unclear(f"`found` says neither true nor false about the upstream's answer ({status}) to the probe")
