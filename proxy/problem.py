"""Refusals to RFC 9457 problems: one table.

What a retry cannot mend tells the SDKs so in their own language; what it can carries Retry-After.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from proxy import errors
from proxy.core.headers import Headers
from proxy.core.jsonrpc import REFUSED, Id, error

CONTENT_TYPE = b"application/problem+json"
_CHALLENGE: Headers = ((b"WWW-Authenticate", b'Semel-Token realm="semel"'),)  # RFC 9110 wants one with 401
_PROXY_CHALLENGE: Headers = ((b"Proxy-Authenticate", b'Basic realm="semel"'),)
_NO_RETRY: Headers = ((b"x-should-retry", b"false"), (b"stripe-should-retry", b"false"))


@dataclass(frozen=True, slots=True)
class Problem:
    name: str
    status: int
    title: str
    retry_after: int | None = None  # seconds; None: a retry cannot mend it
    advice: str = ""  # for refusals that come from deep inside and know only what is wrong
    headers: Headers = ()


PROBLEMS: dict[type[errors.Refusal], Problem] = {
    errors.InDoubt: Problem("in-doubt", 409, "Sent, outcome unknown, held"),
    errors.InProgress: Problem("in-progress", 409, "The same call is still running", 1),
    errors.AwaitingApproval: Problem("awaiting-approval", 409, "Held for a person"),
    errors.Diverged: Problem("diverged", 409, "The attempt left the run's record"),
    errors.Stale: Problem("stale", 409, "The recorded answer is too old"),
    errors.Denied: Problem("denied", 403, "Refused"),
    errors.KeyConflict: Problem("key-conflict", 422, "The Idempotency-Key stands for another call"),
    errors.AnswerUnavailable: Problem("answer-unavailable", 410, "It happened; its answer cannot be given"),
    errors.RunExpired: Problem("run-expired", 410, "The run's retention is over"),
    errors.BadRequest: Problem("bad-request", 400, "Malformed request"),
    errors.Unauthorized: Problem("unauthorized", 401, "Missing or wrong token", headers=_CHALLENGE),
    errors.Forbidden: Problem("forbidden", 403, "The token's role may not do this"),
    errors.UnknownUpstream: Problem("unknown-upstream", 404, "No such upstream"),
    errors.TooLarge: Problem("too-large", 413, "The body is over the limit"),
    errors.HeadersTooLarge: Problem("headers-too-large", 431, "The headers are over the limit"),
    errors.UpstreamUnreachable: Problem("upstream-unreachable", 502, "The upstream cannot be reached", 1),
    errors.UpstreamTimeout: Problem("upstream-timeout", 504, "A safe call timed out", 1),
    errors.StoreUnavailable: Problem(
        "store-unavailable",
        503,
        "The store does not answer; nothing was sent",
        1,
        "Nothing was sent: call again when /readyz says that the store is back.",
    ),
    errors.BudgetExceeded: Problem("budget-exceeded", 429, "A budget is used up", 60),
    errors.IdentityCollision: Problem("identity-collision", 500, "Two calls, one key"),
    errors.NotFound: Problem("not-found", 404, "There is no such thing"),
    errors.Unreadable: Problem("unreadable", 409, "The call is there and cannot be read"),
    errors.StaleVersion: Problem("stale-version", 409, "The call has changed"),
    errors.NotInDoubt: Problem("not-in-doubt", 409, "Only a call in doubt can be resolved"),
    errors.StillInDoubt: Problem("still-in-doubt", 409, "The upstream's answer settles nothing"),
    errors.NotAwaiting: Problem("not-awaiting", 409, "Only a call that awaits approval is decided so"),
    errors.NotSettled: Problem("not-settled", 409, "Only a settled call can be forgotten"),
    errors.RunExists: Problem("run-exists", 409, "There is a run of this name"),
    errors.CrossSite: Problem("cross-site", 403, "Not for pages of other sites"),
    errors.Misdirected: Problem("misdirected", 421, "semel is not called by this name"),
    errors.MethodNotAllowed: Problem("method-not-allowed", 405, "Not with this method"),
    errors.UnsupportedMediaType: Problem("unsupported-media-type", 415, "The body must be JSON"),
    errors.Overloaded: Problem("overloaded", 503, "Too many connections", 1),
    errors.InternalError: Problem("internal-error", 500, "A defect in semel"),
}


# What the forward proxy says otherwise: clients of proxies know these.
FORWARD: dict[type[errors.Refusal], Problem] = {
    errors.Unauthorized: Problem(
        "unauthorized",
        407,
        "Missing or wrong token",
        advice="Behind a proxy variable it is the password: HTTPS_PROXY=http://RUN:TOKEN@HOST:PORT.",
        headers=_PROXY_CHALLENGE,
    ),
    errors.UnknownUpstream: Problem("unknown-upstream", 403, "No such upstream"),
}


def problem_of(refusal: errors.Refusal, *, forward: bool = False) -> Problem:
    kind = type(refusal)
    return FORWARD[kind] if forward and kind in FORWARD else PROBLEMS[kind]


def render(refusal: errors.Refusal, *, forward: bool = False) -> tuple[int, Headers, bytes]:
    """Status, headers and body of semel's own answer. `forward`: to a client of the forward proxy."""
    problem = problem_of(refusal, forward=forward)
    detail = _detail(refusal.detail, problem.advice)
    members = {
        "type": f"urn:semel:{problem.name}",
        "title": problem.title,
        "status": problem.status,
        "detail": detail,
        "message": detail,  # what SDKs that know nothing of RFC 9457 show to people
        **refusal.members,
    }
    # The line break is for people with curl: a prompt would stick to the last brace.
    body = orjson.dumps(members, default=str, option=orjson.OPT_APPEND_NEWLINE)
    seconds = None if refusal.lasts else refusal.retry_after or problem.retry_after
    retry = _NO_RETRY if seconds is None else ((b"Retry-After", b"%d" % seconds),)
    headers: Headers = (
        (b"Content-Type", CONTENT_TYPE),
        (b"Content-Length", b"%d" % len(body)),
        *retry,
        *problem.headers,
        (b"Semel-Status", b"refused"),
    )
    call = refusal.members.get("call")
    if isinstance(call, str):
        headers += ((b"Semel-Call", call.encode()),)
    return problem.status, headers, body


def render_rpc(refusal: errors.Refusal, id_: Id) -> tuple[int, Headers, bytes]:
    """The same to a client that speaks JSON-RPC: many of those take any other status for a broken server."""
    _, headers, body = render(refusal)
    problem = orjson.loads(body)
    told = error(id_, REFUSED, f"semel: {problem['title']}. {problem['detail']}", problem)
    kept = tuple(pair for pair in headers if pair[0] not in (b"Content-Type", b"Content-Length"))
    framing = ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(told)))
    return 200, (*framing, *kept), told


def _detail(detail: str, advice: str) -> str:
    if not advice or "nothing was sent" in detail.lower():
        return detail
    return f"{detail[:1].upper()}{detail[1:].removesuffix('.')}. {advice}"
