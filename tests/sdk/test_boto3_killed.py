"""Agents that send with boto3 behind the presets for SES and SQS, killed until they finish: AWS itself (moto)
tells that every mail and message was sent once. And what boto3's own retries make of semel's answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from aiohttp import web
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from tests.counts import count
from tests.process import ROOT
from tests.sdk.aws import CUT, Aws, Refusal
from tests.sdk.aws_agent import FROM, Sender, Step, client, plan
from tests.sdk.scene import KILLED, Route, Scene, scene

pytestmark = pytest.mark.asyncio(loop_scope="module")
KILLS = count(test=10, soak=50)
KILLS_OF_A_RUN = 5
RUNS = itertools.count(1)
# The forward proxy is the way to the real AWS: signatures cover the host.
each_way = pytest.mark.parametrize("way", ["https", "http"])
each_kind = pytest.mark.parametrize("kind", ["mail", "mail-v2", "message", "batch"])


class SlowAws(Aws):
    """It takes its time, before and after it has done something: agents die in between."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.005)
        answer = await super()._answer(request)
        await asyncio.sleep(0.005)
        return answer


class Stage(NamedTuple):
    scene: Scene
    mails: Aws
    queues: Aws
    queue: str

    def api(self, kind: str) -> Aws:
        return self.mails if kind.startswith("mail") else self.queues

    async def sent(self, mark: str) -> Counter[tuple[str, str]]:
        return await self.mails.texts(mark) + await self.queues.texts(mark)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, module_store: None) -> AsyncIterator[Stage]:
    """An AWS for each preset, since hosts are not shared."""
    presets = {"ses": "extends: ses", "sqs": "extends: sqs"}
    async with SlowAws() as mails, SlowAws() as queues:
        queue = await asyncio.to_thread(prepare, mails.plain, queues.plain)
        apis = {"ses": mails, "sqs": queues}
        async with scene(tmp_path_factory.mktemp("aws"), apis, presets) as made:
            yield Stage(made, mails, queues, queue)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3's retries come as they do, only sooner."""
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda **_: 0)


def prepare(mails: int, queues: int) -> str:
    """Directly, as an administrator would: a sender and a queue. The queue's address."""
    client("ses", f"http://127.0.0.1:{mails}").verify_email_identity(EmailAddress=FROM)
    return str(client("sqs", f"http://127.0.0.1:{queues}").create_queue(QueueName="work")["QueueUrl"])


class Agent:
    """`async with Agent(…) as agent`: a process of tests/sdk/aws_agent.py. It does not outlive that."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self._words, self._env = words, env
        self.answers: list[list[list[str]]] = []
        self.errors = ""

    async def __aenter__(self) -> Agent:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "ignore", "-m", "tests.sdk.aws_agent", *self._words, cwd=ROOT,
            env={**os.environ, **self._env}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr is not None
        self._reading = asyncio.create_task(self._process.stderr.read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self.ended()

    async def until(self, answers: int) -> None:
        """It has had so many answers, or it has ended."""
        assert self._process.stdout is not None
        while len(self.answers) < answers and (line := await self._process.stdout.readline()):
            self.answers.append(json.loads(line))

    def kill(self) -> None:
        """Not by the process's own method: it would take the exit status away from whoever waits for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            await self.until(sys.maxsize)
            self.errors = (await self._reading).decode()
            return await self._process.wait()

    @property
    def ids(self) -> Counter[tuple[str, str]]:
        """What it sent, as it was told: text and id."""
        return Counter((text, name) for answer in self.answers for text, name in answer)


def agent(stage: Stage, way: str, run: str, attempt: str) -> Agent:
    mails, queues = (stage.scene.way(way, name, run, attempt) for name in ("ses", "sqs"))
    return Agent([mails.url, queues.url, stage.queue, run], mails.env)


def meant(mark: str) -> Counter[str]:
    return Counter(text for step in plan(mark) for text in step.texts)


def texts(sent: Counter[tuple[str, str]]) -> Counter[str]:
    return Counter(text for text, _ in sent.elements())


# ---- killed ----


@pytest.mark.timeout(600)
@each_way
async def test_agents_are_killed_until_they_finish(stage: Stage, way: str) -> None:
    """At random moments, and each start is a new attempt of the run; the last one is left alone. In the end
    everything was sent that was meant, the reminder twice and all else once, and the agent holds the ids
    that AWS gave."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    chance = random.Random(seed)
    kills = 0
    while kills < KILLS:
        run = f"killed-{next(RUNS)}."
        for attempt in range(KILLS_OF_A_RUN):
            async with agent(stage, way, run, f"a{attempt}") as started:
                await started.until(chance.randrange(len(list(plan(run)))))
                await asyncio.sleep(chance.uniform(0.0, 0.03))  # anywhere in the next call or two
                started.kill()
                status = await started.ended()
            assert status in (KILLED, 0), started.errors  # now and then it was faster
            kills += status == KILLED
        async with agent(stage, way, run, "last") as started:
            assert await started.ended() == 0, started.errors
        sent = await stage.sent(run)
        assert texts(sent) == meant(run)
        assert started.ids == sent


async def test_without_semel_they_are_sent_twice(stage: Stage) -> None:
    """The same agent, killed after its fourth answer: what it had sent by then is sent again."""
    mark = f"direct-{next(RUNS)}."
    words = [
        f"http://127.0.0.1:{stage.mails.plain}",
        f"http://127.0.0.1:{stage.queues.plain}",
        stage.queue,
        mark,
    ]
    for env, status in (({"DIES": "4"}, KILLED), ({}, 0)):
        async with Agent(words, env) as started:
            assert await started.ended() == status, started.errors
    twice = Counter(text for step in list(plan(mark))[:4] for text in step.texts)
    assert texts(await stage.sent(mark)) == meant(mark) + twice


# ---- boto3's own retries ----


class Tries:
    """One run's calls in this process, and how often boto3 tries them."""

    def __init__(self, stage: Stage, way: str, kind: str, patch: pytest.MonkeyPatch) -> None:
        self.run = f"tried-{next(RUNS)}."
        words = (f"{self.run}a", f"{self.run}b") if kind == "batch" else (f"{self.run}a",)
        self.step = Step(kind, words)
        self.tries = 0
        self._stage, self._way, self._patch = stage, way, patch

    async def send(self, attempt: str) -> list[str]:
        mails, queues = (self._stage.scene.way(self._way, name, self.run, attempt) for name in ("ses", "sqs"))
        return await asyncio.to_thread(self._send, mails, queues)

    def _send(self, mails: Route, queues: Route) -> list[str]:
        for name, value in mails.env.items():
            self._patch.setenv(name, value)
        sender = Sender(mails.url, queues.url, self._stage.queue)
        used = {"mail": "mails", "mail-v2": "mails_v2"}.get(self.step.kind, "queues")
        getattr(sender, used).meta.events.register("before-send.*.*", self._count)
        return sender.send(self.step)

    def _count(self, **_: Any) -> None:
        self.tries += 1

    async def sent(self) -> int:
        return (await self._stage.sent(self.run)).total()


def names_doubt(error: ClientError | ResponseParserError) -> bool:
    """boto3 reads no problem+json: where it wants XML it shows the whole body, otherwise the problem's words,
    which say what to do, and the call's id among the headers."""
    if isinstance(error, ResponseParserError):
        return "urn:semel:in-doubt" in str(error)
    headers, told = error.response["ResponseMetadata"]["HTTPHeaders"], error.response["Error"]
    return (
        (told["Code"], headers["semel-status"]) == ("409", "refused")
        and "took effect is not known" in told["Message"]
        and headers["semel-call"] in told["Message"]
    )


@each_kind
@pytest.mark.parametrize(
    ("way", "fault", "done"),
    [("https", CUT, 1), ("http", CUT, 1), ("https", 503, 0)],
    ids=["https-cut", "http-cut", "https-503"],
)
async def test_what_may_have_been_sent_is_asked_for_once(
    stage: Stage, way: str, kind: str, fault: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 does not retry what is in doubt, so there is no storm, and AWS hears of it once in all."""
    made, aws = Tries(stage, way, kind, monkeypatch), stage.api(kind)
    before = aws.asked
    aws.faults.append(fault)
    for tries, attempt in enumerate(("one", "two"), start=1):
        with pytest.raises((ClientError, ResponseParserError)) as refused:
            await made.send(attempt)
        assert names_doubt(refused.value)
        assert (made.tries, aws.asked - before) == (tries, 1)
    assert await made.sent() == done * len(made.step.texts)


SLOW_DOWN = "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>"
BUSY = {
    # https://docs.aws.amazon.com/ses/latest/dg/manage-sending-quotas-errors.html
    "mail": Refusal(400, SLOW_DOWN),
    "mail-v2": Refusal(429, '{"message": "Too many requests."}', "application/json"),
    # As botocore/data/_retry.json has it, and the API reference.
    "message": Refusal(403, '{"__type": "com.amazonaws.sqs#RequestThrottled"}', "application/x-amz-json-1.0"),
    "batch": Refusal(
        400, '{"__type": "com.amazonaws.sqs#ThrottlingException"}', "application/x-amz-json-1.0"
    ),
}


@each_kind
async def test_what_was_throttled_is_sent_by_the_retry(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Throttling may be a 400 here. Nothing was sent, boto3 tries again by itself, and then it is sent: once,
    and the next attempt is told the same."""
    made, aws = Tries(stage, "https", kind, monkeypatch), stage.api(kind)
    before = aws.asked
    aws.faults.append(BUSY[kind])
    first = await made.send("one")
    assert (made.tries, aws.asked - before) == (2, 2)
    assert await made.send("two") == first
    assert aws.asked - before == 2
    assert await made.sent() == len(made.step.texts)
