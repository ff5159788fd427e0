"""Requests and answers as the API references of Amazon SES show them.

v1: https://docs.aws.amazon.com/ses/latest/APIReference/API_SendEmail.html and API_SendRawEmail.html
v2: https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html and API_SendBulkEmail.html
"""

from __future__ import annotations

from tests.presets.aws_signature import signed
from tests.presets.cases import Asked, Case, Told

REQUEST_ID = "fd3ae762-2563-11df-8cd4-6d4e828a9ae8"
MESSAGE_ID = "000001271b15238a-fd3ae762-2563-11df-8cd4-6d4e828a9ae8-000000"
NAMESPACE = "http://ses.amazonaws.com/doc/2010-12-01/"
XML = {"Content-Type": "text/xml"}


FIRST = signed("ses", "20261117T120000Z", "aaaa")
AGAIN = signed("ses", "20261118T093000Z", "bbbb")


def told(action: str, inside: str) -> Told:
    text = (
        f'<{action}Response xmlns="{NAMESPACE}"><{action}Result>{inside}</{action}Result>'
        f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
    )
    return Told(text=text, headers=XML)


def failed(status: int, code: str, message: str, kind: str = "Sender") -> Told:
    """https://docs.aws.amazon.com/ses/latest/DeveloperGuide/using-ses-api-responses.html"""
    text = (
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{kind}</Type><Code>{code}</Code>'
        f"<Message>{message}</Message></Error><RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return Told(status=status, text=text, headers=XML)


V1_MAIL = (
    ("Action", "SendEmail"),
    ("Version", "2010-12-01"),
    ("Source", "user@example.com"),
    ("Destination.ToAddresses.member.1", "allan@example.com"),
    ("Message.Subject.Data", "This is the subject line."),
    ("Message.Body.Text.Data", "Hello. I hope you are having a good day!"),
)
V1_SEND = Asked(path="/", form=V1_MAIL, headers=FIRST)
V1_REFUSED = (
    failed(400, "Throttling", "Maximum sending rate exceeded."),
    failed(400, "MessageRejected", "Email address is not verified."),
    failed(400, "AccountSendingPausedException", "Email sending is disabled for the account."),
    failed(403, "ExpiredToken", "The security token included in the request is expired"),
)
V1_DOUBTFUL = (
    failed(500, "InternalFailure", "An unknown error.", "Receiver"),
    failed(503, "ServiceUnavailable", "The request has failed.", "Receiver"),
)

V2_MAIL = {
    "FromEmailAddress": "user@example.com",
    "Destination": {"ToAddresses": ["allan@example.com"]},
    "Content": {"Simple": {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": "A good day!"}}}},
}
V2_SEND = Asked(path="/v2/email/outbound-emails", json=V2_MAIL, headers=FIRST)
BULK = {
    "FromEmailAddress": "user@example.com",
    "DefaultContent": {"Template": {"TemplateName": "weekly", "TemplateData": "{}"}},
    "BulkEmailEntries": [
        {"Destination": {"ToAddresses": ["allan@example.com"]}},
        {"Destination": {"ToAddresses": ["ada@example.com"]}},
    ],
}
SENT = {"Status": "SUCCESS", "MessageId": MESSAGE_ID}
V2_REFUSED = (
    Told(status=400, json={"message": "Email address is not verified."}),
    Told(status=404, json={"message": "Configuration set <weekly> does not exist."}),
    Told(status=429, json={"message": "Too many requests."}),
)

CASES = [
    Case(
        rule="send",
        request=V2_SEND,
        answer=Told(json={"MessageId": MESSAGE_ID}),
        arguments={
            "body.FromEmailAddress": "user@example.com",
            "body.Destination.ToAddresses": ["allan@example.com"],
            "body.Content.Simple.Subject.Data": "Hello",
            "body.Content.Simple.Body.Text.Data": "A good day!",
        },
        alike=(V2_SEND.but(headers=AGAIN),),
        different=(
            V2_SEND.but(json={"Destination": {"ToAddresses": ["ada@example.com"]}}),
            V2_SEND.but(json={"FromEmailAddress": "root@example.com"}),
        ),
        refused=V2_REFUSED,
        doubtful=(Told(status=503, json={"message": "Service Unavailable"}),),
    ),
    Case(
        rule="send-bulk",
        request=Asked(path="/v2/email/outbound-bulk-emails", json=BULK, headers=FIRST),
        answer=Told(json={"BulkEmailEntryResults": [SENT, SENT]}),
        refused=V2_REFUSED,
        # One of the two was sent: the whole is the last word.
        final=(
            Told(
                json={"BulkEmailEntryResults": [SENT, {"Status": "ACCOUNT_THROTTLED", "Error": "slow down"}]}
            ),
        ),
    ),
    Case(
        rule="v1-send",
        request=V1_SEND,
        answer=told("SendEmail", f"<MessageId>{MESSAGE_ID}</MessageId>"),
        arguments={f"body.{name}": [value] for name, value in V1_MAIL},
        alike=(V1_SEND.but(headers=AGAIN), V1_SEND.but(form=V1_MAIL[::-1])),
        different=(V1_SEND.but(form=(("Destination.ToAddresses.member.1", "ada@example.com"),)),),
        refused=V1_REFUSED,
        doubtful=V1_DOUBTFUL,
    ),
    Case(
        rule="v1-send",
        request=Asked(
            path="/",
            form=(("Action", "SendRawEmail"), ("Version", "2010-12-01"), ("RawMessage.Data", "VG86IGFkYQ==")),
        ),
        answer=told("SendRawEmail", f"<MessageId>{MESSAGE_ID}</MessageId>"),
        refused=V1_REFUSED,
    ),
    # GET is no read here. Signed in the query, as some clients do.
    Case(
        rule="v1-send",
        request=Asked(
            method="GET",
            path="/?Action=SendEmail&Source=user%40example.com&Destination.ToAddresses.member.1=allan%40example.com"
            "&Message.Subject.Data=Hello&X-Amz-Date=20261117T120000Z&X-Amz-Signature=aaaa",
        ),
        answer=told("SendEmail", f"<MessageId>{MESSAGE_ID}</MessageId>"),
        alike=(
            Asked(
                method="GET",
                path="/?Action=SendEmail&Source=user%40example.com&Destination.ToAddresses.member.1=allan%40example.com"
                "&Message.Subject.Data=Hello&X-Amz-Date=20261118T093000Z&X-Amz-Signature=bbbb",
            ),
        ),
        refused=V1_REFUSED,
        doubtful=V1_DOUBTFUL,
    ),
    Case(
        rule="v1-read",
        request=Asked(path="/", form=(("Action", "GetSendQuota"), ("Version", "2010-12-01"))),
        answer=told("GetSendQuota", "<SentLast24Hours>127.0</SentLast24Hours>"),
        safe=True,
    ),
    # Two actions: nobody could say which is done, so it is no read. By the body and the address neither.
    Case(
        rule=None,
        request=Asked(path="/", form=(("Action", "ListIdentities"), ("Action", "DeleteIdentity"))),
        answer=told("DeleteIdentity", ""),
    ),
    Case(
        rule=None,
        request=Asked(path="/?Action=DeleteIdentity", form=(("Action", "ListIdentities"),)),
        answer=told("DeleteIdentity", ""),
    ),
    Case(
        rule="v1-read",
        request=Asked(path="/", form=(("Action", "ListIdentities"), ("Version", "2010-12-01"))),
        answer=told("ListIdentities", "<Identities><member>example.com</member></Identities>"),
        safe=True,
    ),
    Case(
        rule="v1-other-by-get",
        request=Asked(method="GET", path="/?Action=DeleteIdentity&Identity=example.com&Version=2010-12-01"),
        answer=told("DeleteIdentity", ""),
        arguments={
            "query.Action": ["DeleteIdentity"],
            "query.Identity": ["example.com"],
            "query.Version": ["2010-12-01"],
        },
    ),
    Case(
        rule="list",
        request=Asked(path="/v2/email/list-export-jobs", json={"PageSize": 10}),
        answer=Told(json={"ExportJobs": []}),
        safe=True,
    ),
    *(
        Case(rule=rule, request=Asked(path=path, json={"PageSize": 10}), safe=True, answer=Told(json={}))
        for rule, path in (
            ("list-at", "/v2/email/tenants/list"),
            ("list-at", "/v2/email/import-jobs/list"),
            ("list-below", "/v2/email/tenants/resources/list"),
            ("list-below", "/v2/email/resources/tenants/list"),
            ("list-below", "/v2/email/identity/certificates/list"),
            ("tenant", "/v2/email/tenants/get"),
            ("recommendations", "/v2/email/vdm/recommendations"),
            ("reputation", "/v2/email/reputation/entities"),
            ("address-insights", "/v2/email/email-address-insights/"),
        )
    ),
    # Their neighbours, which change something.
    *(
        Case(rule=None, request=Asked(path=f"/v2/email/{path}", json={}), answer=Told(json={}))
        for path in (
            "tenants",
            "tenants/delete",
            "tenants/resources",
            "tenants/resources/delete",
            "identity/certificates",
            "identity/certificates/delete",
            "import-jobs",
        )
    ),
    Case(
        rule="contacts",
        request=Asked(path="/v2/email/contact-lists/weekly/contacts/list", json={"PageSize": 10}),
        answer=Told(json={"Contacts": [{"EmailAddress": "ada@example.com"}]}),
        safe=True,
    ),
    Case(
        rule="metrics",
        request=Asked(path="/v2/email/metrics/batch", json={"Queries": [{"Id": "a", "Metric": "SEND"}]}),
        answer=Told(json={"Results": [{"Id": "a", "Values": [3]}], "Errors": []}),
        safe=True,
    ),
    Case(
        rule="render",
        request=Asked(path="/v2/email/templates/weekly/render", json={"TemplateData": "{}"}),
        answer=Told(json={"RenderedTemplate": "Hello"}),
        safe=True,
    ),
    # Changes without a rule of their own: once.
    Case(
        rule=None,
        request=Asked(
            path="/", form=(("Action", "VerifyEmailIdentity"), ("EmailAddress", "ada@example.com"))
        ),
        answer=told("VerifyEmailIdentity", ""),
    ),
]
