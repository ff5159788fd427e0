"""`semel serve --store postgres://…`, several processes on one database: what one did the others know."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.faults import Point
from tests.cli.command import semel
from tests.crash.scene import JSON, Kind, ask, policy, told, until, write_policy
from tests.inside import call
from tests.origin import READ_ALL, Origin, Script, Wait, answer
from tests.process import SemelProcess
from tests.servers.postgres import USER, PostgresServer, postgres

OK: Script = (*READ_ALL, answer(200, b"fine"))
SECRET = "hunter-2%40"  # an encoded @, too
OWNERS = {"SEMEL_OWNERS_HEARTBEAT": "200ms", "SEMEL_OWNERS_DEAD_AFTER": "1s"}


@pytest.fixture
def url(postgres_server: PostgresServer, database: str) -> str:
    """With a password, which the server does not ask for and nobody may show."""
    return postgres_server.url(database).replace(f"{USER}@", f"{USER}:{SECRET}@")


def serving(tmp_path: Path, name: str, policies: Path, url: str, **more: object) -> SemelProcess:
    """Each with a state directory of its own, as on a machine of its own."""
    return SemelProcess(
        tmp_path / name,
        policies,
        options=("--store", url),
        env=OWNERS,
        **more,  # type: ignore[arg-type]
    )


def rows(server: PostgresServer, database: str) -> list[str]:
    found = server.execute("SELECT state FROM semel.calls ORDER BY id", database=database)
    return [str(state) for (state,) in found]


async def test_a_call_of_one_proxy_is_replayed_by_another(
    tmp_path: Path, url: str, postgres_server: PostgresServer, database: str
) -> None:
    """Outside a run, and in one; a large body too. The upstream sees each once."""
    large = b'{"n": "' + b"x" * 300_000 + b'"}'
    async with Origin(*[OK] * 3) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with (
            serving(tmp_path, "one", policies, url) as one,
            serving(tmp_path, "other", policies, url) as other,
        ):
            for target, body in (
                ("/api/d", b'{"n": 1}'),
                ("/api/d", large),
            ):
                first = await call(one.port, "POST", target, JSON, body)
                again = await call(other.port, "POST", target, JSON, body)
                assert (told(first), told(again)) == ("executed 200", "replayed 200")
                assert first.body == again.body == b"fine"
            first = await call(one.port, "POST", "/@job+a1/api/d", JSON, b"{}")
            again = await call(other.port, "POST", "/@job+a2/api/d", JSON, b"{}")
            assert (told(first), told(again)) == ("executed 200", "replayed 200")
            ready = await call(one.port, "GET", "/readyz", {}, b"")
            assert ready.status == 200
            metrics = await call(one.port, "GET", "/metrics", {}, b"")
            assert b'store="postgres"' in metrics.body
        assert origin.started == 3
        for proxy in (one, other):
            assert "hunter" not in proxy.log
    assert rows(postgres_server, database) == ["done"] * 3


async def test_identical_calls_through_two_proxies_are_sent_once(tmp_path: Path, url: str) -> None:
    """Twenty at once: one is executed, the others get its answer when it comes."""
    go_on = asyncio.Event()
    async with Origin((*READ_ALL, Wait(go_on), answer(200, b"fine"))) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with (
            serving(tmp_path, "one", policies, url) as one,
            serving(tmp_path, "other", policies, url) as other,
        ):
            asking = [asyncio.create_task(ask(port, Kind.D)) for port in (one.port, other.port) * 10]
            await until(lambda: origin.started)
            await asyncio.sleep(0.1)  # time to do harm in
            assert not any(task.done() for task in asking)
            go_on.set()
            answers = [told(answer) for answer in await asyncio.gather(*asking)]
        assert answers.count("executed 200") == 1
        assert set(answers) <= {"executed 200", "joined 200", "replayed 200"}
        assert origin.started == 1


async def test_the_calls_of_a_killed_proxy_are_in_doubt_after_its_time(
    tmp_path: Path, url: str, postgres_server: PostgresServer, database: str
) -> None:
    """Killed with a call on its way: the other one holds it, sends nothing, and says so to who asks."""
    never = asyncio.Event()
    async with Origin((*READ_ALL, Wait(never)), OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with (
            serving(tmp_path, "one", policies, url) as one,
            serving(tmp_path, "other", policies, url) as other,
        ):
            asking = asyncio.create_task(ask(one.port, Kind.D))
            await until(lambda: origin.started)
            assert rows(postgres_server, database) == ["pending"]
            waiting = asyncio.create_task(ask(other.port, Kind.D))
            one.send(signal.SIGKILL)
            assert told(await asking) == "a break"
            assert told(await waiting) == "in-doubt 409"
            assert rows(postgres_server, database) == ["in_doubt"]
            assert origin.started == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see a process stand")
async def test_a_proxy_that_slept_before_the_first_byte_sends_nothing(
    tmp_path: Path, url: str, postgres_server: PostgresServer, database: str
) -> None:
    """Stopped between claim and first byte for longer than `dead_after`; then it goes on as another owner,
    and what it is asked anew it does."""
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        pause = {Point.BEFORE_FIRST_BYTE: {"action": "pause", "times": 1}}
        async with (
            serving(tmp_path, "one", policies, url, faults=pause) as sleeper,
            serving(tmp_path, "other", policies, url) as other,
        ):
            asking = asyncio.create_task(ask(sleeper.port, Kind.D))
            await until(lambda: is_stopped(sleeper.pid))
            assert told(await ask(other.port, Kind.D)) == "in-doubt 409"
            sleeper.send(signal.SIGCONT)
            assert told(await asking) == "in-doubt 409"
            assert origin.started == 0
            assert rows(postgres_server, database) == ["in_doubt"]
            async with asyncio.timeout(15):
                while told(await ask(sleeper.port, Kind.D, b'{"n": 2}')) != "executed 200":
                    await asyncio.sleep(0.1)
            assert "owner-renewed" in sleeper.log
            assert origin.started == 1


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


async def test_a_proxy_outlives_its_database(tmp_path: Path, own_server: PostgresServer) -> None:
    """Away: nothing is sent, 503. Back: the next call is made, by the same process."""
    async with Origin(OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        url = own_server.url(own_server.new_database())
        async with serving(tmp_path, "one", policies, url) as proxy:
            await asyncio.to_thread(own_server.kill)
            refused = await ask(proxy.port, Kind.D)
            assert told(refused) == "store-unavailable 503"
            assert origin.started == 0
            await asyncio.to_thread(own_server.start)
            async with asyncio.timeout(30):
                while (said := told(await ask(proxy.port, Kind.D))) != "executed 200":
                    assert said in ("store-unavailable 503", "upstream-unreachable 502", "in-progress 409")
                    await asyncio.sleep(0.1)
            assert origin.started == 1


def test_commands_on_the_record_take_the_address_and_never_show_the_password(
    tmp_path: Path,
    url: str,
    database: str,
    postgres_server: PostgresServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a record they say so and make none; nor does looking at the server."""
    for arguments in (("calls", "list"), ("runs", "list"), ("stats",), ("gc", "--dry-run")):
        ran = semel(capsys, *arguments, "--store", url, "--state-dir", tmp_path / "state")
        assert ran.status == 2
        assert "There is no record in postgres://" in ran.err
        assert "hunter" not in ran.err + ran.out
    assert postgres_server.execute("SELECT to_regclass('semel.calls')::text", database=database) == [(None,)]
    away = url.replace(str(postgres_server.port), "1")
    ran = semel(capsys, "calls", "list", "--store", away, "--state-dir", tmp_path / "state")
    assert ran.status == 2
    assert "Is the server running" in ran.err
    assert "hunter" not in ran.err
    for broken in ("postgres://semel:hunter@@ho st:x/db", "postgres://semel:hunter/2@host/db"):
        ran = semel(capsys, "calls", "list", "--store", broken, "--state-dir", tmp_path / "state")
        assert ran.status == 2
        assert "hunter" not in ran.err + ran.out


def test_the_doctor_looks_at_the_server_and_changes_nothing(
    tmp_path: Path,
    url: str,
    database: str,
    postgres_server: PostgresServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it is there, what it is, and never the password."""
    monkeypatch.setenv("SEMEL_STORE", url)
    place = ("--state-dir", tmp_path / "state", "--policies", write_policy(tmp_path, policy(1)))
    said = semel(capsys, "doctor", "--json", *place).out
    (found,) = [each for each in json.loads(said)["findings"] if each["about"] == "store"]
    assert found["verdict"] == "ok"
    assert "no record yet" in found["found"]
    assert postgres_server.execute("SELECT to_regnamespace('semel')::text", database=database) == [(None,)]
    monkeypatch.setenv("SEMEL_STORE", url.replace(str(postgres_server.port), "1"))
    away = semel(capsys, "doctor", "--json", *place).out
    (found,) = [each for each in json.loads(away)["findings"] if each["about"] == "store"]
    assert found["verdict"] == "fail"
    assert "hunter" not in said + away


async def test_an_operator_decides_beside_a_running_proxy(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over the store, as one more process: what is resolved there is replayed by the proxy."""
    never = asyncio.Event()
    async with Origin((*READ_ALL, Wait(never)), OK) as origin:
        policies = write_policy(tmp_path, policy(origin.port))
        async with serving(tmp_path, "one", policies, url) as one:
            asking = asyncio.create_task(ask(one.port, Kind.D))
            await until(lambda: origin.started)
        assert told(await asking) == "a break"
        async with serving(tmp_path, "other", policies, url) as other:
            held = await ask(other.port, Kind.D)
            assert told(held) == "in-doubt 409"
            name = str(held.get("Semel-Call"))
            place = ("--store", url, "--state-dir", tmp_path / "state")
            shown = await asyncio.to_thread(semel, capsys, "calls", "show", name, *place)
            assert shown.status == 0
            assert "hunter" not in shown.out + shown.err
            resolve = ("calls", "resolve", name, "--as", "executed", "--status", "201", "--reason", "seen")
            ran = await asyncio.to_thread(semel, capsys, *resolve, *place)
            assert ran.status == 0, ran.err
            assert told(await ask(other.port, Kind.D)) in ("answer-unavailable 410", "replayed 201")
            assert origin.started == 1
