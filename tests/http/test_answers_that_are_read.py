"""Answers whose meaning stands in their body: nothing of them is handed on before they are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from proxy import carrying, judge
from tests.inside import Answer, call, request_bytes, semel
from tests.origin import READ_ALL, Origin, Wait
from tests.presets.api import CASE, Api, new_case
from tests.presets.cases import Told

POLICY = """
upstream: chat
base_url: http://127.0.0.1:{port}
rules:
  - name: post
    match: {{path: /post}}
    outcome:
      not_executed_if: "ok == `false`"
      in_doubt_if: "contains(['fatal_error', 'internal_error'], error)"
  - name: keyed
    match: {{path: /keyed}}
    upstream_key: {{header: X-Key, mismatch_if: "error.type == 'idempotency_error'"}}
  - name: nonce
    match: {{path: /nonce}}
    upstream_key: {{body: nonce, max_length: 25, with: {{enforce_nonce: true, "a.b": 1}}}}
  - name: search
    match: {{path: /search}}
    safe: true
    repeat: same
    outcome: {{in_doubt_if: "error == 'fatal_error'"}}
"""
SENT, REFUSED = Told(json={"ok": True}), Told(json={"ok": False, "error": "channel_not_found"})
OPEN = Told(json={"ok": False, "error": "fatal_error"})
MISMATCH = Told(status=400, json={"error": {"type": "idempotency_error"}})
INVALID = Told(status=400, json={"error": {"type": "invalid_request_error"}})


class Chat(NamedTuple):
    port: int
    api: Api
    case: str

    async def __call__(self, path: str, *answers: Told, text: str = "hello") -> Answer:
        self.api.answers[self.case].extend(answers)
        headers = {"Content-Type": "application/json", CASE: self.case}
        return await call(self.port, "POST", f"/chat{path}", headers, json.dumps({"text": text}).encode())

    @property
    def asked(self) -> int:
        return len(self.api.received[self.case])


@pytest_asyncio.fixture
async def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Chat]:
    monkeypatch.setattr(carrying, "RESEND_PAUSES", (0.0, 0.0, 0.0))
    async with Api() as api, semel(tmp_path, POLICY.format(port=api.port)) as app:
        yield Chat(app.address.port, api, new_case())


def is_held(answer: Answer) -> bool:
    return answer.status == 409 and json.loads(answer.body)["type"] == "urn:semel:in-doubt"


async def test_doubt_inside_a_200_is_doubt(chat: Chat) -> None:
    """It counts before the word that nothing happened, and keeps the call from being sent again."""
    first = await chat("/post", OPEN)
    assert is_held(first)
    assert json.loads(first.body)["upstream_status"] == 200
    assert is_held(await chat("/post"))
    assert chat.asked == 1


async def test_a_failure_that_proves_something_lets_it_be_sent_again(chat: Chat) -> None:
    """And what succeeds is kept."""
    assert (await chat("/post", REFUSED)).body == REFUSED.body
    assert (await chat("/post", SENT)).semel == "executed"
    assert (await chat("/post")).semel == "replayed"
    assert chat.asked == 2


async def test_a_safe_call_is_handed_on_and_not_kept(chat: Chat) -> None:
    """Nobody doubts it: it is made again."""
    assert (await chat("/search", OPEN)).body == OPEN.body
    assert (await chat("/search", SENT)).semel == "executed"
    assert chat.asked == 2


async def test_a_mismatch_that_the_body_tells_is_doubt_and_not_sent_again(chat: Chat) -> None:
    """Under the same status a validation error is the last word."""
    assert is_held(await chat("/keyed", MISMATCH))
    assert chat.asked == 1
    invalid = await chat("/keyed", INVALID, text="other")
    assert (invalid.semel, invalid.body) == ("executed", INVALID.body)
    assert (await chat("/keyed", text="other")).semel == "replayed"


async def test_a_mismatch_after_doubt_stays_doubt(chat: Chat) -> None:
    """The first send failed, the second is told that the key is another's: nobody knows."""
    assert is_held(await chat("/keyed", Told(status=500), MISMATCH))
    assert chat.asked == 2


async def test_what_goes_beside_a_key(chat: Chat) -> None:
    """Fields that the upstream wants with it, wherever they are."""
    assert (await chat("/nonce", Told(status=500), SENT)).semel == "executed"
    bodies = [json.loads(received.body) for received in chat.api.received[chat.case]]
    assert bodies[0] == bodies[1]
    assert 16 <= len(bodies[0].pop("nonce")) <= 25
    assert bodies[0] == {"text": "hello", "enforce_nonce": True, "a": {"b": 1}}


@pytest.mark.parametrize("size", [200_000, 3_000_000])
async def test_nothing_is_handed_on_before_it_is_read(chat: Chat, size: int) -> None:
    """Also of a long answer, whose end tells what it means: the caller gets semel's word, and no part."""
    long = {"padding": "x" * size, "ok": False, "error": "internal_error"}
    assert is_held(await chat("/post", Told(json=long)))
    fine = {"padding": "x" * size, "ok": True}
    answer = await chat("/post", Told(json=fine), text="other")
    assert (answer.complete, json.loads(answer.body)) == (True, fine)


async def test_what_is_too_long_to_be_read_is_handed_on(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the status alone counts, and all of it arrives."""
    monkeypatch.setattr(judge, "READABLE", 100_000)
    long = {"padding": "x" * 300_000, "ok": False, "error": "internal_error"}
    answer = await chat("/post", Told(json=long))
    assert (answer.complete, json.loads(answer.body), answer.semel) == (True, long, "executed")


@pytest.mark.parametrize("path", ["/post", "/keyed"])
async def test_a_stream_of_events_is_handed_on_as_it_comes(tmp_path: Path, path: str) -> None:
    """No expression finds anything in it, so nothing is gained by waiting for its end."""
    go = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    script = (*READ_ALL, head + b"9\r\ndata: 1\n\n\r\n", Wait(go), b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
    async with Origin(script) as origin, semel(tmp_path, POLICY.format(port=origin.port)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", f"/chat{path}", {"Content-Type": "application/json"}, b"{}"))
        async with asyncio.timeout(15):
            assert b"Semel-Status: executed" in await reader.readuntil(b"data: 1")
            go.set()
            await reader.readuntil(b"data: 2")
        writer.close()


async def test_what_is_too_long_to_be_kept_is_handed_on_whole(tmp_path: Path) -> None:
    """Of an answer over the limit nothing is lost on its way to the caller."""
    limits = {"limits.response_body": "100KiB"}
    async with Api() as api, semel(tmp_path, POLICY.format(port=api.port), settings=limits) as app:
        long = {"padding": "x" * 5_000_000, "ok": True}
        answer = await Chat(app.address.port, api, new_case())("/post", Told(json=long))
    assert (answer.complete, json.loads(answer.body), answer.semel) == (True, long, "executed")
