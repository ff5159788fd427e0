"""Mailgun. Shapes as in https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/messages."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SEND = Asked(
    path="/v3/example.com/messages",
    form=(("from", "a@example.com"), ("to", "b@example.com"), ("subject", "Hello"), ("text", "Hi")),
    headers={"Authorization": "Basic YXBpOm9uZQ=="},
)

CASES = [
    Case(
        rule="send",
        request=SEND,
        answer=Told(json={"id": "<2026@example.com>", "message": "Queued. Thank you."}),
        arguments={"path.domain": "example.com", "body.to": ["b@example.com"]},
        alike=(SEND.but(headers={"Authorization": "Basic YXBpOnR3bw=="}),),
        different=(SEND.but(form=(("to", "c@example.com"),)), SEND.but(path="/v3/example.org/messages")),
        refused=(
            Told(status=404, json={"message": "Domain not found: example.com"}),
            Told(status=403, text="Forbidden"),
        ),
        final=(Told(status=400, json={"message": "to parameter is not a valid address."}),),
    ),
    Case(
        rule="send-mime",
        request=Asked(
            path="/v3/example.com/messages.mime",
            text='--x\r\nContent-Disposition: form-data; name="to"\r\n\r\nb@example.com\r\n--x--\r\n',
            headers={"Content-Type": "multipart/form-data; boundary=x"},
        ),
        answer=Told(json={"id": "<2027@example.com>", "message": "Queued. Thank you."}),
        alike=(
            Asked(
                path="/v3/example.com/messages.mime",
                text='--y\r\nContent-Disposition: form-data; name="to"\r\n\r\nb@example.com\r\n--y--\r\n',
                headers={"Content-Type": "multipart/form-data; boundary=y"},
            ),
        ),
    ),
]
