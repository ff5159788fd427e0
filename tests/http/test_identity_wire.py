"""Which requests are the same call, as a client sees it."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from proxy.core import identity
from tests.http.numbered import FORM, JSON, place, problem
from tests.inside import call, until
from tests.origin import READ_ALL, Wait, answer

pytestmark = pytest.mark.usefixtures("any_store")

# ---- what does not matter ----


@pytest.mark.parametrize(
    "spelling",
    [
        b'{"a":1,"b":[1,2],"c":"\xc3\xa9"}',
        b'{ "c" : "\\u00e9",\n\t"b" : [1.0, 2e0], "a" : 10e-1 }',
        b'{"b": [1, 2], "a": 1, "c": "\\u00E9"}',
    ],
)
async def test_the_spelling_of_json_does_not_matter(tmp_path: Path, spelling: bytes) -> None:
    """Order of keys, white space, escapes and the way a number is written: one call, one send."""
    async with place(tmp_path) as there:
        first = await there.post(body='{"a": 1, "b": [1, 2], "c": "é"}'.encode())
        second = await there.post(body=spelling)
        assert (second.semel, second.body) == ("replayed", first.body)
        assert first.get("Semel-Call") == second.get("Semel-Call")
        assert there.origin.started == 1


@pytest.mark.parametrize(
    "other",
    [
        b'{"a": 2}',
        b'{"a": "1"}',
        b'{"a": [1]}',
        b'{"a": 1, "b": null}',
        b'{"A": 1}',
        b"{}",
        b"",
        b'{"a": 1}x',
    ],
)
async def test_the_value_of_json_does(tmp_path: Path, other: bytes) -> None:
    """Another value, another type, one key more or less: another call."""
    async with place(tmp_path) as there:
        await there.post(body=b'{"a": 1}')
        assert (await there.post(body=other)).body == b"answer 2"


async def test_the_coding_of_the_request_body_does_not_matter(tmp_path: Path) -> None:
    """The same JSON, compressed: the same call."""
    async with place(tmp_path) as there:
        await there.post(body=b'{"a": 1}')
        squeezed = await there.post(body=gzip.compress(b'{"a":1.0}'), headers={"Content-Encoding": "gzip"})
        assert squeezed.semel == "replayed"


VOLATILE = [
    "traceparent",
    "tracestate",
    "X-Request-Id",
    "X-Stainless-Retry-Count",
    "x-stainless-runtime",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "X-Amz-Date",
    "User-Agent",
    "Mcp-Session-Id",
    "Date",
    "Accept-Encoding",
    "X-Something",
    "Semel-Tool",
]


@pytest.mark.parametrize("name", VOLATILE)
async def test_headers_that_change_when_an_agent_comes_back_do_not_matter(tmp_path: Path, name: str) -> None:
    """Present, absent, another value: one call."""
    async with place(tmp_path) as there:
        answers = [await there.post(headers=headers) for headers in ({name: "one"}, {}, {name: "two"})]
        assert [one.semel for one in answers] == ["executed", "replayed", "replayed"]
        assert there.origin.started == 1


@pytest.mark.parametrize(
    "name", ["Accept", "Range", "If-Match", "If-None-Match", "If-Modified-Since", "Prefer"]
)
async def test_headers_that_choose_the_answer_do(tmp_path: Path, name: str) -> None:
    """Each value is a call of its own."""
    async with place(tmp_path) as there:
        bodies = [(await there.post(headers=headers)).body for headers in ({name: "one"}, {}, {name: "two"})]
        assert bodies == [b"answer 1", b"answer 2", b"answer 3"]


async def test_of_content_type_only_the_media_type_matters(tmp_path: Path) -> None:
    """A charset more is the same call, another type another one."""
    async with place(tmp_path) as there:
        await there.post()
        assert (
            await there.post(headers={"Content-Type": "Application/JSON; charset=utf-8"})
        ).semel == "replayed"
        assert (await there.post(headers={"Content-Type": "text/plain"})).semel == "executed"


async def test_headers_named_by_the_rule_matter(tmp_path: Path) -> None:
    """`key.headers` makes a header part of the name."""
    async with place(tmp_path, "[{name: r, match: {path: /x}, key: {headers: [X-Account]}}]") as there:
        bodies = [(await there.post(headers={"X-Account": who})).body for who in ("a", "b", "a")]
        assert bodies == [b"answer 1", b"answer 2", b"answer 1"]


async def test_path_method_and_query_matter_and_the_order_of_the_query_does_not(tmp_path: Path) -> None:
    """`+` and `%20` alike, repeated names in order."""
    async with place(tmp_path) as there:
        first = await there.post("x?a=1&b=two+words")
        assert (await there.post("x?b=two%20words&a=1")).body == first.body
        assert (await there.post("x?a=2&b=two+words")).body != first.body
        assert (await there.post("x/?a=1&b=two+words")).body != first.body
        assert (await call(there.port, "PUT", "/up/x?a=1&b=two+words", JSON, b'{"a": 1}')).body != first.body
        assert there.origin.started == 4


async def test_include_and_exclude(tmp_path: Path) -> None:
    """Only what the rule includes, without what it excludes, names the call."""
    rules = (
        "[{name: some, match: {path: /some}, key: {include: [order]}},"
        " {name: but, match: {path: /but}, key: {exclude: [sent_at, body.meta]}}]"
    )
    async with place(tmp_path, rules) as there:
        await there.post("some", b'{"order": 7, "note": "first"}')
        assert (await there.post("some", b'{"order": 7, "note": "second"}')).semel == "replayed"
        assert (await there.post("some", b'{"order": 8, "note": "first"}')).semel == "executed"
        await there.post("but", b'{"order": 7, "sent_at": 1, "meta": {}}')
        assert (await there.post("but", b'{"order": 7, "sent_at": 2}')).semel == "replayed"
        assert (await there.post("but", b'{"order": 8, "sent_at": 1}')).semel == "executed"


# ---- who asks ----


@pytest.mark.parametrize(
    "name", ["Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Own"]
)
async def test_another_principal_makes_another_call(tmp_path: Path, name: str) -> None:
    """Nobody gets what was answered to somebody else."""
    async with place(tmp_path, credentials="[X-Own]") as there:
        alice, bob, nobody, again = [
            await there.post(headers=headers)
            for headers in ({name: "alice-secret"}, {name: "bob-secret"}, {}, {name: "alice-secret"})
        ]
        assert [alice.body, bob.body, nobody.body] == [b"answer 1", b"answer 2", b"answer 3"]
        assert (again.semel, again.body) == ("replayed", b"answer 1")


async def test_credential_exclude_shares_an_answer(tmp_path: Path) -> None:
    """The rule may say that it does not matter who asks."""
    async with place(tmp_path, "[{name: r, match: {path: /x}, key: {credential: exclude}}]") as there:
        await there.post(headers={"Authorization": "alice"})
        assert (await there.post(headers={"Authorization": "bob"})).semel == "replayed"


async def test_of_a_signature_only_the_access_key_is_the_caller(tmp_path: Path) -> None:
    """A new SigV4 signature of the same caller is the same call."""
    sign = "AWS4-HMAC-SHA256 Credential={}/20240101/eu/ses/aws4_request, SignedHeaders=host, Signature={}"
    async with place(tmp_path) as there:
        await there.post(headers={"Authorization": sign.format("AKIAONE", "aa"), "X-Amz-Date": "1"})
        again = await there.post(headers={"Authorization": sign.format("AKIAONE", "bb"), "X-Amz-Date": "2"})
        assert again.semel == "replayed"
        assert (await there.post(headers={"Authorization": sign.format("AKIATWO", "aa")})).semel == "executed"


# ---- Idempotency-Key ----


async def test_the_clients_key_names_the_call(tmp_path: Path) -> None:
    """Same key and arguments: replay. Other arguments, another principal: 422. Another key: another call."""
    async with place(tmp_path) as there:
        first = await there.post(headers={"Idempotency-Key": "k1"})
        assert (await there.post(body=b'{"a":1.0}', headers={"Idempotency-Key": "k1"})).body == first.body
        other = await there.post(body=b'{"a": 2}', headers={"Idempotency-Key": "k1"})
        assert (other.status, problem(other)) == (422, "key-conflict")
        assert other.get("x-should-retry") == "false"
        somebody = await there.post(headers={"Idempotency-Key": "k1", "Authorization": "bob"})
        assert (somebody.status, problem(somebody)) == (422, "key-conflict")
        assert (await there.post(headers={"Idempotency-Key": "k2"})).body == b"answer 2"
        assert (await there.post()).body == b"answer 3"
        assert there.origin.started == 3
        assert (b"Idempotency-Key", b"k1") in there.origin.requests[0].headers


async def test_a_key_in_flight_conflicts_as_well(tmp_path: Path) -> None:
    """Before the first answer is there: other arguments under the same key are refused at once."""
    gate = asyncio.Event()
    async with place(tmp_path, "[]", (*READ_ALL, Wait(gate), answer(200, b"first"))) as there:
        first = asyncio.create_task(there.post(headers={"Idempotency-Key": "k"}))
        await until(lambda: there.origin.started)
        assert problem(await there.post(body=b'{"a": 2}', headers={"Idempotency-Key": "k"})) == "key-conflict"
        gate.set()
        assert (await first).body == b"first"
        assert there.origin.started == 1


async def test_client_key_require_and_ignore(tmp_path: Path) -> None:
    """Required: 400 without one. Ignored: it names nothing, and is handed on."""
    rules = (
        "[{name: must, match: {path: /must}, key: {client_key: require}},"
        " {name: not, match: {path: /not}, key: {client_key: ignore}}]"
    )
    async with place(tmp_path, rules) as there:
        missing = await there.post("must")
        assert (missing.status, problem(missing)) == (400, "bad-request")
        assert (await there.post("must", headers={"Idempotency-Key": "k"})).status == 200
        await there.post("not", headers={"Idempotency-Key": "one"})
        assert (await there.post("not", headers={"Idempotency-Key": "two"})).semel == "replayed"
        assert there.origin.started == 2


# ---- repeats on purpose ----


async def test_an_occurrence_is_a_call_of_its_own(tmp_path: Path) -> None:
    """`Semel-Occurrence: 2` sends once more, and only once; 1 is what was meant without it."""
    async with place(tmp_path) as there:
        answers = [
            await there.post(headers=headers)
            for headers in (
                {},
                {"Semel-Occurrence": "2"},
                {"Semel-Occurrence": "2"},
                {"Semel-Occurrence": "1"},
            )
        ]
        assert [one.body for one in answers] == [b"answer 1", b"answer 2", b"answer 2", b"answer 1"]
        assert there.origin.started == 2


async def test_refresh_fetches_a_cached_answer_anew(tmp_path: Path) -> None:
    """For a cache rule; a call with effects is never refreshed."""
    async with place(tmp_path, "[{name: c, match: {path: /c}, mode: cache}]") as there:
        assert (await there.post("c")).body == b"answer 1"
        assert (await there.post("c")).body == b"answer 1"
        fresh = await there.post("c", headers={"Semel-Refresh": "1"})
        assert (fresh.semel, fresh.body) == ("executed", b"answer 2")
        assert (await there.post("c")).body == b"answer 2"
        await there.post("x")
        assert (await there.post("x", headers={"Semel-Refresh": "1"})).semel == "replayed"


async def test_an_answer_lives_as_long_as_its_ttl(tmp_path: Path) -> None:
    """After `ttl` the same call is a new one, for `cache` and for `once`."""
    rules = "[{name: c, match: {path: /c}, mode: cache, ttl: 1s}, {name: o, match: {path: /o}, ttl: 1s}]"
    async with place(tmp_path, rules) as there:
        for path in ("c", "o"):
            first = await there.post(path)
            again = await there.post(path)
            assert (again.semel, again.body) == ("replayed", first.body)
            assert again.get("Cache-Status") == "semel; hit; ttl=0"
        await asyncio.sleep(1.05)
        for path in ("c", "o"):
            assert (await there.post(path)).semel == "executed"
        assert there.origin.started == 4


async def test_cache_status_and_age_tell_where_an_answer_comes_from(tmp_path: Path) -> None:
    """RFC 9211 names for what semel did."""
    async with place(tmp_path) as there:
        first, second = await there.post(), await there.post()
        assert first.get("Cache-Status") == "semel; fwd=miss; stored"
        assert first.get("Age") is None
        hit, _, left = str(second.get("Cache-Status")).partition("; ttl=")
        assert hit == "semel; hit"
        assert 86_300 < int(left) <= 86_400
        assert second.get("Age") == "0"
        passed = await call(there.port, "GET", "/up/x")
        assert (passed.semel, passed.get("Semel-Call")) == ("passed", None)
        assert len(str(first.get("Semel-Call"))) == 32


async def test_token_requests_pass_unrecorded(tmp_path: Path) -> None:
    """A form with grant_type is OAuth: each one goes upstream, none is kept."""
    async with place(tmp_path) as there:
        form = b"grant_type=refresh_token&refresh_token=r"
        answers = [await call(there.port, "POST", "/up/token", FORM, form) for _ in range(2)]
        assert [one.semel for one in answers] == ["passed", "passed"]
        assert [one.body for one in answers] == [b"answer 1", b"answer 2"]
        other = [await call(there.port, "POST", "/up/token", FORM, b"grant=1&a=b") for _ in range(2)]
        assert [one.semel for one in other] == ["executed", "replayed"]


async def test_set_cookie_is_not_kept(tmp_path: Path) -> None:
    """The one who asked gets it; a replay may go to somebody else's session."""
    cookies = ((b"Set-Cookie", b"a=1"), (b"X-Kept", b"yes"), (b"set-cookie", b"b=2"))
    async with place(tmp_path, "[]", (*READ_ALL, answer(200, b"ok", *cookies))) as there:
        first, second = await there.post(), await there.post()
        assert [value for name, value in first.headers if name.lower() == b"set-cookie"] == [b"a=1", b"b=2"]
        assert second.semel == "replayed"
        assert second.get("Set-Cookie") is None
        assert second.get("X-Kept") == "yes"


# ---- collisions ----


async def test_two_calls_with_one_key_never_get_each_others_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xxHash is not collision resistant: when it collides, 500, nothing sent, the first stays what it is."""
    monkeypatch.setattr(identity, "_row_name", lambda framed: b"\x07" * 16)
    async with place(tmp_path) as there:
        first = await there.post(body=b'{"a": 1}')
        other = await there.post(body=b'{"a": 2}')
        assert (other.status, problem(other)) == (500, "identity-collision")
        assert first.body not in other.body
        keyed = await there.post(body=b'{"a": 1}', headers={"Idempotency-Key": "k"})
        assert problem(keyed) == "identity-collision"
        assert (await there.post(body=b'{"a": 1}')).body == first.body
        assert there.origin.started == 1


async def test_a_collision_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same while the first one is still on its way: it is not joined."""
    monkeypatch.setattr(identity, "_row_name", lambda framed: b"\x07" * 16)
    gate = asyncio.Event()
    async with place(tmp_path, "[]", (*READ_ALL, Wait(gate), answer(200, b"first"))) as there:
        first = asyncio.create_task(there.post(body=b'{"a": 1}'))
        await until(lambda: there.origin.started)
        assert problem(await there.post(body=b'{"a": 2}')) == "identity-collision"
        gate.set()
        assert (await first).body == b"first"
        assert there.origin.started == 1
