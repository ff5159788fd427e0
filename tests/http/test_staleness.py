"""Staleness over the wire: the headers, the problem, the metric; and that a run's record stands."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from tests.http.numbered import place, problem
from tests.inside import Answer, call, raw_call, request_bytes
from tests.origin import READ_ALL, answer

pytestmark = pytest.mark.usefixtures("some_store")


def rules(stale: str, max_age: str = "1ms") -> str:
    rule = f"name: r, match: {{path: /r}}, mode: cache, max_age: {max_age}, stale: {stale}"
    return f"[{{{rule}}}]"


async def aged(port: int, headers: dict[str, str] | None = None) -> Answer:
    await asyncio.sleep(0.01)  # ten times its age: nothing else makes an answer old
    return await call(port, "GET", "/up/r", headers)


async def test_refused(tmp_path: Path) -> None:
    """With what to do about it; a retry does not mend it."""
    async with place(tmp_path, rules("refuse")) as there:
        assert (await aged(there.port)).semel == "executed"
        got = await aged(there.port)
        assert (got.status, problem(got)) == (409, "stale")
        assert got.get("x-should-retry") == "false"
        assert "Semel-Refresh" in json.loads(got.body)["detail"]
        assert (await aged(there.port, {"Semel-Refresh": "1"})).body == b"answer 2"
        assert len(there.origin.requests) == 2


async def test_revalidated(tmp_path: Path) -> None:
    """That it differs is said to the caller, and counted."""
    scripts = [(*READ_ALL, answer(200, body)) for body in (b"1", b"1", b"2")]
    async with place(tmp_path, rules("revalidate"), *scripts) as there:
        first, same, other = [await aged(there.port) for _ in scripts]
        assert [one.get("Semel-Drift") for one in (first, same, other)] == [None, None, "1"]
        assert [one.semel for one in (first, same, other)] == ["executed"] * 3
        assert same.get("Cache-Status") == "semel; fwd=stale; stored"
        host = f"127.0.0.1:{there.port}"
        metrics = await raw_call(there.port, request_bytes("GET", "/metrics", host=host))
        assert b'semel_drifts_total{rule="r",upstream="up"} 1.0' in metrics.body


async def test_another_encoding_is_not_another_answer(tmp_path: Path) -> None:
    """What it says counts, not how it was packed on the way."""
    packed = answer(200, gzip.compress(b"the same" * 50), (b"Content-Encoding", b"gzip"))
    scripts = [(*READ_ALL, answer(200, b"the same" * 50)), (*READ_ALL, packed)]
    async with place(tmp_path, rules("revalidate"), *scripts) as there:
        await aged(there.port)
        assert (await aged(there.port)).get("Semel-Drift") is None


async def test_in_a_run_the_record_stands(tmp_path: Path) -> None:
    """However old; its age is shown. A new ask of the run is filled from what is fresh, else live."""
    async with place(tmp_path, rules("refuse")) as there:
        await aged(there.port)

        async def ask(attempt: str) -> Answer:
            return await aged(there.port, {"Semel-Run": "r", "Semel-Attempt": attempt})

        assert (await ask("a")).body == b"answer 2"
        again = await ask("b")
        assert (again.semel, again.body) == ("replayed", b"answer 2")
        assert again.get("Age") is not None
        assert again.get("Semel-Drift") is None
