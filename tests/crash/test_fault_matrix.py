"""SIGKILL at every fault point: what the next caller gets, what the upstream saw, what the record says.

The table below is section "what each fault does" of the semantics, its three rows about a dying proxy: one
line per passage of a fault point, with the state that the dead process must have left behind (which also
proves that the passage was the one meant) and what came of it for every kind of call.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from proxy.faults import Point
from tests import ambient
from tests.crash.scene import KINDS, Kind, ask, policy, states, states_left, told, write_policy
from tests.inside import semel
from tests.origin import READ_ALL, Origin, Script, Wait, answer
from tests.process import SemelProcess, kill_at

pytestmark = pytest.mark.usefixtures("any_store")

LARGE = 100_000  # over limits.inline_body: goes to a blob


class Row(StrEnum):
    NO_INTENT = "before-the-intent-is-durable"
    NO_RESULT = "after-the-intent-before-the-result"
    NO_REPLY = "after-the-result-before-the-reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One passage of one point. `sent`: how many requests the upstream has seen when the process dies."""

    row: Row
    point: Point
    sent: int
    note: str = ""
    after: int = 0
    request: int = 0  # the size of the body, where it matters
    answer: int = 0
    streamed: bool = False  # the answer's second half comes only when the process is dead
    kinds: tuple[Kind, ...] = KINDS

    @property
    def id(self) -> str:
        return f"{self.row}-{self.point}{'-' if self.note else ''}{self.note}"


# An answer of a cache rule goes to the shared cache and never to a blob.
RECORDED = (Kind.A, Kind.D)

PASSAGES = (
    Passage(row=Row.NO_INTENT, point=Point.BEFORE_CLAIM, sent=0),
    Passage(row=Row.NO_INTENT, point=Point.BLOB_WRITTEN, sent=0, note="of-the-request", request=LARGE),
    Passage(row=Row.NO_INTENT, point=Point.BLOB_RENAMED, sent=0, note="of-the-request", request=LARGE),
    Passage(row=Row.NO_INTENT, point=Point.COMMIT_BEGUN, sent=0, note="of-the-claim"),
    Passage(row=Row.NO_RESULT, point=Point.COMMITTED, sent=0, note="of-the-claim"),
    Passage(row=Row.NO_RESULT, point=Point.CLAIMED, sent=0),
    Passage(row=Row.NO_RESULT, point=Point.BEFORE_FIRST_BYTE, sent=0),
    Passage(row=Row.NO_RESULT, point=Point.REQUEST_SENT, sent=1),
    Passage(row=Row.NO_RESULT, point=Point.REQUEST_SENT, sent=1, note="large", request=LARGE),
    Passage(row=Row.NO_RESULT, point=Point.ANSWER_HEAD, sent=1),
    Passage(row=Row.NO_RESULT, point=Point.REPLY_STARTED, sent=1, note="streamed", answer=10, streamed=True),
    Passage(row=Row.NO_RESULT, point=Point.ANSWER_COMPLETE, sent=1),
    Passage(
        row=Row.NO_RESULT,
        point=Point.BLOB_WRITTEN,
        sent=1,
        note="of-the-answer",
        answer=LARGE,
        kinds=RECORDED,
    ),
    Passage(
        row=Row.NO_RESULT,
        point=Point.BLOB_RENAMED,
        sent=1,
        note="of-the-answer",
        answer=LARGE,
        kinds=RECORDED,
    ),
    Passage(row=Row.NO_RESULT, point=Point.COMMIT_BEGUN, sent=1, note="of-the-settlement", after=1),
    Passage(row=Row.NO_REPLY, point=Point.COMMITTED, sent=1, note="of-the-settlement", after=1),
    Passage(row=Row.NO_REPLY, point=Point.COMMITTED, sent=1, note="with-a-blob", after=1, answer=LARGE),
    Passage(row=Row.NO_REPLY, point=Point.SETTLED, sent=1),
    Passage(row=Row.NO_REPLY, point=Point.REPLY_STARTED, sent=1),
    Passage(row=Row.NO_REPLY, point=Point.REPLY_ENDED, sent=1),
)
CELLS = [
    pytest.param(passage, kind, id=f"{passage.id}-kind-{kind}")
    for passage in PASSAGES
    for kind in passage.kinds
]

LEFT_ON_DISK = {Row.NO_INTENT: [], Row.NO_RESULT: ["pending"], Row.NO_REPLY: ["done"]}


@dataclass(frozen=True, slots=True)
class Cell:
    """What the call made again gets, how often the upstream is called then, and the state in the end."""

    second: str
    sends_again: int
    third: str
    state: str


RUN = Cell("executed 200", 1, "replayed 200", "done")
DOUBT = Cell("in-doubt 409", 0, "in-doubt 409", "in_doubt")
REPLAY = Cell("replayed 200", 0, "replayed 200", "done")
EXPECTED: dict[tuple[Row, bool], Cell] = {
    (Row.NO_INTENT, True): RUN,
    (Row.NO_INTENT, False): RUN,
    (Row.NO_RESULT, True): RUN,
    (Row.NO_RESULT, False): DOUBT,
    (Row.NO_REPLY, True): REPLAY,
    (Row.NO_REPLY, False): REPLAY,
}


# Not on the way of any call: test_collecting_killed.py.
OF_COLLECTING = {Point.CALLS_COLLECTED, Point.BLOB_COLLECTED}


def test_every_fault_point_is_in_the_table() -> None:
    """A point that is added to the code must be added here."""
    assert {passage.point for passage in PASSAGES} == set(Point) - OF_COLLECTING


def test_every_row_and_kind_has_an_expectation() -> None:
    """And no two cells have one name."""
    assert {row for row, _ in EXPECTED} == set(Row)
    assert len({str(cell.id) for cell in CELLS}) == len(CELLS)


@pytest.mark.parametrize(("passage", "kind"), CELLS)
async def test_killed_at(passage: Passage, kind: Kind, tmp_path: Path) -> None:
    """Die there, start again on the same state, make the identical call twice more."""
    cell = EXPECTED[passage.row, kind.safe]
    body = b'{"n": "%b"}' % (b"r" * passage.request)
    words = b"w" * (passage.answer or 2)
    dead = asyncio.Event()
    async with Origin(
        _script(words, dead, streamed=passage.streamed), (*READ_ALL, answer(200, words))
    ) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        state = tmp_path / "state"
        async with SemelProcess(state, policies, kill_at(passage.point, passage.after)) as doomed:
            first = await ask(doomed.port, kind, body)
            assert await doomed.died() == -signal.SIGKILL
        dead.set()
        # The last bytes may or may not have left before a death after the end.
        assert not first.complete or (passage.point is Point.REPLY_ENDED and first.body == words)
        assert await states_left(state) == LEFT_ON_DISK[passage.row]

        async with semel(tmp_path, policy(origin.port)) as app:
            assert origin.started == passage.sent
            if (
                ambient.store() == ambient.EMBEDDED
            ):  # which knows at once who is dead; others find out when asked
                assert "pending" not in await states(app)
            second = await ask(app.address.port, kind, body)
            assert told(second) == cell.second
            assert origin.started == passage.sent + cell.sends_again
            third = await ask(app.address.port, kind, body)
            assert told(third) == cell.third
            assert await states(app) == [cell.state]
        assert origin.started == passage.sent + cell.sends_again
        assert kind.safe or origin.started <= 1
    assert second.body == third.body
    if cell.state == "done":
        assert third.body == words


@pytest.mark.parametrize("point", [Point.COMMIT_BEGUN, Point.COMMITTED])
@pytest.mark.parametrize("kind", [Kind.A, Kind.D])
async def test_killed_again_while_recovering(kind: Kind, point: Point, tmp_path: Path) -> None:
    """The first commit of the next start is the recovery's: dying there too changes nothing."""
    cell = EXPECTED[Row.NO_RESULT, kind.safe]
    async with Origin() as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        state = tmp_path / "state"
        async with SemelProcess(state, policies, kill_at(Point.REQUEST_SENT)) as doomed:
            await ask(doomed.port, kind)
            assert await doomed.died() == -signal.SIGKILL
        recovering = SemelProcess(state, policies, kill_at(point))
        try:
            with contextlib.suppress(RuntimeError):  # it may die before it is ready
                await recovering.__aenter__()
            assert await recovering.died() == -signal.SIGKILL
        finally:
            await recovering.kill()
        left = "pending" if point is Point.COMMIT_BEGUN else ("released" if kind.safe else "in_doubt")
        assert await states_left(state) == [left]
        async with semel(tmp_path, policy(origin.port)) as app:
            assert told(await ask(app.address.port, kind)) == cell.second
            assert told(await ask(app.address.port, kind)) == cell.third
            assert await states(app) == [cell.state]
        assert origin.started == 1 + cell.sends_again


def _script(words: bytes, dead: asyncio.Event, *, streamed: bool) -> Script:
    whole = answer(200, words)
    if not streamed:
        return (*READ_ALL, whole)
    half = len(words) // 2
    return (*READ_ALL, whole[:-half], Wait(dead), whole[-half:])
