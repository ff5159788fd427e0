"""A ledger is copied whole or not at all: what arrives is what was there, and nothing else is taken for
it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from proxy.core.budget import Account
from proxy.core.intent import State
from proxy.errors import ConfigurationError
from proxy.store import archive, copying
from proxy.store.archive import Dump, Kind, Source, Sums, Target, Written
from proxy.store.base import BlobLost, BlobRef, Store
from proxy.store.copying import Copied, CopyRefused, copy, examine
from proxy.store.embedded import EmbeddedStore
from proxy.store.opening import Place, open_source, open_store, open_target
from tests.counts import count
from tests.servers.postgres import PostgresServer
from tests.stores import calls
from tests.stores.ledgers import STRANGE, fill
from tests.stores.process import ROOT, child

SEEDS = range(count(test=3, soak=60))
EXTRA_RUN = (
    "INSERT INTO semel.runs "
    "(tenant, name, created_at, active_at, state, version, pulse, last_seq, recordROOT) "
    "VALUES ('t', 'extra', 1, 1, 'open', 1, 0, 0, '{}'NAME)"
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LOOK_EVERY", 0.05)


@pytest.fixture
def origin(tmp_path: Path) -> Place:
    return Place(store="embedded", state=tmp_path / "origin")


@pytest.fixture(params=["embedded", "postgres"])
def goal(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind."""
    if request.param == "embedded":
        return Place(store="embedded", state=tmp_path / "goal")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.url(request.getfixturevalue("database"))
    return Place(store=url, state=tmp_path / "nowhere", heartbeat=0.2, dead_after=1.0)


async def filled(place: Place, seed: int = 1, size: int = 60) -> list[bytes]:
    store = await open_store(place)
    try:
        return await fill(store, seed=seed, size=size)
    finally:
        await store.close()


@asynccontextmanager
async def ends(one: Place, other: Place) -> AsyncIterator[tuple[Source, Target]]:
    source = await open_source(one)
    try:
        target = await open_target(other)
        try:
            yield source, target
        finally:
            await target.close()
    finally:
        await source.close()


async def copied(one: Place, other: Place, *, leave_lost: bool = False) -> Copied:
    async with ends(one, other) as (source, target):
        return await copy(source, target, lambda _: None, leave_lost=leave_lost)


async def everything(place: Place) -> dict[object, Dump]:
    """All records of a store but its bodies, by name."""
    source = await open_source(place)
    found: dict[object, Dump] = {}
    try:
        for kind in (Kind.RUNS, Kind.EXCHANGES, Kind.CALLS):
            after = None
            while True:
                dumps, after = await source.read(kind, after)
                found |= {(kind, dump.identity): dump for dump in dumps}
                if after is None:
                    break
    finally:
        await source.close()
    return found


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Store]:
    store = await open_store(place)
    try:
        yield store
    finally:
        await store.close()


# ---- what arrives ----


@pytest.mark.parametrize("seed", SEEDS)
async def test_there_and_back_everything_is_as_it_was(
    origin: Place, goal: Place, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into another store and from there into a third: one digest, and every record the same, whatever fits
    on a page."""
    monkeypatch.setattr(archive, "MOST_BYTES", 20_000)
    keys = await filled(origin, seed)
    back = Place(store="embedded", state=tmp_path / "back")
    there = await copied(origin, goal)
    again = await copied(goal, back)
    assert there.digest == again.digest
    assert there.counts == again.counts
    assert there.counts[Kind.CALLS] == len(keys)
    assert there.fresh == sum(there.counts.values())
    assert min(there.counts.values()) > 0
    assert await everything(origin) == await everything(goal) == await everything(back)


async def test_both_stores_say_the_same_of_every_call_and_run(origin: Place, goal: Place) -> None:
    """Through the store's own front door: rows, histories, counts, bodies, order, runs, who was served."""
    keys = await filled(origin)
    await copied(origin, goal)
    async with opened(origin) as one, opened(goal) as other:
        assert one.secret == other.secret
        for key in keys:
            call = await one.get(key)
            assert call is not None
            assert call == await other.get(key)
            assert await one.history(key) == await other.history(key)
            assert await one.replays(key) == await other.replays(key)
            if call.answer is not None and call.answer.blob:
                ref = BlobRef(call.answer.blob, call.answer.size)
                bodies = [b"".join([chunk async for chunk in store.read_blob(ref)]) for store in (one, other)]
                assert len(bodies[0]) == ref.size
                assert bodies[0] == bodies[1]
        for state in State:
            found = [[call.key for call in await calls.in_state(store, state)] for store in (one, other)]
            assert found[0] == found[1]
        assert (await one.census()).by_state == (await other.census()).by_state
        held = 0
        for owner in (
            ("default", ""),
            ("Zoë", ""),
            ("default", "run-0"),
            ("default", "run-2"),
            ("Zoë", "run-0"),
        ):
            for rule in ("send", "pay"):
                account = Account(*owner, "mail", rule)
                assert await one.spent(account) == await other.spent(account)
                held += len(await one.spent(account))
        assert held > 10
        for tenant, name in (("default", "run-0"), ("Zoë", "run-0"), ("default", "run-1-fork")):
            assert await one.get_run(tenant, name) == await other.get_run(tenant, name)
            assert await one.run_history(tenant, name) == await other.run_history(tenant, name)
            assert await one.run_tallies(tenant, name) == await other.run_tallies(tenant, name)
            for attempt in ("a1", "a2"):
                changes = [await store.run_changes(tenant, name, attempt, 0) for store in (one, other)]
                assert changes[0] is not None
                assert changes[1] is not None
                assert changes[0].steps == changes[1].steps
                in_order = [sorted(map(repr, each.exchanges)) for each in changes if each is not None]
                assert in_order[0] == in_order[1]


async def test_the_copy_goes_on_where_the_origin_was(origin: Place, goal: Place) -> None:
    """New calls take the next places, in and outside of runs; marks and history go on; nothing collides."""
    keys = await filled(origin)
    await copied(origin, goal)
    async with opened(goal) as store:
        run = await store.open_run("default", "run-0", "a3", calls.NOW + 200)
        call, entry = calls.in_run(store.owner, "run-0", attempt="a3")
        swap = await store.swap(call, entry, expected=0)
        assert swap.won
        assert swap.seq == run.last_seq + 1
        found = await store.get_many(keys)
        done = next(call for call in found if call.state is State.DONE and not call.run)
        before = await store.replays(done.key)
        store.mark_replayed(done.key, calls.NOW)
        assert await store.replays(done.key) == before + 1
        lines = await store.history(done.key)
        assert (await store.swap(*calls.forget(done), expected=done.version)).won
        assert (await store.history(done.key))[:-1] == lines


async def test_what_was_on_its_way_is_found_as_orphans(origin: Place, goal: Place) -> None:
    """Whoever claimed it is dead where the copy is: recovery settles each as what it was."""
    async with opened(origin) as store:
        sent, entry = calls.claim(store.owner)
        assert (await store.swap(sent, entry, expected=0)).won
    await copied(origin, goal)
    async with opened(goal) as store:
        assert await store.owner_is_dead(sent.owner)
        assert [call.key for call in (await store.orphans()).calls] == [sent.key]


# ---- what is refused ----


async def test_a_target_with_calls_of_its_own_is_left_alone(origin: Place, goal: Place) -> None:
    """Another secret, other names: nothing is written, and it stays usable."""
    await filled(origin)
    async with opened(goal) as store:
        own, entry = calls.claim(store.owner)
        assert (await store.swap(own, entry, expected=0)).won
        secret = store.secret
    with pytest.raises(CopyRefused, match="calls of its own"):
        await copied(origin, goal)
    async with opened(goal) as store:
        assert store.secret == secret
        assert sum((await store.census()).by_state.values()) == 1


async def test_a_store_in_use_is_not_copied(origin: Place, goal: Place) -> None:
    """What a living process records behind the copy would be missing in it."""
    await filled(origin)
    async with opened(origin):
        with pytest.raises(CopyRefused, match="in use"):
            await copied(origin, goal)
    await copied(origin, goal)
    # And the other way round: not onto one that somebody works with, nor from it.
    async with opened(goal):
        source = await open_source(goal)
        try:
            with pytest.raises(CopyRefused, match="in use"):
                await examine(source)
        finally:
            await source.close()


async def test_a_target_in_use_is_not_written_and_its_user_works_on(origin: Place, goal: Place) -> None:
    """It is empty, and somebody has it open: the mark is taken back."""
    await filled(origin)
    async with opened(goal) as store:
        with pytest.raises(CopyRefused, match="in use"):
            await copied(origin, goal)
        assert (await store.swap(*calls.claim(store.owner), expected=0)).won
    async with opened(goal) as store:
        assert sum((await store.census()).by_state.values()) == 1


async def test_one_that_died_without_a_word_is_not_taken_for_living(
    tmp_path: Path, postgres_server: PostgresServer, database: str
) -> None:
    """Its beat stays in the table: the copy waits for as long as it may be silent, and goes on."""
    place = Place(store=postgres_server.url(database), state=tmp_path, heartbeat=0.2, dead_after=1.0)
    async with child("hold", place.store) as process:
        process.process.kill()
        await process.process.wait()
        assert postgres_server.execute("SELECT dead FROM semel.owners", database=database) == [(False,)]
        await copied(place, Place(store="embedded", state=tmp_path / "goal"))
    assert postgres_server.execute("SELECT dead FROM semel.owners", database=database) == [(False,)]


class Between:
    """A target in whose way something comes at one moment."""

    def __init__(self, target: Target, at: str) -> None:
        self._target = target
        self._at = at

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    async def write(self, kind: Kind, dumps: Sequence[Dump]) -> Written:
        if self._at == kind:
            raise KeyboardInterrupt
        return await self._target.write(kind, dumps)


@pytest.mark.parametrize("kind", [Kind.RUNS, Kind.EXCHANGES, Kind.CALLS])
async def test_an_unfinished_copy_is_for_nobody_else_until_it_is_finished(
    origin: Place, goal: Place, tmp_path: Path, kind: Kind
) -> None:
    """No proxy opens it, nobody copies from it, no other ledger goes into it; the same copy goes on."""
    await filled(origin)
    async with ends(origin, goal) as (source, target):
        with pytest.raises(KeyboardInterrupt):
            await copy(source, Between(target, kind), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"unfinished copy of .*semel store copy"):
        await open_store(goal)
    with pytest.raises(CopyRefused, match="unfinished"):
        await copied(goal, Place(store="embedded", state=tmp_path / "third"))
    if kind is not Kind.RUNS:
        other = Place(store="embedded", state=tmp_path / "other")
        await filled(other, seed=9, size=9)
        with pytest.raises(CopyRefused, match="unfinished copy of another store"):
            await copied(other, goal)
    finished = await copied(origin, goal)
    assert 0 < finished.fresh <= sum(finished.counts.values())
    async with opened(goal) as store:
        assert sum((await store.census()).by_state.values()) == finished.counts[Kind.CALLS]


async def test_a_mark_that_another_copy_took_back_is_set_again(origin: Place, goal: Place) -> None:
    """Two came at the same moment; one saw the other, took the mark back and left, and the other goes on."""
    await filled(origin)

    class Robbed(Between):
        async def living(self) -> int:
            await self._target.finish()
            return 0

    async with ends(origin, goal) as (source, target):
        with pytest.raises(KeyboardInterrupt):
            await copy(source, Robbed(target, Kind.CALLS), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="unfinished"):
        await open_store(goal)


async def test_a_finished_copy_is_only_looked_at(origin: Place, goal: Place) -> None:
    """Again says that all is there; once the copy has gone on by itself, that they differ, and it stays."""
    await filled(origin)
    first = await copied(origin, goal)
    again = await copied(origin, goal)
    assert (again.digest, again.fresh) == (first.digest, 0)
    async with opened(goal) as store:
        own, entry = calls.claim(store.owner)
        assert (await store.swap(own, entry, expected=0)).won
    with pytest.raises(CopyRefused, match="now differ"):
        await copied(origin, goal)
    async with opened(goal) as store:
        assert await store.get(own.key) == own


def change(place: Place, server: PostgresServer | None, text: str, *values: object) -> None:
    """Past the store, in the words of both."""
    if place.store == "embedded":
        connection = apsw.Connection(str(place.state / "ledger.sqlite"))
        connection.execute(text.replace("semel.", ""), values)
        connection.close()
    else:
        assert server is not None
        database = place.store.rpartition("/")[2]
        server.execute(text.replace("?", "%s"), *values, database=database)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("UPDATE semel.calls SET cost_usd = 7 WHERE key = ?", "call"),
        ("UPDATE semel.calls SET fence = 9 WHERE key = ?", "call"),
        ("UPDATE semel.marks SET replays = replays + 1", "call"),
        ("UPDATE semel.runs SET pulse = pulse + 1 WHERE name = 'run-2'", "run run-2"),
        ("DELETE FROM semel.run_events", "run over-0"),
        ("UPDATE semel.exchanges SET at = at + 1", "an exchange of run "),
        ("UPDATE semel.spending SET amount = amount + 1", "the budget of rule (pay|send) of mail"),
    ],
)
async def test_what_is_there_and_differs_is_named_and_kept(
    origin: Place, goal: Place, request: pytest.FixtureRequest, text: str, named: str
) -> None:
    """In an unfinished copy: whoever put it there, it is not overwritten, and the copy does not finish."""
    keys = await filled(origin)
    async with ends(origin, goal) as (source, target):
        await copy(source, target, lambda _: None)
        await target.begin("a test")
    server = request.getfixturevalue("postgres_server") if goal.store != "embedded" else None
    change(goal, server, text, *([keys[5]] if "?" in text else []))
    before = await everything(goal)
    with pytest.raises(CopyRefused, match=f"^{named}.*already and differs") as refused:
        await copied(origin, goal)
    if "?" in text:
        assert keys[5].hex() in str(refused.value)
    assert await everything(goal) == before
    with pytest.raises(ConfigurationError, match="unfinished"):
        await open_store(goal)


@pytest.mark.parametrize(
    "text",
    [
        EXTRA_RUN,
        "DELETE FROM semel.marks",
        "INSERT INTO semel.spending VALUES ('default', '', 'mail', 'extra', 'calls', 1, 1, 0, 2)",
    ],
)
async def test_what_the_target_has_beyond_the_origin_is_no_copy(
    origin: Place, goal: Place, request: pytest.FixtureRequest, text: str
) -> None:
    """Found at the latest by verifying; the mark stays."""
    await filled(origin)
    async with ends(origin, goal) as (source, target):
        await copy(source, target, lambda _: None)
        await target.begin("a test")
    embedded = goal.store == "embedded"
    server = None if embedded else request.getfixturevalue("postgres_server")
    text = text.replace("ROOT", "" if embedded else ", root").replace("NAME", "" if embedded else ", 'extra'")
    change(goal, server, text)
    with pytest.raises(CopyRefused, match=r"not what was copied|already and differs"):
        await copied(origin, goal)
    with pytest.raises(ConfigurationError, match="unfinished"):
        await open_store(goal)


async def test_an_origin_that_changes_under_the_copy_is_noticed(origin: Place, goal: Place) -> None:
    """Somebody comes and goes while it is copied: at the end nobody is there, and yet it was changed."""
    await filled(origin)
    first = origin if goal.store == "embedded" else goal
    second = goal if goal.store == "embedded" else Place(store="embedded", state=origin.state / "second")
    if first is goal:
        await copied(origin, goal)
    came = False

    async def come_and_go() -> None:
        async with opened(first) as store:
            assert (await store.swap(*calls.claim(store.owner), expected=0)).won

    class Verified(Between):
        async def put_blob(self, chunks: object) -> BlobRef:
            nonlocal came
            if not came:
                came = True
                await come_and_go()
            return await self._target.put_blob(chunks)  # type: ignore[arg-type]

        async def totals(self) -> dict[Kind, int]:
            return await self._target.totals()

    async with ends(first, second) as (source, target):
        with pytest.raises(CopyRefused, match="was changed while it was copied"):
            await copy(source, Verified(target, ""), lambda _: None)  # type: ignore[arg-type]
    assert came
    await copied(first, second)


# ---- bodies ----


async def test_a_damaged_body_is_told_and_never_copied(origin: Place, goal: Place) -> None:
    """It ends the copy, or is left out where that is asked for: then it is lost there, as it was here."""
    keys = await filled(origin)
    files = sorted(path for path in (origin.state / "blobs").glob("??/*"))
    damaged, missing = files[0], files[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    missing.unlink()
    with pytest.raises(CopyRefused, match="lost or damaged") as refused:
        await copied(origin, goal)
    assert damaged.name in str(refused.value)
    assert missing.name in str(refused.value)
    with pytest.raises(ConfigurationError, match="unfinished"):
        await open_store(goal)
    left = await copied(origin, goal, leave_lost=True)
    assert set(left.lost) == {damaged.name, missing.name}
    async with opened(goal) as store:
        lost = set()
        for key in keys:
            call = await store.get(key)
            if call is not None and call.answer is not None and call.answer.blob:
                try:
                    ref = BlobRef(call.answer.blob, call.answer.size)
                    assert [chunk async for chunk in store.read_blob(ref)] or ref.size == 0
                except BlobLost:
                    lost.add(call.answer.blob)
        assert lost <= set(left.lost)


async def test_a_body_that_is_damaged_in_the_target_is_seen(origin: Place, tmp_path: Path) -> None:
    """Of the right size and with another content: the size alone is believed by nobody."""
    await filled(origin)
    goal = Place(store="embedded", state=tmp_path / "goal")
    async with ends(origin, goal) as (source, target):
        await copy(source, target, lambda _: None)
        await target.begin("a test")
    blob = next(path for path in (goal.state / "blobs").glob("??/*") if path.stat().st_size)
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    with pytest.raises(CopyRefused, match="not what was copied"):
        await copied(origin, goal)


# ---- the origin ----


async def test_the_origin_is_only_read(origin: Place, goal: Place) -> None:
    """Not a byte of its files is another afterwards, also after a crash left a log behind."""
    crashed = origin.state.with_name("crashed")
    store = await EmbeddedStore.open(origin.state)
    await fill(store, seed=1)
    shutil.copytree(origin.state, crashed, ignore=shutil.ignore_patterns("owners", "*-shm"))
    await store.close()
    assert (crashed / "ledger.sqlite-wal").stat().st_size

    def content() -> dict[str, bytes]:
        return {
            str(path.relative_to(crashed)): path.read_bytes()
            for path in crashed.rglob("*")
            if path.is_file() and not path.name.endswith("-shm")
        }

    before = content()
    await copied(Place(store="embedded", state=crashed), goal)
    assert content() == before


async def test_there_must_be_something_to_copy(tmp_path: Path, goal: Place) -> None:
    """A directory without a record, a database without one: nothing is made by asking."""
    with pytest.raises(ConfigurationError, match="no record"):
        await open_source(goal)
    assert not goal.state.exists()


async def test_an_origin_of_an_older_semel_is_not_changed(origin: Place) -> None:
    """It says how to bring it up to date."""
    await filled(origin, size=3)
    change(origin, None, "PRAGMA user_version = 3")
    with pytest.raises(ConfigurationError, match=r"older semel.*semel gc"):
        await open_source(origin)


def test_sums_tell_records_apart() -> None:
    """Order, type, sign and number all count where they should."""
    one, two = archive.BlobDump("a", 1), archive.BlobDump("b", 2)
    row = (b"k" * 16, 0.0, 1, STRANGE, *[None] * 30, b"x" * 100, b"", None)
    plain = archive.CallDump(row, 0, (), 0)
    others = [
        archive.CallDump((row[0], -0.0, *row[2:]), 0, (), 0),
        archive.CallDump((*row[:2], True, *row[3:]), 0, (), 0),
        archive.CallDump((*row[:-3], b"x" * 99 + b"y", b"", None), 0, (), 0),
        archive.CallDump((*row[:-1], b""), 0, (), 0),
        archive.CallDump(row, 0, (), 1),
        archive.CallDump(row, 1, (), 0),
    ]
    assert not any(archive.same(plain, other) for other in others)

    def digest(kind: Kind, *dumps: Dump) -> str:
        sums = Sums()
        sums.add(kind, dumps)
        return sums.digest

    assert digest(Kind.BLOBS, one, two) == digest(Kind.BLOBS, two, one) != digest(Kind.BLOBS, one, one)
    assert digest(Kind.CALLS, plain, others[0]) != digest(Kind.CALLS, others[0], plain)
    assert len({digest(Kind.CALLS, each) for each in (plain, *others)}) == 1 + len(others)


# ---- killed ----


async def run_killed(origin: Place, goal: Place, after: int, when: str) -> int:
    """A copy in a process of its own that is killed at its n-th step, if it has so many: its status."""
    places = (str(place.state) if place.store == "embedded" else place.store for place in (origin, goal))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stores.copy_and_die", *places, str(after), when, cwd=ROOT
    )
    try:
        status = await asyncio.wait_for(process.wait(), 60)
        assert status in (0, -signal.SIGKILL)
        return status
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def is_whole(place: Place) -> bool:
    try:
        await (await open_store(place)).close()
    except ConfigurationError as error:
        if "unfinished" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_anywhere_it_goes_on_where_it_was(origin: Place, goal: Place, when: str) -> None:
    """At one step after another, again and again on the same target: never usable in between, whole in the
    end."""
    await filled(origin)
    killed = 0
    for step in (1, 2, 3, 5, 8, 13, 14, 15, 16, 17, 18, 19, 20):
        if await run_killed(origin, goal, step, when) == 0:
            break
        killed += 1
        if await is_whole(goal) and step > 1:
            assert when == "after"  # the very last step
            break
    assert killed >= 3
    final = await copied(origin, goal)
    assert await everything(origin) == await everything(goal)
    async with opened(goal) as store:
        assert sum((await store.census()).by_state.values()) == final.counts[Kind.CALLS]
