"""Whether a caller has its answer, as the wire shows it: who left early gets the same, who took it the next.

The same request again in the same attempt is a retry if its caller was seen to leave; otherwise it is meant.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from tests.inside import Answer, call, read_answer, request_bytes, until
from tests.origin import reset_on_close
from tests.process import SemelProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMES = itertools.count(1)
PARTS = 4
DONE = b"data: [DONE]\n\n"


class Upstream:
    """`/{shape}/{name}`: an answer of some parts that bear its number. `hold` makes it wait before a part."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.holds: dict[str, tuple[int, asyncio.Event]] = {}
        self.port = 0

    async def __aenter__(self) -> Upstream:
        loop = asyncio.get_running_loop()
        self._handler = web.Server(self._serve, access_log=None)
        self._server = await loop.create_server(self._handler, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._handler.shutdown(1.0)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        shape, name = request.path.split("/")[1:]
        self.asked[name] += 1
        parts = parts_of(shape, name, self.asked[name])
        reply = web.StreamResponse()
        if shape == "plain":
            reply.content_length = sum(map(len, parts))
        elif shape == "events":
            reply.content_type = "text/event-stream"
        before, go = self.holds.pop(name, (-1, asyncio.Event()))
        for number, part in enumerate(parts):
            if number == before:
                await go.wait()
            if number == 0:
                await reply.prepare(request)
            await reply.write(part)
        await reply.write_eof()
        return reply


def parts_of(shape: str, name: str, number: int) -> list[bytes]:
    parts = [
        b'data: {"name": "%b", "answer": %d, "part": %d}\n\n' % (name.encode(), number, n)
        for n in range(PARTS)
    ]
    return [*parts, DONE] if shape == "events" else parts


@dataclass
class Scene:
    """One kind of call of one run, made by a caller that does not hide how it leaves."""

    semel: SemelProcess
    upstream: Upstream
    method: str
    shape: str
    name: str = field(default_factory=lambda: f"call-{next(NAMES)}")

    @property
    def has_effects(self) -> bool:
        return self.method == "POST"

    @property
    def asked(self) -> int:
        return self.upstream.asked[self.name]

    def body(self, number: int) -> bytes:
        return b"".join(parts_of(self.shape, self.name, number))

    def request(self, attempt: str = "one") -> tuple[str, str]:
        return self.method, f"/@run-{self.name}+{attempt}/up/{self.shape}/{self.name}"

    async def ask(self, attempt: str = "one") -> Answer:
        """A caller that takes all of it and closes."""
        return await call(self.semel.port, *self.request(attempt))

    def hold(self, before_part: int) -> asyncio.Event:
        go = asyncio.Event()
        self.upstream.holds[self.name] = (before_part, go)
        return go

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[socket.socket]:
        """A bare socket with the request on its way. Who leaves it closes it."""
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", self.semel.port))
            await loop.sock_sendall(sock, request_bytes(*self.request()))
            yield sock

    async def given_again(self) -> None:
        """The retry gets the first answer, whole, and so does the next attempt. Nothing was sent again."""
        again = await self.ask()
        assert (again.body, again.complete) == (self.body(1), True)
        assert again.semel in ("replayed", "joined")
        assert self.asked == 1
        later = await self.ask("two")
        assert (later.semel, later.body) == ("replayed", self.body(1))
        assert later.get("Semel-Call") == again.get("Semel-Call")
        assert self.asked == 1

    async def goes_on(self) -> None:
        """The next identical call is another one. The next attempt meets both, in order, then a third."""
        second = await self.ask()
        assert (second.semel, second.body) == ("executed", self.body(2))
        assert self.asked == 2
        later = [await self.ask("two") for _ in range(3)]
        assert [one.semel for one in later] == ["replayed", "replayed", "executed"]
        assert [one.body for one in later] == [self.body(1), self.body(2), self.body(3)]
        assert self.asked == 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    tmp_path_factory: pytest.TempPathFactory, module_store: None
) -> AsyncIterator[tuple[SemelProcess, Upstream]]:
    at: Path = tmp_path_factory.mktemp("delivery")
    async with Upstream() as upstream:
        (at / "up.yaml").write_text(f"upstream: up\nbase_url: http://127.0.0.1:{upstream.port}\n")
        async with SemelProcess(at / "state", at / "up.yaml") as semel:
            yield semel, upstream


@pytest.fixture(params=["POST", "GET"])
def method(request: pytest.FixtureRequest) -> str:
    """A call with effects, and a poll."""
    return str(request.param)


@pytest.fixture(params=["plain", "chunked", "events"])
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def there(place: tuple[SemelProcess, Upstream], method: str, shape: str) -> Scene:
    return Scene(*place, method, shape)


async def arrived(sock: socket.socket, end: bytes, *, take: bool) -> None:
    """Until this much is here; `take` it, or leave it unread in the kernel."""
    seen = b""
    async with asyncio.timeout(15):
        while end not in seen:
            with suppress(BlockingIOError):
                seen = seen + sock.recv(65536) if take else sock.recv(65536, socket.MSG_PEEK)
            await asyncio.sleep(0.002)


def end_of(shape: str, number: int, name: str) -> bytes:
    """The last bytes of an answer as it is framed."""
    return b"0\r\n\r\n" if shape != "plain" else parts_of(shape, name, number)[-1]


resets = pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])


@resets
@pytest.mark.parametrize("waits", [False, True], ids=["retries at once", "retries later"])
async def test_who_leaves_before_the_answer_gets_it(there: Scene, resets: bool, waits: bool) -> None:
    """The call goes on; the retry joins it while it runs, and replays it afterwards."""
    go = there.hold(0)
    async with there.asking() as sock:
        await until(lambda: there.asked == 1)
        if resets:
            reset_on_close(sock)
    if waits:
        go.set()
        await there.given_again()
    else:
        retry = asyncio.create_task(there.ask())
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, go.set)  # it must not be sent meanwhile: `asked` would tell
        again = await retry
        assert again.semel in ("joined", "replayed")
        assert again.body == there.body(1)
        later = await there.ask("two")
        assert (later.semel, later.body, there.asked) == ("replayed", there.body(1), 1)


@resets
async def test_who_leaves_in_the_middle_gets_all_of_it(there: Scene, resets: bool) -> None:
    """It has read some of it and nothing is unread: only the end is missing."""
    go = there.hold(2)
    async with there.asking() as sock:
        await arrived(sock, parts_of(there.shape, there.name, 1)[1], take=True)
        if resets:
            reset_on_close(sock)
    go.set()
    await there.given_again()


@pytest.mark.parametrize("shape", ["plain", "chunked"], indirect=True)
@pytest.mark.parametrize("half_read", [False, True], ids=["nothing read", "half read"])
@resets
async def test_who_resets_behind_the_last_byte_gets_it_again(
    there: Scene, half_read: bool, resets: bool
) -> None:
    """All of it was written and not all was read: a close with unread data is a reset too."""
    async with there.asking() as sock:
        await arrived(sock, end_of(there.shape, 1, there.name), take=False)
        if half_read:
            assert len(sock.recv(300)) == 300
        if resets:
            reset_on_close(sock)
    await there.given_again()


async def test_who_took_it_all_goes_on(there: Scene) -> None:
    """A clean close: the same again is meant. A second charge, the next look."""
    first = await there.ask()
    assert (first.semel, first.body) == ("executed", there.body(1))
    await there.goes_on()


async def test_who_took_it_all_goes_on_upon_the_same_connection(there: Scene) -> None:
    """The next request says that the answer before it was taken."""
    reader, writer = await asyncio.open_connection("127.0.0.1", there.semel.port)
    try:
        got = []
        for _ in range(2):
            writer.write(request_bytes(*there.request()))
            got.append(await read_answer(reader))
    finally:
        writer.close()
        await writer.wait_closed()
    assert [one.body for one in got] == [there.body(1), there.body(2)]
    assert [one.semel for one in got] == ["executed", "executed"]
    later = [await there.ask("two") for _ in range(2)]
    assert [one.body for one in later] == [there.body(1), there.body(2)]
    assert there.asked == 2


async def sees_the_last_event(there: Scene, *, resets: bool) -> None:
    """It closes at once, and leaves the end of the framing unread."""
    async with there.asking() as sock:
        await arrived(sock, end_of(there.shape, 1, there.name), take=False)
        seen = sock.recv(65536, socket.MSG_PEEK)
        assert sock.recv(seen.index(DONE) + len(DONE)).endswith(DONE)
        if resets:
            reset_on_close(sock)


@pytest.mark.parametrize("shape", ["events"], indirect=True)
@pytest.mark.parametrize("slow", [False, True], ids=["at once", "in parts"])
@resets
async def test_who_has_seen_the_last_event_has_taken_it(there: Scene, slow: bool, resets: bool) -> None:
    """The same again is meant, whether the stream came in one piece or as it grew. Whether it was seen does
    not show on the wire: a call with effects is then given again rather than sent again."""
    if slow:
        asyncio.get_running_loop().call_later(0.05, there.hold(3).set)
    await sees_the_last_event(there, resets=resets)
    if there.has_effects:
        again = await there.ask()
        assert (again.semel, again.body, there.asked) == ("replayed", there.body(1), 1)
    await there.goes_on()


@pytest.mark.parametrize("shape", ["events"], indirect=True)
@resets
async def test_who_has_seen_the_last_event_of_a_replay_has_taken_it(there: Scene, resets: bool) -> None:
    """The first attempt read it all; the second reads the replay to its last event, and asks again."""
    assert (await there.ask("zero")).body == there.body(1)
    await sees_the_last_event(there, resets=resets)
    if there.has_effects:
        again = await there.ask()
        assert (again.semel, again.body, there.asked) == ("replayed", there.body(1), 1)
    new = await there.ask()
    assert (new.semel, new.body, there.asked) == ("executed", there.body(2), 2)


@pytest.mark.parametrize("shape", ["plain", "chunked"], indirect=True)
async def test_who_leaves_a_replay_gets_it_again(there: Scene) -> None:
    """The first attempt took it; the second leaves before it has read a replay, and is owed it still."""
    first = await there.ask("zero")
    assert first.body == there.body(1)
    async with there.asking() as sock:
        await arrived(sock, end_of(there.shape, 1, there.name), take=False)
        reset_on_close(sock)
    again = await there.ask()
    assert (again.semel, again.body, there.asked) == ("replayed", there.body(1), 1)
    new = await there.ask()
    assert (new.semel, new.body, there.asked) == ("executed", there.body(2), 2)
