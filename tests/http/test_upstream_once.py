"""However the connection breaks, the upstream sees one send begin at most once.

The origin counts requests by their first byte, over all connections.
"""

from __future__ import annotations

import pytest

from proxy.upstream.base import Answered, Lost, NotSent
from proxy.upstream.client import request_head
from tests.counts import count
from tests.origin import OK, READ_ALL, Close, Origin, ReadBody, ReadByte, ReadHead, Script, answer, run_on
from tests.relay import Act, Fault, Plan, Relay
from tests.sending import Collecting, both_loops, client, request, yes

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
BODY = b"0123456789"
RAW = answer(200, b"abcdef", (b"X-Header", b"value"))
HEAD_END = RAW.index(b"\r\n\r\n") + 4

# Where the upstream closes.
OFFSETS: dict[str, Script] = {
    "before reading anything": (Close(),),
    "after the head": (ReadHead(), Close()),
    "in the middle of the body": (ReadHead(), ReadBody(5), Close()),
    "after the whole request": (*READ_ALL, Close()),
    "in the middle of the answer head": (*READ_ALL, RAW[:20], Close()),
    "in the middle of the answer body": (*READ_ALL, RAW[: HEAD_END + 3], Close()),
}


@both_loops
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
def test_closed_by_the_upstream_never_sent_twice(loop: str, reused: bool, offset: str) -> None:
    """Seven methods, a fresh and a reused connection, six places to close: one request begins, at most."""

    async def scenario(method: str) -> None:
        # On a reused connection, "before reading anything" means: with the first byte of the request.
        script = (ReadByte(), Close()) if reused and "reading" in offset else OFFSETS[offset]
        async with Origin(*((OK,) if reused else ()), script) as origin, client() as upstream:
            if reused:
                assert await upstream.send(request(origin.port), Collecting(), yes) == Answered(200)
            before = origin.started
            sink = Collecting()
            out = request(origin.port, method, body=BODY)
            result = await upstream.send(out, sink, yes)
            if method == "HEAD" and offset == "in the middle of the answer body":
                assert result == Answered(200), "the head is all of the answer"
            else:
                assert isinstance(result, Lost | NotSent)
            assert origin.started - before <= 1
            assert origin.connections == 1
            if origin.started > before:
                assert not isinstance(result, NotSent), "the origin saw it"
            if offset != "before reading anything":
                assert origin.started - before == 1
                in_body = offset == "in the middle of the answer body"
                assert sink.status == (200 if in_body else 0)
                assert sink.body == (b"abc" if in_body and method != "HEAD" else b"")

    for method in METHODS:
        run_on(loop, scenario(method))


@pytest.mark.parametrize("act", [Act.CUT, Act.RESET])
@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
def test_cut_on_the_way_in_either_direction(reused: bool, act: Act) -> None:
    """A relay breaks the connection after n bytes of a PUT or its answer: some n here, every n in a soak."""
    method = "PUT"

    async def scenario(direction: str, at: int) -> None:
        async with Origin((*READ_ALL, RAW)) as origin, client() as upstream:
            warm_up = len(RAW) if direction == "down" else request_length(origin.port)
            fault = Fault(at + (warm_up if reused else 0), act)
            plan = Plan(up=fault) if direction == "up" else Plan(down=fault)
            async with Relay(origin.port, plan) as relay:
                out = request(relay.port, method, body=BODY)
                if reused:
                    assert await upstream.send(out, Collecting(), yes) == Answered(200)
                before = origin.started
                seen = relay.seen_up
                result = await upstream.send(out, Collecting(), yes)
                whole = len(RAW) if direction == "down" else request_length(relay.port)
                assert origin.started - before <= 1
                assert len(relay.passages) == 1
                assert relay.seen_up > seen
                assert isinstance(result, Lost) or (at >= whole and result == Answered(200))

    def request_length(port: int) -> int:
        out = request(port, method, body=BODY)
        return len(request_head(out.method, out.target, out.headers)) + len(BODY)

    async def everywhere() -> None:
        for at in range(1, request_length(10000), count(9, 1)):
            await scenario("up", at)
        for at in range(1, len(RAW), count(7, 1)):
            await scenario("down", at)

    run_on("uvloop", everywhere(), within=120)
