"""Bodies that are small until they are decoded: every place that decodes has a bound, and a way without."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import brotli
import pytest

from proxy.answers import Produced
from proxy.core.encoding import MAX_WINDOW_LOG, Undecodable, decode
from proxy.core.headers import Headers
from proxy.core.intent import State
from proxy.core.policy import Rule
from proxy.front import suited as module
from proxy.front.aside import Aside, price_aside
from proxy.front.suited import suited
from proxy.front.turns import HttpRequest
from proxy.spool import Spool
from proxy.stream import Capture
from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, Script, answer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1024 * 1024
# Over every bound that the tests below set.
BIG = 24 * MIB
CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9, mtime=0),
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=5),
    "zstd": zstd.compress,
}


@cache
def bomb(coding: str, size: int = BIG, filling: bytes = b" ") -> bytes:
    """Of blanks by default: JSON may have as many as it likes."""
    return CODERS[coding](filling * size)


@contextmanager
def within(memory: int, seconds: float = 20.0) -> Iterator[None]:
    """What Python allocates meanwhile, at its highest."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < memory, f"{peak / MIB:.0f} MiB"
    assert time.monotonic() - began < seconds


def _coded(*names: str) -> bytes:
    body = bomb(names[0])
    for name in names[1:]:
        body = CODERS[name](body)
    return body


@pytest.mark.parametrize(
    "names",
    [
        *((name,) for name in CODERS),
        *((name, "gzip") for name in CODERS),
        ("gzip", "gzip", "gzip", "gzip"), ("br", "zstd", "deflate", "br"),
    ],
    ids="+".join,
)  # fmt: skip
def test_a_bomb_takes_no_more_than_its_bound(names: tuple[str, ...]) -> None:
    """24 MiB in a few kilobytes, in codings inside of codings; each step has the bound."""
    body = _coded(*names)
    assert len(body) * 500 < BIG
    with within(16 * MIB), pytest.raises(Undecodable):
        decode(body, names, MIB)


def test_members_do_not_add_up() -> None:
    """A thousand gzip members, each within the bound: what follows the first is refused."""
    body = CODERS["gzip"](bytes(64 * 1024)) * 1000
    with within(4 * MIB), pytest.raises(Undecodable):
        decode(body, ("gzip",), MIB)


def test_a_frame_that_asks_for_a_large_window_is_refused() -> None:
    """Before its first byte, whatever it holds; the largest that RFC 9659 allows is read."""

    def framed(log: int) -> bytes:
        # Magic number; a window and no size; the window's exponent; one last raw block of three bytes.
        return b"\x28\xb5\x2f\xfd\x00" + bytes([(log - 10) << 3]) + b"\x19\x00\x00abc"

    assert decode(framed(MAX_WINDOW_LOG), ("zstd",), 100) == b"abc"
    for log in (MAX_WINDOW_LOG + 1, 27, 31, 41):
        with pytest.raises(Undecodable):
            decode(framed(log), ("zstd",), 100)


# ---- requests ----


@pytest.mark.parametrize("coding", sorted(CODERS))
async def test_a_request_that_is_a_bomb_is_named_by_its_digest_and_goes_out_as_it_came(
    coding: str, tmp_path: Path
) -> None:
    """The same again is the same call; another is another."""
    one, other = bomb(coding), bomb(coding, filling=b"\t")
    sent = {"Content-Encoding": coding, "Content-Type": "application/json"}
    script: Script = (*READ_ALL, answer(200, b"ok"))
    async with Origin(script, script) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n"
        limits = {"limits.request_body": "4MiB"}
        async with semel(tmp_path, policy, store="memory", settings=limits) as app:
            with within(20 * MIB):
                for body, status in ((one, "executed"), (one, "replayed"), (other, "executed")):
                    got = await call(app.address.port, "POST", "/up/x", sent, body)
                    assert (got.status, got.semel) == (200, status)
        assert origin.requests[0].body == one
        assert origin.started == 2


# ---- answers ----

EVERYTHING = """
rules:
  - name: all
    match: {method: POST}
    outcome: {not_executed_if: "failed"}
    cost: {usd_from: "usage.total"}
"""


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
@pytest.mark.parametrize("coding", sorted(CODERS))
async def test_an_answer_that_is_a_bomb_is_handed_on_and_kept_as_it_is(
    coding: str, kind: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rule would look into it, for its meaning and its price: it cannot, and the answer stands. Who does
    not take the coding is told so."""
    monkeypatch.setattr(module, "DECODABLE", 8 * MIB)
    body = bomb(coding)
    headers = ((b"Content-Encoding", coding.encode()), (b"Content-Type", kind))
    async with Origin((*READ_ALL, answer(200, body, *headers))) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{EVERYTHING}"
        async with semel(tmp_path, policy, store="memory") as app:
            with within(40 * MIB):
                for status in ("executed", "replayed"):
                    got = await call(app.address.port, "POST", "/up/x", {"Accept-Encoding": coding}, b"x")
                    assert (got.status, got.semel, got.body == body) == (200, status, True)
                refused = await call(app.address.port, "POST", "/up/x", {}, b"x")
            assert refused.status == 410
            assert json.loads(refused.body)["type"] == "urn:semel:answer-unavailable"
            row = await app.store.get(bytes.fromhex(str(got.get("Semel-Call"))))
            assert row is not None
            assert (row.state, row.cost_usd) == (State.DONE, None)
        assert origin.started == 1


async def test_a_bomb_that_says_nothing_of_the_call_leaves_doubt_without_an_excerpt(tmp_path: Path) -> None:
    """A 500 whose body would be read for people."""
    body = bomb("gzip", 4 * MIB)  # a rule may still read as much
    assert len(body) < 64 * 1024
    async with Origin((*READ_ALL, answer(500, body, (b"Content-Encoding", b"gzip")))) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy, store="memory") as app:
            with within(3 * MIB):
                got = await call(app.address.port, "POST", "/up/x", body=b"x")
            told = json.loads(got.body)
            assert (told["type"], told["upstream_status"]) == ("urn:semel:in-doubt", 500)
            assert "excerpt" not in told


class _Asking:
    raw_headers: Headers = ()


async def test_many_slow_callers_of_one_bomb_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is given its plain form, of a size that may be decoded, and has not read a byte of it yet."""
    size = 8 * MIB
    monkeypatch.setattr(module, "DECODABLE", size)
    monkeypatch.setattr(module, "IN_MEMORY", MIB)
    body, aside = bomb("gzip", size), Aside()
    given = Produced(200, ((b"Content-Encoding", b"gzip"), (b"Content-Length", b"1")), body)

    async def ask() -> Produced:
        return await suited(given, cast("HttpRequest", _Asking()), aside)

    try:
        with within(5 * size):  # two at a time, and what decoding itself takes
            waiting = await asyncio.gather(*(ask() for _ in range(12)))
            held = tracemalloc.get_traced_memory()[0]
        assert held < 8 * MIB
        read = waiting[-1].body
        assert not isinstance(read, bytes)
        assert dict(waiting[-1].headers)[b"Content-Length"] == b"%d" % size
        assert sum([len(part) async for part in read]) == size
    finally:
        aside.close()


async def test_what_may_become_long_is_priced_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that are megabytes when they are decoded; a plain answer is read at once."""
    where: list[str] = []

    def noted(*_: object) -> None:
        where.append(threading.current_thread().name.rsplit("_", 1)[0])

    for place in ("front.aside", "pricing"):
        monkeypatch.setattr(f"proxy.{place}.cost_of", noted)
    aside = Aside()
    try:
        for headers in ((), ((b"Content-Encoding", b"gzip"),)):
            capture = SimpleNamespace(status=200, headers=headers, kept=Spool.of(bomb("gzip")))
            await price_aside(aside, Rule(name="all"), cast("Capture", capture))
    finally:
        aside.close()
    assert where == ["MainThread", "semel-aside"]
