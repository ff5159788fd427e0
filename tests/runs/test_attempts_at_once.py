"""Attempts of one run that live in one proxy at the same time: what one writes or sends, the others learn."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.app import App
from tests.conftest import STORES
from tests.inside import Answer, call, semel
from tests.origin import READ_ALL, Origin, answer

pytestmark = [
    pytest.mark.usefixtures("any_store"),
    pytest.mark.parametrize("any_store", [*STORES, "memory"], indirect=True),
]


@asynccontextmanager
async def world(tmp_path: Path, log: io.StringIO | None = None) -> AsyncIterator[tuple[Origin, App]]:
    """Two upstreams at one origin."""
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin:
        (tmp_path / "policies").mkdir()
        second = f"upstream: mail\nbase_url: http://127.0.0.1:{origin.port}/mail\n"
        (tmp_path / "policies" / "second.yaml").write_text(second)
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}/pay\n"
        async with semel(tmp_path, policy, log=log) as app:
            yield origin, app


async def ask(app: App, attempt: str, path: str, run: str = "run") -> Answer:
    """Bounded: a proxy that turns in circles answers nobody."""
    return await call(app.address.port, "POST", f"/@{run}+{attempt}/{path}", body=b"{}", within=10)


async def test_the_first_calls_of_many_attempts_may_come_together(tmp_path: Path) -> None:
    """Each of them would write down how the run names its calls; one does. Each would
    send it too: one does, and all get its answer."""
    log = io.StringIO()
    async with world(tmp_path, log) as (origin, app):
        for number in range(5):
            asking = [ask(app, attempt, "pay/charge", f"run-{number}") for attempt in ("one", "two", "three")]
            got = await asyncio.gather(*asking)
            assert [one.status for one in got] == [200, 200, 200], [one.body for one in got]
            assert [one.semel for one in got].count("executed") == 1
            assert len({one.get("Semel-Call") for one in got}) == 1
            assert origin.started == number + 1
    assert "defect" not in log.getvalue()


async def test_an_upstream_that_is_new_to_one_attempt_may_be_known_to_another(tmp_path: Path) -> None:
    """The first attempt lives on while the second asks a second upstream; then the first asks it too."""
    async with world(tmp_path) as (origin, app):
        assert (await ask(app, "one", "pay/charge")).semel == "executed"
        assert (await ask(app, "two", "pay/charge")).semel == "replayed"
        assert (await ask(app, "two", "mail/send")).semel == "executed"
        assert (await ask(app, "one", "mail/send")).semel == "replayed"
        assert origin.started == 2


async def test_what_passes_without_a_record_is_noted_by_both(tmp_path: Path) -> None:
    """Token requests in two attempts: each is passed on, the run says once that it has such calls."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with world(tmp_path) as (origin, app):
        for attempt in ("one", "two", "one"):
            assert (await ask(app, attempt, "pay/charge")).status == 200
        before = origin.started
        asking = [
            call(app.address.port, "POST", f"/@run+{attempt}/pay/token", form, b"grant_type=x", within=10)
            for attempt in ("one", "two", "one", "two")
        ]
        assert [one.semel for one in await asyncio.gather(*asking)] == ["passed"] * 4
        assert origin.started == before + 4
        run = await app.store.get_run("default", "run")
        assert run is not None
        assert len(run.passed) == 1
