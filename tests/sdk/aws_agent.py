"""An agent that sends mails and messages with boto3: `python -m tests.sdk.aws_agent MAILS QUEUES QUEUE MARK`.

MAILS and QUEUES are addresses of AWS, QUEUE that of a queue. It prints a line for each answer: the texts that
it sent and the ids that AWS gave them. With DIES=N in its environment it is killed after the N-th answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import boto3  # type: ignore[import-untyped]

FROM, TO = "agent@example.com", "ada@example.com"


class Step(NamedTuple):
    kind: str  # of SENDS
    texts: tuple[str, ...]


def plan(mark: str) -> Iterator[Step]:
    """What it means to send. The last two are the same on purpose."""
    for number in range(3):
        yield Step("mail", (f"{mark}mail {number}",))
        yield Step("mail-v2", (f"{mark}mail by v2 {number}",))
        yield Step("message", (f"{mark}message {number}",))
    yield Step("batch", (f"{mark}first of two", f"{mark}second of two"))
    yield Step("message", (f"{mark}reminder",))
    yield Step("message", (f"{mark}reminder",))


def client(service: str, url: str) -> Any:
    keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "none"}
    return boto3.session.Session().client(service, endpoint_url=url, region_name="eu-central-1", **keys)


class Sender:
    """Each client is made when it is used."""

    def __init__(self, mails: str, queues: str, queue: str) -> None:
        self._mails, self._queues, self._queue = mails, queues, queue

    @cached_property
    def mails(self) -> Any:
        return client("ses", self._mails)

    @cached_property
    def mails_v2(self) -> Any:
        return client("sesv2", self._mails)

    @cached_property
    def queues(self) -> Any:
        return client("sqs", self._queues)

    def send(self, step: Step) -> list[str]:
        """The ids that AWS gave."""
        sends = {"mail": self.mail, "mail-v2": self.mail_v2, "message": self.message}
        if step.kind != "batch":
            return [str(sends[step.kind](step.texts[0])["MessageId"])]
        entries = [{"Id": str(at), "MessageBody": text} for at, text in enumerate(step.texts)]
        told = self.queues.send_message_batch(QueueUrl=self._queue, Entries=entries)
        return [str(one["MessageId"]) for one in told["Successful"]]

    def mail(self, text: str) -> Any:
        message = {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": text}}}
        return self.mails.send_email(Source=FROM, Destination={"ToAddresses": [TO]}, Message=message)

    def mail_v2(self, text: str) -> Any:
        content = {"Simple": {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": text}}}}
        return self.mails_v2.send_email(
            FromEmailAddress=FROM, Destination={"ToAddresses": [TO]}, Content=content
        )

    def message(self, text: str) -> Any:
        return self.queues.send_message(QueueUrl=self._queue, MessageBody=text)


def main() -> None:
    mails, queues, queue, mark = sys.argv[1:]
    sender, dies = Sender(mails, queues, queue), int(os.environ.get("DIES", "0"))
    sender.mails.get_send_quota()
    sender.queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
    for number, step in enumerate(plan(mark), start=1):
        print(json.dumps(list(zip(step.texts, sender.send(step), strict=True))), flush=True)
        if number == dies:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
