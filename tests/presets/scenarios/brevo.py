"""Brevo. Shapes as in https://developers.brevo.com/docs/heterogenous-versions-batch-emails."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SDK = {"api-key": "xkeysib-1"}
SEND = Asked(
    path="/v3/smtp/email",
    json={
        "sender": {"name": "Ann", "email": "example@brevo.com"},
        "to": [{"email": "example2@brevo.com", "name": "Jenny"}],
        "subject": "This is a unique email",
        "templateId": 1,
    },
    headers=SDK,
)
DUPLICATE = Told(status=400, json={"code": "duplicate_parameter", "message": "…"})

CASES = [
    Case(
        rule="send",
        request=SEND,
        answer=Told(status=201, json={"messageId": "<201798300811.5787683@relay.domain.com>"}),
        arguments={"body.subject": "This is a unique email"},
        different=(SEND.but(json={"to": [{"email": "example3@brevo.com"}]}),),
        refused=(Told(status=402, json={"code": "not_enough_credits", "message": "…"}),),
        mismatch=(DUPLICATE,),
        final=(Told(status=400, json={"code": "missing_parameter", "message": "…"}),),
        key="body headers.idempotencyKey",
        held=True,
    ),
    # Other headers of the mail stay beside the key.
    Case(
        rule="send",
        request=SEND.but(json={"headers": {"X-Mailin-custom": "some_custom_value"}}),
        answer=Told(status=201, json={"messageId": "<1@relay.domain.com>"}),
        arguments={"body.headers": {"X-Mailin-custom": "some_custom_value"}},
        alike=(
            SEND.but(
                json={
                    "headers": {
                        "X-Mailin-custom": "some_custom_value",
                        "idempotencyKey": "b52dbf-81dd-4a08-b807-085c",
                    }
                }
            ),
        ),
        different=(SEND.but(json={"headers": {"X-Mailin-custom": "another"}}),),
        key="body headers.idempotencyKey",
        held=True,
    ),
    Case(
        rule="sms",
        request=Asked(
            path="/v3/transactionalSMS/send",
            json={"sender": "MyShop", "recipient": "33689965433", "content": "Enter this code"},
            headers=SDK,
        ),
        answer=Told(status=201, json={"messageId": 1511882900176220, "reference": "ab1cde2fgh3i4jklmno"}),
        refused=(Told(status=402, json={"code": "not_enough_credits", "message": "…"}),),
    ),
]
