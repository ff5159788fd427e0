"""boto3 in runs: mails and messages are sent once, as AWS itself (moto) tells; its retries are understood."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import boto3  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from tests.sdk.aws import CUT, Aws
from tests.sdk.scene import WAYS, Scene, scene

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("way", WAYS)]
# What is called stands in a header for SQS, in the body for SES.
POLICY = """
rules:
  - name: all
    match: {method: POST, path: /**}
    key: {headers: [x-amz-target]}
"""
RUNS = itertools.count(1)
FROM = "agent@example.com"


class Stage(NamedTuple):
    scene: Scene
    aws: Aws
    queue: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, module_store: None) -> AsyncIterator[Stage]:
    async with Aws() as aws, scene(tmp_path_factory.mktemp("aws"), {"aws": aws}, {"aws": POLICY}) as made:
        yield Stage(made, aws, await asyncio.to_thread(prepare, f"http://127.0.0.1:{aws.plain}"))


def client(service: str, url: str) -> Any:
    keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "none"}
    return boto3.session.Session().client(service, endpoint_url=url, region_name="eu-central-1", **keys)


def prepare(url: str) -> str:
    """Directly, as an administrator would: a sender and a queue. The queue's address."""
    client("ses", url).verify_email_identity(EmailAddress=FROM)
    return str(client("sqs", url).create_queue(QueueName="work")["QueueUrl"])


def mail(url: str, _queue: str, text: str) -> Any:
    return client("ses", url).send_email(
        Source=FROM,
        Destination={"ToAddresses": ["ada@example.com"]},
        Message={"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": text}}},
    )


def message(url: str, queue: str, text: str) -> Any:
    return client("sqs", url).send_message(QueueUrl=queue, MessageBody=text)


SENDS = {"ses": mail, "sqs": message}
each_service = pytest.mark.parametrize("service", SENDS)


class Agents:
    """The attempts of one run, each in the environment that it would have."""

    def __init__(self, stage: Stage, service: str, way: str, patch: pytest.MonkeyPatch) -> None:
        self.run = f"run-{next(RUNS)}."
        self._stage, self._service, self._way, self._patch = stage, service, way, patch

    async def send(self, attempt: str, text: str = "") -> Any:
        route = self._stage.scene.way(self._way, "aws", self.run, attempt)
        for name, value in route.env.items():
            self._patch.setenv(name, value)
        send = SENDS[self._service]
        return await asyncio.to_thread(send, route.url, self._stage.queue, self.run + text)

    async def sent(self, text: str = "") -> int:
        return (await self._stage.aws.sent(self.run + text))[self._service]


def upstreams(answer: dict[str, Any]) -> dict[str, Any]:
    """What AWS said; what semel and boto3 say of it is another matter."""
    told = dict(answer)
    headers = told.pop("ResponseMetadata")["HTTPHeaders"]
    ours = ("semel-status", "age", "cache-status", "connection", "transfer-encoding")
    return told | {"headers": {name: value for name, value in headers.items() if name not in ours}}


def status(answer: dict[str, Any]) -> str:
    return str(answer["ResponseMetadata"]["HTTPHeaders"]["semel-status"])


def is_held(error: ClientError | ResponseParserError) -> bool:
    """boto3 reads no problem+json: it shows the whole body where it wants XML, and the headers otherwise."""
    if isinstance(error, ResponseParserError):
        return "urn:semel:in-doubt" in str(error)
    headers = error.response["ResponseMetadata"]["HTTPHeaders"]
    return (error.response["Error"]["Code"], headers["semel-status"]) == ("409", "refused")


@each_service
async def test_it_is_sent_once(stage: Stage, service: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt gets AWS's own answer again, its MessageId and all; what is new is sent."""
    agents = Agents(stage, service, way, monkeypatch)
    first, second, new = await agents.send("one"), await agents.send("two"), await agents.send("two", "new")
    assert [status(answer) for answer in (first, second, new)] == ["executed", "replayed", "executed"]
    assert upstreams(first) == upstreams(second)
    assert new["MessageId"] != first["MessageId"]
    assert await agents.sent() == await agents.sent("new") == 1


@each_service
async def test_its_own_retry_is_not_repeated(
    stage: Stage, service: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS is busy once and boto3 asks again by itself: sent once, and the next attempt is told the same."""
    agents = Agents(stage, service, way, monkeypatch)
    before = stage.aws.asked
    stage.aws.faults.append(429)
    first = await agents.send("one")
    assert first["ResponseMetadata"]["RetryAttempts"] == 1
    assert stage.aws.asked == before + 2
    second = await agents.send("two")
    assert (status(second), upstreams(second)) == ("replayed", upstreams(first))
    assert stage.aws.asked == before + 2
    assert await agents.sent() == 1


@each_service
@pytest.mark.parametrize(("fault", "done"), [(CUT, 1), (500, 0)], ids=["cut", "500"])
async def test_what_may_have_been_sent_is_not_sent_again(
    stage: Stage, service: str, way: str, fault: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost, or says nothing: no retry of boto3's and no later attempt sends it, and a person is
    told which call it is."""
    agents = Agents(stage, service, way, monkeypatch)
    before = stage.aws.asked
    stage.aws.faults.append(fault)
    for attempt in ("one", "two"):
        with pytest.raises((ClientError, ResponseParserError)) as refused:
            await agents.send(attempt)
        assert is_held(refused.value)
        assert stage.aws.asked == before + 1
    assert await agents.sent() == done
