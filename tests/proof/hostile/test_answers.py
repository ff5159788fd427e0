"""Every hostile answer: the caller has one or none, the call is done or in doubt, and is never sent twice.

Asked again it is what it was. The next call, on the caller's side behind it on the same connection, gets its
own answer, whatever the upstream had left on its.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from proxy.upstream.answer import AnswerReader
from tests.counts import SOAK, count
from tests.inside import call, until
from tests.origin import READ_ALL, Close, Wait
from tests.proof.hostile.answers import ANSWERS, HostileAnswer
from tests.proof.hostile.playing import Got, byte_by_byte, innocent, pieces, play, seeded
from tests.proof.hostile.scene import GROWTH, MIB, Scene, hostile_scene
from tests.proof.report import report

RULES = "rules: [{name: safe, match: {path: /safe}, safe: true, repeat: same}]\n"


async def test_every_hostile_answer_is_one_answer_or_doubt(tmp_path: Path) -> None:
    """Of a call with effects, and of one that may be made again."""
    async with hostile_scene(tmp_path, rules=RULES) as there:
        for name, hostile in ANSWERS.items():
            await _with_effects(there, name, hostile)
            await _safe(there, name, hostile)
        await there.still_works()
        assert there.growth() < GROWTH
        figures = {"answers": len(ANSWERS), "answered twice": 0, "sent twice": 0}
        report("hostile", "answers", {**figures, "peak memory growth MB": there.growth() // MIB})


async def _with_effects(there: Scene, name: str, hostile: HostileAnswer) -> None:
    body = b"effects of " + name.encode()
    raw = b"POST /pay/answered HTTP/1.1\r\nHost: semel\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    before, later = there.origin.started, asyncio.Event()
    there.origin.then(
        (*READ_ALL, hostile.raw, *((Wait(later), hostile.late) if hostile.late else ()), *_end(hostile))
    )
    if hostile.late:  # the innocent one comes when it is there
        first = await call(there.port, "POST", "/pay/answered", {}, body)
        assert first.body == hostile.body
        (served,) = (one for one in there.origin.visitors for seen in one.requests if seen.body == body)
        later.set()
        await until(served.gone.is_set)  # nobody asks on that connection again
    behind, marked = innocent()
    played = await play(there.port, [raw + behind], marked)
    assert len(played.answers) <= 2, (name, played)
    own = [got for got in played.answers if not got.body.endswith(marked)]
    assert len(played.answers) - len(own) == (not played.ended), (name, played)
    if hostile.body is not None:
        assert [(got.status // 100, got.body) for got in own] == [(2, hostile.body)], (name, played)
    else:  # in doubt, or broken off where a part was handed on already
        assert [_kind(got) for got in own] in (["in doubt"], []), (name, played)
        assert own or played.ended, (name, played)
    again = await call(there.port, "POST", "/pay/answered", {}, body)
    if hostile.body is None:
        assert (again.status, b"in-doubt" in again.body) == (409, True), name
    else:
        assert (again.semel, again.body) == ("replayed", hostile.body), name
    innocents = len(played.answers) - len(own)
    assert there.origin.started - before == 1 + innocents, name
    await there.still_works()


def _kind(got: Got) -> str:
    return "in doubt" if got.status == 409 and b"urn:semel:in-doubt" in got.body else f"{got.status}"


async def _safe(there: Scene, name: str, hostile: HostileAnswer) -> None:
    """One more send at most, and that is answered by an upstream in its senses."""
    before = there.origin.started
    there.origin.then((*READ_ALL, hostile.raw, *_end(hostile)))
    body = b"a safe one: " + name.encode()
    got = await call(there.port, "POST", "/pay/safe", {}, body)
    sends = there.origin.started - before
    assert sends <= 2, name
    if hostile.body is None and got.complete:
        assert sends == 1 or got.body == b"POST /safe|" + body, (name, got)
    elif hostile.body is not None:
        assert (sends, got.body) == (1, hostile.body), (name, got)


def _end(hostile: HostileAnswer) -> tuple[Close, ...]:
    return (Close(),) if hostile.closes else ()


def cuttings(raw: bytes) -> Iterator[list[bytes]]:
    dice = seeded()
    for _ in range(count(test=3, soak=200)):
        yield pieces(raw, dice, 4)
    if len(raw) < 1000:
        yield byte_by_byte(raw)
    if SOAK and len(raw) < 1000:
        yield from ([raw[:at], raw[at:]] for at in range(1, len(raw)))


def test_an_answer_is_read_alike_however_it_is_cut() -> None:
    """What it is, and whether there can be another on that connection."""
    for name, hostile in ANSWERS.items():
        expected = _read([hostile.raw])
        assert expected[0] == (hostile.body is not None), name
        for cut in cuttings(hostile.raw) if len(hostile.raw) > 1 else ():
            assert _read(cut) == expected, (name, cut)


def _read(parts: list[bytes]) -> tuple[bool, bytes, bool]:
    """Whether it is one, its body, and whether the connection is good for another."""
    reader = AnswerReader(head_only=False, max_header_bytes=64 * 1024)
    for part in parts:
        if reader.problem:
            break
        reader.feed(part)
    return reader.complete, b"".join(reader.parts) if reader.complete else b"", reader.reusable


def test_there_are_enough_of_them() -> None:
    """And each says why."""
    assert len(ANSWERS) >= 25
    assert all(one.why for one in ANSWERS.values())
