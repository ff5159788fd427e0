"""The Redis store in trouble: connections cut, stalled, half closed; the server killed, stopped, restarted.

What was acknowledged stands. What was not is told as StoreUnavailable, in bounded time, never as a loss; and
everything goes on without opening the store again."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.core.intent import Call, State
from proxy.errors import ConfigurationError, StoreUnavailable
from proxy.store.base import Query, Swap
from proxy.store.redis_store import RedisStore, open_redis
from tests.relay import Act, Fault, Plan, Relay
from tests.servers.valkey import Valkey, valkey
from tests.stores import calls

PATIENCE = 1.0
CERTIFICATE = Path(__file__).parents[1] / "localhost.pem"
KILLS = 20 if os.environ.get("SEMEL_SOAK") else 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    with valkey(tmp_path / "valkey") as server:
        yield server


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[RedisStore]:
    store = await open_redis(f"redis://127.0.0.1:{port}", heartbeat=60, dead_after=240, patience=PATIENCE)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[RedisStore]:
    async with opened(server.port) as store:
        yield store


async def available(store: RedisStore) -> None:
    """In a moment, by itself."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.ping()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def bytes_of_opening(server: Valkey) -> tuple[int, int]:
    """How many bytes go up and down until a store is open."""
    async with Relay(server.port) as relay, opened(relay.port):
        (passage,) = relay.passages
        return passage.seen_up, passage.seen_down


# --- replies that are lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("act", Act)
@pytest.mark.parametrize("after", [5, 9])  # of sixteen bytes; the opening varies by one or two
async def test_a_swap_whose_reply_is_lost_is_told_as_unavailable_and_sent_once(
    server: Valkey, act: Act, after: int
) -> None:
    """It landed. Nobody sent it again, or the winner would have been told that he lost; who asks again sees
    his own row. The store goes on by itself."""
    await bytes_of_opening(server)  # the first one also makes the store
    _, down = await bytes_of_opening(server)
    plans = (Plan(down=Fault(down + after, act)), Plan())
    async with Relay(server.port, *plans) as relay, opened(relay.port) as store:
        call, entry = calls.claim(store.owner)
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(10 * PATIENCE):
                await store.swap(call, entry, expected=0)
        await available(store)
        assert len(relay.passages) == 2
        assert await store.get(call.key) == call
        assert await store.history(call.key) == [entry]
        assert await store.swap(call, entry, expected=0) == Swap(False, call)
        assert (await store.swap(*calls.settle(call), expected=1)).won


@pytest.mark.parametrize("act", Act)
async def test_a_swap_that_is_cut_off_on_its_way_up_is_not_done(server: Valkey, act: Act) -> None:
    """Half a command is none; the same claim can be made afterwards."""
    await bytes_of_opening(server)
    up, _ = await bytes_of_opening(server)
    async with (
        Relay(server.port, Plan(up=Fault(up + 100, act)), Plan()) as relay,
        opened(relay.port) as store,
    ):
        call, entry = calls.claim(store.owner)
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(10 * PATIENCE):
                await store.swap(call, entry, expected=0)
        await available(store)
        assert await store.get(call.key) is None
        assert await store.swap(call, entry, expected=0) == Swap(True)


async def test_replies_in_slices_are_put_together(server: Valkey) -> None:
    """A byte at a time, in both directions."""
    async with Relay(server.port, Plan(slice=97)) as relay, opened(relay.port) as store:
        made = [calls.claim(store.owner) for _ in range(20)]
        assert all([(await store.swap(call, entry, expected=0)).won for call, entry in made])
        assert len((await store.find(Query())).calls) == 20


async def test_scripts_that_the_server_forgot_are_told_again(server: Valkey, store: RedisStore) -> None:
    """It says that it has not run them, so that is no second sending."""
    server.ask("SCRIPT", "FLUSH")
    made = [calls.claim(store.owner) for _ in range(20)]
    swaps = await asyncio.gather(*(store.swap(call, entry, expected=0) for call, entry in made))
    assert swaps == [Swap(True)] * 20
    assert [len(await store.history(call.key)) for call, _ in made] == [1] * 20


# --- a server that stands still, or dies -----------------------------------------------------------------


async def test_a_server_that_stands_still_keeps_nobody_waiting_and_does_nothing_later(
    server: Valkey, store: RedisStore
) -> None:
    """Every caller is told in bounded time. When the server goes on, what lay in its sockets is not done any
    more: nobody would know of that claim. The store is then as good as before."""
    await available(store)
    made = [calls.claim(store.owner) for _ in range(10)]
    with server.paused():
        async with asyncio.timeout(10 * PATIENCE):
            told = await asyncio.gather(
                *(store.swap(call, entry, expected=0) for call, entry in made), return_exceptions=True
            )
            assert {type(each) for each in told} == {StoreUnavailable}
            with pytest.raises(StoreUnavailable):
                await store.get(made[0][0].key)
    await available(store)
    assert await store.get_many([call.key for call, _ in made]) == []
    assert (await store.census()).by_state == dict.fromkeys(State, 0)
    for call, entry in made:
        assert (await store.swap(call, entry, expected=0)).won


async def test_an_owner_may_not_send_while_the_server_stands_still_and_may_afterwards(server: Valkey) -> None:
    """Its beats do not arrive, so for all it knows it is taken for dead."""
    store = await open_redis(server.url, heartbeat=0.1, dead_after=1.0, patience=PATIENCE)
    try:
        assert store.owns()
        with server.paused():
            async with asyncio.timeout(10):
                while store.owns():
                    await asyncio.sleep(0.02)
        await available(store)
        assert store.owns()
    finally:
        await store.close()


class Load:
    """Claims and settles without end, and remembers what was acknowledged."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.claimed: list[Call] = []
        self.settled: list[Call] = []
        self.failed = 0
        self.over = False

    async def work(self) -> None:
        while not self.over:
            try:
                call, entry = calls.claim(self.store.owner)
                assert (await self.store.swap(call, entry, expected=0)).won
                self.claimed.append(call)
                done, entry = calls.settle(call)
                assert (await self.store.swap(done, entry, expected=1)).won
                self.settled.append(done)
            except StoreUnavailable:
                self.failed += 1
                await asyncio.sleep(0.01)


async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(
    server: Valkey, store: RedisStore
) -> None:
    """SIGKILL at some moment, and started again, several times: every acknowledged intent and answer is
    there, every row is whole with its history and in its indexes, and the same store goes on."""
    coin = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    load = Load(store)
    tasks = [asyncio.create_task(load.work()) for _ in range(16)]
    for _ in range(KILLS):
        before = len(load.settled)
        async with asyncio.timeout(30):
            while len(load.settled) < before + 50:
                await asyncio.sleep(0.005)
        await asyncio.sleep(coin.uniform(0, 0.05))
        failed = load.failed
        server.kill()
        async with asyncio.timeout(30):
            while load.failed == failed:
                await asyncio.sleep(0.005)
        server.start()
    await available(store)
    load.over = True
    await asyncio.gather(*tasks)
    assert load.failed >= KILLS
    done = {call.key for call in load.settled}
    for call in load.settled:
        assert await store.get(call.key) == call
    for call in load.claimed:
        found = await store.get(call.key)
        assert found is not None
        assert call.key in done or found == call or found.state is State.DONE
    await assert_whole(server, store)


async def assert_whole(server: Valkey, store: RedisStore) -> int:
    """Every row has its history, and the indexes say what the rows say. How many rows there are."""
    rows: list[Call] = []
    after = None
    while True:
        page = await store.find(Query(after=after))
        assert not page.unreadable
        rows += page.calls
        after = page.next
        if after is None:
            break
    assert len({call.key for call in rows}) == len(rows)
    stored = server.ask("KEYS", "{semel}:c:*")
    assert isinstance(stored, list)
    assert len(stored) == len(rows)
    for call in rows:
        assert len(await store.history(call.key)) == call.version
    counts = (await store.census()).by_state
    for state in State:
        of_state = [call.key for call in rows if call.state is state]
        assert counts[state] == len(of_state)
        assert {call.key for call in await calls.in_state(store, state)} == set(of_state)
    pending = server.ask("HKEYS", "{semel}:pending")
    assert isinstance(pending, list)
    assert set(pending) == {call.key for call in rows if call.state is State.PENDING}
    return len(rows)


async def test_a_log_that_was_torn_is_a_beginning_of_whole_changes(server: Valkey, tmp_path: Path) -> None:
    """Power was cut in the middle of a write: whatever its last byte, no row is without its history, no index
    says another thing than the rows, and no run has counted a call that is not there."""
    async with opened(server.port) as store:
        await store.open_run("default", "r", "a1", calls.NOW)
        made = []
        for _ in range(10):
            call, entry = calls.in_run(store.owner)
            swap = await store.swap(call, entry, expected=0, served=calls.serving(call))
            made.append(call)
            await store.swap(*calls.claim(store.owner), expected=0)
            done, entry = calls.settle(call)
            await store.swap(done, entry, expected=1)
        assert swap.seq == 10
    server.kill()
    (log,) = (server.directory / "appendonlydir").glob("*.incr.aof")
    size = log.stat().st_size
    coin = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    whole = set()
    for n in range(8):
        copy = tmp_path / f"torn-{n}"
        shutil.copytree(server.directory, copy)
        torn = copy / "appendonlydir" / log.name
        os.truncate(torn, size - coin.randrange(1, size // 2))
        with valkey(copy) as after:
            async with opened(after.port) as store:
                number = await assert_whole(after, store)
                changes = await store.run_changes("default", "r", "a1", 0)
                assert changes is not None
                assert changes.run.last_seq == len(changes.steps) == len(changes.exchanges)
                whole.add(number)
    assert len(whole) > 1


# --- waking ----------------------------------------------------------------------------------------------


async def test_a_watcher_whose_connection_was_cut_is_woken_all_the_same(server: Valkey) -> None:
    """The messages of that time are lost; it comes back, and looks."""
    plans = (Plan(), Plan(down=Fault(60, Act.CUT)), Plan())
    async with Relay(server.port, *plans) as relay, opened(relay.port) as store, opened(server.port) as other:
        call, entry = calls.claim(other.owner)
        await other.swap(call, entry, expected=0)
        for _ in range(3):
            waiting = asyncio.create_task(store.changed(call.key, call.version, 30.0))
            await asyncio.sleep(0.05)
            step = calls.release(call) if call.state is State.PENDING else calls.claim_again(call, "x")
            await other.swap(*step, expected=call.version)
            call = step[0]
            assert await waiting
        assert len(relay.passages) > 2


async def test_a_watcher_lives_through_a_restart_or_says_that_the_store_is_away(
    server: Valkey, store: RedisStore
) -> None:
    """It never sleeps on."""
    call, entry = calls.claim(store.owner)
    await store.swap(call, entry, expected=0)
    waiting = asyncio.create_task(store.changed(call.key, 1, 60.0))
    await asyncio.sleep(0.05)
    server.restart()
    await available(store)
    await store.swap(*calls.settle(call), expected=1)
    async with asyncio.timeout(10):
        (told,) = await asyncio.gather(waiting, return_exceptions=True)
    assert told is True or isinstance(told, StoreUnavailable)


# --- at start --------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_a_clear_error_without_the_password(server: Valkey) -> None:
    """What to do is said, the secret is not: neither at start nor later, neither by us nor by the server."""
    port = server.port
    server.ask("CONFIG", "SET", "requirepass", "open sesame")
    good = f"redis://:open%20sesame@127.0.0.1:{port}"
    store = await open_redis(good, patience=PATIENCE)
    wrong = [f"redis://:swordfish@127.0.0.1:{port}", f"redis://who:swordfish@127.0.0.1:{port}"]
    for url in [*wrong, f"redis://127.0.0.1:{port}"]:
        with pytest.raises(ConfigurationError) as refused:
            await open_redis(url, patience=PATIENCE)
        assert "password" in str(refused.value)
        assert "swordfish" not in str(refused.value)
    server.kill()
    with pytest.raises(StoreUnavailable) as away:
        await store.ping()
    assert "sesame" not in str(away.value)
    await store.close()
    with pytest.raises(ConfigurationError, match="cannot be reached") as gone:
        await open_redis(good, patience=PATIENCE)
    assert "sesame" not in str(gone.value)


@pytest.mark.parametrize(
    "url",
    ["redis://", "redis://host:port", "http://host", "redis://host/x", "redis://host?prefix={a}",
     "redis://host?prefx=a", "redis://user:secret@host:99999"],
)  # fmt: skip
async def test_a_url_that_is_wrong_is_told_without_repeating_it(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(ConfigurationError, match="URL") as refused:
        await open_redis(url)
    assert "secret" not in str(refused.value)


async def test_a_server_of_another_kind_is_refused() -> None:
    """It speaks, but not this protocol."""

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(ConfigurationError, match="no Redis"):
            await open_redis(f"redis://127.0.0.1:{port}", patience=PATIENCE)


@asynccontextmanager
async def behind_tls(server: Valkey) -> AsyncIterator[int]:
    """A door with a certificate of its own making before the server. Gives the door's port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    async def one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server.port)
        ways = [
            asyncio.create_task(way)
            for way in (one_way(reader, far_writer), one_way(far_reader, writer), over.wait())
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, far_writer):
            end.transport.abort()
        passed.release()

    over, passed = asyncio.Event(), asyncio.Semaphore(0)
    began = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal began
        began += 1
        await pass_on(reader, writer)

    door = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield door.sockets[0].getsockname()[1]
    finally:
        door.close()
        over.set()
        for _ in range(began):
            await passed.acquire()


async def test_tls_is_spoken_and_the_certificate_is_looked_at(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown: refused. Known to the system, or told not to look: the store is open."""
    async with behind_tls(server) as port:
        with pytest.raises(ConfigurationError, match="reached"):
            await open_redis(f"rediss://127.0.0.1:{port}", patience=PATIENCE)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        for url in (f"rediss://127.0.0.1:{port}?verify=none", f"rediss://localhost:{port}"):
            store = await open_redis(url, patience=PATIENCE)
            call, entry = calls.claim(store.owner)
            assert (await store.swap(call, entry, expected=0)).won
            assert await store.changed(call.key, 0, 5.0)
            await store.close()
