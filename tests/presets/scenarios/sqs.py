"""Requests and answers as the API reference of Amazon SQS shows them.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html and its siblings.
"""

from __future__ import annotations

from typing import Any

from tests.presets.aws_signature import signed
from tests.presets.cases import Asked, Case, Told

QUEUE = "https://sqs.us-east-1.amazonaws.com/177715257436/MyQueue"
MESSAGE = "This is a test message"
JSON_1_0 = "application/x-amz-json-1.0"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
REQUEST_ID = "fea8c2f2-8a8a-5c7d-a2b4-36a1e1c6f3a1"


FIRST = signed("sqs", "20261117T120000Z", "aaaa")
AGAIN = signed("sqs", "20261118T093000Z", "bbbb")


def asked(action: str, **body: Any) -> Asked:
    headers = {"Content-Type": JSON_1_0, "X-Amz-Target": f"AmazonSQS.{action}", **FIRST}
    return Asked(path="/", json=body, headers=headers)


def told(body: Any, status: int = 200) -> Told:
    return Told(status=status, json=body, headers={"Content-Type": JSON_1_0})


def query(action: str, path: str = "/177715257436/MyQueue/", **more: str) -> Asked:
    form = (("Action", action), ("Version", "2012-11-05"), *more.items())
    return Asked(path=path, form=form, headers=FIRST)


def xml(action: str, inside: str = "", status: int = 200) -> Told:
    text = (
        f'<{action}Response xmlns="{NAMESPACE}"><{action}Result>{inside}</{action}Result>'
        f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
    )
    return Told(status=status, text=text, headers={"Content-Type": "text/xml"})


def xml_error(status: int, code: str) -> Told:
    text = (
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code></Error>'
        f"<RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return Told(status=status, text=text, headers={"Content-Type": "text/xml"})


SENT = {
    "MessageId": "219f8380-5770-4cc2-8c3e-5c715e145f5e",
    "MD5OfMessageBody": "fafb00f5732ab283681e124bf8747ed1",
}
SEND = asked("SendMessage", QueueUrl=QUEUE, MessageBody=MESSAGE)
FIFO = SEND.but(
    json={"QueueUrl": f"{QUEUE}.fifo", "MessageGroupId": "orders", "MessageDeduplicationId": "order-7"}
)
BATCH = asked(
    "SendMessageBatch",
    QueueUrl=QUEUE,
    Entries=[{"Id": "one", "MessageBody": "1"}, {"Id": "two", "MessageBody": "2"}],
)
REFUSED = (
    told({"__type": "com.amazonaws.sqs#RequestThrottled", "message": "Rate exceeded"}, 400),
    told({"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "It does not exist."}, 400),
    told({"__type": "com.amazonaws.sqs#KmsThrottled", "message": "Rate exceeded"}, 400),
    told({"__type": "com.amazon.coral.service#ExpiredTokenException"}, 403),
)
DOUBTFUL = (
    told({"__type": "com.amazon.coral.service#InternalFailure"}, 500),
    told({"__type": "com.amazon.coral.service#ServiceUnavailable"}, 503),
)
TRACED = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-63441c4a-abcdef"}}


def traced(n: int, **own: Any) -> dict[str, Any]:
    """Attributes of a message as OpenTelemetry and Datadog leave them, another trace at every try."""
    texts = {
        "traceparent": f"00-{n:032x}-{n:016x}-01",
        "tracestate": f"vendor={n}",
        "baggage": f"session={n}",
        "_datadog": f'{{"x-datadog-trace-id": "{n}"}}',
    }
    return own | {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}


KIND = {"DataType": "String", "StringValue": "order"}
OTHER_KIND = {"DataType": "String", "StringValue": "refund"}
HANDLE = "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a"
TRACED_ENTRY = {"Id": "one", "MessageBody": "1", "MessageAttributes": traced(1, kind=KIND)}
TRACED_BATCH = BATCH.but(json={"Entries": [TRACED_ENTRY]})

CASES = [
    Case(
        rule="send",
        request=SEND,
        answer=told(SENT),
        arguments={"body.QueueUrl": QUEUE, "body.MessageBody": MESSAGE},
        alike=(
            SEND.but(headers=AGAIN),
            SEND.but(json={"MessageSystemAttributes": TRACED}),
        ),
        different=(
            SEND.but(json={"MessageBody": "This is another message"}),
            SEND.but(json={"QueueUrl": f"{QUEUE}2"}),
            SEND.but(json={"DelaySeconds": 45}),
        ),
        refused=REFUSED,
        doubtful=DOUBTFUL,
    ),
    # Traced, with an attribute of its own and without: both tries are, so both have the field.
    *(
        Case(
            rule="send",
            request=SEND.but(json={"MessageAttributes": traced(1, **own)}),
            answer=told(SENT),
            alike=(SEND.but(json={"MessageAttributes": traced(2, **own)}, headers=AGAIN),),
            different=(SEND.but(json={"MessageAttributes": traced(1, kind=OTHER_KIND)}),),
        )
        for own in ({}, {"kind": KIND})
    ),
    Case(
        rule="send-batch",
        request=TRACED_BATCH,
        answer=told({"Successful": [{"Id": "one", **SENT}], "Failed": []}),
        alike=(
            BATCH.but(json={"Entries": [{**TRACED_ENTRY, "MessageAttributes": traced(2, kind=KIND)}]}),
            BATCH.but(json={"Entries": [{**TRACED_ENTRY, "MessageSystemAttributes": TRACED}]}),
        ),
        different=(
            BATCH.but(json={"Entries": [{**TRACED_ENTRY, "MessageAttributes": traced(1, kind=OTHER_KIND)}]}),
        ),
    ),
    # The client's own key is an argument: another one is another message.
    Case(
        rule="send",
        request=FIFO,
        answer=told(SENT | {"SequenceNumber": "18849496460467696128"}),
        alike=(FIFO.but(headers=AGAIN),),
        different=(FIFO.but(json={"MessageDeduplicationId": "order-8"}),),
        refused=REFUSED,
    ),
    Case(
        rule="send-batch",
        request=BATCH,
        answer=told({"Successful": [{"Id": "one", **SENT}, {"Id": "two", **SENT}], "Failed": []}),
        alike=(BATCH.but(headers=AGAIN),),
        different=(BATCH.but(json={"Entries": [{"Id": "one", "MessageBody": "1"}]}),),
        refused=REFUSED,
        doubtful=DOUBTFUL,
        # Some of them are in the queue: the whole is the last word.
        final=(
            told(
                {
                    "Successful": [{"Id": "one", **SENT}],
                    "Failed": [{"Id": "two", "SenderFault": False, "Code": "InternalError"}],
                }
            ),
        ),
    ),
    Case(
        rule="query-send",
        request=query("SendMessage", MessageBody=MESSAGE),
        answer=xml("SendMessage", f"<MessageId>{SENT['MessageId']}</MessageId>"),
        arguments={
            "body.Action": ["SendMessage"],
            "body.Version": ["2012-11-05"],
            "body.MessageBody": [MESSAGE],
        },
        alike=(query("SendMessage", MessageBody=MESSAGE).but(headers=AGAIN),),
        different=(
            query("SendMessage", MessageBody="This is another message"),
            query("SendMessage", path="/177715257436/OtherQueue/", MessageBody=MESSAGE),
        ),
        refused=(xml_error(400, "RequestThrottled"), xml_error(403, "OverLimit")),
        doubtful=(xml_error(503, "ServiceUnavailable"),),
    ),
    # GET is no read here.
    Case(
        rule="query-send",
        request=Asked(
            method="GET",
            path="/177715257436/MyQueue/?Action=SendMessage&MessageBody=Your%20Message%20Text&Version=2012-11-05"
            "&X-Amz-Date=20261117T120000Z&X-Amz-Signature=aaaa",
        ),
        answer=xml("SendMessage", f"<MessageId>{SENT['MessageId']}</MessageId>"),
        alike=(
            Asked(
                method="GET",
                path="/177715257436/MyQueue/?Action=SendMessage&MessageBody=Your%20Message%20Text"
                "&Version=2012-11-05&X-Amz-Date=20261118T093000Z&X-Amz-Signature=bbbb",
            ),
        ),
        refused=(xml_error(400, "RequestThrottled"),),
    ),
    Case(
        rule="receive",
        request=asked("ReceiveMessage", QueueUrl=QUEUE, MaxNumberOfMessages=5, WaitTimeSeconds=20),
        answer=told(
            {"Messages": [{"MessageId": SENT["MessageId"], "ReceiptHandle": HANDLE, "Body": MESSAGE}]}
        ),
        safe=True,
        arguments={"body.QueueUrl": QUEUE, "body.MaxNumberOfMessages": 5, "body.WaitTimeSeconds": 20},
        alike=(
            asked(
                "ReceiveMessage",
                QueueUrl=QUEUE,
                MaxNumberOfMessages=5,
                WaitTimeSeconds=20,
                ReceiveRequestAttemptId="5d6f",
            ),
        ),
        different=(asked("ReceiveMessage", QueueUrl=f"{QUEUE}2", MaxNumberOfMessages=5, WaitTimeSeconds=20),),
    ),
    Case(
        rule="delete",
        request=asked("DeleteMessage", QueueUrl=QUEUE, ReceiptHandle=HANDLE),
        answer=told({}),
        safe=True,
        different=(
            asked("DeleteMessage", QueueUrl=QUEUE, ReceiptHandle="other"),
            asked("ChangeMessageVisibility", QueueUrl=QUEUE, ReceiptHandle=HANDLE),
        ),
    ),
    Case(
        rule="delete",
        request=asked("ChangeMessageVisibility", QueueUrl=QUEUE, ReceiptHandle=HANDLE, VisibilityTimeout=60),
        answer=told({}),
        safe=True,
    ),
    Case(
        rule="query-consume",
        request=query("ReceiveMessage", MaxNumberOfMessages="5"),
        answer=xml("ReceiveMessage", f"<Message><ReceiptHandle>{HANDLE}</ReceiptHandle></Message>"),
        safe=True,
        alike=(query("ReceiveMessage", MaxNumberOfMessages="5", ReceiveRequestAttemptId="5d6f"),),
    ),
    Case(
        rule="read",
        request=asked("GetQueueUrl", QueueName="MyQueue"),
        answer=told({"QueueUrl": QUEUE}),
        safe=True,
    ),
    Case(
        rule="query-read",
        request=query("ListQueues", path="/", QueueNamePrefix="M"),
        answer=xml("ListQueues", f"<QueueUrl>{QUEUE}</QueueUrl>"),
        safe=True,
    ),
    Case(
        rule="query-other-by-get",
        request=Asked(method="GET", path="/177715257436/MyQueue/?Action=PurgeQueue&Version=2012-11-05"),
        answer=xml("PurgeQueue"),
    ),
    # Two actions: nobody could say which is done, so it is neither a read nor a receive.
    *(
        Case(
            rule=None,
            request=Asked(path="/177715257436/MyQueue/", form=(("Action", first), ("Action", "PurgeQueue"))),
            answer=xml("PurgeQueue"),
        )
        for first in ("ListQueues", "ReceiveMessage")
    ),
    # Without a rule: these two differ in the header alone, and must not be taken for one.
    Case(
        rule=None,
        request=asked("PurgeQueue", QueueUrl=QUEUE),
        answer=told({}),
        alike=(asked("PurgeQueue", QueueUrl=QUEUE).but(headers=AGAIN),),
        different=(asked("DeleteQueue", QueueUrl=QUEUE),),
    ),
]
