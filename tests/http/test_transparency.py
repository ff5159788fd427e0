"""Requests and answers arrive as they were sent, byte for byte, or are refused with 400: never altered.

Identical means: method and target; header names and values in order, without hop-by-hop, Host and Semel-*;
the body as it was encoded. One semel and one upstream serve all examples of a test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count as counting
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.counts import count
from tests.http.drawn import (
    HOP_BY_HOP,
    METHODS,
    TOKEN,
    Headers,
    Reply,
    Request,
    bodies,
    header_lists,
    of,
    paths,
    replies,
    requests,
)
from tests.inside import Answer, raw_call, read_answer, semel
from tests.origin import READ_ALL, Close, Origin, Script, Seen, Step, answer

pytestmark = pytest.mark.usefixtures("any_store")
# Between two examples nothing runs, and so no heart beats.
OWNERS = {"owners.heartbeat": "5s", "owners.dead_after": "60s"}

# Ways through semel: recorded with effects, recorded and safe, shared, not recorded, only looked on at.
MODES = {
    "once": "mode: once, safe: false",
    "read": "mode: once, safe: true, repeat: same",
    "shared": "mode: cache",
    "plain": "mode: pass",
    "watched": "mode: once, safe: false, shadow: true",
}
UNRECORDED = ("plain", "watched")


@dataclass
class World:
    """A running semel before a scripted origin, and a number that no two examples share."""

    runner: asyncio.Runner
    origin: Origin
    port: int
    numbers: Iterator[int] = field(default_factory=lambda: counting(1))

    def next_answer(self, *script: Step) -> None:
        self.origin._scripts = [(*READ_ALL, *script)]

    def ask(self, raw: bytes, *, is_head: bool = False) -> Answer:
        return self.runner.run(raw_call(self.port, raw, is_head=is_head))


@contextmanager
def world(tmp_path: Path) -> Iterator[World]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> World:
            origin = await stack.enter_async_context(Origin())
            directory = tmp_path / "policies"
            directory.mkdir()
            for name, words in MODES.items():
                (directory / f"{name}.yaml").write_text(policy(name, words, origin.port))
            app = await stack.enter_async_context(
                semel(tmp_path, policy("test", "mode: once", origin.port), settings=OWNERS)
            )
            return World(runner, origin, app.address.port)

        try:
            yield runner.run(start())
        finally:
            runner.run(stack.aclose())


def policy(name: str, words: str, port: int) -> str:
    rule = f"{{name: all, match: {{path: /**}}, {words}}}"
    return f"upstream: {name}\nbase_url: http://127.0.0.1:{port}/base\nrules: [{rule}]\n"


# ---- on the wire ----


def written(request: Request, upstream: str, number: int) -> bytes:
    head = [b"%b /%b%b HTTP/1.1" % (request.method, upstream.encode(), request.path), b"Host: semel"]
    head += [b"%b: %b" % pair for pair in request.headers]
    head += [b"Accept-Encoding: *", b"Semel-Occurrence: %d" % number]
    if request.body is None:
        return b"\r\n".join([*head, b"", b""])
    if not request.chunks:
        return b"\r\n".join([*head, b"Content-Length: %d" % len(request.body), b"", b""]) + request.body
    return b"\r\n".join([*head, b"Transfer-Encoding: chunked", b"", chunked(request.body, request.chunks)])


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def script_of(reply: Reply, *, is_head: bool) -> Script:
    head = [b"HTTP/1.1 %d Whatever" % reply.status, *(b"%b: %b" % pair for pair in reply.headers)]
    if reply.framing == "length":
        head.append(b"Content-Length: %d" % len(reply.body))
    elif reply.framing == "chunked":
        head.append(b"Transfer-Encoding: chunked")
    elif reply.framing == "close":
        head.append(b"Connection: close")
    whole = b"\r\n".join([*head, b"", b""])
    if not is_head:
        whole += chunked(reply.body, 50_000) if reply.framing == "chunked" else reply.body
    return (whole, Close()) if reply.framing == "close" else (whole,)


def without(headers: Headers, *names: bytes) -> Headers:
    dropped = HOP_BY_HOP | set(names)
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith(b"semel-")
    ]


def assert_request_arrived(seen: Seen, request: Request) -> None:
    line = bytes(seen.head).split(b"\r\n", 1)[0]
    assert line == b"%b /base%b HTTP/1.1" % (request.method, request.path)
    assert without(seen.headers, b"host", b"content-length") == [*request.headers, (b"Accept-Encoding", b"*")]
    lengths = [value for name, value in seen.headers if name.lower() == b"content-length"]
    assert lengths == ([] if request.body is None else [b"%d" % len(request.body)])
    assert bytes(seen.body) == (request.body or b"")


def assert_answer_arrived(got: Answer, reply: Reply, *, is_head: bool, bare: bool = False) -> None:
    """The upstream's headers come first, ours after them; nothing else is added or lost. `bare`: of ours only
    Semel-Status."""
    assert got.complete
    assert got.status == reply.status
    assert got.body == (b"" if is_head else reply.body)
    sent = list(reply.headers)
    if reply.framing == "length":
        sent.append((b"Content-Length", b"%d" % len(reply.body)))
    assert without(got.headers)[: len(sent)] == sent
    added = [name for name, _ in without(got.headers)[len(sent) :]]
    assert added == ([] if bare else [b"Cache-Status"])


def assert_replay_equals(second: Answer, first: Answer) -> None:
    assert second.complete
    assert (second.status, second.body) == (first.status, first.body)
    ours = (b"set-cookie", b"age", b"cache-status")
    assert without(second.headers, *ours) == without(first.headers, *ours)
    assert not any(name.lower() == b"set-cookie" for name, _ in second.headers)


examples = settings(
    max_examples=count(30, 2000),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("upstream", MODES)
def test_requests_arrive_identical(tmp_path: Path, upstream: str) -> None:
    """Any valid request, in any mode, reaches the upstream as it was sent. None is refused."""
    with world(tmp_path) as there:

        @examples
        @given(requests())
        @example(Request(b"GET", b"/?", [], None))
        @example(Request(b"POST", b"//a//?x=%00&&;=#"[:-1], [(b"Content-Type", b"a/b")], b"", 0))
        @example(Request(b"POST", b"/", [], b"", 1))
        @example(
            Request(b"DELETE", b'/%2F%2f...%5C|"<>', [(b"x", b""), (b"X", b"\xff\x80")], b"\x00" * 70000, 100)
        )
        def check(request: Request) -> None:
            there.next_answer(answer(200, b"fine"))
            before = there.origin.started
            is_head = request.method == b"HEAD"
            got = there.ask(written(request, upstream, next(there.numbers)), is_head=is_head)
            assert got.status == 200, got
            assert there.origin.started == before + 1
            assert_request_arrived(there.origin.visitors[-1].requests[-1], request)

        check()


@pytest.mark.parametrize("upstream", MODES)
def test_answers_arrive_identical_and_replays_equal_them(tmp_path: Path, upstream: str) -> None:
    """Any answer, in any framing; asked again it is given again, or fetched again where it is not kept."""
    with world(tmp_path) as there:

        @examples
        @given(replies(), st.sampled_from([b"POST", b"GET", b"HEAD", b"PUT"]))
        @example(Reply(200, [(b"Set-Cookie", b"a=b"), (b"set-cookie", b"c=d")], b"x", "chunked"), b"POST")
        @example(Reply(304, [(b"ETag", b'"1"'), (b"Content-Length", b"10")], b"", "none"), b"GET")
        @example(Reply(200, [(b"Content-Encoding", b"gzip")], b"not really gzip", "close"), b"POST")
        @example(Reply(200, [(b"X", b"\x80\xff"), (b"x", b""), (b"X", b"")], b"", "length"), b"POST")
        def check(reply: Reply, method: bytes) -> None:
            if upstream == "once" and (reply.status >= 500 or reply.status == 408):
                reply = Reply(200, reply.headers, reply.body, reply.framing)
            there.next_answer(*script_of(reply, is_head=method == b"HEAD"))
            raw = written(Request(method, b"/thing", [], None), upstream, next(there.numbers))
            first = there.ask(raw, is_head=method == b"HEAD")
            assert first.semel == ("passed" if upstream in UNRECORDED else "executed")
            bare = upstream == "watched"
            assert_answer_arrived(first, reply, is_head=method == b"HEAD", bare=bare)
            before = there.origin.started
            second = there.ask(raw, is_head=method == b"HEAD")
            if second.semel == "replayed":
                assert_replay_equals(second, first)
                assert there.origin.started == before
            else:
                assert not is_kept(upstream, reply.status)
                assert_answer_arrived(second, reply, is_head=method == b"HEAD", bare=bare)
                assert there.origin.started == before + 1

        check()


def is_kept(upstream: str, status: int) -> bool:
    if upstream in UNRECORDED:
        return False
    if upstream == "once":
        return status not in (401, 402, 403, 407, 425, 429)
    return 200 <= status < 300


def test_whatever_a_client_sends_arrives_identical_or_is_refused_with_400(tmp_path: Path) -> None:
    """Control bytes, unknown methods, odd targets: no request reaches the upstream in another form."""
    odd_path = st.binary(max_size=12).map(lambda tail: b"/" + re.sub(rb"[\r\n #]", b"", tail))
    odd_method = st.sampled_from(METHODS) | of(TOKEN, least=1, most=12)
    outcomes = set()
    with world(tmp_path) as there:

        @examples
        @given(odd_method, odd_path | paths(), header_lists(controls=True), st.none() | bodies)
        def check(method: bytes, path: bytes, headers: Headers, body: bytes | None) -> None:
            request = Request(method, path, headers, body)
            there.next_answer(answer(200, b"fine"))
            before = there.origin.started
            got = there.ask(written(request, "once", next(there.numbers)), is_head=method == b"HEAD")
            outcomes.add(got.status)
            if got.status == 400:
                assert got.get("Content-Type") == "application/problem+json"
                assert there.origin.started == before
            else:
                assert got.status == 200
                assert there.origin.started == before + 1
                assert_request_arrived(there.origin.visitors[-1].requests[-1], request)

        check()
    assert outcomes == {200, 400}


def test_hop_by_hop_headers_stay_on_their_hop(tmp_path: Path) -> None:
    """In both directions, with those that Connection names; everything beside them goes through."""
    sent = [
        b"POST /once/x HTTP/1.1",
        b"Host: semel",
        b"X-Before: 1",
        b"Connection: keep-alive, X-Private",
        b"X-Private: secret",
        b"Keep-Alive: timeout=5",
        b"TE: trailers",
        b"Proxy-Authorization: Basic eA==",
        b"X-After: 2",
        b"Content-Length: 2",
    ]
    there_is = b"HTTP/1.1 200 OK\r\nX-Before: 1\r\nConnection: X-Hidden\r\nX-Hidden: 1\r\nKeep-Alive: 5\r\n"
    with world(tmp_path) as there:
        there.next_answer(there_is + b"Proxy-Authenticate: x\r\nX-After: 2\r\nContent-Length: 2\r\n\r\nok")
        got = there.ask(b"\r\n".join([*sent, b"", b"{}"]))
        (seen,) = there.origin.requests
        assert seen.headers[1:] == [(b"X-Before", b"1"), (b"X-After", b"2"), (b"Content-Length", b"2")]
        assert got.headers[:3] == [(b"X-Before", b"1"), (b"X-After", b"2"), (b"Content-Length", b"2")]
        assert [name for name, _ in got.headers[3:]] == [b"Semel-Status", b"Semel-Call", b"Cache-Status"]


@pytest.mark.parametrize("offer", [b"h2c", b"tcp", b"TLS/1.0", b"h2c, foo"])
def test_an_upgrade_that_is_only_offered_does_not_cost_the_body(tmp_path: Path, offer: bytes) -> None:
    """Java's client offers h2c with every request: it goes through as plain HTTP/1.1, body and all."""
    raw = (
        b"POST /once/x HTTP/1.1\r\nHost: semel\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
        + offer
        + b"\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 7\r\n\r\npayload"
    )
    with world(tmp_path) as there:
        there.next_answer(answer(200, b"fine"))
        got = there.ask(raw)
        assert (got.status, got.body) == (200, b"fine")
        (seen,) = there.origin.requests
        assert bytes(seen.body) == b"payload"
        assert [name for name, _ in seen.headers] == [b"Host", b"Content-Length"]


def test_interim_answers_are_not_handed_on_and_the_answer_is(tmp_path: Path) -> None:
    """100 and 103 of the upstream stay there; the answer after them comes whole."""
    with world(tmp_path) as there:
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        there.next_answer(b"HTTP/1.1 100 Continue\r\n\r\n" + early + answer(200, b"fine", (b"X", b"1")))
        got = there.ask(b"POST /once/x HTTP/1.1\r\nHost: semel\r\nContent-Length: 0\r\n\r\n")
        assert (got.status, got.body, got.get("X"), got.get("Link")) == (200, b"fine", "1", None)


def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    """Twenty requests in one write, bodies of several sizes between them: twenty answers, each its own."""

    async def talk(port: int, raw: bytes, number: int) -> list[Answer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(raw)
            async with asyncio.timeout(20):
                return [await read_answer(reader) for _ in range(number)]
        finally:
            writer.close()

    with world(tmp_path) as there:
        there.origin._scripts = [(*READ_ALL, answer(200, b"answer %d" % number)) for number in range(20)]
        sizes = [0, 10, 70_000, 3, 300_000] * 4
        raw = b"".join(
            written(Request(b"POST", b"/%d" % number, [], b"b" * size, 0), "once", 1)
            for number, size in enumerate(sizes)
        )
        answers = there.runner.run(talk(there.port, raw, 20))
        assert [one.body for one in answers] == [b"answer %d" % number for number in range(20)]
        paths_seen = [bytes(seen.head).split(b" ")[1] for seen in there.origin.requests]
        assert sorted(paths_seen) == sorted(b"/base/%d" % number for number in range(20))
        assert sorted(len(seen.body) for seen in there.origin.requests) == sorted(sizes)


def test_an_http_1_0_client_gets_the_same_bytes(tmp_path: Path) -> None:
    """No chunks for a client that does not know them: the end of the connection is the end of the body."""
    with world(tmp_path) as there:
        there.next_answer(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"abc" * 1000, 100)
        )
        got = there.ask(b"POST /once/x HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        assert got.body == b"abc" * 1000
        assert got.get("Transfer-Encoding") is None


def test_an_upstream_without_a_path_is_its_root(tmp_path: Path) -> None:
    """/{upstream} and /{upstream}/ both mean {base_url}/, and the query stays."""
    with world(tmp_path) as there:
        for target, arrives in (
            (b"/once", b"/base/"),
            (b"/once/", b"/base/"),
            (b"/once?a=%20", b"/base/?a=%20"),
        ):
            there.next_answer(answer(200, b"fine"))
            there.ask(
                b"POST %b HTTP/1.1\r\nHost: s\r\nSemel-Occurrence: %d\r\nContent-Length: 0\r\n\r\n"
                % (target, next(there.numbers))
            )
            seen = there.origin.visitors[-1].requests[-1]
            assert bytes(seen.head).split(b" ")[1] == arrives
