"""From a host to a connection: what is asked, what is dialled, what TLS is told, what is left open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

import pytest

from proxy.cli import handshake
from proxy.cli.examine import Verdict
from proxy.core.policy import Timeouts, Upstream
from proxy.core.reachable import Said
from proxy.notifying.posting import Letter, Taken, post
from proxy.notifying.schema import hook_url
from proxy.upstream.base import Answered, NotSent
from proxy.upstream.client import HttpUpstream
from proxy.upstream.reaching import Found, Ways
from tests.inside import until
from tests.origin import OK, Origin, run_on
from tests.sending import QUICK, Collecting, both_loops, request, trusting, yes


class Leading(Ways):
    """Every name leads to these addresses; what is dialled is noted, and dialled only on loopback."""

    def __init__(self, *addresses: str, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.addresses = addresses
        self.dialled: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[Found]:
        return [
            Found(family, sockaddr)  # type: ignore[arg-type]
            for address in self.addresses
            for family, _, _, _, sockaddr in socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        ]

    async def connect(self, found: Found) -> socket.socket:
        self.dialled.append(found.sockaddr[0])
        assert found.sockaddr[0].startswith(("127.", "::1"))
        return await super().connect(found)


async def test_by_default_the_loop_is_asked_once_and_numbers_are_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the loop's getaddrinfo says is what is connected to; a second answer would lead elsewhere."""
    loop, asked = asyncio.get_running_loop(), list[object]()

    async def answer(host: object, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        at = "127.0.0.1" if len(asked) == 1 else "127.0.0.9"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, port))]

    monkeypatch.setattr(loop, "getaddrinfo", answer)
    async with Origin(OK) as origin:
        upstream = HttpUpstream()
        out = request(origin.port, host="api.example", said=Said.PRIVATE)
        assert await upstream.send(out, Collecting(), yes) == Answered(200)
        await upstream.close()
    assert asked == ["api.example"]


@both_loops
def test_tls_is_told_the_name_and_not_the_number(loop: str) -> None:
    """The certificate is for localhost and no other; the connection is to a number."""

    async def scenario() -> None:
        async with Origin(OK, OK, tls=True) as origin:
            ways = Leading("127.0.0.1")
            upstream = HttpUpstream(ssl_context=trusting(), ways=ways)
            try:
                good = request(origin.port, scheme="https", host="localhost")
                assert await upstream.send(good, Collecting(), yes) == Answered(200)
                other = request(origin.port, scheme="https", host="api.example", said=Said.PRIVATE)
                refused = await upstream.send(other, Collecting(), yes)
                assert isinstance(refused, NotSent)
                assert "certificate" in refused.reason
                assert not refused.for_good
            finally:
                await upstream.close()
            assert ways.dialled == ["127.0.0.1", "127.0.0.1"]
            assert origin.started == 1

    run_on(loop, scenario())


@both_loops
def test_the_next_address_is_tried_where_one_does_not_answer(loop: str) -> None:
    """In the resolver's order; the first reason is the one that is told."""

    async def scenario() -> None:
        async with Origin(OK) as origin:
            ways = Leading("127.0.0.3", "127.0.0.1")
            upstream = HttpUpstream(ways=ways)
            try:
                out = request(origin.port, host="api.example", said=Said.PRIVATE)
                assert await upstream.send(out, Collecting(), yes) == Answered(200)
                ways.addresses = ("127.0.0.3", "127.0.0.4")
                failed = await upstream.send(out._replace(max_idle=0.0), Collecting(), yes)
                assert isinstance(failed, NotSent)
                assert "refused the connection" in failed.reason
                ways.addresses = ()
                nowhere = await upstream.send(out._replace(max_idle=0.0), Collecting(), yes)
                assert isinstance(nowhere, NotSent)
                assert not nowhere.for_good
            finally:
                await upstream.close()
            assert ways.dialled == ["127.0.0.3", "127.0.0.1", "127.0.0.3", "127.0.0.4"]

    run_on(loop, scenario())


@both_loops
def test_a_connection_of_the_caller_s_own_is_guarded_too(loop: str) -> None:
    """Tunnels and upgrades: nothing is dialled, and a retry cannot mend it."""

    async def scenario() -> None:
        ways = Leading("127.0.0.1")
        failed = await HttpUpstream(ways=ways).dial(
            "http", "api.example", 80, Said.NAMED, QUICK, asyncio.Protocol()
        )
        assert failed is not None
        assert failed.for_good
        assert ways.dialled == []

    run_on(loop, scenario())


@both_loops
def test_whoever_gives_up_while_connecting_leaves_no_socket_open(loop: str) -> None:
    """A full backlog never answers. A socket left behind is a warning, and warnings are errors."""

    async def scenario() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            fillers = []
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
                fillers.append(filler)
            hurried = Timeouts(connect=0.2, idle=1.0, total=1.0)
            upstream = HttpUpstream()
            got = await upstream.send(request(port, timeouts=hurried), Collecting(), yes)
            await upstream.close()
            for filler in fillers:
                filler.close()
            assert isinstance(got, NotSent)
            assert "within 0.2 s" in got.reason

    run_on(loop, scenario())


async def test_a_peer_that_is_gone_at_once_leaves_no_socket_open() -> None:
    """Connected, and reset before anybody could look where it led to."""

    class Gone(Leading):
        async def connect(self, found: Found) -> socket.socket:
            return socket.socket()  # not connected any more

    failed = await HttpUpstream(ways=Gone("127.0.0.1")).dial(
        "http", "localhost", 80, Said.NAMED, QUICK, asyncio.Protocol()
    )
    assert failed is not None
    assert not failed.for_good


async def test_the_log_s_line_stays_short_however_many_addresses_a_name_has() -> None:
    """A few of them are enough to know where it leads."""
    told: list[dict[str, object]] = []
    ways = Leading(*(f"10.0.{n // 250}.{n % 250 + 1}" for n in range(2000)), tell=_keep(told))
    failed = await HttpUpstream(ways=ways).dial(
        "http", "many.example", 80, Said.NAMED, QUICK, asyncio.Protocol()
    )
    assert failed is not None
    assert failed.for_good
    assert len(str(told)) < 1000


def _keep(told: list[dict[str, object]]) -> Callable[..., None]:
    def keep(event: str, **fields: object) -> None:
        told.append({"event": event, **fields})

    return keep


@pytest.mark.parametrize(
    ("url", "address", "reached"),
    [
        ("http://127.0.0.1:{port}/", "127.0.0.1", True),
        ("http://chat.internal:{port}/", "127.0.0.1", True),  # the operator's own word
        ("http://chat.internal:{port}/", "169.254.169.254", False),
        ("http://chat.internal:{port}/", "0.0.0.0", False),
    ],
)
async def test_notifications_go_inside_and_never_to_the_link(url: str, address: str, reached: bool) -> None:
    async with Origin(OK) as origin:
        ways = Leading(address)
        client = HttpUpstream(ways=ways)
        letter = Letter(hook_url(url.format(port=origin.port)), "msg_1", b"{}", b"s" * 24, 5.0)
        reply = await post(client, letter, 0.0)
        await client.close()
        assert reply.taken is (Taken.DELIVERED if reached else Taken.TROUBLE)
        assert ways.dialled == ([address] if reached else [])


@pytest.mark.parametrize(
    ("private", "allow", "verdict", "line"),
    [
        (False, False, Verdict.FAIL, "`private: true`"),
        (True, False, Verdict.OK, ""),
        (False, True, Verdict.OK, ""),
    ],
)
async def test_the_doctor_says_what_the_guard_refuses_and_the_line_to_add(
    private: bool, allow: bool, verdict: Verdict, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not connect there itself."""
    async with Origin(OK) as origin:
        monkeypatch.setattr(socket, "getaddrinfo", _all_at_home)
        upstream = Upstream(name="up", scheme="http", host="mail.internal", port=origin.port, private=private)
        (found,) = await asyncio.to_thread(handshake.reach_all, [upstream], private=allow)
        assert found.verdict is verdict
        assert line in found.do
        assert "127.0.0.1" not in found.found
        # One of ours stands behind whatever came before.
        with socket.create_connection(("127.0.0.1", origin.port)):
            await until(lambda: origin.connections == (1 if verdict is Verdict.FAIL else 2))


def _all_at_home(_host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
