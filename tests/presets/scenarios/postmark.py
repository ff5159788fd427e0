"""Postmark. Shapes as in https://postmarkapp.com/developer/api/overview."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SEND = Asked(
    path="/email",
    json={"From": "a@example.com", "To": "b@example.com", "Subject": "Hello", "TextBody": "Hi"},
    headers={"X-Postmark-Server-Token": "one"},
)
SENT = {
    "To": "b@example.com",
    "MessageID": "0a129aee-e1cd-480d-b08d-4f48548ff48d",
    "ErrorCode": 0,
    "Message": "OK",
}


def error(code: int) -> Told:
    return Told(status=422, json={"ErrorCode": code, "Message": "…"})


CASES = [
    Case(
        rule="send",
        request=SEND,
        answer=Told(json=SENT),
        arguments={"body.To": "b@example.com"},
        alike=(SEND.but(headers={"X-Postmark-Server-Token": "two"}),),
        different=(SEND.but(json={"To": "c@example.com"}),),
        refused=(error(405), error(406), error(400)),
        final=(error(300), error(402)),
    ),
    Case(
        rule="send-batch",
        request=SEND.but(path="/email/batch"),
        answer=Told(json=[SENT]),
        final=(Told(json=[SENT, {"ErrorCode": 406, "Message": "…"}]),),
    ),
    Case(
        rule="validate-template",
        request=Asked(
            path="/templates/validate", json={"Subject": "{{name}}", "TestRenderModel": {"name": "A"}}
        ),
        safe=True,
        answer=Told(json={"AllContentIsValid": True}),
    ),
]
