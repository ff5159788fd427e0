"""Plans on the wire: many at once, other tenants, requests cut up, bodies that are no call, other heads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.core import identity
from proxy.core.canonical import Body
from proxy.core.identity import Asked
from proxy.core.policy import KeyRecipe, Normalize
from proxy.errors import BadRequest
from proxy.front.connection import Connection
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.forward.scene import client
from tests.http.planned import JSON, compared, pair, planning, post
from tests.inside import call, until
from tests.origin import ECHO, READ_ALL, Wait, answer


async def test_identical_calls_at_once_are_one(tmp_path: Path, by_plan: list[bytes]) -> None:
    """On as many connections as there are: one is sent, the others join it."""
    go = asyncio.Event()
    async with planning(tmp_path, ECHO) as there:
        for n in range(2):
            await there.ask(post(b'{"n":%d}' % n))
        there.origin.then((*READ_ALL, Wait(go), answer(200, b"slow")))
        asking = [asyncio.create_task(there.ask(post(b'{"n":9}'))) for _ in range(5)]
        await until(lambda: len(by_plan) == 6)
        go.set()
        got = [await task for task in asking]
        assert sorted(str(one.semel) for one in got) == ["executed", *["joined"] * 4]
        assert {one.body for one in got} == {b"slow"}
        assert there.origin.started == 3


async def test_each_tenant_has_a_plan_of_its_own(tmp_path: Path, by_plan: list[bytes]) -> None:
    """A token is a part of the head: what is planned for one is never another's."""
    names = ("acme", "zero")
    tokens = [Token(sha256=digest(name), tenant=name, role=Role.AGENT) for name in names]
    async with planning(tmp_path, tokens=tokens) as there:
        keys = set()
        for n in range(4):
            for name in names:
                told = await there.told(post(b'{"n":%d}' % n, {**JSON, "Semel-Token": name}))
                assert told.row is not None
                assert (told.row.tenant, told.row.state, len(told.sent)) == (name, "done", 1)
                keys.add(told.row.key)
        assert (len(keys), len(by_plan)) == (8, 6)


async def test_however_it_is_cut_up_it_goes_by_its_plan(tmp_path: Path, by_plan: list[bytes]) -> None:
    """Head and body apart, the body in pieces; several at once, which no plan is for, in their order."""
    async with planning(tmp_path) as there, client(there.port) as outside:
        for n in range(2):
            await outside.ask(post(b'{"n":10%d}' % n))
        (connection,) = there.app._listener.connections
        assert isinstance(connection, Connection)
        for n, cut in enumerate((9, 8, 4, 1)):
            request = post(b'{"n":20%d}' % n)
            outside.writer.write(request[:-cut])
            await until(lambda: connection._gathered)
            assert (await outside.ask(request[-cut:])).body == b'POST /base/x/ann|{"n":20%d}' % n
        assert len(by_plan) == 5
        outside.writer.write(post(b'{"n":300}') + post(b'{"n":301}'))
        assert [(await outside.ask(b"")).body[-9:] for _ in range(2)] == [b'{"n":300}', b'{"n":301}']
        assert (await outside.ask(post(b'{"n":302}'))).body[-9:] == b'{"n":302}'
        assert [bytes(seen.body)[5:8] for seen in there.origin.requests] == [
            b"%d" % n for n in (100, 101, 200, 201, 202, 203, 300, 301, 302)
        ]


def refuses_bodies_with(word: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule that may have a plan refuses a body by itself today, so naming is made to."""
    real = identity._arguments

    def refusing(asked: Asked, body: Body, key: KeyRecipe, normalize: tuple[Normalize, ...]) -> bytes:
        if word in body.data:
            raise BadRequest("This is no call.")
        return real(asked, body, key, normalize)

    monkeypatch.setattr(identity, "_arguments", refusing)


async def test_a_body_that_is_no_call_is_refused_as_on_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_plan: list[bytes]
) -> None:
    """Nothing is sent, nothing is written, and the next request on the connection is served."""
    refuses_bodies_with(b"no", monkeypatch)
    async with pair(tmp_path) as both:
        await compared(both, *(post(b'{"a":"%d%d"}' % (n, n)) for n in range(2)))
        for side in both:
            sent, kept = side.origin.started, await side.recorded()
            async with client(side.port) as outside:
                for body, status in ((b'{"a":"no"}', 400), (b'{"a":"ok"}', 200), (b'{"a":"no"}', 400)):
                    if side.forgets:
                        side.app._listener.whole._known.clear()
                    assert (await outside.ask(post(body))).status == status
            assert (side.origin.started - sent, await side.recorded() - kept) == (1, 1)
        by_plan.clear()
        (refused,) = await compared(both, post(b'{"a":"no"}'))
        assert (refused.answer[0], refused.sent, refused.row) == (400, [], None)
        assert by_plan == [b'{"a":"no"}']


async def test_a_plan_is_for_its_head_alone(tmp_path: Path, by_plan: list[bytes]) -> None:
    """Whatever else is said before a body of the same length."""
    async with planning(tmp_path) as there:
        for n in range(3):
            await there.ask(post(b'{"n":%d}' % n))
        assert len(by_plan) == 2
        for target, headers, told in (
            ("/up/x/bob", JSON, b'POST /base/x/bob|{"n":2}'),
            ("/up/x/ann?q", JSON, b'POST /base/x/ann?q|{"n":2}'),
            ("/up/x/ann", {**JSON, "Semel-Occurrence": "2"}, b'POST /base/x/ann|{"n":2}'),
            ("/up/x/ann", {**JSON, "Authorization": "Bearer x"}, b'POST /base/x/ann|{"n":2}'),
        ):
            got = await call(there.port, "POST", target, headers, b'{"n":2}')
            assert (got.semel, got.body) == ("executed", told)
        assert len(by_plan) == 2
