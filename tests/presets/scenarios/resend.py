"""Resend. Shapes as in https://resend.com/docs/api-reference, its errors of …/errors, its keys of
https://resend.com/docs/dashboard/emails/idempotency-keys."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SDK = {"Authorization": "Bearer re_1", "User-Agent": "resend-python:2.50.1", "Accept": "application/json"}
RESTARTED = {"Authorization": "Bearer re_2", "User-Agent": "resend-python:2.60.0"}
NEW_KEY = {**RESTARTED, "Idempotency-Key": "8f2d7b1e-0c59-4c0e-9a3b-5d1f1f5e7a10"}


def error(status: int, name: str) -> Told:
    return Told(status=status, json={"statusCode": status, "name": name, "message": "…"})


BUSY = Told(
    status=429,
    json={"statusCode": 429, "name": "rate_limit_exceeded", "message": "Too many requests."},
    headers={"retry-after": "1"},
)
REFUSED = (
    BUSY,
    error(429, "daily_quota_exceeded"),
    error(401, "missing_api_key"),
    error(403, "invalid_api_key"),
)
OPEN = (error(500, "application_error"), error(500, "internal_server_error"))
STILL_RUNNING = error(409, "concurrent_idempotent_requests")
USED_OTHERWISE = error(409, "invalid_idempotent_request")

MAIL = {
    "from": "Acme <onboarding@resend.dev>",
    "to": ["delivered@resend.dev"],
    "subject": "hello world",
    "html": "<p>it works!</p>",
}
SEND = Asked(path="/emails", json=MAIL, headers=SDK)
BATCH = Asked(path="/emails/batch", json=[MAIL, {**MAIL, "to": ["bounced@resend.dev"]}], headers=SDK)
BROADCAST = "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"
SEND_BROADCAST = Asked(path=f"/broadcasts/{BROADCAST}/send", json={"broadcast_id": BROADCAST}, headers=SDK)


def broadcast(status: str) -> Told:
    return Told(json={"object": "broadcast", "id": BROADCAST, "name": "Announcements", "status": status})


CASES = [
    Case(
        rule="send",
        request=SEND,
        answer=Told(json={"id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}),
        arguments={"body.subject": "hello world", "body.to": ["delivered@resend.dev"]},
        alike=(SEND.but(headers=RESTARTED), SEND.but(headers=NEW_KEY)),
        different=(
            SEND.but(json={"to": ["bounced@resend.dev"]}),
            SEND.but(json={"subject": "hello again"}),
            SEND.but(json={"scheduled_at": "2026-11-18T09:00:00.000Z"}),
        ),
        refused=REFUSED,
        doubtful=(*OPEN, STILL_RUNNING),
        mismatch=(USED_OTHERWISE,),
        final=(
            error(422, "invalid_from_address"),
            error(400, "validation_error"),
            error(451, "security_error"),
        ),
        key="header Idempotency-Key",
    ),
    Case(
        rule="send-batch",
        request=BATCH,
        answer=Told(json={"data": [{"id": "ae2014de-c168-4c61-8267-70d2662a1ce1"}, {"id": "faccb7a5"}]}),
        alike=(BATCH.but(headers=NEW_KEY),),
        different=(
            BATCH.but(json=[MAIL]),
            BATCH.but(headers={"x-batch-validation": "permissive"}),
        ),
        refused=REFUSED,
        doubtful=(*OPEN, STILL_RUNNING),
        mismatch=(USED_OTHERWISE,),
        # https://resend.com/changelog/batch-validation-modes: some sent, some not.
        final=(
            error(422, "missing_required_field"),
            Told(json={"data": [{"id": "ae2014de"}], "errors": [{"index": 1, "message": "…"}]}),
        ),
        key="header Idempotency-Key",
    ),
    Case(
        rule="send-broadcast",
        request=SEND_BROADCAST,
        answer=Told(json={"id": BROADCAST}),
        arguments={"path.broadcast": BROADCAST},
        alike=(SEND_BROADCAST.but(headers=RESTARTED),),
        different=(SEND_BROADCAST.but(path="/broadcasts/another/send", json={"broadcast_id": "another"}),),
        refused=REFUSED,
        doubtful=OPEN,
        final=(error(404, "not_found"),),
        probe=f"/broadcasts/{BROADCAST}",
        found=broadcast("sent"),
        absent=broadcast("draft"),
    ),
    Case(
        rule="schedule-broadcast",
        request=SEND_BROADCAST.but(json={"scheduled_at": "in 1 hour"}),
        answer=Told(json={"id": BROADCAST}),
        arguments={"body.scheduled_at": "in 1 hour"},
        different=(SEND_BROADCAST.but(json={"scheduled_at": "in 2 hours"}),),
        doubtful=OPEN,
    ),
    Case(
        rule="create-broadcast",
        request=Asked(
            path="/broadcasts",
            json={
                "segment_id": "78261eea-8f8b-4381-83c6-79fa7120f1cf",
                "from": MAIL["from"],
                "subject": "hello world",
                "html": "Hi {{{FIRST_NAME|there}}}",
                "send": True,
            },
            headers=SDK,
        ),
        answer=Told(json={"id": BROADCAST}),
        refused=REFUSED,
        doubtful=OPEN,
        final=(error(422, "missing_required_field"),),
    ),
    Case(
        rule="cancel",
        request=Asked(path="/emails/49a3999c-0ce1-4ea6-ab68-afcd6dc2e794/cancel", headers=SDK),
        answer=Told(json={"object": "email", "id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}),
        arguments={"path.email": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"},
    ),
    Case(
        rule="reschedule",
        request=Asked(
            method="PATCH",
            path="/emails/49a3999c-0ce1-4ea6-ab68-afcd6dc2e794",
            json={"scheduled_at": "2026-11-18T09:00:00.000Z"},
            headers=SDK,
        ),
        answer=Told(json={"object": "email", "id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}),
    ),
    Case(
        rule="create-contact",
        request=Asked(path="/contacts", json={"email": "steve.wozniak@gmail.com"}, headers=SDK),
        answer=Told(status=201, json={"object": "contact", "id": "479e3145-dd38-476b-932c-529ceb705947"}),
        arguments={"body.email": "steve.wozniak@gmail.com"},
    ),
    # Without a rule: reads, and what only a name would be given to.
    Case(
        rule=None,
        request=Asked(method="GET", path="/emails/49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", headers=SDK),
        safe=True,
        answer=Told(json={"object": "email", "id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}),
    ),
    Case(
        rule=None,
        request=Asked(path="/domains", json={"name": "example.com"}, headers=SDK),
        answer=Told(status=201, json={"id": "4dd369bc-aa82-4ff3-97de-514ae3000ee0", "name": "example.com"}),
    ),
]
