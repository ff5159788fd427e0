"""Plans: what is done by one is what the long way does with the same request, to the last byte.

Sent upstream, written down, answered, told and counted. What has no plan is in test_plans_not_made.py.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.front.naming import TOLD_ARGUMENTS
from proxy.front.plans import Plan
from tests.http.planned import JSON, compared, ended_alike, pair, planning, post, rule
from tests.inside import request_bytes
from tests.origin import ECHO, READ_ALL, Close, answer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain"}
LARGE = {"limits.headers": "512KiB"}  # so much may come at once, and is taken for a whole request
EXCLUDES = "key: {exclude: [at, 'items[].id', query.nonce]}"


class Kind(NamedTuple):
    """A request. `alike`: a body that says the same in other words, None where no other does."""

    body: bytes
    alike: bytes | None = None
    headers: Mapping[str, str] = JSON
    target: str = "/up/x/ann"
    method: str = "POST"
    rules: str = rule()
    more: str = ""
    settings: Mapping[str, object] = {}
    status: int = 200

    def request(self, body: bytes) -> bytes:
        return request_bytes(self.method, self.target, self.headers, body, host="127.0.0.1")

    @property
    def others(self) -> list[bytes]:
        """Other bodies that have the same head."""
        return [b'"' + filling * (len(self.body) - 2) + b'"' for filling in (b"a", b"b")]


PLANNED = {
    "plain": Kind(b'{"a":1}'),
    "the order of keys": Kind(b'{"b":1,"a":{"d":2,"c":3}}', b'{"a":{"c":3,"d":2},"b":1}'),
    "white space": Kind(b' {"a" :\n[ 1,\t2 ] } ', b'{"a":[1,2]}'),
    "unicode": Kind('{"é":"\U0001f600ß"}'.encode(), b'{"\\u00e9":"\\ud83d\\ude00\\u00df"}'),
    "large whole numbers": Kind(b'{"n":123456789012345678901234567890}'),
    "beyond what floats tell apart": Kind(b'{"n":9007199254740993}', b'{"n":9007199254740993.0}'),
    "fractions": Kind(b'{"n":[1.50,-0.0,1e3,0.1]}', b'{"n":[1.5,0,1000,1e-1]}'),
    "many words": Kind(b'{"a":"' + b"x" * 50_000 + b'"}'),
    "arguments that are told as a digest": Kind(b"[" + b"1e17," * 10_000 + b"1]"),
    "a body that is no part of the row": Kind(b'{"a":"' + b"x" * 80_000 + b'"}', settings=LARGE),
    "a query": Kind(b'{"a":1}', target="/up/x/ann?b=2&a=1+2&a=%C3%A9&"),
    "a path with an odd spelling": Kind(b'{"a":1}', target="/up/x/a%2Fb"),
    "excluded": Kind(
        b'{"at":"now","items":[{"id":1,"n":2}]}',
        b'{"items":[{"n":2,"id":999}],"at":"later"}',
        target="/up/x/ann?nonce=1&a=2",
        rules=rule(EXCLUDES),
    ),
    "included": Kind(b'{"a":1,"b":2}', b'{"a":1,"b":333}', rules=rule("key: {include: [a, path.who]}")),
    "normalised": Kind(
        b'{"at":"2024-01-31T10:20:30Z"}',
        b'{"at":"2025-02-01"}',
        rules=rule("key: {normalize: [timestamps, uuids]}"),
    ),
    "headers that count": Kind(
        b'{"a":1}',
        headers={**JSON, "Accept": "text/*", "If-Match": '"1"', "X-Place": "here", "User-Agent": "x"},
        rules=rule("key: {headers: [X-Place]}"),
    ),
    "credentials": Kind(
        b'{"a":1}',
        headers={**JSON, "Authorization": "Bearer geheim", "X-Mine": "geheim", "Cookie": "a=b"},
        more="credentials: [X-Mine]\n",
    ),
    "credentials that do not count": Kind(
        b'{"a":1}',
        headers={**JSON, "Authorization": "Bearer geheim"},
        rules=rule("key: {credential: exclude}"),
    ),
    "a credential of semel's own": Kind(
        b'{"a":1}',
        headers={**JSON, "Authorization": "Bearer dummy"},
        more="inject: {header: Authorization, value_env: MAIL_KEY}\n",
    ),
    "a client's key that is used up": Kind(b'{"a":1}', headers={**JSON, "Idempotency-Key": "k"}, status=422),
    "a client's key that is ignored": Kind(
        b'{"a":1}', headers={**JSON, "Idempotency-Key": "k"}, rules=rule("key: {client_key: ignore}")
    ),
    "words for semel": Kind(
        b'{"a":1}',
        headers={
            **JSON,
            "Semel-Occurrence": "3",
            "Semel-Tool": "saw",
            "traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01",
        },
    ),
    "no rule": Kind(b'{"a":1}', target="/up/other", rules="[]"),
    "a time to live": Kind(b'{"a":1}', rules=rule("ttl: 2h, scope: tenant, repeat: same, wait: 1s")),
    "another method": Kind(b'{"a":1}', method="DELETE"),
    "a read that is none": Kind(b'{"a":1}', method="GET", rules=rule("safe: false")),
    "another name for JSON": Kind(
        b'{"a":1}', b'{"a":1.0}', headers={"content-type": "Application/vnd.x+JSON; charset=utf-8"}
    ),
    # What cannot be read is no error: its digest names the call.
    "broken": Kind(b'{"a":1,}'),
    "cut off": Kind(b'{"a":[1'),
    "no text": Kind(b"\xff\xfe\x00\x01"),
    "a key twice": Kind(b'{"a":1,"a":2}', rules=rule("key: {include: [a]}")),
    "half a letter": Kind(b'{"a":"\\ud800"}'),
    "not a number": Kind(b'{"a":NaN}', rules=rule(EXCLUDES)),
    "deep": Kind(b"[" * 201 + b"]" * 201),
    "no object": Kind(b"null", rules=rule("key: {include: [a]}")),
}
# The same is compared of them: nothing that has no plan may be changed by one that the others have.
UNPLANNED = {
    "a form": Kind(b"b=1&a=x+y", b"a=x%20y&b=1", headers=FORM),
    "a form that asks for a token": Kind(b"a=1&grant_type=x", headers=FORM, target="/up/token", rules="[]"),
    "text": Kind(b"some words", headers=TEXT),
    "no type": Kind(b'{"a":1}', headers={}),
    "parts": Kind(
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n',
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    ),
    "packed": Kind(gzip.compress(b'{"a":1}', mtime=0), headers={**JSON, "Content-Encoding": "gzip"}),
    "over 64 KiB": Kind(b'{"a":"' + b"x" * 80_000 + b'"}'),
    "a long head": Kind(b'{"a":1}', headers={**JSON, "X-Long": "x" * 2048}),
}


@pytest.mark.parametrize(
    ("kind", "planned"),
    [(kind, True) for kind in PLANNED.values()] + [(kind, False) for kind in UNPLANNED.values()],
    ids=[*PLANNED, *UNPLANNED],
)
async def test_a_plan_does_what_the_long_way_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_plan: list[bytes], kind: Kind, planned: bool
) -> None:
    """The third body behind one head, and the same again, and the same in other words, which is no other
    call."""
    monkeypatch.setenv("MAIL_KEY", "Bearer wohl-verwahrt")
    request = kind.request(kind.body)
    async with pair(tmp_path, rules=kind.rules, more=kind.more, settings=kind.settings) as both:
        await compared(both, *map(kind.request, kind.others))
        assert isinstance(both.planned.plan_of(request), Plan) is planned
        by_plan.clear()
        first, again = await compared(both, request, request)
        assert by_plan == ([kind.body] * 2 if planned else [])
        counted = await ended_alike(both)
        calls = [float(value) for name, value in counted.items() if name.startswith("semel_calls_total")]
        assert sum(calls) == 4
        if kind.alike is not None:
            (alike,) = await compared(both, kind.request(kind.alike))
            assert (alike.sent, alike.row) == ([], again.row)
    assert both.planned.lines() == both.long.lines()
    assert len(both.planned.lines()) >= 4
    assert first.answer[0] == kind.status
    assert [body for _, body in first.sent] == ([kind.body] if kind.status == 200 else [])
    assert first.row is None or (again.sent, again.row) == ([], first.row)


async def test_long_arguments_are_told_as_a_digest(tmp_path: Path, by_plan: list[bytes]) -> None:
    """A body may be short enough for a plan, and what it says too long for the record."""
    kind = PLANNED["arguments that are told as a digest"]
    async with planning(tmp_path) as there:
        for body in (*kind.others, kind.body):
            told = await there.told(kind.request(body))
        assert by_plan == [kind.others[1], kind.body]
        assert told.request is not None
        assert json.loads(told.request.arguments)[0] == "digest"
        assert len(told.request.arguments) < 100 < TOLD_ARGUMENTS < len(kind.body) * 3


ANSWERS = [
    answer(200, b"done"),
    answer(404, b"none"),
    answer(429, b"later", (b"Retry-After", b"1")),
    answer(500, b'{"said": "Bearer geheim-4711 is no good"}'),
    answer(302, b"", (b"Location", b"/elsewhere")),
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    answer(418, b"odd"),
    answer(503, b"busy"),
]


@pytest.mark.parametrize("further", ["", "outcome: {not_executed: [404], in_doubt: [418], final: [503]}"])
async def test_every_answer_is_judged_as_on_the_long_way(
    tmp_path: Path, by_plan: list[bytes], further: str
) -> None:
    """One after another behind one head, in both orders, each asked twice: what one came to says nothing of
    the next. What broke off is in doubt, and no word of it gives a secret away."""
    given = [*ANSWERS, *reversed(ANSWERS), b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"]
    states = set()
    async with pair(tmp_path, ECHO, rules=rule(further)) as both:
        headers = {**JSON, "Authorization": "Bearer geheim-4711"}
        await compared(both, *(post(b'{"n":1%02d}' % n, headers) for n in range(2)))
        by_plan.clear()
        for number, said in enumerate(given):
            request = post(b'{"n":2%02d}' % number, headers)
            for side in both:
                side.origin.then((*READ_ALL, said, *([Close()] if number == len(given) - 1 else [])))
            (first,) = await compared(both, request)
            (again,) = await compared(both, request)
            assert first.row is not None
            assert again.row is not None
            assert (again.sent == []) is (first.row.state != "released")
            assert b"geheim" not in repr((first.row, first.request, first.history)).encode()
            states.add(str(first.row.state))
        assert states == {"done", "released", "in_doubt"}
        assert len(by_plan) == 2 * len(given)
        await ended_alike(both)
    assert both.planned.lines() == both.long.lines()
