"""From what the network did to what the call is: one result, one judgement.

The judgement holds the settlement for the record and, where the caller may not have the upstream's own
answer, semel's word in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, assert_never

from proxy.core.budget import is_free
from proxy.core.clauses import UpstreamKey
from proxy.core.decide import VERDICT_EVENTS, Settlement
from proxy.core.encoding import TooMuch, Undecodable, codings, decode
from proxy.core.headers import Headers, is_event_stream
from proxy.core.intent import Call, Doubt, Event
from proxy.core.jsonrpc import Id
from proxy.core.mcp_outcome import Spoken, judge_spoken, spoken_in
from proxy.core.outcome import Verdict, is_mismatch, judge_answer, judge_status, reads_answers
from proxy.core.policy import Rule
from proxy.core.scrubbing import Secrets, scrubbed
from proxy.errors import Refusal, UpstreamTimeout, UpstreamUnreachable
from proxy.refusals import in_doubt, not_sent
from proxy.stream import ALL, NOTHING, Capture, CaptureLimits, CutOff
from proxy.upstream.base import Answered, Lost, NotSent, Result

# How much of an upstream's words goes into a doubt's record and problem.
EXCERPT = 500
EARLIER = "what became of an earlier send is still not known"
ASKED = "its server asked the client something in the course of it, so its answer is good only once"
# A rule's expression reads at most this much of an answer.
READABLE = 8 * 1024 * 1024
# And an excerpt is taken only of what is no longer than this when it is decoded.
LEGIBLE = 512 * 1024


class Judgement(NamedTuple):
    settlement: Settlement
    keeps_answer: bool = False
    refusal: Refusal | None = None
    mismatch: bool = False  # the upstream knows the call's key for another request


def judge(result: Result, capture: Capture, rule: Rule, call: Call, now: float) -> Judgement:
    match result:
        case Answered(status, None):
            return _answered(status, capture, rule, call, now)
        case Answered():
            return _spoken(result, capture, rule, call, now)
        case NotSent(reason) if call.unresolved:
            return _doubt(
                f"nothing was sent now ({reason}); {EARLIER}", capture, status=None, call=call, now=now
            )
        case NotSent(reason):
            settlement = Settlement(event=Event.NOT_SENT, why=reason, ttl=_ttl(rule, call))
            return Judgement(settlement, refusal=not_sent(result, call=call.id))
        case Lost(reason, status, timed_out):
            if call.safe:
                return _safe_lost(reason, timed_out=timed_out, rule=rule, call=call)
            return _doubt(_lost_words(reason, status), capture, status=status, call=call, now=now)
        case _:
            assert_never(result)


def judge_by_status(status: int, rule: Rule, call: Call) -> Judgement | None:
    """The judgement of a complete answer, where nothing of it has to be read; None: look into it."""
    key = key_of(call, rule)
    if call.unresolved or rule.budget is not None or reads_answers(rule.outcome, key):
        return None
    verdict = judge_status(status, safe=call.safe, rule=rule.outcome, key=key)
    return None if verdict is Verdict.IN_DOUBT else _handed_on(verdict, status, rule, call, free=False)


def _answered(status: int, capture: Capture, rule: Rule, call: Call, now: float) -> Judgement:
    by_status = judge_by_status(status, rule, call)
    if by_status is not None:
        return by_status
    key = key_of(call, rule)
    body = readable_body(capture) if reads_answers(rule.outcome, key) else None
    verdict = judge_answer(status, body, safe=call.safe, rule=rule.outcome, key=key)
    if verdict is Verdict.IN_DOUBT:
        reason = f"the upstream answered {status}, which does not say whether the call took effect"
        mismatch = is_mismatch(status, body, key)
        if mismatch:
            reason = f"the upstream answered {status}: it knows the call's key for another request"
        doubt = _doubt(reason, capture, status=status, call=call, now=now)
        return doubt._replace(mismatch=mismatch)
    if verdict is Verdict.NOT_EXECUTED and call.unresolved:
        reason = f"the upstream refused it now ({status}); {EARLIER}"
        return _doubt(reason, capture, status=status, call=call, now=now)
    free = rule.budget is not None and _is_free(status, body, rule)
    return _handed_on(verdict, status, rule, call, free=free)


def _handed_on(verdict: Verdict, status: int, rule: Rule, call: Call, *, free: bool) -> Judgement:
    event = VERDICT_EVENTS[verdict]
    settlement = Settlement(event=event, why=f"answered {status}", ttl=_ttl(rule, call), free=free)
    # In a run everything an attempt received is kept: a later one may have to see it fail again.
    return Judgement(settlement, keeps_answer=verdict is Verdict.FINAL or bool(call.run))


def _spoken(result: Answered, capture: Capture, rule: Rule, call: Call, now: float) -> Judgement:
    """What an MCP server's answer means."""
    status, rpc, asked = result.status, result.rpc, result.asked
    assert rpc is not None
    body = readable_body(capture)
    if body is None and 200 <= status < 300 and capture.has_its_end and _is_too_long(capture):
        verdict = Verdict.FINAL  # too long to be read, and complete
        if asked:
            capture.keep_nothing(ASKED)
    else:
        spoken = spoken_in(body, rpc, events=is_event_stream(capture.headers))
        verdict = judge_spoken(status, spoken, safe=call.safe, rule=rule.outcome)
        if verdict is Verdict.IN_DOUBT:
            return _doubt(_unspoken(status, spoken), capture, status=status, call=call, now=now)
        if verdict is Verdict.NOT_EXECUTED and call.unresolved:
            reason = f"the server refused it now ({status}); {EARLIER}"
            return _doubt(reason, capture, status=status, call=call, now=now)
        if spoken.asked or asked:
            capture.keep_nothing(ASKED)
    free = rule.budget is not None and is_free(rule, status, executed=verdict is not Verdict.NOT_EXECUTED)
    return _handed_on(verdict, status, rule, call, free=free)


def _unspoken(status: int, spoken: Spoken) -> str:
    if spoken.response is None:
        return f"the server answered {status} and gave no response to the request"
    return f"the server answered {status}, which does not say whether the call took effect"


def _is_free(status: int, body: bytes | None, rule: Rule) -> bool:
    verdict = judge_answer(status, body, safe=False, rule=rule.outcome)
    return is_free(rule, status, executed=verdict is not Verdict.NOT_EXECUTED)


def _ttl(rule: Rule, call: Call) -> float | None:
    """What a run was given goes with the run."""
    return None if call.run else rule.ttl


def _safe_lost(reason: str, *, timed_out: bool, rule: Rule, call: Call) -> Judgement:
    refusal = _safe_failure(reason, timed_out=timed_out, call=call.id)
    settlement = Settlement(event=Event.INCONCLUSIVE, why=reason, ttl=_ttl(rule, call))
    return Judgement(settlement, refusal=refusal)


def _lost_words(reason: str, status: int | None) -> str:
    if status is not None and 200 <= status < 300:
        return f"took effect, answer incomplete: the upstream began to answer {status}, then {reason}"
    return f"sent, no complete answer: {reason}"


def _doubt(reason: str, capture: Capture, *, status: int | None, call: Call, now: float) -> Judgement:
    since = call.doubt.since if call.unresolved and call.doubt is not None else now
    doubt = Doubt(since=since, reason=reason, upstream_status=status, excerpt=excerpt(capture))
    settlement = Settlement(event=Event.LOST, why=reason, doubt=doubt)
    return Judgement(settlement, refusal=in_doubt(call, doubt))


def without_words(judgement: Judgement, call: Call, secrets: Callable[[], Secrets]) -> Judgement:
    """What an upstream says of a call may repeat what must not be written down."""
    doubt = judgement.settlement.doubt
    if doubt is None:
        return judgement
    hidden = secrets()
    reason, said = _scrubbed_reason(doubt.reason, hidden), scrubbed(doubt.excerpt, hidden)
    if (reason, said) == (doubt.reason, doubt.excerpt):
        return judgement
    doubt = replace(doubt, reason=reason, excerpt=said)
    settlement = judgement.settlement._replace(why=reason, doubt=doubt)
    return judgement._replace(settlement=settlement, refusal=in_doubt(call, doubt))


def _scrubbed_reason(reason: str, hidden: Secrets) -> str:
    """Mostly semel's own words: only values that are known are looked for."""
    return scrubbed(reason, hidden._replace(anything=False))


def passing_failed(result: NotSent | Lost, *, safe: bool) -> Exception:
    """What the caller of an unrecorded call gets: what it would see without semel, in better words."""
    if isinstance(result, NotSent):
        return not_sent(result)
    if not safe:  # it may have taken effect and nothing is known of it: a broken connection says just that
        return CutOff(result.reason)
    return _safe_failure(result.reason, timed_out=result.timed_out)


def _safe_failure(reason: str, *, timed_out: bool, **members: object) -> Refusal:
    kind = UpstreamTimeout if timed_out else UpstreamUnreachable
    return kind(f"No complete answer: {reason}. The call is safe to repeat: call again.", **members)


def key_of(call: Call, rule: Rule) -> UpstreamKey | None:
    """The rule's upstream key, if the call was sent under one."""
    return rule.upstream_key if call.terms is not None and call.terms.key else None


def catching(
    limits: CaptureLimits, safe: bool, rule: Rule, sent_with: UpstreamKey | None, rpc: Id | None
) -> Capture:
    """What an answer is caught in that comes in parts."""
    held = partial(withholds, safe=safe, rule=rule, sent_with=sent_with, rpc=rpc)
    return Capture(limit=limits.kept, memory=limits.memory, directory=limits.directory, withholds=held)


def withholds(
    status: int,
    headers: Headers,
    unresolved: bool,
    *,
    safe: bool,
    rule: Rule,
    sent_with: UpstreamKey | None,
    rpc: Id | None = None,
) -> int:
    """How much of an answer of this status is held back, because it may turn out not to be for the caller:
    NOTHING, ALL of it, or as much as a rule's expression reads. `unresolved`: an earlier send is, and an
    answer by which nothing was executed now says nothing of that one. `rpc`: what it means stands in it."""
    if rpc is not None:
        return NOTHING if is_event_stream(headers) and 200 <= status < 300 else READABLE
    key = rule.upstream_key if unresolved else sent_with
    verdict = judge_status(status, safe=safe, rule=rule.outcome, key=key)
    if verdict is Verdict.IN_DOUBT or (unresolved and verdict is Verdict.NOT_EXECUTED):
        return ALL
    by_key = key is not None and key.mismatch_if is not None
    may_be_doubt = rule.outcome.in_doubt_if is not None or by_key
    may_say_no = unresolved and rule.outcome.not_executed_if is not None
    if safe or is_event_stream(headers):  # events are no JSON: no expression finds anything in them
        return NOTHING
    return READABLE if may_be_doubt or may_say_no else NOTHING


def readable_body(capture: Capture, limit: int = READABLE) -> bytes | None:
    if capture.kept is None or capture.kept.size > READABLE:
        return None
    try:
        return decode(capture.kept.whole(), codings(capture.headers), limit)
    except Undecodable:
        return None


def _is_too_long(capture: Capture) -> bool:
    """Why it is not readable. What is damaged, or in an unknown coding, may be no answer at all."""
    if capture.kept is None or capture.kept.size > READABLE:
        return True
    try:
        decode(capture.kept.whole(), codings(capture.headers), READABLE)
    except TooMuch:
        return True
    except Undecodable:
        pass
    return False


def excerpt(capture: Capture) -> str:
    """From a long answer none: decoding megabytes for a line of text would make others wait."""
    if capture.received > 64 * 1024:
        return ""
    body = readable_body(capture, LEGIBLE)
    return body[:EXCERPT].decode("utf-8", "replace") if body else ""
