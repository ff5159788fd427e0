"""`semel store copy`: an agent goes on where it was, on another store; what it says, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli.store import SCHEMA
from proxy.cli.store_progress import Bar, line
from proxy.core.intent import State
from proxy.errors import ConfigurationError
from proxy.store.archive import Kind
from proxy.store.copying import Progress
from proxy.store.embedded import EmbeddedStore
from tests import inside
from tests.cli.command import Ran, semel
from tests.crash.scene import write_policy
from tests.inside import Answer, call
from tests.origin import READ_ALL, Origin, Stall, answer
from tests.process import ROOT, SemelProcess
from tests.servers.postgres import PostgresServer, postgres
from tests.stores.ledgers import fill

JSON = {"Content-Type": "application/json"}
POLICY = """
upstream: api
base_url: http://127.0.0.1:{port}
timeout: {{connect: 1s, idle: 20s, total: 40s}}
rules:
  - {{name: look, match: {{method: GET, path: "/**"}}}}
  - {{name: safe, match: {{method: POST, path: /safe}}, safe: true, repeat: same}}
  - {{name: send, match: {{method: POST, path: "/**"}}}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    """A fresh database, with a password that nobody asks for and nobody may show."""
    name = server.new_database()
    yield server.url(name).replace("semel@", "semel:geheim@")
    server.drop(name)


async def started(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "store", "copy", *map(str, arguments),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def copied(*arguments: object) -> Ran:
    process = await started(*arguments)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


def essence(got: Answer) -> tuple[object, ...]:
    """What the upstream said; semel's own headers and the age apart."""
    own = (b"semel-", b"age", b"cache-status")
    headers = [pair for pair in got.headers if not pair[0].lower().startswith(own)]
    return (got.status, headers, got.body, got.complete)


async def an_attempt(port: int, name: str) -> list[Answer]:
    """Some steps of an agent in a run: a look, two effects with large and small answers, the look again."""
    run = f"/@work+{name}/api"
    return [
        await call(port, "GET", f"{run}/state"),
        await call(port, "POST", f"{run}/send", JSON, b'{"to": "ann"}'),
        await call(port, "POST", f"{run}/send", JSON, b'{"to": "bob", "text": "' + b"x" * 200_000 + b'"}'),
        await call(port, "GET", f"{run}/state"),
    ]


async def outside(port: int) -> list[Answer]:
    return [await call(port, "POST", f"/api/mail/{n}", JSON, b'{"n": %d}' % n) for n in range(3)]


async def test_an_agent_goes_on_on_another_store_and_back(tmp_path: Path, url: str) -> None:
    """Embedded, PostgreSQL, embedded: the same bytes each time, in a run step by step and outside of one,
    and nothing is sent again. The next step of the run is sent, once."""
    answers = [answer(200, b"a %d " % n + b"y" * (150_000 if n % 2 else 10)) for n in range(10)]
    async with Origin(*([*READ_ALL, each] for each in answers)) as origin:
        policy = POLICY.format(port=origin.port)
        async with inside.semel(tmp_path, policy) as app:
            first = await an_attempt(app.address.port, "one")
            first += await outside(app.address.port)
        assert {got.semel for got in first} == {"executed"}
        sent = origin.started
        assert sent == len(first)
        before = tmp_path / "state"
        for place in (url, tmp_path / "back"):
            ran = await copied(before, place, "--quiet")
            assert ran.status == 0, ran.err
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir(exist_ok=True)
            settings: dict[str, object] = (
                {"store": url, "state": str(elsewhere)} if place is url else {"state": str(place)}
            )
            async with inside.semel(tmp_path, policy, settings=settings) as app:
                again = await an_attempt(app.address.port, f"on-{place is url}")
                again += await outside(app.address.port)
                assert {got.semel for got in again} == {"replayed"}
                assert [essence(got) for got in again] == [essence(got) for got in first]
                assert origin.started == sent
                if place is not url:
                    further = await call(
                        app.address.port, "POST", "/@work+three/api/send", JSON, b'{"to": 3}'
                    )
                    assert further.status == 409  # the attempt has not asked what is recorded: as ever
                    await an_attempt(app.address.port, "four")
                    new = await call(app.address.port, "POST", "/@work+four/api/send", JSON, b'{"to": "eve"}')
                    assert new.semel == "executed"
            before = place  # type: ignore[assignment]
        assert origin.started == sent + 1


async def test_what_was_on_its_way_is_settled_on_the_copy(tmp_path: Path, url: str) -> None:
    """Its proxy was killed: a call with effects is in doubt there and not sent again, a safe one is."""
    state = tmp_path / "state"
    stalls = [*READ_ALL, Stall()]
    async with Origin(stalls, stalls, [*READ_ALL, answer(200, b"now")]) as origin:
        policy = POLICY.format(port=origin.port)
        async with SemelProcess(state, write_policy(tmp_path, policy)) as proxy:
            asking = [
                asyncio.create_task(call(proxy.port, "POST", f"/api/{path}", JSON, b"{}"))
                for path in ("send", "safe")
            ]
            await inside.until(lambda: origin.started == 2 and all(r.complete for r in origin.requests))
            await proxy.kill()
            await asyncio.gather(*asking, return_exceptions=True)
        assert (await copied(state, url)).status == 0
        elsewhere = tmp_path / "elsewhere"
        async with inside.semel(tmp_path, policy, settings={"store": url, "state": str(elsewhere)}) as app:
            assert app.recovered == 2
            states = (await app.store.census()).by_state
            assert (states[State.IN_DOUBT], states[State.RELEASED]) == (1, 1)
            held = await call(app.address.port, "POST", "/api/send", JSON, b"{}")
            assert held.status == 409
            assert origin.started == 2
            safe = await call(app.address.port, "POST", "/api/safe", JSON, b"{}")
            assert (safe.semel, safe.body) == ("executed", b"now")


def filled(directory: Path, size: int = 60) -> None:
    async def work() -> None:
        store = await EmbeddedStore.open(directory)
        await fill(store, seed=3, size=size)
        await store.close()

    asyncio.run(work())


def test_it_says_what_was_copied(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs; again, that all was there. Never a password."""
    filled(tmp_path / "a")
    told = semel(capsys, "store", "copy", tmp_path / "a", url)
    assert told.status == 0, told.err
    assert told.out.startswith("all copied and verified (runs: ")
    assert "copying calls [" in told.err
    document = semel(capsys, "store", "copy", url, f"embedded:{tmp_path / 'b'}", "--json").document(SCHEMA)
    assert document["written"] == sum(document[kind.value] for kind in Kind)
    assert document["to"] == str(tmp_path / "b")
    assert document["digest"] in told.out
    again = semel(capsys, "store", "copy", tmp_path / "a", tmp_path / "b", "--quiet")
    assert again.err == ""
    assert "all of it was there" in again.out
    assert document["digest"] in again.out
    assert "geheim" not in told.out + told.err + str(document)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("nowhere", "b"), "no record"),
        (("a", "a"), "the same store"),
        (("a", "embedded:a"), "the same store"),
        (("embedded", "b"), "write the directory"),
        (("a", "memory"), "write the directory"),
        (("a", "b", "postgres://u:geheim@h/d"), "unknown argument 'postgres://…'"),
        (("a", "mysql://u:geheim@h/d"), "there is no store mysql"),
        (("postgres://u:geheim@127.0.0.1:1/d", "b"), "cannot be reached"),
        (("a", "postgres://u:geheim@127.0.0.1:1/d"), "cannot be used"),
    ],
)
def test_what_cannot_be_meant_is_told_and_nothing_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: tuple[str, ...],
    says: str,
) -> None:
    """Usage: exit status 2, no file more than before, no password shown."""
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "a", size=3)
    ran = semel(capsys, "store", "copy", *given)
    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert "geheim" not in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


async def test_a_store_in_use_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Exit status 1, and it says to stop the proxies."""
    store = await EmbeddedStore.open(tmp_path / "a")
    try:
        ran = await copied(tmp_path / "a", tmp_path / "b")
    finally:
        await store.close()
    assert ran.status == 1
    assert "Stop every semel" in ran.err
    assert not (tmp_path / "b").exists()


class Unfinished(Exception):
    """What semel says of a copy that is not."""


async def serves(tmp_path: Path, url: str) -> None:
    try:
        async with inside.semel(tmp_path, "upstream: u\nbase_url: http://127.0.0.1:1\n", store=url):
            return
    except ConfigurationError as error:
        if "unfinished copy" not in str(error):
            raise
        raise Unfinished from error


async def test_killed_by_chance_and_resumed(tmp_path: Path, url: str) -> None:
    """The command itself, killed at any moment until it comes through: serve refuses what is unfinished, and
    in the end all is there."""
    store = await EmbeddedStore.open(tmp_path / "a")
    await fill(store, seed=5, size=900)
    await store.close()
    chance, unfinished = random.Random(11), 0
    for _ in range(12):
        process = await started(tmp_path / "a", url, "--quiet")
        try:
            await asyncio.wait_for(process.wait(), chance.uniform(0.2, 1.2))
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
        await process.communicate()
        if process.returncode == 0:
            break
        with contextlib.suppress(Unfinished):
            await serves(tmp_path, url)
            if unfinished:  # killed when all was there and verified, and before it could say so
                return
            continue  # killed before it had begun
        unfinished += 1
    assert unfinished
    ran = await copied(tmp_path / "a", url)
    assert ran.status == 0, ran.err


def progress(done: int, total: int = 4000) -> Progress:
    return Progress(step="copying", kind=Kind.CALLS, done=done, total=total)


def test_the_bar_says_how_far_how_fast_and_how_long() -> None:
    """Half is half a bar; without a beginning there is no rate; nothing to do is done."""
    assert (
        line(progress(2000), 4.0)
        == "copying calls [############------------] 2,000 of 4,000, 500/s, 4 s left"
    )
    assert line(progress(1), 7200.0).endswith("left")
    assert "left" not in line(progress(0), 4.0)
    assert line(progress(0, 0), 0.0) == f"copying calls [{'#' * 24}] 0 of 0"


def test_without_a_terminal_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each step, and not for each page; quiet means quiet."""
    bar = Bar(quiet=False)
    for done in range(0, 4000, 10):
        bar.show(progress(done))
    bar.clear()
    assert capsys.readouterr().err.count("\n") == 1
    Bar(quiet=True).show(progress(5))
    assert capsys.readouterr().err == ""


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        return


def test_on_a_terminal_one_line_is_written_over_and_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left for the result to stand beside."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar(quiet=False)
    bar.begin()
    bar.show(progress(1000))
    bar.clear()
    assert "1,000 of 4,000" in terminal.text
    assert "\n" not in terminal.text
    assert terminal.text.endswith("\r\x1b[K")
