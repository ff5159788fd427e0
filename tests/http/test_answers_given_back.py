"""What is given back for which answer: kept, released or in doubt; as it was encoded, or decoded."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import zlib
from pathlib import Path

import brotli
import pytest

from tests.http.numbered import place, problem
from tests.inside import raw_call, until
from tests.origin import READ_ALL, Wait, answer

pytestmark = pytest.mark.usefixtures("any_store")

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# ---- content codings ----

PLAIN = b'{"text": "' + b"hello " * 1000 + b'"}'
CODED = {
    "gzip": gzip.compress(PLAIN),
    "x-gzip": gzip.compress(PLAIN),
    "deflate": zlib.compress(PLAIN),
    "br": brotli.compress(PLAIN),
    "zstd": zstd.compress(PLAIN),
    "gzip, br": brotli.compress(gzip.compress(PLAIN)),
}


@pytest.mark.parametrize("coding", CODED)
async def test_a_replay_is_decoded_for_a_caller_who_does_not_accept_its_coding(
    tmp_path: Path, coding: str
) -> None:
    """As it was encoded for whoever accepts that; plain, with the right length, for whoever does not."""
    coded = CODED[coding]
    script = (*READ_ALL, answer(200, coded, (b"Content-Encoding", coding.encode()), (b"X-A", b"1")))
    async with place(tmp_path, "[]", script) as there:
        first = await there.post(headers={"Accept-Encoding": coding})
        assert (first.body, first.get("Content-Encoding")) == (coded, coding)
        same = await there.post(headers={"Accept-Encoding": f"identity, {coding};q=0.5"})
        assert (same.semel, same.body, same.get("Content-Encoding")) == ("replayed", coded, coding)
        for headers in ({}, {"Accept-Encoding": "identity"}, {"Accept-Encoding": f"{coding};q=0, other"}):
            plain = await there.post(headers=headers)
            assert plain.semel == "replayed"
            assert plain.body == PLAIN
            assert plain.get("Content-Encoding") is None
            assert plain.get("Content-Length") == str(len(PLAIN))
            assert plain.get("X-A") == "1"
        assert there.origin.started == 1


async def test_a_joined_caller_who_does_not_accept_the_coding_gets_it_decoded(tmp_path: Path) -> None:
    """Another caller negotiated it."""
    gate = asyncio.Event()
    script = (*READ_ALL, Wait(gate), answer(200, CODED["gzip"], (b"Content-Encoding", b"gzip")))
    async with place(tmp_path, "[]", script) as there:
        first = asyncio.create_task(there.post(headers={"Accept-Encoding": "gzip"}))
        await until(lambda: there.origin.started)
        second = asyncio.create_task(there.post())
        await asyncio.sleep(0.05)
        gate.set()
        assert (await first).body == CODED["gzip"]
        joined = await second
        assert (joined.semel, joined.body) == ("joined", PLAIN)
        assert joined.get("Content-Encoding") is None


async def test_a_coding_that_cannot_be_undone_is_said_so(tmp_path: Path) -> None:
    """410 rather than bytes that the caller cannot read; nothing is sent again."""
    script = (*READ_ALL, answer(200, b"odd", (b"Content-Encoding", b"x-odd")))
    async with place(tmp_path, "[]", script) as there:
        await there.post(headers={"Accept-Encoding": "x-odd"})
        got = await there.post()
        assert (got.status, problem(got)) == (410, "answer-unavailable")
        assert (await there.post(headers={"Accept-Encoding": "x-odd"})).body == b"odd"
        assert there.origin.started == 1


# ---- what an answer means ----

KEPT, RELEASED, DOUBT = "kept", "released", "in doubt"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, KEPT) for status in (200, 201, 204, 301, 302, 400, 404, 409, 410, 422)),
        *((status, RELEASED) for status in (401, 402, 403, 407, 425, 429)),
        *((status, DOUBT) for status in (408, 500, 502, 503, 504, 599)),
    ],
)
async def test_outcomes_of_a_call_with_effects(tmp_path: Path, status: int, outcome: str) -> None:
    """By the table: kept and replayed, released and sent again, or held in doubt."""
    await check_outcome(tmp_path, "[]", status, outcome)


@pytest.mark.parametrize(
    ("words", "status", "outcome"),
    [
        ("final: [500]", 500, KEPT),
        ("final: [429]", 429, KEPT),
        ("not_executed: [503]", 503, RELEASED),
        ("not_executed: [409]", 409, RELEASED),
        ("in_doubt: [404]", 404, DOUBT),
        ("in_doubt: [200]", 200, DOUBT),
        ("not_executed_if: 'refused'", 200, RELEASED),
        ("not_executed_if: 'refused'", 500, RELEASED),
        ("not_executed_if: 'absent'", 200, KEPT),
        ("not_executed_if: 'text'", 200, KEPT),
    ],
)
async def test_outcomes_by_the_rule(tmp_path: Path, words: str, status: int, outcome: str) -> None:
    """The rule's own words come before the table; an expression counts only if it is true."""
    await check_outcome(
        tmp_path, f"[{{name: r, match: {{path: /x}}, outcome: {{{words}}}}}]", status, outcome
    )


async def check_outcome(tmp_path: Path, rules: str, status: int, outcome: str) -> None:
    body = b"" if status == 204 else b'{"refused": true, "text": "true"}'
    said = answer(status, body) if status != 204 else b"HTTP/1.1 204 No Content\r\n\r\n"
    async with place(tmp_path, rules, (*READ_ALL, said), (*READ_ALL, answer(200, b"second"))) as there:
        first, second = await there.post(), await there.post()
        if outcome == DOUBT:
            for got in (first, second):
                assert (got.status, problem(got)) == (409, "in-doubt")
                assert json.loads(got.body)["upstream_status"] == status
                assert got.get("x-should-retry") == "false"
            assert there.origin.started == 1
            return
        assert (first.status, first.body, first.semel) == (status, body, "executed")
        if outcome == KEPT:
            assert (second.status, second.body, second.semel) == (status, body, "replayed")
            assert first.get("Cache-Status") == "semel; fwd=miss; stored"
            assert there.origin.started == 1
        else:
            assert (second.status, second.body, second.semel) == (200, b"second", "executed")
            assert first.get("Cache-Status") == "semel; fwd=miss"
            assert there.origin.started == 2


@pytest.mark.parametrize(
    ("status", "kept"), [(200, True), (404, False), (500, False), (429, False), (302, False)]
)
async def test_of_a_safe_call_only_a_complete_2xx_is_kept(tmp_path: Path, status: int, kept: bool) -> None:
    """Anything else is handed on and asked again."""
    rules = "[{name: r, match: {path: /x}, safe: true, repeat: same}]"
    async with place(
        tmp_path, rules, (*READ_ALL, answer(status, b"one")), (*READ_ALL, answer(200, b"two"))
    ) as there:
        first, second = await there.post(), await there.post()
        assert (first.status, first.body) == (status, b"one")
        assert (second.semel, second.body) == (("replayed", b"one") if kept else ("executed", b"two"))


async def test_a_head_and_a_get_are_two_calls(tmp_path: Path) -> None:
    """A recorded HEAD never answers a GET."""
    rules = "[{name: r, match: {path: /x}, mode: cache}]"
    head_answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
    async with place(tmp_path, rules, (*READ_ALL, head_answer), (*READ_ALL, answer(200, b"body"))) as there:
        first = await raw_call(there.port, b"HEAD /up/x HTTP/1.1\r\nHost: s\r\n\r\n", is_head=True)
        assert (first.get("Content-Length"), first.body) == ("4", b"")
        got = await raw_call(there.port, b"GET /up/x HTTP/1.1\r\nHost: s\r\n\r\n")
        assert (got.semel, got.body) == ("executed", b"body")
        again = await raw_call(there.port, b"HEAD /up/x HTTP/1.1\r\nHost: s\r\n\r\n", is_head=True)
        assert (again.semel, again.get("Content-Length")) == ("replayed", "4")
