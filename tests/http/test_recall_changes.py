"""Replays from memory: whoever changes a settled call, nobody is given its answer after that."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from proxy.admin.decision import Decision
from proxy.answers import Produced
from proxy.core.intent import Answer as Recorded
from proxy.core.intent import Call
from tests import ambient
from tests.counts import count
from tests.http.recalled import BODY, JSON, Place, desk_on, forget, place, warmed
from tests.inside import read_answer, request_bytes, until
from tests.origin import READ_ALL, answer


@pytest.mark.parametrize("whose", ["this process", "another process"])
async def test_what_was_forgotten_is_never_given_again(tmp_path: Path, whose: str) -> None:
    """Callers ask without a pause while a person forgets the call, again and again. Whoever begins to ask
    after the word is durable gets a newer answer; nobody is given two answers in the wrong order."""
    rounds, seed = count(30, 1_000), random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    scripts = tuple((*READ_ALL, answer(200, b"%d" % n)) for n in range(1, rounds + 3))
    async with place(tmp_path, *scripts) as there:
        other = await ambient.opened(tmp_path / "state")
        desk = desk_on(there.app.store if whose == "this process" else other)
        request, least, over = request_bytes("POST", "/up/x", JSON, BODY), 1, False

        async def caller() -> int:
            asked, latest = 0, 0
            reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
            while not over:
                at_least = least  # durable before this request begins
                writer.write(request)
                got = await read_answer(reader)
                number = int(got.body)
                assert number >= max(at_least, latest), (
                    f"{number} was given, {at_least} was known, seed {seed}"
                )
                latest, asked = number, asked + 1
            writer.close()
            return asked

        call_id = str((await there.post()).get("Semel-Call"))
        callers = [asyncio.create_task(caller()) for _ in range(4)]
        try:
            for _ in range(rounds):
                wanted = there.given + 1 + chance.randrange(20)
                await until(partial(_reached, there, wanted, callers))
                await desk.forget(call_id, Decision(by="me", reason="a test"))
                least += 1
        finally:
            over = True
            asked = await asyncio.gather(*callers)
            await other.close()
        assert there.origin.started >= rounds
        assert there.given > rounds
        print(f"{sum(asked)} asked, {there.given} recalled, {rounds} forgotten")


def _reached(there: Place, wanted: int, callers: Sequence[asyncio.Task[int]]) -> bool:
    """Or somebody has failed."""
    return there.given >= wanted or any(task.done() for task in callers)


async def test_what_was_collected_is_never_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, whose clock is ahead."""
    async with place(tmp_path) as there:
        await warmed(there)
        other = await ambient.opened(tmp_path / "state")
        removed = await other.collect(time.time() + 10 * 86400)
        await other.close()
        assert removed.calls == 1
        assert (await there.post()).body == b"answer 2"
        assert there.given == 1


async def test_a_change_between_reading_and_learning_is_noticed(tmp_path: Path) -> None:
    """It is learned under the stamp that stood before its row was read, not under a later one."""
    async with place(tmp_path) as there:
        other = await ambient.opened(tmp_path / "state")
        assert there.recall is not None
        assert (await there.post()).body == b"answer 1"
        answers = there.recall._stands_while.__self__  # type: ignore[attr-defined]
        produce = answers.produce

        async def slowly(row: Call, answer: Recorded) -> Produced | None:
            answers.produce = produce
            produced: Produced | None = await produce(row, answer)
            await desk_on(other).forget(row.id, Decision(by="me", reason="a test"))
            return produced

        answers.produce = slowly
        assert [(await there.post()).body for _ in range(3)] == [b"answer 1", b"answer 2", b"answer 2"]
        await other.close()


async def test_a_change_while_the_row_is_read_is_noticed(tmp_path: Path) -> None:
    """The stamp is asked for before the row: what changes after that has another."""
    async with place(tmp_path) as there:
        other = await ambient.opened(tmp_path / "state")
        await there.post()
        store = there.app.store
        get = store.get

        async def slowly(key: bytes, known: Call | None = None) -> Call | None:
            store.get = get  # type: ignore[method-assign]
            row = await get(key, known)
            assert row is not None
            await desk_on(other).forget(row.id, Decision(by="me", reason="a test"))
            return row

        store.get = slowly  # type: ignore[method-assign]
        assert [(await there.post()).body for _ in range(3)] == [b"answer 1", b"answer 2", b"answer 2"]
        await other.close()


async def test_a_reload_between_deciding_and_learning_is_noticed(tmp_path: Path) -> None:
    """What was decided by the old policies is not learned under the new ones."""
    async with place(tmp_path) as there:
        assert there.recall is not None
        await there.post()
        answers = there.recall._stands_while.__self__  # type: ignore[attr-defined]
        produce, file = answers.produce, tmp_path / "policies" / "test.yaml"

        async def slowly(row: Call, answer: Recorded) -> Produced | None:
            answers.produce = produce
            file.write_text(file.read_text().replace("path: /x}", "path: /x}, mode: deny"))
            assert await there.app.watch.check_now()
            produced: Produced | None = await produce(row, answer)
            return produced

        answers.produce = slowly
        assert [(await there.post()).status for _ in range(2)] == [200, 403]
        assert there.given == 0


async def test_what_no_longer_holds_is_let_go(tmp_path: Path) -> None:
    """Neither a forgotten answer nor old policies stay in memory; what was known is known again at once."""
    async with place(tmp_path) as there:
        got = await warmed(there)
        assert there.recall is not None
        (known,) = there.recall._known.values()
        assert (known._call.request, known._call.answer.body) == (b"", b"")  # type: ignore[union-attr]
        await forget(there, str(got.get("Semel-Call")))
        assert (await there.post()).body == b"answer 2"
        assert (there.recall._known, there.recall._bytes) == ({}, 0)
        assert (await there.post()).body == b"answer 2"
        given = there.given
        assert ((await there.post()).body, there.given) == (b"answer 2", given + 1)


async def test_a_store_that_is_closed_gives_nothing(tmp_path: Path) -> None:
    """Whether the row stands cannot be known."""
    async with place(tmp_path) as there:
        await warmed(there)
        assert there.app.store.settled_stamp() is not None
        await there.app.store.close()
        assert there.app.store.settled_stamp() is None
        assert (await there.post()).status == 503
        assert there.given == 1
