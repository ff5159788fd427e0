"""The shadow's record is wholly apart: neither is written or read by the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.app import App
from proxy.core.intent import Call, State
from proxy.store.base import Query, RunQuery, Store
from proxy.store.opening import Place, open_store
from tests import ambient
from tests.cli import command
from tests.http.shadowing import figures
from tests.inside import call, semel, until
from tests.notifying.scene import settings_for
from tests.origin import READ_ALL, Origin, Wait, answer
from tests.process import SemelProcess
from tests.stores.calls import in_state

pytestmark = pytest.mark.usefixtures("any_store")

RULES = """
  - name: watched
    match: {{method: POST, path: /watched}}
    shadow: true
  - name: real
    match: {{method: POST, path: /real}}
"""


def policy(port: int, rules: str = RULES) -> str:
    return f"upstream: up\nbase_url: http://127.0.0.1:{port}\nrules:{rules.format()}"


def place(tmp_path: Path) -> Place:
    beat = {"heartbeat": ambient.HEARTBEAT, "dead_after": ambient.DEAD_AFTER}
    return Place(store=ambient.store(), state=tmp_path / "state", **beat)  # type: ignore[arg-type]


async def contents(store: Store) -> list[object]:
    """Everything that a caller's fate can depend on: names, states, order, who was served."""
    calls = (await store.find(Query())).calls
    runs = (await store.list_runs(RunQuery())).runs
    found: list[object] = []
    for one in sorted(calls, key=lambda each: each.key):
        found += [_timeless(one), [line.event for line in await store.history(one.key)]]
    for run in runs:
        found += [run.name, run.attempt_names, run.last_seq, run.passed, sorted(run.recipes)]
        found.append([line.event for line in await store.run_history(run.tenant, run.name)])
        found.append(sorted(await store.run_sums(run.tenant, run.name)))
    return found


def _timeless(one: Call) -> Call:
    """Without what no two runs of a test share: times, epochs, secrets."""
    answer = None if one.answer is None else replace(one.answer, recorded_at=0.0)
    times = {"born": 0.0, "created_at": 0.0, "sent_at": 0.0, "settled_at": 0.0, "expires_at": None}
    return replace(one, owner="", fingerprint=bytes(32), key=bytes(16), request=b"", answer=answer, **times)  # type: ignore[arg-type]


async def play(port: int, asked: Sequence[tuple[str, str]], *, watched: bool) -> list[str | None]:
    """What the real ones were given."""
    given = []
    for run, path in asked:
        if path == "real" or watched:
            got = await call(
                port, "POST", f"/{run}up/{path}", {"Content-Type": "application/json"}, b'{"a":1}'
            )
            if path == "real":
                given.append(got.semel)
            else:
                assert got.semel == "passed"
    return given


ASKED = [
    *[("", "watched"), ("", "real"), ("", "watched"), ("", "real")],
    *[("@task+1/", "watched"), ("@task+1/", "real"), ("@task+1/", "watched"), ("@task+1/", "real")],
    # A second attempt: what it does not ask again under the shadowed rule is no reason to hold it.
    *[("@task+2/", "real"), ("@task+2/", "watched"), ("@task+2/", "real"), ("@task+2/", "real")],
    *[("@only-watched+1/", "watched"), ("@only-watched+2/", "watched")],
]


async def test_the_real_record_is_as_if_there_had_been_no_shadow(tmp_path: Path) -> None:
    """Row by row, line by line: the same calls between shadowed ones and alone. Of the real run nothing says
    that there were others, and a run that is only looked on at is none."""
    found = {}
    for watched in (False, True):
        where = tmp_path / f"{watched}"
        where.mkdir()
        store = {"store": place(where).beside().store} if watched else {}  # one server, two records
        async with (
            Origin(*[(*READ_ALL, answer(200, b"yes"))] * 20) as origin,
            semel(where, policy(origin.port), settings=store) as app,
        ):
            given = await play(app.address.port, ASKED, watched=watched)
            await until(lambda: not app.shadow.under_way)
            found[watched] = (given, await contents(app.store))
    assert found[False][0] == [
        "executed",
        "replayed",
        "executed",
        "executed",
        "replayed",
        "replayed",
        "executed",
    ]
    assert found[True] == found[False]


async def test_each_record_holds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shadow's lies beside the real one, and is found there as any record; neither holds a row of the
    other's. Held for nobody: what would be in doubt is told to no one."""
    monkeypatch.setenv("SEMEL_NOTIFY_SECRET", "a secret of sixteen bytes and more")
    ok = (*READ_ALL, answer(200))
    async with Origin(*[ok] * 4) as told, Origin(*[(*READ_ALL, answer(500, b"?"))] * 4) as origin:
        async with semel(tmp_path, policy(origin.port), settings=settings_for(told.port)) as app:
            port = app.address.port
            for run in ("", "@task+1/"):
                assert (await call(port, "POST", f"/{run}up/watched", {}, b"x")).status == 500
            await until(lambda: not app.shadow.under_way)
            assert (await figures(app))["semel_calls_in_state"][("in_doubt",)] == 0
            assert (await call(port, "POST", "/up/real", {}, b"x")).status == 409
            rows = (await app.store.find(Query())).calls
            assert [(row.rule, row.state) for row in rows] == [("real", State.IN_DOUBT)]
            assert (await app.store.list_runs(RunQuery())).runs == []
            await until(lambda: told.requests and told.requests[0].complete)
        assert [json.loads(seen.body)["call"]["rule"] for seen in told.requests] == ["real"]
    beside = await open_store(place(tmp_path).beside())
    try:
        rows = (await beside.find(Query())).calls
        assert {(row.rule, row.state, row.run) for row in rows} == {
            ("watched", State.IN_DOUBT, ""),
            ("watched", State.IN_DOUBT, "task"),
        }
        assert [run.name for run in (await beside.list_runs(RunQuery())).runs] == ["task"]
    finally:
        await beside.close()


def is_open(app: App) -> bool:
    return app.shadow.works is not None


async def test_it_is_there_only_when_a_rule_shadows(tmp_path: Path) -> None:
    """Without such a rule nothing is opened or made; a reload that brings one is enough; and after a restart
    it goes on with what it has."""
    real = "\n  - name: all\n    match: {{path: /**}}\n"
    async with Origin(*[(*READ_ALL, answer(200, b"yes"))] * 6) as origin:
        async with semel(tmp_path, policy(origin.port, real)) as app:
            await call(app.address.port, "POST", "/up/x", {}, b"x")
            assert not is_open(app)
            assert not (tmp_path / "state" / "shadow").exists()
            (tmp_path / "policies" / "test.yaml").write_text(policy(origin.port, real + "    shadow: true\n"))
            await app.watch.check_now()
            assert (await call(app.address.port, "POST", "/up/x", {}, b"x")).semel == "passed"
            await until(lambda: not app.shadow.under_way)
            assert is_open(app)
        async with semel(tmp_path, policy(origin.port, real + "    shadow: true\n")) as app:
            await call(app.address.port, "POST", "/up/x", {}, b"x")
            await until(lambda: not app.shadow.under_way)
            shown = (await figures(app))["semel_shadow_calls_total"]
            assert shown == {("all", "up", "replayed"): 1}


async def test_people_find_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the ordinary commands, at its own address."""
    async with (
        Origin((*READ_ALL, answer(500, b"?"))) as origin,
        semel(tmp_path, policy(origin.port)) as app,
    ):
        await call(app.address.port, "POST", "/up/watched", {}, b"x")
        await until(lambda: not app.shadow.under_way)
    beside = place(tmp_path).beside()
    where = ["--state-dir", str(beside.state)] if beside.store == "embedded" else ["--store", beside.store]
    words = ("calls", "list", "--in", "in_doubt", "--json", *where)
    listed = json.loads((await asyncio.to_thread(command.semel, capsys, *words)).out)
    assert [one["rule"] for one in listed["calls"]] == ["watched"]


async def test_what_a_dead_process_left_in_it_is_settled(tmp_path: Path) -> None:
    """Killed in the middle of a call: the next process that shadows one finds the other in doubt, and would
    hold it."""
    path = tmp_path / "policies"
    path.mkdir()
    scripts = [(*READ_ALL, Wait(asyncio.Event())), *[(*READ_ALL, answer(200))] * 2]
    async with Origin(*scripts) as origin:
        (path / "test.yaml").write_text(policy(origin.port))
        async with SemelProcess(tmp_path / "state", path) as first:
            asking = asyncio.create_task(call(first.port, "POST", "/up/watched", {}, b"x"))
            await until(lambda: origin.started)
            beside = await open_store(place(tmp_path).beside())
            try:
                async with asyncio.timeout(15):
                    while not await in_state(beside, State.PENDING):
                        await asyncio.sleep(0.01)
            finally:
                await beside.close()
            await first.kill()
            assert not (await asking).complete
        async with semel(tmp_path, policy(origin.port)) as app:
            assert (await call(app.address.port, "POST", "/up/watched", {}, b"x")).semel == "passed"
            await until(lambda: not app.shadow.under_way)
            shown = (await figures(app))["semel_shadow_calls_total"]
            assert shown == {("watched", "up", "held"): 1}
