"""Older databases are brought up to date, newer ones are left alone, and history is never rewritten."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.core.intent import State
from proxy.errors import ConfigurationError
from proxy.store import run_statements, schema, statements
from proxy.store.base import Query, RunPage, RunQuery
from proxy.store.database import FILE_NAME
from proxy.store.embedded import EmbeddedStore
from tests.stores import calls

FIXTURES = Path(__file__).parent / "fixtures"
VERSION_1, VERSION_2, VERSION_3 = (FIXTURES / f"version_{n}.sql" for n in (1, 2, 3))
# Key byte: state, version, body, lines of history. What the file holds, said again.
CONTENT = {
    1: (State.PENDING, 1, None, ["claim"]),
    2: (State.IN_DOUBT, 2, None, ["claim", "lost"]),
    3: (State.RELEASED, 2, None, ["claim", "not_sent"]),
    4: (State.DONE, 2, b"a body of version 1", ["claim", "answered"]),
    5: (State.DONE, 3, b"late", ["claim", "lost", "answered"]),
}


def make(version: Path, directory: Path) -> None:
    directory.mkdir(mode=0o700)
    connection = apsw.Connection(str(directory / FILE_NAME))
    connection.pragma("journal_mode", "wal")
    connection.execute(version.read_text())
    connection.close()


async def check_version_1(store: EmbeddedStore) -> None:
    assert store.secret == bytes(range(32))
    for n, (state, version, body, events) in CONTENT.items():
        call = await store.get(bytes([n]) * 16)
        assert call is not None
        assert (call.state, call.version, call.tool, call.request) == (
            state, version, "POST /send", b"sealed request",
        )  # fmt: skip
        assert (call.answer.body if call.answer else None) == body
        assert [entry.event for entry in await store.history(call.key)] == events
    census = await store.census()
    counts = {State.PENDING: 1, State.IN_DOUBT: 1, State.RELEASED: 1, State.DONE: 2}
    assert census.by_state == dict.fromkeys(State, 0) | counts
    assert census.oldest_doubt_at == calls.NOW + 1


async def test_a_version_1_database_is_migrated_and_every_row_is_read(tmp_path: Path) -> None:
    """The rows, the history, the secret; then the new tables work on the old rows."""
    make(VERSION_1, tmp_path / "state")
    store = await EmbeddedStore.open(tmp_path / "state")
    try:
        await check_version_1(store)
        assert [call.key for call in (await store.orphans()).calls] == [b"\x01" * 16]
        store.mark_replayed(b"\x04" * 16, calls.NOW)
        assert await store.replays(b"\x04" * 16) == 1
        pending = await store.get(b"\x01" * 16)
        assert pending is not None
        assert (await store.swap(*calls.settle(pending), expected=1)).won
        assert (await store.census()).by_state[State.DONE] == 3
    finally:
        await store.close()


async def test_a_version_2_database_is_migrated_and_its_calls_can_be_collected(tmp_path: Path) -> None:
    """Rows that were made before rows had a birth are read, settled and collected as all others; what they
    name, and what they are counted as, is known."""
    make(VERSION_2, tmp_path / "state")
    store = await EmbeddedStore.open(tmp_path / "state")
    try:
        assert store.secret == bytes(range(32))
        old = await store.find(Query())
        assert [call.key[0] for call in old.calls] == [5, 4, 3, 2, 1]
        assert {call.born for call in old.calls} == {0.0}
        assert await store.replays(b"\x04" * 16) == 7
        pending = old.calls[-1]
        assert (await store.swap(*calls.settle(pending), expected=1)).won
        assert (await store.census()).by_state[State.DONE] == 3
        names_blob = partial(store._apart, statements.names_blob)
        assert [await names_blob(letter * 64) for letter in "abc"] == [True, True, False]
        assert (await store.collect(calls.NOW + 10 * 86400)).calls == 4
        (doubt,) = (await store.find(Query())).calls
        assert (await store.census()).by_state == dict.fromkeys(State, 0) | {State.IN_DOUBT: 1}
        assert [entry.event for entry in await store.history(doubt.key)] == ["claim", "lost"]
        assert [await names_blob(letter * 64) for letter in "ab"] == [False, False]
        assert await store.replays(b"\x04" * 16) == 0
    finally:
        await store.close()


async def test_a_version_3_database_is_migrated_and_has_room_for_runs(tmp_path: Path) -> None:
    """Every row, its history, birth and replays; none of them is of a run, none has a cost. Then a run is
    opened beside them, its calls are found by it, and collecting takes old calls and leaves the run's."""
    make(VERSION_3, tmp_path / "state")
    store = await EmbeddedStore.open(tmp_path / "state")
    try:
        assert store.secret == bytes(range(32))
        old = (await store.find(Query())).calls
        assert [call.key[0] for call in old] == [6, 5, 4, 3, 2, 1]
        assert [call.born for call in old] == [calls.NOW + n for n in (5, 4, 3, 2, 1, 0)]
        assert {(call.run, call.in_run, call.cost_usd, call.seq) for call in old} == {("", None, None, 0)}
        assert await store.replays(b"\x04" * 16) == 7
        assert [entry.event for entry in await store.history(b"\x06" * 16)] == [
            "claim", "answered", "forgotten",
        ]  # fmt: skip
        assert await store.list_runs(RunQuery()) == RunPage(runs=[])
        await store.open_run("default", "r", "a1", calls.NOW)
        call, entry = calls.in_run(store.owner)
        assert (await store.swap(call, entry, expected=0, served=calls.serving(call))).seq == 1
        changes = await store.run_changes("default", "r", "a1", 0)
        assert changes is not None
        assert [step.key for step in changes.steps] == [call.key]
        assert [key for key, _ in changes.exchanges] == [call.key]
        assert (await store.swap(*calls.settle(old[-1]), expected=1)).won
        # All but the doubt of old, and the run's own.
        assert (await store.collect(calls.NOW + 10 * 86400)).calls == 5
        left = {each.key for each in (await store.find(Query())).calls}
        assert left == {b"\x02" * 16, call.key}
    finally:
        await store.close()


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2, VERSION_3], ids=["1", "2", "3"])
def test_an_old_database_ends_up_with_the_tables_of_a_new_one(tmp_path: Path, version: Path) -> None:
    """The same tables, columns, indexes and triggers, whichever version it began with."""
    make(version, tmp_path / "state")
    shapes = []
    for path in (str(tmp_path / "state" / FILE_NAME), ":memory:"):
        connection = apsw.Connection(path)
        schema.migrate(connection)
        columns = {
            table: sorted(row[1:] for row in connection.execute(f"PRAGMA table_info({table})"))
            for (table,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
        }
        others = sorted(
            connection.execute(
                "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger')"
            ),
            key=repr,
        )
        shapes.append((columns, others, connection.pragma("user_version")))
        connection.close()
    assert shapes[0] == shapes[1]


async def test_two_that_start_together_on_an_old_database_are_safe(tmp_path: Path) -> None:
    """Migrated once; both go on."""
    make(VERSION_1, tmp_path / "state")
    stores = await asyncio.gather(*(EmbeddedStore.open(tmp_path / "state") for _ in range(4)))
    try:
        for store in stores:
            await check_version_1(store)
    finally:
        for store in stores:
            await store.close()


def test_a_migration_that_fails_leaves_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction: no table of the new version is there."""
    make(VERSION_1, tmp_path / "state")
    broken = schema.MIGRATIONS[1] + "; CREATE TABLE calls (x);"
    monkeypatch.setattr(schema, "MIGRATIONS", (schema.MIGRATIONS[0], broken))
    connection = apsw.Connection(str(tmp_path / "state" / FILE_NAME))
    try:
        with pytest.raises(apsw.SQLError):
            schema.migrate(connection)
        assert connection.pragma("user_version") == 1
        assert (
            list(connection.execute("SELECT name FROM sqlite_master WHERE name IN ('marks', 'vacant')")) == []
        )
    finally:
        connection.close()


def picture(directory: Path) -> dict[str, tuple[str, int, int]]:
    """Name, content, mode and time of everything there."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            stat.S_IMODE(path.stat().st_mode),
            path.stat().st_mtime_ns,
        )
        for path in [directory, *sorted(directory.rglob("*"))]
    }


@pytest.mark.parametrize("in_log", [False, True], ids=["in the database", "only in the log"])
async def test_a_newer_database_is_refused_and_left_untouched(tmp_path: Path, in_log: bool) -> None:
    """Also when a crash left the newer version in the log only. Bytes, modes, times: as before."""
    store = await EmbeddedStore.open(tmp_path / "other")
    await store.swap(*calls.claim(store.owner), expected=0)
    await store.close()
    connection = apsw.Connection(str(tmp_path / "other" / FILE_NAME))
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("user_version", 99)
    if not in_log:
        connection.close()
    directory = tmp_path / "state"
    shutil.copytree(tmp_path / "other", directory)  # with an open log: as a crash leaves it
    connection.close()
    (directory / f"{FILE_NAME}-shm").unlink(missing_ok=True)
    assert (directory / f"{FILE_NAME}-wal").exists() == in_log
    directory.chmod(0o755)
    before = picture(directory)
    with pytest.raises(ConfigurationError, match="99") as caught:
        await EmbeddedStore.open(directory)
    assert str(schema.KNOWN_VERSION) in str(caught.value)
    assert "--state-dir" in str(caught.value)
    assert picture(directory) == before


async def test_a_log_left_by_a_crash_is_read_at_the_next_start(tmp_path: Path) -> None:
    """The version is found in the log when the database file does not have it yet."""
    store = await EmbeddedStore.open(tmp_path / "state")
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    shutil.copytree(tmp_path / "state", tmp_path / "left")
    await store.close()
    assert (tmp_path / "left" / f"{FILE_NAME}-wal").stat().st_size > 0
    store = await EmbeddedStore.open(tmp_path / "left")
    try:
        assert await store.get(call.key) == call
    finally:
        await store.close()


async def test_history_can_be_neither_changed_nor_deleted(tmp_path: Path) -> None:
    """The database itself refuses; only a call that is gone lets its history go."""
    store = await EmbeddedStore.open(tmp_path / "state")
    await store.swap(*calls.claim(store.owner), expected=0)
    await store.close()
    connection = apsw.Connection(str(tmp_path / "state" / FILE_NAME))
    try:
        with pytest.raises(apsw.ConstraintError, match="never rewritten"):
            connection.execute("UPDATE events SET why = 'nothing happened'")
        with pytest.raises(apsw.ConstraintError, match="never deleted"):
            connection.execute("DELETE FROM events")
        connection.execute("DELETE FROM calls; DELETE FROM events")
        assert list(connection.execute("SELECT * FROM events")) == []
        assert statements.one(connection, statements.TOTAL, ()) == 0
    finally:
        connection.close()


def test_no_question_asked_in_service_reads_the_whole_table() -> None:
    """With a million rows a scan would be felt; only the list of `done` walks rows, up to its limit."""
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    questions = [
        *statements.COUNTS.values(), statements.TOTAL,
        statements.GET, statements.UPDATE, statements.APPEND, statements.HISTORY, statements.VERSION,
        statements.DIFFERING, statements.PENDING_OWNERS, statements.PENDING_OF, statements.OLDEST_DOUBT,
        statements.MARK, statements.REPLAYS, statements.EXPIRED, statements.EXPIRED_IN_ALL,
        statements.REMOVE_CALL, statements.REMOVE_HISTORY, statements.REMOVE_MARK, statements.NAMES_BLOB,
        *(text for state, text in statements.FIND.items() if state not in (None, State.DONE)),
    ]  # fmt: skip
    for question in questions:
        plan = plan_of(connection, question)
        assert not [step for step in plan if step in ("SCAN calls", "SCAN events", "SCAN marks")], question
    connection.close()


def test_no_question_about_a_run_reads_more_than_that_run() -> None:
    """Every ask in a run puts some of these, and collecting the rest while others wait."""
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    asked = {
        name: text
        for name, text in vars(run_statements).items()
        if re.fullmatch(r"[A-Z][A-Z_]+", name) and re.match("SELECT|UPDATE|DELETE", str(text))
    }
    assert len(asked) > 10
    scans = {
        name: step
        for name, text in asked.items()
        for step in plan_of(connection, text)
        if re.fullmatch(r"SCAN (calls|exchanges|runs|run_events|kin)", step)
    }
    assert scans == {}
    connection.close()


def test_a_page_is_found_in_the_order_of_the_rows_or_among_a_few_of_them() -> None:
    """The state of a call leads to its index; nothing is sorted but the few that are pending or in doubt."""
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    walks = "SEARCH calls USING INTEGER PRIMARY KEY (rowid<?)"
    aside = "SEARCH calls USING INDEX calls_aside (state=? AND rowid<?)"
    sorts = "USE TEMP B-TREE FOR ORDER BY"
    assert {state: plan_of(connection, text) for state, text in statements.FIND.items()} == {
        None: [walks],
        State.DONE: [walks],
        State.PENDING: ["SCAN calls USING INDEX calls_pending", sorts],
        State.IN_DOUBT: ["SCAN calls USING INDEX calls_in_doubt", sorts],
        State.RELEASED: [aside],
        State.AWAITING_APPROVAL: [aside],
        State.DENIED: [aside],
    }
    connection.close()


@pytest.mark.parametrize("name", ["INSERT", "BEGIN_HISTORY", "UPDATE", "APPEND"])
def test_a_call_is_written_without_a_table_made_for_it(name: str) -> None:
    """Seven were made and thrown away for each call, by lists in the conditions of indexes."""
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    steps = [row[1] for row in explained(connection, "EXPLAIN", getattr(statements, name))]
    assert "MakeRecord" in steps
    assert not {"OpenEphemeral", "OpenAutoindex", "SorterOpen"} & set(steps)
    connection.close()


def plan_of(connection: apsw.Connection, question: str) -> list[str]:
    return [row[3] for row in explained(connection, "EXPLAIN QUERY PLAN", question)]


def explained(connection: apsw.Connection, how: str, text: str) -> list[tuple[Any, ...]]:
    numbers = re.findall(r"\?(\d+)", text)
    holes = max(map(int, numbers)) if numbers else text.count("?")
    return list(connection.execute(f"{how} {text}", (None,) * holes))
