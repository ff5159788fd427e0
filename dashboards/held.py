"""What waits for a person, and what was prevented: shown on more than one dashboard."""

from __future__ import annotations

from dashboards import queries as ask
from dashboards.panels import (
    BAD,
    COUNT,
    GOOD,
    INBOX,
    NEUTRAL,
    PER_MINUTE,
    SECONDS,
    WATCH,
    About,
    Panel,
    Query,
    Step,
    lines,
    number,
)

_MINUTE, _HOUR = 60, 3600


def prevented(*, width: int = 3) -> Panel:
    return number(
        About(
            "Duplicates prevented",
            "Calls with effects that were asked for again and answered without a second send: payments not "
            "made twice, mails not sent twice.",
            "Any number. It grows when agents crash, retry or are started again.",
        ),
        COUNT,
        Query(ask.total_or_zero("semel_duplicates_prevented_total"), "prevented"),
        base=NEUTRAL,
        steps=[Step(1, GOOD)],
        decimals=0,
        width=width,
    )


def in_doubt_now(*, width: int = 3) -> Panel:
    return number(
        About(
            "In doubt now",
            "Calls with effects that were sent and whose outcome nobody knows. They are not sent again until "
            "that is settled.",
            "0 is normal.",
            "Find out at the upstream what happened, and settle them on the operator's page.",
        ),
        COUNT,
        Query(ask.told("semel_calls_in_state", 'state="in_doubt"'), "in doubt"),
        steps=[Step(1, BAD)],
        width=width,
        links=[INBOX],
    )


def oldest_doubt(*, width: int = 3) -> Panel:
    return number(
        About(
            "Oldest doubt",
            "How long the oldest call in doubt has been held; 0 when there is none.",
            "Minutes are normal where somebody is told of doubt: an agent waits for it.",
            "Settle it on the operator's page.",
        ),
        SECONDS,
        Query(ask.told("semel_oldest_in_doubt_seconds"), "oldest"),
        steps=[Step(1, WATCH), Step(_HOUR, BAD)],
        width=width,
        links=[INBOX],
    )


def waiting_now(*, width: int = 3) -> Panel:
    return number(
        About(
            "Waiting for approval",
            "Calls that a rule holds until a person approves exactly that request. Nothing was sent.",
            "0, or a few that somebody is looking at.",
            "Approve or deny them on the operator's page.",
        ),
        COUNT,
        Query(ask.told("semel_calls_in_state", 'state="awaiting_approval"'), "waiting"),
        steps=[Step(1, WATCH), Step(20, BAD)],
        width=width,
        links=[INBOX],
    )


def oldest_waiting(*, width: int = 3) -> Panel:
    return number(
        About(
            "Oldest approval asked for",
            "How long the oldest call has waited for approval; 0 when there is none.",
            "Less than the rule's `expires`: after that the question is void and is asked anew.",
            "Approve or deny it on the operator's page.",
        ),
        SECONDS,
        Query(ask.told("semel_oldest_awaiting_approval_seconds"), "oldest"),
        steps=[Step(15 * _MINUTE, WATCH), Step(4 * _HOUR, BAD)],
        width=width,
        links=[INBOX],
    )


def taken_over(*, width: int) -> Panel:
    return lines(
        About(
            "Calls of dead processes taken over",
            "Per minute, by what they became: in_doubt has effects and is held, released is safe and is "
            "made again when it is asked for.",
            "0. A proxy that is stopped in good order leaves nothing behind.",
            "Settle what is in doubt; find out why the proxy died.",
        ),
        PER_MINUTE,
        Query(f"{_MINUTE} * {ask.rate('semel_recovered_total', by='state')}", "{{state}}"),
        width=width,
        links=[INBOX],
    )


def over_time() -> list[Panel]:
    return [
        lines(
            About(
                "In doubt and waiting for approval",
                "Calls that only a person, a probe or the upstream's own key can settle.",
                "0, with short peaks.",
                "A line that does not fall: nobody decides. Open the operator's page, and see that "
                "notifications arrive.",
            ),
            COUNT,
            Query(
                ask.told("semel_calls_in_state", 'state=~"in_doubt|awaiting_approval"', by="state"),
                "{{state}}",
            ),
            links=[INBOX],
        ),
        lines(
            About(
                "Age of the oldest",
                "How long the oldest call in doubt, and the oldest that waits for approval, have been held.",
                "0, with short ramps. The dashed line is an hour.",
                "A ramp that goes on is a call that somebody has to decide.",
            ),
            SECONDS,
            Query(ask.told("semel_oldest_in_doubt_seconds"), "in doubt"),
            Query(ask.told("semel_oldest_awaiting_approval_seconds"), "waiting for approval"),
            steps=[Step(_HOUR, BAD)],
            links=[INBOX],
        ),
    ]
