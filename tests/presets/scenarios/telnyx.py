"""Telnyx. Shapes as in https://developers.telnyx.com/docs/messaging, its key as in
https://developers.telnyx.com/docs/development/api-fundamentals/idempotency."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SDK = {"Authorization": "Bearer KEY1", "x-stainless-retry-count": "0"}
RESTARTED = {"Authorization": "Bearer KEY2", "x-stainless-retry-count": "1"}
NEW_KEY = {**RESTARTED, "Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9326"}


def error(status: int, code: str, title: str = "…") -> Told:
    return Told(status=status, json={"errors": [{"code": code, "title": title, "detail": "…"}]})


BUSY = error(429, "10011", "Too many requests")
REFUSED = (BUSY, error(401, "10009", "Authentication failed"), error(403, "10010"))
OPEN = (error(500, "10007"), Told(status=503, text=""))
INVALID = (error(422, "10015", "Bad Request"), error(400, "40310"))

MESSAGE = Asked(
    path="/v2/messages",
    json={"from": "+15551234567", "to": "+15559876543", "text": "Hello, world!"},
    headers=SDK,
)
SENT = Told(json={"data": {"record_type": "message", "id": "40385f64-5717-4562-b3fc-2c963f66afa6"}})
MAIL = Asked(
    path="/v2/email_messages",
    json={"from": {"email": "a@example.com"}, "to": [{"email": "b@example.com"}], "subject": "Hello"},
    headers=SDK,
)
DIAL = Asked(
    path="/v2/calls",
    json={"connection_id": "7267xxxxxxxxxxxxxx", "to": "+18005550101", "from": "+18005550100"},
    headers=SDK,
)
SPEAK = Asked(
    path="/v2/calls/v2:T02llQxIyaRkhfRKxgAP8nY511EhFLizdvdUKJiSw8d6A9BborherQ/actions/speak",
    json={"payload": "Hello", "voice": "female"},
    headers=SDK,
)

CASES = [
    Case(
        rule="message",
        request=MESSAGE,
        answer=SENT,
        arguments={"body.to": "+15559876543"},
        alike=(MESSAGE.but(headers=RESTARTED), MESSAGE.but(headers=NEW_KEY)),
        different=(MESSAGE.but(json={"to": "+15559876544"}), MESSAGE.but(json={"text": "Hello again"})),
        refused=REFUSED,
        doubtful=(*OPEN, error(409, "10000")),
        final=INVALID,
        key="header Idempotency-Key",
        held=True,
    ),
    Case(
        rule="message-by",
        request=MESSAGE.but(path="/v2/messages/number_pool"),
        answer=SENT,
        arguments={"path.kind": "number_pool"},
        alike=(MESSAGE.but(path="/v2/messages/number_pool", headers=NEW_KEY),),
        different=(MESSAGE.but(path="/v2/messages/long_code"),),
        refused=REFUSED,
        doubtful=OPEN,
        key="header Idempotency-Key",
        held=True,
    ),
    Case(
        rule="schedule-message",
        request=MESSAGE.but(path="/v2/messages/schedule", json={"send_at": "2026-11-18T18:10:02.574Z"}),
        answer=SENT,
        doubtful=OPEN,
    ),
    Case(
        rule="email",
        request=MAIL,
        answer=Told(status=202, json={"data": {"id": "1", "record_type": "email_message"}}),
        alike=(MAIL.but(headers=NEW_KEY),),
        different=(MAIL.but(json={"subject": "Hello again"}),),
        doubtful=OPEN,
        key="header Idempotency-Key",
        held=True,
    ),
    Case(
        rule="email-batch",
        request=MAIL.but(path="/v2/email_messages/batch"),
        answer=Told(status=202, json={"data": [{"id": "1"}]}),
        doubtful=OPEN,
        key="header Idempotency-Key",
        held=True,
    ),
    Case(
        rule="dial",
        request=DIAL,
        answer=Told(json={"data": {"record_type": "call", "call_control_id": "v3:abc", "is_alive": False}}),
        alike=(DIAL.but(json={"command_id": "891510ac-f3e4-11e8-af5b-de00688a4901"}),),
        different=(DIAL.but(json={"to": "+18005550102"}),),
        refused=REFUSED,
        doubtful=OPEN,
        final=INVALID,
        key="body command_id",
        held=True,
    ),
    Case(
        rule="call-command",
        request=SPEAK,
        answer=Told(json={"data": {"result": "ok"}}),
        arguments={"path.command": "speak"},
        alike=(SPEAK.but(json={"command_id": "891510ac-f3e4-11e8-af5b-de00688a4902"}),),
        different=(SPEAK.but(json={"payload": "Good bye"}),),
        doubtful=OPEN,
        key="body command_id",
        held=True,
        kept=60,
    ),
    Case(
        rule="webrtc-token",
        request=Asked(
            path="/v2/telephony_credentials/c215ade3-0d39-418e-94be-c5f780760199/token", headers=SDK
        ),
        answer=Told(status=201, text="eyJhbGciOiJIUzUxMiJ9", headers={"Content-Type": "text/plain"}),
        recorded=False,
    ),
]
