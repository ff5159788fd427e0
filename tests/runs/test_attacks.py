"""Attacks on "once" in a run: callers that leave in ways that look like a normal end."""

from __future__ import annotations

import asyncio
import io
import socket
from pathlib import Path

import pytest

from proxy import faults
from proxy.core.intent import Call
from proxy.faults import Point
from tests.exchange.stage import Talk
from tests.exchange.virtual_time import in_virtual_time
from tests.inside import call, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, answer, run_on
from tests.runs.stage import Agent, RunProcess
from tests.sending import both_loops

PAY = ("POST", "/@run+one/up/pay")
LONG = answer(200, b"x" * 300_000)


async def _send(port: int, headers: dict[str, str]) -> socket.socket:
    """A bare socket with the request on its way; nothing of the answer is read."""
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, request_bytes(*PAY, headers, b'{"eur": 5}'))
    return sock


@pytest.mark.usefixtures("any_store")
@both_loops
def test_who_asks_for_a_close_and_leaves_early_is_given_it_again(tmp_path: Path, loop: str) -> None:
    """With `Connection: close` (urllib) too, a caller that resets before it has read the end has left."""

    async def scenario() -> None:
        log = io.StringIO()
        async with Origin((*READ_ALL, LONG), (*READ_ALL, LONG)) as origin:
            policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n"
            async with semel(tmp_path, policy, log=log) as app:
                with await _send(app.address.port, {"Connection": "close"}):
                    await until(lambda: '"event":"call"' in log.getvalue().replace(" ", ""))
                again = await call(app.address.port, *PAY, body=b'{"eur": 5}')
                assert (again.semel, origin.started) == ("replayed", 1)

    run_on(loop, scenario())


@pytest.mark.usefixtures("any_store")
@both_loops
def test_who_left_just_before_the_reply_is_given_it_again(tmp_path: Path, loop: str) -> None:
    """The caller's FIN is in the kernel, not yet seen, when the reply is written: not a byte was taken."""

    async def scenario() -> None:
        log = io.StringIO()
        short = (*READ_ALL, answer(200, b"paid"))
        async with Origin(short, short) as origin:
            policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n"
            async with semel(tmp_path, policy, log=log) as app:
                sock = await _send(app.address.port, {})
                faults.arm(Point.REPLY_STARTED, sock.close, times=1)
                try:
                    await until(lambda: '"event":"call"' in log.getvalue().replace(" ", ""))
                finally:
                    faults.disarm_all()
                again = await call(app.address.port, *PAY, body=b'{"eur": 5}')
                assert (again.semel, origin.started) == ("replayed", 1)

    run_on(loop, scenario())


@pytest.mark.usefixtures("any_stage")
@in_virtual_time
async def test_who_overlapped_stays_joined_though_the_row_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller at another proxy reads the row while others join and are served: it does not send then."""
    left = Agent(RunProcess())
    right = left.on(RunProcess(left.semel.world, left.semel.origin))
    talk = Talk()
    left.semel.origin.plays("mail", talk)
    first = left.start("mail", safe=False)
    await talk.sent.wait()
    read = right.semel.ledger.get

    async def read_late(key: bytes) -> Call | None:
        """Meanwhile a third joins, and both at the other proxy take the answer."""
        monkeypatch.setattr(right.semel.ledger, "get", read)
        third = left.start("mail", safe=False)
        talk.answer(body=b"once")
        assert {(await first).body, (await third).body} == {b"once"}
        return await read(key)

    monkeypatch.setattr(right.semel.ledger, "get", read_late)
    second = await right.write("mail")
    assert (second.body, left.semel.origin.sent["mail"]) == (b"once", 1)
