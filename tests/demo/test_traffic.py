"""The traffic of compose.yaml, piece by piece: what is done when, how fast, and what the toy does then."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise

import aiohttp
import pytest

from proxy.demo.caller import Enough, Pace
from proxy.demo.habits import HABITS, Habit, change_its_mind, day, lose_an_answer
from proxy.demo.model import ModelApi
from proxy.demo.tools import LOSE, MISHAP, Tools
from proxy.demo.traffic import _duration, _rate

SEED = 11


class Clock:
    """Half a second goes by whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def played(seed: int, number: int) -> list[tuple[Habit, float]]:
    clock = Clock()
    return [(habit, clock.now) for habit in islice(day(random.Random(seed), clock), number)]


def test_each_habit_is_seen_first_and_then_by_chance() -> None:
    """All there is to see is there soon; the same seed does the same."""
    habits = [habit for habit, _ in played(SEED, 400)]
    assert tuple(habits[: len(HABITS)]) == HABITS
    assert set(habits[len(HABITS) :]) == set(HABITS)
    assert habits == [habit for habit, _ in played(SEED, 400)]
    assert habits != [habit for habit, _ in played(SEED + 1, 400)]


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.play.__name__)
def test_what_needs_a_person_does_not_grow_without_bound(habit: Habit) -> None:
    """Not more often than it says: a payment comes into doubt at most every ten minutes."""
    times = [at for one, at in played(SEED, 3000) if one is habit]
    assert len(times) > 1
    assert min(later - earlier for earlier, later in pairwise(times)) >= habit.every
    bounds = {one.play: one.every for one in HABITS}
    assert bounds[lose_an_answer] >= 600
    assert bounds[change_its_mind] >= 60


async def test_calls_take_their_turn_and_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for its place in the row, two at once take two places, and then it is enough."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("proxy.demo.caller.asyncio.sleep", sleep)
    pace = Pace(0.001, most=4)  # so slow that the time which really passes does not count
    for calls in (1, 2, 1):
        await pace.turn(calls)
    with pytest.raises(Enough):
        await pace.turn()
    assert [round(seconds, -2) for seconds in waited] == [0, 1000, 3000]


@pytest.fixture
def tools() -> Iterator[Tools]:
    with Tools(0.0) as made:
        serving = threading.Thread(target=made.serve_forever, daemon=True)
        serving.start()
        yield made
        made.shutdown()
        serving.join(10)


def charge(tools: Tools, mishap: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", tools.server_address[1], timeout=10)
    try:
        connection.request("POST", "/charges", b"{}", {MISHAP: mishap} if mishap else {})
        return connection.getresponse().status
    except http.client.RemoteDisconnected:
        return None
    finally:
        connection.close()


def test_a_mishap_is_of_one_request(tools: Tools) -> None:
    """What was lost took effect, what was refused did not, and the next one is as ever."""
    assert [charge(tools, mishap) for mishap in (LOSE, "429", "")] == [None, 429, 200]
    assert tools.books() == {**dict.fromkeys(tools.books(), 0), "charge": 2}


async def test_a_model_that_goes_on_for_ever_counts_all_and_remembers_few() -> None:
    """So a demonstration may run for a week. A refusal that a request asks for is its own."""
    seen: Counter[int] = Counter()
    async with ModelApi(keeps=3) as api, aiohttp.ClientSession() as session:
        for mishap in ("", "429", "", "", ""):
            asked = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
            headers = {MISHAP: mishap} if mishap else {}
            async with session.post(f"{api.url}/v1/chat/completions", json=asked, headers=headers) as got:
                seen[got.status] += 1
        assert seen == {200: 4, 429: 1}
        assert api.count() == api.count("/v1/chat/completions") == 5
        assert [one.number for one in api.requests] == [3, 4, 5]
        assert len(api._past) <= 3


@pytest.mark.parametrize("wrong", ["0", "-1", "1001", "nan", "inf"])
def test_a_rate_is_one(wrong: str) -> None:
    """Neither a flood nor a standstill; with its unit or without."""
    assert _rate("5/s") == _rate("5") == 5.0
    with pytest.raises(Exception, match="calls a second"):
        _rate(wrong)
    with pytest.raises(Exception, match="10"):
        _duration("10")
