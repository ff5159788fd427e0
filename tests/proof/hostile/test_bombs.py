"""Bodies that are small until they are decoded, sent to and answered through a real process: it stays small.

What each place that decodes does with them is in tests/http/test_bombs.py; here all of them come together,
several at a time, and the kernel says what the process took at its highest.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import Counter
from itertools import product
from pathlib import Path

import brotli

from tests.counts import count
from tests.http.test_bombs import CODERS
from tests.inside import call
from tests.origin import READ_ALL, answer
from tests.proof.hostile.scene import MIB, Scene, accounted, hostile_scene
from tests.proof.report import Figure

# What is read of an answer: its meaning and its price.
RULES = """
rules:
  - name: read
    match: {path: /read}
    outcome: {not_executed_if: "failed"}
    cost: {usd_from: "usage.total"}
"""
# Over what is ever decoded of a request or an answer.
SIZE = count(test=80, soak=256) * MIB
NESTED = (
    ("gzip",),
    ("br", "zstd"),
    ("deflate",),
    ("br",),
    ("zstd",),
    ("gzip", "gzip"),
    ("zstd", "gzip", "br"),
)
AT_ONCE = count(test=2, soak=4)
KINDS = ("application/json", "text/event-stream")


def _long(coding: str) -> bytes:
    """Made piece by piece, so that the test itself stays small."""
    piece = b" " * MIB
    if coding == "br":
        packer = brotli.Compressor(quality=1)
        parts: list[bytes] = [*(packer.process(piece) for _ in range(SIZE // MIB)), packer.finish()]
        return b"".join(parts)
    if coding == "zstd":
        return CODERS["zstd"](piece) * (SIZE // MIB)  # a frame each
    packed = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | (16 if coding == "gzip" else 0))
    return b"".join([packed.compress(piece) for _ in range(SIZE // MIB)]) + packed.flush()


def _bomb(codings: tuple[str, ...]) -> bytes:
    body = _long(codings[0])
    for coding in codings[1:]:
        body = CODERS[coding](body)
    return body


async def test_bombs_leave_the_process_small(tmp_path: Path) -> None:
    """In requests and in answers, of every coding, nested and alone; for callers who accept it and who do
    not."""
    bombs = {codings: _bomb(codings) for codings in NESTED[: count(test=2, soak=len(NESTED))]}
    assert all(len(body) * 900 < SIZE for body in bombs.values())
    done = Counter[str]()

    def counted() -> dict[str, Figure]:
        return {
            "requests": done["requests"],
            "answers": done["answers"],
            "decoded MB": SIZE // MIB,
        }

    async with hostile_scene(tmp_path, rules=RULES) as there, accounted(there, "bombs", counted):
        for codings, body in bombs.items():
            coding = ", ".join(codings)
            sent = {"Content-Encoding": coding, "Content-Type": "application/json"}
            got = await asyncio.gather(
                *(call(there.port, "POST", f"/pay/{n}", sent, body, within=60) for n in range(AT_ONCE))
            )
            assert [one.status for one in got] == [200] * AT_ONCE, coding
            done["requests"] += len(got)
        for codings, kind in product(bombs, KINDS):
            await _answered(there, ", ".join(codings), kind, bombs[codings])
            done["answers"] += 1


async def _answered(there: Scene, coding: str, kind: str, body: bytes) -> None:
    """Handed on as it is; whoever asks again and does not take it is told so, or is given it decoded."""
    headers = ((b"Content-Encoding", coding.encode()), (b"Content-Type", kind.encode()))
    there.origin.then((*READ_ALL, answer(200, body, *headers)))
    asked = f"{coding} {kind}".encode()
    first = await call(there.port, "POST", "/pay/read", {"Accept-Encoding": coding}, asked, within=60)
    assert (first.status, first.semel, first.body == body) == (200, "executed", True), (coding, kind)
    others = await asyncio.gather(
        *(call(there.port, "POST", "/pay/read", {}, asked, within=60) for _ in range(AT_ONCE))
    )
    for other in others:
        assert (other.status, json.loads(other.body)["type"]) == (410, "urn:semel:answer-unavailable")
