"""How semel starts and stops: refusals in a line and exit status 2, limits made to fit, no step left out."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import socket
import sys
from pathlib import Path

import apsw
import pytest

from proxy.app import App
from proxy.cli import open_files
from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.log import LogObserver
from proxy.settings import load_settings
from proxy.store.database import FILE_NAME
from proxy.store.embedded import EmbeddedStore
from tests.crash.scene import Kind, ask, policy, states_left, store_failing, told, write_policy
from tests.inside import semel, until
from tests.origin import OK, READ_ALL, Origin, Stall
from tests.process import ROOT, SemelProcess
from tests.stores import calls

DEAD = "1-1-0000000000000000"


async def serve(*options: str, **env: str) -> tuple[int, str, str]:
    """`semel serve`, to its end: exit status, what it printed, what it said on the error stream."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "serve", "--listen", "127.0.0.1:0", *options,
        cwd=ROOT, env={**os.environ, **env}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def only_line(err: str) -> str:
    (line,) = err.splitlines()
    return line


async def claims_of_the_dead(state: Path, number: int) -> list[str]:
    """A state directory with so many orphans; their ids."""
    store = await EmbeddedStore.open(state)
    try:
        made = [calls.claim(DEAD) for _ in range(number)]
        for call, entry in made:
            await store.swap(call, entry, expected=0)
    finally:
        await store.close()
    return [call.id for call, _ in made]


def execute(state: Path, statement: str, *bindings: object) -> None:
    connection = apsw.Connection(str(state / FILE_NAME))
    try:
        connection.execute(statement, bindings)
    finally:
        connection.close()


# ---- what cannot be ----


@pytest.mark.parametrize("kind", ["a file", "below a file", "not to be made", "not to be written"])
async def test_a_state_directory_that_cannot_serve(tmp_path: Path, kind: str) -> None:
    """Named, with the reason and what to do; nothing is printed as if it ran."""
    if kind == "not to be written" and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir(mode=0o500)
    state = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "state",
        "not to be made": Path("/proc/semel"),
        "not to be written": tmp_path / "locked" / "state",
    }[kind]
    status, out, err = await serve("--state-dir", str(state))
    assert (status, out) == (2, "")
    assert only_line(err).startswith(f"{state} cannot be used")
    assert "--state-dir" in err


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """The last `--listen` wins; the store is closed again, so nothing stays behind in it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, out, err = await serve("--state-dir", str(tmp_path / "state"), "--listen", address)
    assert (status, out) == (2, "")
    assert only_line(err).startswith(f"cannot listen on {address}: Address already in use.")
    assert "--listen" in err
    assert list((tmp_path / "state" / "owners").iterdir()) == []


async def test_a_database_that_is_none(tmp_path: Path) -> None:
    """One line here too, not SQLite's words in a traceback."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / FILE_NAME).write_bytes(b"not a database" * 1000)
    status, out, err = await serve("--state-dir", str(tmp_path / "state"))
    assert (status, out) == (2, "")
    assert "restore it from a backup" in only_line(err)


async def test_a_store_that_fails_while_starting_is_for_a_person_to_mend(tmp_path: Path) -> None:
    """What the dead left cannot be settled: not a traceback, and the store is closed."""
    await claims_of_the_dead(tmp_path / "state", 1)
    async with store_failing():
        with pytest.raises(ConfigurationError, match=r"state cannot be used.*disk reports an error.*backup"):
            async with semel(tmp_path, policy(1)):
                pass
    assert list((tmp_path / "state" / "owners").iterdir()) == []
    async with semel(tmp_path, policy(1)) as app:
        assert app.recovered == 1


# ---- what must not matter ----


@pytest.mark.parametrize("state", ["in_doubt", "awaiting_approval"])
async def test_one_that_waits_for_a_person_and_cannot_be_read_does_not_prevent_the_start(
    tmp_path: Path, state: str
) -> None:
    """Written by a newer semel, say. Sweeps look at these too, and go on without it."""
    (row,) = await claims_of_the_dead(tmp_path / "state", 1)
    async with semel(tmp_path, policy(1)) as app:
        assert app.recovered == 1
    execute(tmp_path / "state", "UPDATE calls SET state = ? WHERE key = unhex(?)", state, row)
    execute(tmp_path / "state", "UPDATE calls SET record_version = 99")
    async with Origin(OK) as origin, semel(tmp_path, policy(origin.port)) as app:
        assert told(await ask(app.address.port, Kind.D)) == "executed 200"
    assert await states_left(tmp_path / "state") == [state, "done"]


async def test_one_row_that_cannot_be_read_does_not_prevent_the_start(tmp_path: Path) -> None:
    """It is named in the log, once; the other orphans are settled; calls are served."""
    bad, _ = await claims_of_the_dead(tmp_path / "state", 2)
    execute(tmp_path / "state", "UPDATE calls SET expires_at = 1.0 WHERE key = unhex(?)", bad)
    log = io.StringIO()
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        flags = {"listen": "127.0.0.1:0", "state": str(tmp_path / "state"), "policies": [str(policies)]}
        app = await App.start(load_settings(flags, {}), log=LogObserver(log))
        try:
            assert app.recovered == 1
            assert told(await ask(app.address.port, Kind.D)) == "executed 200"
        finally:
            await app.stop(5.0)
    noted = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] != "call"]
    assert [line["event"] for line in noted] == ["unreadable-row", "recovered"]
    assert noted[0]["call"] == bad
    assert await states_left(tmp_path / "state") == ["pending", "in_doubt", "done"]


STEPS = ("_sweeper", "watch", "_reloads", "flights", "_listener", "_upstream", "store")


@pytest.mark.parametrize("failing", STEPS)
async def test_every_step_of_stopping_is_done_whatever_the_others_do(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure comes out in the end; calls were marked, the store and the log closed all the same."""
    done: list[str] = []

    async def fail() -> None:
        raise RuntimeError("a defect")

    def watched(step: str, method: str) -> None:
        part = getattr(app, step)
        real = getattr(part, method)

        async def noting(*args: object, **kwargs: object) -> object:
            done.append(step)
            result = await real(*args, **kwargs)
            if step == failing:
                await fail()
            return result

        monkeypatch.setattr(part, method, noting)

    async with Origin((*READ_ALL, Stall())) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        flags = {"listen": "127.0.0.1:0", "state": str(tmp_path / "state"), "policies": [str(policies)]}
        app = await App.start(load_settings(flags, {}), log=LogObserver(io.StringIO()))
        asking = asyncio.create_task(ask(app.address.port, Kind.D))
        await until(lambda: origin.started)
        for step, method in (
            ("watch", "stop"),
            ("_reloads", "stop"),
            ("flights", "drain"),
            ("_listener", "shutdown"),
            ("_upstream", "close"),
            ("store", "close"),
        ):
            watched(step, method)
        if failing == "_sweeper":
            app._sweeper.cancel()
            app._sweeper = asyncio.create_task(fail())
            await asyncio.wait({app._sweeper})
        with pytest.raises(RuntimeError, match="a defect"):
            await app.stop(0.0)
        await asyncio.gather(asking, return_exceptions=True)
    assert done == list(STEPS[1:])
    assert await states_left(tmp_path / "state") == ["in_doubt"]
    with pytest.raises(StoreUnavailable):
        await app.store.ping()


# ---- how many files may be open ----

ENOUGH = 2 * 100 + open_files.BESIDES


@pytest.mark.parametrize(
    ("soft", "hard", "set_to", "says"),
    [
        (ENOUGH, ENOUGH, None, ""),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, ""),
        (ENOUGH - 1, ENOUGH, ENOUGH, ""),
        (64, 2**20, ENOUGH, ""),
        (64, resource.RLIM_INFINITY, ENOUGH, ""),
        (64, 300, 300, "limits.connections to 22."),
        (64, 100, 100, "limits.connections to 1."),
    ],
)
def test_the_limit_of_open_files_is_raised_as_needed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, set_to: int | None, says: str
) -> None:
    """No further than needed, no further than allowed; if that is too little, what to do about it."""
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    message = open_files.allow_open_files(100)
    assert raised == ([] if set_to is None else [(set_to, hard)])
    assert message.endswith(says)
    assert bool(message) == bool(says)
    assert "\n" not in message


def test_a_system_that_refuses_a_higher_limit_is_lived_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS says infinite and means 10240: told like any other limit that is too low."""

    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert "may open 256 files" in open_files.allow_open_files(100)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux to see another process's limits")
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
async def test_a_real_process_fits_its_limit_to_its_connections(tmp_path: Path, hard: bool) -> None:
    """A low soft limit is raised in silence; a low hard one is told in one line, and semel serves."""
    shell = ["sh", "-c", f'ulimit {"-n" if hard else "-Sn"} 300; exec "$@"', "sh"]
    policies = write_policy(tmp_path, policy(1))
    env = {"SEMEL_LIMITS_CONNECTIONS": "100"}
    async with SemelProcess(tmp_path / "state", policies, prefix=shell, env=env) as process:
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == (300 if hard else ENOUGH)
        assert await process.stop() == 0
    lines = [line for line in process.log.splitlines() if "limits.connections" in line]
    assert lines == ([open_files_message(300)] if hard else [])


def open_files_message(allowed: int) -> str:
    return (
        f"semel may open {allowed} files, and limits.connections: 100 can need {ENOUGH}. Raise the limit "
        f"(ulimit -n {ENOUGH}, or LimitNOFILE={ENOUGH} in a systemd unit), or set limits.connections to 22."
    )
