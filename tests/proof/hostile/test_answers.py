"""Every hostile answer: the caller has one or none, the call is done or in doubt, and is never sent twice.

Asked again it is what it was. The next call, on the caller's side behind it on the same connection, gets its
own answer, whatever the upstream had left on its.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from proxy.upstream.answer import AnswerReader, Head
from tests.counts import SOAK, count
from tests.inside import Answer, call, until
from tests.origin import READ_ALL, Close, Wait
from tests.proof.hostile.answers import ANSWERS, HostileAnswer
from tests.proof.hostile.playing import Got, byte_by_byte, innocent, pieces, play, seeded
from tests.proof.hostile.scene import Scene, accounted, hostile_scene
from tests.proof.report import Figure

RULES = "rules: [{name: safe, match: {path: /safe}, safe: true, repeat: same}]\n"


# What may be wrong with one, as the report has it.
ANSWERED_TWICE, SENT_TWICE, OTHERWISE = KINDS = ("answered twice", "sent twice", "otherwise wrong")
Wrong: TypeAlias = Iterable[tuple[str, bool, object]]  # kind, whether it is so, and what was seen


async def test_every_hostile_answer_is_one_answer_or_doubt(tmp_path: Path) -> None:
    """Of a call with effects, and of one that may be made again."""
    tried: list[str] = []
    wrong: list[tuple[str, str, object]] = []

    def counted() -> dict[str, Figure]:
        found = Counter(kind for kind, _, _ in wrong)
        return {"answers": len(tried), **{kind: found[kind] for kind in KINDS}}

    async with hostile_scene(tmp_path, rules=RULES) as there, accounted(there, "answers", counted):
        for name, hostile in ANSWERS.items():
            tried.append(name)
            for made in (_with_effects, _safe):
                try:
                    found = await made(there, name, hostile)
                except OSError as error:  # a timeout is one
                    found = [(OTHERWISE, True, repr(error))]
                wrong += [(kind, name, seen) for kind, is_so, seen in found if is_so]
            await there.still_works()
        assert wrong == []


async def _with_effects(there: Scene, name: str, hostile: HostileAnswer) -> Wrong:
    body = b"effects of " + name.encode()
    raw = b"POST /pay/answered HTTP/1.1\r\nHost: semel\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    before, later = there.origin.started, asyncio.Event()
    there.origin.then(
        (*READ_ALL, hostile.raw, *((Wait(later), hostile.late) if hostile.late else ()), *_end(hostile))
    )
    late_body: bytes | None = None
    if hostile.late:  # the innocent one comes when it is there
        late_body = (await call(there.port, "POST", "/pay/answered", {}, body)).body
        served = [one for one in there.origin.visitors for seen in one.requests if seen.body == body]
        later.set()
        await until(lambda: all(one.gone.is_set() for one in served))  # nobody asks on that connection again
    behind, marked = innocent()
    played = await play(there.port, [raw + behind], marked)
    own = [got for got in played.answers if not got.body.endswith(marked)]
    innocents = len(played.answers) - len(own)
    again = await call(there.port, "POST", "/pay/answered", {}, body)
    sends = there.origin.started - before - innocents
    return [
        (ANSWERED_TWICE, len(own) > 1 or innocents > 1, played),
        (SENT_TWICE, sends > 1, sends),
        (OTHERWISE, sends < 1, "not sent"),
        (OTHERWISE, bool(hostile.late) and late_body != hostile.body, late_body),
        (OTHERWISE, innocents != (not played.ended), played),
        (OTHERWISE, not _is_right(hostile, own, ended=played.ended), played),
        (OTHERWISE, not _is_the_same_again(hostile, again), again),
    ]


def _is_right(hostile: HostileAnswer, own: list[Got], *, ended: bool) -> bool:
    if hostile.body is not None:
        return [(got.status // 100, got.body) for got in own] == [(2, hostile.body)]
    # In doubt, or broken off where a part was handed on already.
    return [_kind(got) for got in own] == ["in doubt"] or (own == [] and ended)


def _is_the_same_again(hostile: HostileAnswer, again: Answer) -> bool:
    if hostile.body is None:
        return again.status == 409 and b"in-doubt" in again.body
    return (again.semel, again.body) == ("replayed", hostile.body)


def _kind(got: Got) -> str:
    return "in doubt" if got.status == 409 and b"urn:semel:in-doubt" in got.body else f"{got.status}"


async def _safe(there: Scene, name: str, hostile: HostileAnswer) -> Wrong:
    """One more send at most where the first came to nothing, and that is answered by an upstream in its
    senses."""
    before = there.origin.started
    there.origin.then((*READ_ALL, hostile.raw, *_end(hostile)))
    body = b"a safe one: " + name.encode()
    got = await call(there.port, "POST", "/pay/safe", {}, body)
    sends = there.origin.started - before
    if hostile.body is not None:
        is_right = got.body == hostile.body
    else:
        is_right = not got.complete or sends == 1 or got.body == b"POST /safe|" + body
    return [
        (SENT_TWICE, sends > (1 if hostile.body is not None else 2), sends),
        (OTHERWISE, sends < 1, "not sent"),
        (OTHERWISE, not is_right, got),
    ]


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


def test_an_answer_is_read_alike_whatever_came_before_it() -> None:
    """Heads that were remembered change nothing: neither of the same answer, nor of any other."""
    dice, known = seeded(), dict[bytes, Head]()
    for _ in range(count(test=5, soak=500)):
        for name in dice.sample(list(ANSWERS), len(ANSWERS)):
            hostile = ANSWERS[name]
            expected = _read([hostile.raw])
            assert _read([hostile.raw], known) == expected, name
            for end in (b"x", hostile.raw[-30:]):
                assert _read([hostile.raw + end], known) == _read([hostile.raw + end]), name
            for cut in (pieces(hostile.raw, dice, 4), [hostile.raw[:-1]]):
                assert _read(cut, known) == _read(cut), (name, cut)
    assert known


def _read(parts: list[bytes], known: dict[bytes, Head] | None = None) -> tuple[bool, bytes, bool]:
    """Whether it is one, its body, and whether the connection is good for another."""
    reader = AnswerReader(head_only=False, max_header_bytes=64 * 1024, known=known)
    for part in parts:
        if reader.problem:
            break
        reader.feed(part)
    return reader.complete, b"".join(reader.parts) if reader.complete else b"", reader.reusable


def test_there_are_enough_of_them() -> None:
    """And each says why."""
    assert len(ANSWERS) >= 25
    assert all(one.why for one in ANSWERS.values())
