"""Where doubt comes from, and what is held or refused: rows of the dashboard of effects."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.held import taken_over
from dashboards.panels import COUNT, INBOX, PER_MINUTE, About, Panel, Query, lines

_MINUTE = 60
_BROKEN = 'code=~"lost|not_sent"'
# What a caller with an effect in mind was told instead of an answer.
_HELD = "in-doubt|awaiting-approval|diverged|in-progress"
_REFUSED = "denied|key-conflict|budget-exceeded|answer-unavailable|identity-collision|stale|run-expired"


def comes_from() -> list[Panel]:
    broken = ask.rate("semel_upstream_responses_total", _BROKEN, by=f"{ask.RULE}, code")
    return [
        lines(
            About(
                "Lost and not sent, of rules with effects",
                "Exchanges per minute. lost: sent, and no whole answer came back; of a call with effects "
                "that is doubt. not_sent: proven that nothing was sent; the caller may call again.",
                "0, with peaks when an upstream or the network is in trouble.",
                "lost that goes on: the upstream's status page, the network, the rule's `timeout`.",
            ),
            PER_MINUTE,
            Query(f"{_MINUTE} * sum by (code) ({ask.with_effects(broken, ask.RATE)})", "{{code}}"),
            width=8,
        ),
        taken_over(width=8),
        lines(
            About(
                "Calls in doubt, waiting and denied",
                "Calls in the store that are not settled by an answer.",
                "0 in doubt, few waiting.",
                "Decide them on the operator's page.",
            ),
            COUNT,
            Query(
                ask.told("semel_calls_in_state", 'state=~"in_doubt|awaiting_approval|denied"', by="state"),
                "{{state}}",
            ),
            width=8,
            links=[INBOX],
        ),
    ]


def _problems(kinds: str) -> str:
    per_second = ask.rate("semel_problems_total", f'type=~"{kinds}"', by="type")
    return f"{_MINUTE} * {per_second}"


def held_and_refused() -> list[Panel]:
    return [
        lines(
            About(
                "Held",
                "Answers per minute that say: not now, somebody or something has to be settled first. An "
                "agent that asks again is counted again. in-progress: the same call still runs.",
                "0, with peaks.",
                "in-doubt, awaiting-approval and diverged are decided on the operator's page.",
            ),
            PER_MINUTE,
            Query(_problems(_HELD), "{{type}}"),
            width=8,
            links=[INBOX],
        ),
        lines(
            About(
                "Refused",
                "Answers per minute that no waiting mends. stale and answer-unavailable concern answers that "
                "were given before, run-expired whole runs.",
                "0. denied where rules or people deny.",
                "key-conflict: an agent uses one Idempotency-Key for two calls. budget-exceeded: raise the "
                "`budget`, or look at what the agent does.",
            ),
            PER_MINUTE,
            Query(_problems(_REFUSED), "{{type}}"),
            width=8,
        ),
        lines(
            About(
                "Notifications",
                "Per minute, by what they tell of and what became of them. Failed ones are tried again, "
                "dropped ones were too many.",
                "One delivered for each call that comes into doubt or waits. Nothing where none are "
                "configured.",
                "failed or dropped: nobody may have been told. Look at the receiver, and at the operator's "
                "page.",
            ),
            PER_MINUTE,
            Query(
                ask.busy_rate("semel_notifications_total", by="type, result", times=_MINUTE),
                "{{type}} {{result}}",
            ),
            width=8,
            links=[INBOX],
        ),
    ]
