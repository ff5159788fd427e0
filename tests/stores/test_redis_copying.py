"""Into Redis and out of it: what holds of every copy, and what is this store's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import orjson
import pytest

from proxy.errors import ConfigurationError
from proxy.store.copying import CopyRefused, copy
from proxy.store.opening import Place, open_store
from tests.servers.valkey import Valkey, valkey
from tests.stores.test_copying import (  # noqa: F401 (tests and fixtures, collected here with another goal)
    _impatient,
    copied,
    ends,
    everything,
    filled,
    opened,
    origin,
    test_a_damaged_body_is_told_and_never_copied,
    test_a_finished_copy_is_only_looked_at,
    test_a_mark_that_another_copy_took_back_is_set_again,
    test_a_store_in_use_is_not_copied,
    test_a_target_in_use_is_not_written_and_its_user_works_on,
    test_a_target_with_calls_of_its_own_is_left_alone,
    test_an_origin_that_changes_under_the_copy_is_noticed,
    test_an_unfinished_copy_is_for_nobody_else_until_it_is_finished,
    test_both_stores_say_the_same_of_every_call_and_run,
    test_killed_anywhere_it_goes_on_where_it_was,
    test_the_copy_goes_on_where_the_origin_was,
    test_there_and_back_everything_is_as_it_was,
    test_there_must_be_something_to_copy,
    test_what_was_on_its_way_is_found_as_orphans,
)

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def goal(server: Valkey, tmp_path: Path) -> Place:
    """An empty store under a prefix of its own."""
    url = f"{server.url}?prefix=copy{next(_numbers)}"
    return Place(store=url, state=tmp_path / "nowhere", heartbeat=0.2, dead_after=1.0)


def tag(place: Place) -> str:
    return f"{{{place.store.partition('prefix=')[2]}}}"


@pytest.mark.parametrize("kind", ["c", "r", "x", "replays"])
async def test_what_is_there_and_differs_is_named_and_kept_in_redis(
    origin: Place,  # noqa: F811 (the fixture)
    goal: Place,
    server: Valkey,
    kind: str,
) -> None:
    """In an unfinished copy: whoever put it there, it is not overwritten, and the copy does not finish."""
    keys = await filled(origin)
    async with ends(origin, goal) as (source, target):
        await copy(source, target, lambda _: None)
        await target.begin("a test")
    at = tag(goal).encode()
    match kind:
        case "c":
            name = at + b":c:" + keys[5]
            row = server.ask("GET", name)
            assert isinstance(row, bytes)
            server.ask("SET", name, row.replace(b"POST /send", b"POST /sent"))
        case "r":
            server.ask("HINCRBY", at + b":r:7:default:run-1", "pulse", 1)
        case "x":
            name = at + b":x:7:default:run-1"
            fields = server.ask("HGETALL", name)
            assert isinstance(fields, list)
            server.ask("HSET", name, fields[0], orjson.dumps([*orjson.loads(fields[1])[:-1], 5.0]))
        case _:
            server.ask("HINCRBY", at + b":replays", keys[5], 1)
    before = await everything(goal)
    named = {"c": "call", "r": "run run-1", "x": "an exchange of run run-1", "replays": "call"}[kind]
    with pytest.raises(CopyRefused, match=rf"^{named}.*already and differs") as refused:
        await copied(origin, goal)
    if named == "call":
        assert keys[5].hex() in str(refused.value)
    assert await everything(goal) == before
    with pytest.raises(ConfigurationError, match="unfinished"):
        await open_store(goal)


async def test_collecting_goes_on_in_the_copy(origin: Place, goal: Place) -> None:  # noqa: F811 (the fixture)
    """What has a time there has it here: every index was filled along."""
    await filled(origin)
    await copied(origin, goal)
    removed = []
    for place in (origin, goal):
        async with opened(place) as store:
            calls = 0
            while True:
                portion = await store.collect(4e9, runs_before=4e9)
                calls += portion.calls
                if not portion.more:
                    break
            removed.append((calls, (await store.census()).by_state))
    assert removed[0] == removed[1]
    assert removed[0][0] > 20


async def test_settings_that_may_lose_the_copy_are_told(tmp_path: Path, origin: Place) -> None:  # noqa: F811
    """Whether calls with effects may rest on it is for the proxy to say; whoever copies hears of it."""
    await filled(origin, size=3)
    told: list[str] = []
    with valkey(tmp_path / "valkey", appendonly="no") as server:
        place = Place(store=server.url, state=tmp_path, note=lambda event, **_: told.append(event))
        await copied(origin, place)
    assert told == ["redis-unsafe"]
