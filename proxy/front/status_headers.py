"""The headers that say what semel did. They come after the upstream's own, which stay as they are."""

from __future__ import annotations

from proxy.answers import MAX_CACHED
from proxy.core.headers import Headers, without_semel
from proxy.core.intent import Call
from proxy.core.outcome import Verdict, judge_status, reads_answers
from proxy.core.policy import Mode
from proxy.flight import Flight
from proxy.front.incoming import Incoming
from proxy.stream import Capture


def passed(headers: Headers) -> Headers:
    return (*without_semel(headers), (b"Semel-Status", b"passed"), (b"Cache-Status", b"semel; fwd=bypass"))


def looked_on(headers: Headers) -> Headers:
    """Nothing but what says that semel has done nothing."""
    return (*without_semel(headers), (b"Semel-Status", b"passed"))


# What a live answer's Cache-Status says, by how it came.
_LIVE = {
    "executed": b"semel; fwd=miss",
    "joined": b"semel; fwd=miss; collapsed",
    "replayed": b"semel; hit",
}
_RENEWED = b"semel; fwd=stale"


def live(headers: Headers, call: str, *, how: str, stored: bool, in_run: bool, flight: Flight) -> Headers:
    """A join is sharing too: outside a run the first caller's session is not the second's."""
    if how == "joined" and not in_run:
        headers = tuple(pair for pair in headers if pair[0].lower() != b"set-cookie")
    word = _RENEWED if flight.renews is not None and how == "executed" else _LIVE[how]
    word += b"; stored" if stored and how != "replayed" else b""
    told = _with(headers, how.encode(), call, word)
    return (*told, (b"Semel-Drift", b"1")) if flight.drifted else told


def replayed(headers: Headers, call: Call, *, now: float) -> Headers:
    assert call.answer is not None  # only a call with an answer is replayed
    left = b"" if call.expires_at is None else b"; ttl=%d" % max(0, int(call.expires_at - now))
    age = (b"Age", b"%d" % max(0, int(now - call.answer.recorded_at)))
    return (
        *headers,
        (b"Semel-Status", b"replayed"),
        (b"Semel-Call", call.id.encode()),
        (b"Cache-Status", b"semel; hit" + left),
        age,
    )


def replayed_alike_until(call: Call, now: float) -> float:
    """Until then `replayed` says what it says now."""
    assert call.answer is not None
    ends = [call.answer.recorded_at + max(0, int(now - call.answer.recorded_at)) + 1]
    if call.expires_at is not None:
        ends.append(call.expires_at - max(0, int(call.expires_at - now)))
    return min(ends)


def _with(headers: Headers, status: bytes, call: str, cache: bytes) -> Headers:
    return (
        *without_semel(headers),
        (b"Semel-Status", status),
        (b"Semel-Call", call.encode()),
        (b"Cache-Status", cache),
    )


def is_stored(capture: Capture, incoming: Incoming) -> bool:
    """Whether the answer is, or will be, kept. Before the end a rule's expression leaves that open: no."""
    rule = incoming.match.rule
    if capture.is_too_long or (rule.mode is Mode.CACHE and capture.expected > MAX_CACHED):
        return False
    if capture.stored is not None:
        return capture.stored
    if incoming.sending.message is not None:  # what it means stands in it
        return False
    outcome = rule.outcome
    verdict = judge_status(capture.status, safe=incoming.safe, rule=outcome)
    return verdict is Verdict.FINAL and not reads_answers(outcome, rule.upstream_key)
