"""Naming a request: alike whether remembered or not, beside the loop where it may take long, and bounded."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import brotli
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.canonical import Body
from proxy.core.clauses import Approval
from proxy.core.encoding import decode
from proxy.core.identity import Asked, Identity, identify
from proxy.core.matching import default_rule
from proxy.core.patterns import PathPattern
from proxy.core.policy import KeyRecipe, Looks, Mode, PolicySet, Repeat, Rule, Upstream
from proxy.core.redaction import Veiling
from proxy.errors import BadRequest
from proxy.front import naming, reading
from proxy.front.address import UpstreamAddress, parse_target
from proxy.front.aside import Aside
from proxy.front.naming import LOOKED_AT_INLINE, REMEMBERED_SIZE, TOLD_ARGUMENTS, Named, Namer, ToName
from proxy.spool import Spool
from tests.counts import count
from tests.http.numbered import FORM, place
from tests.inside import call, semel, until
from tests.origin import READ_ALL, Origin, answer

T = TypeVar("T")
SECRET = b"s" * 32
LIMIT = 8 * 1024 * 1024
Headers = tuple[tuple[bytes, bytes], ...]
JSON: Headers = ((b"Content-Type", b"application/json"),)
GZIP: Headers = (*JSON, (b"Content-Encoding", b"gzip"))


class Request(NamedTuple):
    method: str
    target: str
    headers: Headers
    body: bytes | None


def rule(name: str, path: str) -> Rule:
    return Rule(name=name, path=PathPattern.parse(path))


RULES = (
    replace(rule("narrow", "/narrow/{a}"), key=KeyRecipe(include=("a", "path.a"))),
    replace(rule("shared", "/shared"), mode=Mode.CACHE),
    replace(rule("same", "/same"), repeat=Repeat.SAME),
    replace(rule("plain", "/plain"), mode=Mode.PASS),
)


def policies(*rules: Rule) -> PolicySet:
    names = ("up", "up2")
    return PolicySet(
        upstreams={
            name: Upstream(name=name, scheme="http", host="h", port=1, rules=rules or RULES) for name in names
        }
    )


@asynccontextmanager
async def namer() -> AsyncIterator[Namer]:
    aside = Aside()
    try:
        yield Namer(veiling=Veiling(SECRET), body_limit=LIMIT, aside=aside)
    finally:
        aside.close()


async def named(by: Namer, policy: PolicySet, request: Request) -> Named | str:
    address = parse_target(request.target)
    assert isinstance(address, UpstreamAddress)
    body = None if request.body is None else Spool.of(request.body)
    told = [int(value) for name, value in request.headers if name.lower() == b"semel-occurrence"]
    upstream = policy.upstreams[address.upstream]
    try:
        occurrence = told[0] if told else 1
        return await by.name(
            policy,
            ToName(upstream, address, request.method, request.headers, body, occurrence, "default"),
        )
    except BadRequest as error:
        return error.detail


# ---- remembered or not ----

TARGETS = [
    f"/{name}{path}" for name in ("up", "up2") for path in ("/x", "/narrow/1", "/shared", "/same", "/plain")
]
QUERIES = st.sampled_from(
    ["", "?", "?None", "??", "?a", "?a=", "?a=1", "?a=1&b", "?=", "?%61=1", "?POST", "?{}"]
)
NAMES = [
    b"Accept",
    b"accept",
    b"Content-Type",
    b"Content-Encoding",
    b"Authorization",
    b"Idempotency-Key",
    b"X-A",
]
VALUES = [b"", b"1", b"application/json", b"application/x-www-form-urlencoded", b"gzip", b"x-odd", b"a, b"]
FORMS = [b"a=1", b"grant_type=x"]
DOCUMENTS = [b"{}", b'{"a":1}', b'{"a":1.0}', b'{ "a": 2}', b"POST /x", b"\x00\xff", b""]
BODIES = [None, *FORMS, *DOCUMENTS, *(gzip.compress(body, mtime=0) for body in FORMS + DOCUMENTS)]
REQUESTS = st.builds(
    Request,
    st.sampled_from(["GET", "POST", "PUT", "HEAD"]),
    st.builds(str.__add__, st.sampled_from(TARGETS), QUERIES),
    st.builds(
        lambda pairs, told: (*pairs, *told),
        st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=4),
        st.sampled_from([(), ((b"Semel-Occurrence", b"1"),), ((b"semel-occurrence", b"2"),)]),
    ),
    st.sampled_from(BODIES) | st.binary(max_size=10),
)


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Request, ...]:
    """Requests that differ in one place, so that what a memory may overlook is drawn often."""
    request = draw(REQUESTS)
    others = draw(st.lists(st.tuples(st.sampled_from(Request._fields), REQUESTS), min_size=1, max_size=3))
    return (request, *(request._replace(**{field: getattr(other, field)}) for field, other in others))


@settings(max_examples=count(150, 20_000), deadline=None)
@given(neighbours())
@example((Request("POST", "/up/x", (), b""), Request("POST", "/up/x?None", (), b"")))
@example((Request("POST", "/up/x?a", (), b""), Request("POST", "/up/x", (), b"?a")))
@example((Request("POST", "/up/x", (), b"1"), Request("POST", "/up/x1", (), b"")))
@example(
    (Request("PUT", "/up/x", ((b"Accept", b"1"),), b""), Request("PUT", "/up/x", ((b"Accep", b"t1"),), b""))
)
@example((Request("PUT", "/up/x", ((b"If-", b"1"),), b""), Request("PUT", "/up/x", (), b"If-1")))
def test_what_was_remembered_never_changes_a_name(requests: tuple[Request, ...]) -> None:
    """Whatever was named before, a request is named as if it were the first."""
    policy = policies()

    async def scenario() -> None:
        async with namer() as warm:
            for request in requests * 2:
                async with namer() as fresh:
                    expected = await named(fresh, policy, request)
                assert await named(warm, policy, request) == expected

    asyncio.run(scenario())


async def test_a_name_found_while_the_policies_changed_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is right for the request that asked, under the rules of that time, and for no other."""
    before, after = policies(rule("before", "/x")), policies(rule("after", "/x"))
    entered, gate = threading.Event(), threading.Event()
    request = Request("POST", "/up/x", GZIP, gzip.compress(b"{}"))

    def slow(asked: Asked, matched: Rule, secret: bytes) -> Identity:
        if matched.name == "before":
            entered.set()
            assert gate.wait(10)
        return identify(asked, matched, secret)

    monkeypatch.setattr(naming, "identify", slow)
    async with namer() as by:
        first = asyncio.create_task(named(by, before, request))
        await until(entered.is_set)
        await named(by, after, Request("POST", "/up/y", (), None))  # a request under the new policies
        gate.set()
        assert rule_of(await first) == "before"
        assert rule_of(await named(by, after, request)) == "after"


def rule_of(result: Named | str) -> str:
    assert isinstance(result, Named)
    return result.match.rule.name


# ---- beside the loop ----


@pytest.mark.parametrize(
    ("request_", "aside"),
    [
        (Request("POST", "/up/x", JSON, b"{}"), False),
        (Request("POST", "/up/x", JSON, b'"%b"' % (b"x" * 300_000)), True),
        (Request("POST", "/up/x", GZIP, gzip.compress(b"{}")), True),
        (Request("POST", "/up/x", GZIP, b"no gzip"), True),
    ],
    ids=["small", "large", "compressed", "not what it says"],
)
async def test_what_may_take_long_is_named_in_a_thread_for_that(
    monkeypatch: pytest.MonkeyPatch, request_: Request, aside: bool
) -> None:
    """Reading, decoding and hashing alike; never in the threads that look up host names."""
    where: list[str] = []

    def watched(function: Callable[..., T]) -> Callable[..., T]:
        def run(*args: object) -> T:
            where.append(threading.current_thread().name)
            return function(*args)

        return run

    monkeypatch.setattr(naming, "identify", watched(identify))
    monkeypatch.setattr(reading, "decode", watched(decode))
    monkeypatch.setattr(Spool, "whole", watched(Spool.whole))
    async with namer() as by:
        assert isinstance(await named(by, policies(), request_), Named)
    # The ticket of a small one is made of its bytes.
    expected = {"semel-aside"} if aside else {threading.current_thread().name}
    if request_.body is not None and len(request_.body) <= REMEMBERED_SIZE:
        assert where.pop(0) == threading.current_thread().name
    assert {name.rsplit("_", 1)[0] for name in where} == expected


@pytest.mark.parametrize(
    ("further", "values", "aside"),
    [
        ({"looks": Looks(when="a")}, LOOKED_AT_INLINE, False),
        ({"looks": Looks(when="a")}, LOOKED_AT_INLINE + 1, True),
        ({"approval": Approval(when="a")}, LOOKED_AT_INLINE + 1, True),
        ({}, LOOKED_AT_INLINE + 1, False),
    ],
    ids=["few", "many", "many to be permitted", "nobody looks"],
)
async def test_many_values_are_looked_at_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, further: dict[str, Any], values: int, aside: bool
) -> None:
    """An expression takes its time with each of them."""
    where: list[str] = []

    def watched(asked: Asked, rule: Rule, secret: bytes) -> Identity:
        where.append(threading.current_thread().name)
        return identify(asked, rule, secret)

    monkeypatch.setattr(naming, "identify", watched)
    async with namer() as by:
        body = b'{"a": [%b1]}' % (b"1," * values)
        looking = policies(Rule(name="looking", **further))
        assert isinstance(await named(by, looking, Request("POST", "/up/x", JSON, body)), Named)
    (name,) = where
    assert name.startswith("semel-aside") is aside


async def test_the_threads_end_with_semel(tmp_path: Path) -> None:
    """They are its own, so it closes them."""
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy) as app:
            headers = {"Content-Encoding": "gzip"}
            assert (
                await call(app.address.port, "POST", "/up/x", headers, gzip.compress(b"{}"))
            ).status == 200
            assert threads()
        await until(lambda: not threads())


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("semel-aside")]


# ---- bounded ----


@pytest.mark.parametrize("size", [100, REMEMBERED_SIZE, TOLD_ARGUMENTS, TOLD_ARGUMENTS + 1, LIMIT - 100])
async def test_large_arguments_are_told_as_a_digest_and_name_the_call_all_the_same(size: int) -> None:
    """A few kilobytes become megabytes: neither the memory nor the record holds them."""
    body = b'{"a":"' + b"x" * size + b'"}'
    async with namer() as by:
        results = []
        for other in (body, body, body.replace(b"xx", b"xy", 1)):
            result = await named(by, policies(), Request("POST", "/up/x", GZIP, gzip.compress(other, 9)))
            assert isinstance(result, Named)
            assert result.identity is not None
            results.append(result.identity)
        kept = [entry.identity.arguments for entry in by._remembered.values() if entry.identity]
    plain = await named_plainly(body)
    assert results[0] == results[1]
    assert results[0]._replace(arguments=b"") == plain._replace(arguments=b"")
    assert len({identity.key for identity in results}) == 2
    assert len({identity.arguments for identity in results}) == 2
    assert all(len(identity.arguments) <= TOLD_ARGUMENTS for identity in results)
    assert all(len(arguments) <= REMEMBERED_SIZE for arguments in kept)
    assert plain.arguments == results[0].arguments or len(plain.arguments) > TOLD_ARGUMENTS


async def named_plainly(body: bytes) -> Identity:
    """As `identify` alone would have it."""
    asked = Asked("default", "up", "POST", b"/x", b"", GZIP, {}, Body("application/json", b"", body))
    return identify(asked, default_rule("POST", has_grant_type=False).rule, SECRET)


async def test_what_unpacks_to_more_than_a_body_may_have_is_named_by_its_bytes() -> None:
    """The same bytes are the same call, others another one."""
    bomb = [gzip.compress(b"[" + b"1," * LIMIT + b"1]", mtime=mtime) for mtime in (0, 0, 1)]
    async with namer() as by:
        found = [await named(by, policies(), Request("POST", "/up/x", GZIP, body)) for body in bomb]
    keys = [result.identity.key for result in found if isinstance(result, Named) and result.identity]
    assert keys[0] == keys[1] != keys[2]


async def test_a_small_body_that_unpacks_to_a_large_one_leaves_a_small_record(tmp_path: Path) -> None:
    """The body is kept as it came, and the arguments are not kept inline beside it."""
    body = gzip.compress(b'{"a": "' + b"x" * 4_000_000 + b'"}')
    async with place(tmp_path) as there:
        results = [await there.post(body=body, headers={"Content-Encoding": "gzip"}) for _ in range(2)]
        assert [one.semel for one in results] == ["executed", "replayed"]
    assert sum(file.stat().st_size for file in (tmp_path / "state").glob("ledger*")) < 1_000_000


# ---- token requests ----


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_compressed_token_requests_pass_unrecorded(tmp_path: Path, coding: str) -> None:
    """What is said counts, not how it is packed; another form is recorded."""
    pack = {"gzip": gzip.compress, "br": brotli.compress}[coding]
    headers = {**FORM, "Content-Encoding": coding}
    async with place(tmp_path) as there:
        for form, expected in (
            (b"a=b&grant%5Ftype=refresh_token", ["passed", "passed"]),
            (b"a=b&grant=refresh_token", ["executed", "replayed"]),
        ):
            packed = pack(form)
            results = [await call(there.port, "POST", "/up/token", headers, packed) for _ in range(2)]
            assert [one.semel for one in results] == expected
