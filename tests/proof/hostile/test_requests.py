"""Every hostile request: one outcome, however it is cut; nothing smuggled; semel alive and quiet after it.

Behind each comes an innocent request on the same connection. As many answers come back as the corpus says,
each the answer to its own request, and the upstream sees what was executed and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.counts import SOAK, count
from tests.inside import until
from tests.proof.hostile.corpus import CHUNKED, ORIGIN, SEMEL, Hostile, chunks, head
from tests.proof.hostile.playing import Played, byte_by_byte, innocent, line_to, pieces, play, seeded
from tests.proof.hostile.reference import readings
from tests.proof.hostile.requests import REQUESTS
from tests.proof.hostile.scene import Scene, accounted, hostile_scene
from tests.proof.report import Figure

# Longer entries are about their length, and cut at random only.
SHORT = 1000
WAYS = ["base URL", "CONNECT"]


def cuttings(data: bytes, dice: Random, *, everywhere: bool) -> Iterator[list[bytes]]:
    """Whole; at random places; in a soak also byte by byte, and at every place once."""
    yield [data]
    for _ in range(count(test=1, soak=6)):
        yield pieces(data, dice, 3)
    if SOAK and everywhere and len(data) < SHORT:
        yield byte_by_byte(data)
        for at in range(1, len(data)):
            yield [data[:at], data[at:]]


@pytest.mark.parametrize("way", WAYS)
async def test_every_hostile_request_has_one_outcome(tmp_path: Path, way: str) -> None:
    """On the base URL and inside of a CONNECT; several at a time, as they come."""
    dice, executed = seeded(), Counter[bytes]()
    tried: list[tuple[str, list[bytes]]] = []
    wrong: list[str] = []

    def counted() -> dict[str, Figure]:
        return {
            "requests": len({name for name, _ in tried}),
            "slicings": sum(len(cut) > 1 for _, cut in tried),
            "desynchronised": len(wrong),
        }

    row = "corpus" if way == WAYS[0] else f"corpus through {way}"
    async with hostile_scene(tmp_path) as there, accounted(there, row, counted):
        before = Counter(one.asked for one in there.origin.requests)
        origin, own = b"127.0.0.1:%d" % there.origin.port, b"127.0.0.1:%d" % there.port
        entries = {name: one for name, one in REQUESTS.items() if way == WAYS[0] or one.anywhere}
        waiting = [
            (name, cut)
            for name, one in entries.items()
            for cut in cuttings(
                one.raw.replace(ORIGIN, origin).replace(SEMEL, own),
                dice,
                everywhere=one.answers != (413,),  # whose rest is waited for, two seconds each
            )
        ]
        dice.shuffle(waiting)

        async def caller() -> None:
            while waiting and there.semel.alive:
                name, cut = waiting.pop()
                tried.append((name, cut))
                request, marked = innocent()
                parts = [*cut[:-1], cut[-1] + request]
                try:
                    played = await play(
                        there.port, parts, marked, connect=origin if way == "CONNECT" else b""
                    )
                except (OSError, AssertionError) as error:  # no answer in time, or no tunnel
                    told = repr(error)
                else:
                    executed.update(got.body for got in played.answers if got.semel in ("executed", "passed"))
                    told = _wrong(entries[name], played, marked, way)
                if told:
                    wrong.append(f"{name} in {[len(part) for part in cut]}: {told}")

        await asyncio.gather(*(caller() for _ in range(8)))
        upstream = Counter(one.asked for one in there.origin.requests) - before
        wrong += [f"upstream, and nobody's: {asked!r}" for asked in (upstream - executed).elements()]
        wrong += [f"answered, and not upstream: {asked!r}" for asked in (executed - upstream).elements()]
        wrong += [f"smuggled: {one.asked!r}" for one in there.origin.requests if b"smuggled" in one.head]
        assert wrong == [], "\n".join(wrong)


def _wrong(entry: Hostile, played: Played, marked: bytes, way: str) -> str:
    """What is not as the corpus has it; empty if all is."""
    prefix = b" /pay/" if way == "CONNECT" else b" /"
    sent = tuple(asked.replace(b" /", prefix, 1) for asked in entry.sent)
    own = [got for got in played.answers if not got.body.endswith(marked)]
    statuses = tuple(got.status for got in own)
    sends = [got for got in played.answers if got.status == 200]
    if played.rest:
        return f"no answer: {played.rest[:200]!r}"
    if entry.instead and statuses == (entry.instead,):
        return "" if played.ended and not sends else f"more than a refusal: {played}"
    if statuses != entry.answers:
        return f"answered {statuses}, not {entry.answers}"
    if tuple(got.body for got in own if got.status == 200) != sent:
        return f"answers of other requests: {own}"
    if len(played.answers) != len(own) + (not played.ended):
        return f"too many answers: {played.answers}"
    return "" if entry.closes in (None, played.ended) else f"ended: {played.ended}"


def test_the_corpus_is_what_it_says() -> None:
    """Enough of them, no two alike; each says why, and a strict reader finds in it what semel is to send."""
    assert len(REQUESTS) >= 120
    assert len({entry.raw for entry in REQUESTS.values()}) == len(REQUESTS)
    for name, entry in REQUESTS.items():
        assert entry.why, name
        found = [
            b"%b %b|%b" % (one.method, one.target.removeprefix(b"/pay"), one.body)
            for one in readings(entry.raw)
        ]
        assert len(entry.answers) <= len(found) + 1, name
        if entry.sent and entry.anywhere:
            assert tuple(found) == entry.sent, name


LENGTH = head(b"Content-Length: 10", body=b"0123456789")
IN_CHUNKS = head(CHUNKED, body=chunks(b"01234", b"56789"))
WAITING = head(b"Expect: 100-continue", b"Content-Length: 4", body=b"body")


async def test_a_request_that_is_cut_short_was_not_made(tmp_path: Path) -> None:
    """The client ends, or breaks off, at any byte before the last: nothing goes upstream."""
    dice = seeded()
    async with hostile_scene(tmp_path) as there:
        before = there.origin.started
        for whole in (LENGTH, IN_CHUNKS, WAITING):
            places = range(1, len(whole))
            for at in sorted(dice.sample(places, count(test=12, soak=len(places)))):
                async with line_to(there.port) as line:
                    await line.send([whole[:at]])
                    if at % 2:  # every other one goes without a word
                        line.finish()
                        await line.ended.wait()
                        told = bytes(line.got).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
                        assert told == b"" or told.startswith(b"HTTP/1.1 400 "), (whole[:at], told)
        assert there.origin.started == before
        await until(lambda: _accepted(there) == 0)  # all that were left are let go
        await there.still_works()


def _accepted(there: Scene) -> int:
    """Connections that the kernel has at semel's own port."""
    port = f":{there.port:04X}"
    lines = Path(f"/proc/{there.semel.pid}/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(port) and line.split()[3] == "01" for line in lines)
