"""What an upstream can do to a call, for every kind: the rows about connections, answers and statuses.

Each row is a list of scripts for the upstream, one per request that reaches it, and what the first and the
second caller get. The second call is the identical one; the record is looked at after each.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy import carrying
from tests.crash.scene import KINDS, SAFE, Kind, ask, policy, problem, states, told, until_states
from tests.inside import request_bytes, semel
from tests.origin import READ_ALL, Close, Origin, Reset, Script, Stall, Wait, answer

pytestmark = pytest.mark.usefixtures("any_store")

OK: Script = (*READ_ALL, answer(200, b"fine"))
SILENT: Script = (*READ_ALL, Stall())
RESETS: Script = (*READ_ALL, Reset())
CLOSES: Script = (*READ_ALL, Close())
# The head says ten bytes and none come: nothing that could be handed on.
HEAD_ONLY: Script = (*READ_ALL, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", Close())
HALF: Script = (*READ_ALL, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", Close())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`first` and `second`: what the caller got, how many requests the upstream has seen, the state."""

    row: str
    kinds: Sequence[Kind]
    scripts: Sequence[Script]
    first: tuple[str, int, str]
    second: tuple[str, int, str]
    idle: str = "20s"


def says(status: int) -> Script:
    return (*READ_ALL, answer(status, b"said %d" % status))


def answers() -> list[Case]:
    """The rows about statuses, one case per status."""
    cases = []
    rows = {
        "408-5xx": (408, 500, 502, 503, 504, 599),
        "429": (429,),
        "final-4xx": (400, 404, 409, 410, 422),
        "401-402-403": (401, 402, 403),
        "3xx": (301, 303, 307),
    }
    for row, statuses in rows.items():
        for status in statuses:
            name, scripts = f"{row}-{status}", (says(status), OK)
            handed_on = (f"executed {status}", 1, "released")
            again = ("executed 200", 2, "done")
            cases.append(Case(row=name, kinds=SAFE, scripts=scripts, first=handed_on, second=again))
            match row:
                case "408-5xx":
                    doubt = ("in-doubt 409", 1, "in_doubt")
                    effect = Case(row=name, kinds=(Kind.D,), scripts=scripts, first=doubt, second=doubt)
                case "429" | "401-402-403":
                    effect = Case(row=name, kinds=(Kind.D,), scripts=scripts, first=handed_on, second=again)
                case _:
                    kept, replayed = (f"executed {status}", 1, "done"), (f"replayed {status}", 1, "done")
                    effect = Case(row=name, kinds=(Kind.D,), scripts=scripts, first=kept, second=replayed)
            cases.append(effect)
    return cases


def breaks() -> list[Case]:
    """The rows about silence and broken connections after the request went out."""
    cases = []
    rows = {
        "timeout-after-sending": (SILENT, "upstream-timeout 504"),
        "reset-after-sending": (RESETS, "upstream-unreachable 502"),
        "end-after-sending": (CLOSES, "upstream-unreachable 502"),
        "2xx-head-body-breaks-off": (HEAD_ONLY, "upstream-unreachable 502"),
    }
    doubt, replay = ("in-doubt 409", 1, "in_doubt"), ("replayed 200", 2, "done")
    retried = ("executed 200", 2, "done")
    for row, (script, failure) in rows.items():
        idle = "300ms" if script is SILENT else "20s"
        twice, live = (failure, 2, "released"), ("executed 200", 3, "done")
        cases += [
            Case(row=row, kinds=(Kind.D,), scripts=(script, OK), first=doubt, second=doubt, idle=idle),
            Case(row=row, kinds=SAFE, scripts=(script, OK), first=retried, second=replay, idle=idle),
            Case(
                row=f"{row}-twice", kinds=SAFE, scripts=(script, script, OK),
                first=twice, second=live, idle=idle,
            ),
        ]  # fmt: skip
    return cases


CASES = [
    pytest.param(case, kind, id=f"{case.row}-kind-{kind}")
    for case in (*answers(), *breaks())
    for kind in case.kinds
]


@pytest.mark.parametrize(("case", "kind"), CASES)
async def test_row(case: Case, kind: Kind, tmp_path: Path) -> None:
    """The first call meets the fault; the identical second one gets what the table says."""
    async with (
        Origin(*case.scripts) as origin,
        semel(tmp_path, policy(origin.port, idle=case.idle)) as app,
    ):
        first = await ask(app.address.port, kind)
        assert (told(first), origin.started, *await states(app)) == case.first
        second = await ask(app.address.port, kind)
        assert (told(second), origin.started, *await states(app)) == case.second


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_breaks_off_after_a_part_was_handed_on(kind: Kind, tmp_path: Path) -> None:
    """The caller's connection is aborted, never ended; a safe call is then made again, the other is held."""
    seen = asyncio.Event()
    script = (*HALF[:-1], Wait(seen), Close())
    async with Origin(script, OK) as origin, semel(tmp_path, policy(origin.port)) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", kind.target, {"Content-Type": "application/json"}, b'{"n": 1}'))
        part = await reader.readuntil(b"hello")
        seen.set()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 15)
        writer.close()
        assert part.startswith(b"HTTP/1.1 200 ")
        await until_states(app, ["released" if kind.safe else "in_doubt"])
        second = await ask(app.address.port, kind)
        assert told(second) == ("executed 200" if kind.safe else "in-doubt 409")
        assert origin.started == (2 if kind.safe else 1)


async def test_a_break_is_a_break_where_the_end_of_the_connection_is_the_end(tmp_path: Path) -> None:
    """HTTP/1.0 and no length: only a reset tells a caller that the answer was cut off."""
    seen = asyncio.Event()
    half = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with (
        Origin((*READ_ALL, half, Wait(seen), Close())) as origin,
        semel(tmp_path, policy(origin.port)) as app,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", app.address.port)
        writer.write(request_bytes("POST", Kind.D.target, {}, b"x").replace(b"HTTP/1.1", b"HTTP/1.0"))
        await reader.readuntil(b"hello")
        seen.set()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 15)
        writer.close()


async def test_a_2xx_that_broke_off_says_that_it_took_effect(tmp_path: Path) -> None:
    """Kind d: the words, the upstream's status, and what had come of the body."""
    async with Origin(HALF, OK) as origin, semel(tmp_path, policy(origin.port)) as app:
        await ask(app.address.port, Kind.D)
        held = problem(await ask(app.address.port, Kind.D))
    assert "took effect, answer incomplete" in held["detail"]
    assert (held["upstream_status"], held["excerpt"]) == (200, "hello")


async def test_a_5xx_in_doubt_carries_what_the_upstream_said(tmp_path: Path) -> None:
    """On the first ask and on every later one."""
    async with Origin(says(503)) as origin, semel(tmp_path, policy(origin.port)) as app:
        for _ in range(2):
            held = problem(await ask(app.address.port, Kind.D))
            assert (held["upstream_status"], held["excerpt"]) == (503, "said 503")


# ---- nothing was sent ----


@pytest.mark.parametrize("kind", KINDS)
async def test_connect_fails_then_the_upstream_comes_back(kind: Kind, tmp_path: Path) -> None:
    """Refused twice: 502, released, and the next call goes through once."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))  # not listening: connections are refused
        port = reserved.getsockname()[1]
        async with semel(tmp_path, policy(port)) as app:
            for _ in range(2):
                assert told(await ask(app.address.port, kind)) == "upstream-unreachable 502"
                assert await states(app) == ["released"]
            async with Origin(OK, port=port) as origin:
                assert told(await ask(app.address.port, kind)) == "executed 200"
                assert told(await ask(app.address.port, kind)) == "replayed 200"
                assert origin.started == 1
                assert await states(app) == ["done"]


@pytest.mark.parametrize("kind", KINDS)
async def test_connect_fails_once_and_is_retried(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upstream that is back within the pause: the caller does not notice."""
    monkeypatch.setattr(carrying, "RECONNECT_PAUSE", 0.5)
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        async with semel(tmp_path, policy(port)) as app:
            asking = asyncio.create_task(ask(app.address.port, kind))
            await until_states(app, ["pending"])
            async with Origin(OK, port=port) as origin:
                assert told(await asking) == "executed 200"
                assert origin.started == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_name_that_cannot_be_resolved(kind: Kind, tmp_path: Path) -> None:
    """A label that no name server could know: 502, released."""
    async with semel(tmp_path, policy(f"http://{'x' * 64}.invalid")) as app:
        assert told(await ask(app.address.port, kind)) == "upstream-unreachable 502"
        assert await states(app) == ["released"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_certificate_that_is_not_trusted(kind: Kind, tmp_path: Path) -> None:
    """TLS fails before the request: 502, released, and not a byte of it was seen."""
    async with Origin(OK, tls=True) as origin:
        async with semel(tmp_path, policy(f"https://localhost:{origin.port}")) as app:
            assert told(await ask(app.address.port, kind)) == "upstream-unreachable 502"
            assert await states(app) == ["released"]
        assert origin.started == 0
