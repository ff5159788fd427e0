"""`semel explain`: the rule, the parts of the name, the id that the proxy gives, and what would happen."""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.explain import SCHEMA
from proxy.core import decide as core
from proxy.core.approval import for_occurrence
from proxy.core.clauses import OnDoubt, Probe, UpstreamKey
from proxy.core.intent import Answer, Call, Doubt, Place, State, evolve
from proxy.core.policy import Rule
from proxy.core.terms import Terms
from proxy.errors import StoreUnavailable
from proxy.explaining.now import with_record
from proxy.store.embedded import EmbeddedStore
from tests import inside
from tests.cli.command import semel as run_semel
from tests.cli.explaining import document, explained, recorded
from tests.explain_pairs import Request
from tests.inside import raw_call, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, Reset, Stall
from tests.process import SemelProcess

JSON = {"Content-Type": "application/json"}
POLICY = """upstream: mail
base_url: http://127.0.0.1:PORT/base
rules:
  - name: send
    match: {method: POST, path: "/v1/{box}/messages"}
    key: {exclude: [trace], headers: [x-team, x-session-id], normalize: [uuids]}
  - name: search
    match: {method: GET, path: /search}
    mode: cache
    key: {include: [q]}
  - name: stats
    match: {path: /stats}
    mode: pass
  - name: admin
    match: {path: /admin/**}
    mode: deny
"""
URL = "/mail/v1/a/messages"
SEND = Request("POST", URL, (), '{"to": "bob", "trace": 1, "n": [1.50, {"a": null}]}')


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Policies, and nothing on record."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "test.yaml").write_text(POLICY.replace("PORT", "9"))
    return tmp_path


# ---- the name and its parts ----


def test_everything_that_names_a_call_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rule with its place, arguments by field, headers that count, what is left out and why."""
    headers = (
        "X-Team: a",
        "User-Agent: x",
        "X-Other: y",
        "Authorization: Bearer geheim",
        "Semel-Occurrence: 2",
    )
    told = document(capsys, place, Request("POST", URL + "?v=2", headers, SEND.body))
    assert told["request"] == {
        "method": "POST",
        "upstream": "mail",
        "target": "/v1/a/messages?v=2",
        "tenant": "default",
        "occurrence": 2,
    }
    at = f"{place}/policies/test.yaml:4"
    assert told["rule"] == {"name": "send", "at": at, "mode": "once", "safe": False}
    assert {one["field"]: one["value"] for one in told["arguments"]} == {
        "path.box": '"a"',
        "query.v": '["2"]',
        "body.to": '"bob"',
        "body.n": '[1.5, {"a": null}]',
    }
    assert {one["name"]: one["value"] for one in told["headers"]} == {
        "x-team": "a",
        "content-type": "application/json",
    }
    assert told["counts_too"] == ["the caller's credentials (authorization), as a keyed hash"]
    assert {one["what"]: one["why"] for one in told["left_out"]} == {
        "trace": "key.exclude",
        "uuids in arguments": "key.normalize",
        "header user-agent": "it changes when a crashed agent comes back",
        "header x-other": "not in key.headers",
    }
    assert told["canonical"].startswith('["json",{"body":{')
    assert told["like"] is None


def test_the_page_has_the_same_in_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: one line or one list for each part."""
    headers = ("X-Team: a", "X-Session-Id: geheim", "Idempotency-Key: k")
    printed = explained(capsys, place, Request("POST", URL, headers, SEND.body)).out
    for expected in (
        "request     POST /v1/a/messages at upstream mail\n",
        f"rule        send ({place}/policies/test.yaml:4)\n",
        "mode        once, with effects\n",
        '  body.to   "bob"\n',
        "  x-session-id  (not shown)\n",
        "  the Idempotency-Key, in place of arguments and credentials",
        "  trace               key.exclude\n",
        'canonical   ["json",{"body":{"n":[15e-1,{"a":null}],"to":"bob"},"path":{"box":"a"}}]\n',
        "now         executed: there is no record to look into",
    ):
        assert expected in printed


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Authorization: Bearer geheim", "Accept: */*"),
        ("Idempotency-Key: k", "Cookie: a=geheim"),
        ("X-Session-Id: geheim", "X-Team: b"),
    ],
)
def test_the_id_is_the_one_that_the_proxy_gives(
    headers: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One naming for both: what was sent through semel is found again under the explained id."""
    request = Request("POST", URL, headers, SEND.body)
    ((status, call),) = recorded(tmp_path, POLICY, request)
    assert status == "executed"
    told = document(capsys, tmp_path, request)
    assert told["call"] == call
    assert told["now"]["what"] == "replayed"


def test_without_a_record_the_id_is_told_only_where_it_does_not_depend_on_one(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Credentials count as a hash under the record's secret; a client's key takes their place."""
    credentials, key = "Authorization: Bearer geheim", "Idempotency-Key: k"
    assert document(capsys, place, Request("POST", URL, (credentials,), "{}"))["call"] is None
    assert (
        "known only with the record"
        in explained(capsys, place, Request("POST", URL, (credentials,), "{}")).out
    )
    for headers in ((), (credentials, key)):
        request = Request("POST", URL, headers, "{}")
        alone = document(capsys, place, request)["call"]
        ((_, call),) = recorded(tmp_path / f"with-{len(headers)}", POLICY, request)
        assert alone == call


@pytest.mark.parametrize("run", [None, "night"])
def test_without_a_record_too_a_person_would_be_asked(
    run: str | None, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who tries a rule with `approval` before the first call is not told that it would be sent."""
    asking = POLICY.replace("  - name: send\n", "  - name: send\n    approval: always\n")
    (place / "policies" / "test.yaml").write_text(asking.replace("PORT", "9"))
    url = URL if run is None else f"/@{run}{URL}"
    told = document(capsys, place, Request("POST", url, (), SEND.body))
    assert told["now"]["what"] == "awaiting-approval"


def test_a_rule_that_only_looks_on_lets_it_pass(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And it is told what would happen without that."""
    shadowed = POLICY.replace("  - name: send\n", "  - name: send\n    shadow: true\n")
    (place / "policies" / "test.yaml").write_text(shadowed.replace("PORT", "9"))
    now = document(capsys, place, SEND)["now"]
    assert now["what"] == "passed"
    assert "shadow: true" in now["detail"]
    assert "it would be sent" in now["detail"]


def test_nothing_is_made_by_asking(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No state directory, no database."""
    explained(capsys, place, SEND)
    assert not (place / "state").exists()


def test_include_is_told_and_so_is_one_that_selects_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fallback to everything is a common surprise."""
    told = document(capsys, place, Request("GET", "/mail/search?q=a&p=1"))
    assert told["arguments"] == [{"field": "query.q", "value": '[["a"]]'}]
    assert {"what": "all arguments but q", "why": "key.include"} in told["left_out"]
    told = document(capsys, place, Request("GET", "/mail/search?p=1"))
    assert told["arguments"] == [{"field": "query.p", "value": '["1"]'}]
    assert "selects nothing" in told["left_out"][0]["why"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("1794811397.9897454", "1794811397.9897454"),
        ("-0.00120", "-0.0012"),
        ("1.50e3", "1500"),
        ("-70", "-70"),
        ("1e-2", "0.01"),
        ("1e400", "1e400"),
        ("1e999999", "1e999999"),
    ],
)
def test_numbers_are_told_as_people_write_them(
    written: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain decimals, exactly, as far as they are of a length to read; the canonical form is as it was."""
    found = document(capsys, place, Request("POST", URL, (), f'{{"n": {written}}}'))
    assert {one["field"]: one["value"] for one in found["arguments"]}["body.n"] == told
    if "." in told:
        assert told not in found["canonical"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"trace": 1}', "key.exclude"),
        ('{"to": "bob"}', "key.exclude, but it is not in this request"),
        ('{"trcae": 1}', "key.exclude, but it is not in this request: did you mean 'trcae'?"),
        ('{"in": [{"x": {"trase": 1}}], "track": 1}', "key.exclude, but it is not in this request: did you"),
        ("[1, 2]", "key.exclude, but it is not in this request"),
        ('{"trace": 1, "trace": 2}', "key.exclude, but it is not in this request"),
    ],
)
def test_a_name_that_leaves_nothing_out_is_told_as_such(
    body: str, why: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name in `exclude` is silent otherwise; a field with a near name is suggested."""
    found = document(capsys, place, Request("POST", URL, ("Content-Type: application/json",), body))
    (said,) = (one["why"] for one in found["left_out"] if one["what"] == "trace")
    assert said == why or (why.endswith("did you") and said.startswith(why))
    printed = explained(capsys, place, Request("POST", URL, (), body)).out
    assert ("not in this request" in printed) == ("not in" in why)


def test_a_name_that_is_left_out_already_is_no_near_name(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`atempt` beside `attempt`: both are in the policy, and nothing is to be mended by writing it again."""
    policy = place / "policies" / "test.yaml"
    policy.write_text(policy.read_text().replace("exclude: [trace]", "exclude: [attempt, atempt]"))
    found = document(capsys, place, Request("POST", URL, (), '{"attempt": 1}'))
    assert [one["why"] for one in found["left_out"]][:2] == [
        "key.exclude",
        "key.exclude, but it is not in this request",
    ]


def test_what_others_wrote_does_not_drive_the_terminal(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control characters of a body are printed as escapes."""
    printed = explained(capsys, place, Request("POST", URL, (), '{"to": "\\u001b[31m\\u009b"}')).out
    assert "\x1b" not in printed
    assert "\x9b" not in printed


# ---- ways to say which request ----


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("/mail/v1/a/messages?x=1", "/v1/a/messages?x=1"),
        ("http://127.0.0.1:8080/mail/v1/a/messages", "/v1/a/messages"),
        ("http://semel.internal/mail/v1/a/messages", "/v1/a/messages"),
        ("http://127.0.0.1:9/base/v1/a/messages?x", "/v1/a/messages?x"),
        ("HTTP://127.0.0.1:9/base", "/"),
        ("http://127.0.0.1:9/base?x=1", "/?x=1"),
        ("https://API.shop.example/v2/orders%2F1", "/v2/orders%2F1"),
        ("https://api.shop.example:443/v2/eu/x", "/x"),
    ],
)
def test_an_address_of_the_proxy_of_the_upstream_or_a_path_names_the_same(
    url: str, target: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The upstream's own by base_url, the longest one that fits; bytes stay as they are."""
    base = "upstream: {}\nbase_url: https://api.shop.example{}\n"
    (place / "policies" / "shop.yaml").write_text(base.format("shop", ""))
    (place / "policies" / "shop-eu.yaml").write_text(base.format("shop-eu", "/v2/eu"))
    told = document(capsys, place, Request("POST", url, (), "{}"))
    assert told["request"]["target"] == target


def test_the_listening_address_is_the_proxy_even_if_an_upstream_says_otherwise(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """semel.yaml's listen decides."""
    policy = place / "policies" / "test.yaml"
    policy.write_text(policy.read_text().replace("127.0.0.1:9/base", "127.0.0.1:8080"))
    told = document(capsys, place, Request("POST", "http://127.0.0.1:8080/mail/v1/a/messages", (), "{}"))
    assert told["request"]["target"] == "/v1/a/messages"


def test_bodies_come_from_the_line_a_file_or_standard_input(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And several are joined as curl joins them; a type that is not given is guessed from the body."""
    file = place / "body.json"
    file.write_bytes(b'{"to": "eve"}\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"to=eve")))
    arguments = {
        "-d": '{"to": "eve"}',
        "file": f"@{file}",
        "stdin": "@-",
    }
    told = {way: document(capsys, place, Request("POST", URL, (), body)) for way, body in arguments.items()}
    assert told["-d"]["canonical"] == told["file"]["canonical"]
    assert told["-d"]["headers"] == [{"name": "content-type", "value": "application/json"}]
    assert told["stdin"]["headers"] == [
        {"name": "content-type", "value": "application/x-www-form-urlencoded"}
    ]
    place_flags = ("--state-dir", place / "state", "--policies", place / "policies", "--json")
    joined = run_semel(capsys, "explain", "POST", URL, "-d", "a=1", "-d", "b=2", *place_flags).document(
        SCHEMA
    )
    assert {one["field"] for one in joined["arguments"]} == {"path.box", "body.a", "body.b"}


# ---- what would happen ----


@pytest.mark.parametrize(
    ("request_", "what", "detail"),
    [
        (Request("POST", "/mail/stats", (), "{}"), "passed", "the rule says pass"),
        (Request("POST", "/mail/admin/x", (), "{}"), "denied", "the rule denies this call"),
        (Request("GET", "/mail/elsewhere"), "passed", "goes live each time"),
        (Request("POST", "/mail/token", (), "grant_type=x"), "passed", "not recorded"),
        (Request("GET", "/mail/search?q=1"), "executed", "no record to look into"),
    ],
)
def test_what_the_rule_alone_decides(
    request_: Request, what: str, detail: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passed, denied, never recorded; no id for what is not recorded."""
    told = document(capsys, place, request_)
    assert told["now"]["what"] == what
    assert detail in told["now"]["detail"]
    assert (told["call"] is None) == (what != "executed")
    assert explained(capsys, place, request_).status == 0


def test_a_recorded_answer_is_replayed_with_its_age_and_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default ttl is a day; an answer that was lost from the shared cache is fetched again."""
    search = Request("GET", "/mail/search?q=1")
    recorded(tmp_path, POLICY, SEND, search)
    now = document(capsys, tmp_path, SEND)["now"]
    assert now["what"] == "replayed"
    assert 0 <= now["age"] < 60
    assert 86000 < now["ttl_left"] <= 86400
    assert "status 200" in now["detail"]
    assert document(capsys, tmp_path, search)["now"]["what"] == "replayed"
    refreshed = Request("GET", "/mail/search?q=1", ("Semel-Refresh: 1",))
    assert document(capsys, tmp_path, refreshed)["now"]["what"] == "executed"
    shutil.rmtree(tmp_path / "state" / "cache")
    assert document(capsys, tmp_path, search)["now"]["what"] == "executed"


def test_explaining_leaves_no_trace_in_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No replay is counted, no line of history written, no version raised."""
    ((_, call),) = recorded(tmp_path, POLICY, SEND)
    key = bytes.fromhex(call)

    async def look() -> tuple[object, ...]:
        store = await EmbeddedStore.open(tmp_path / "state")
        try:
            return await store.get(key), await store.history(key), await store.replays(key)
        finally:
            await store.close()

    before = asyncio.run(look())
    assert document(capsys, tmp_path, SEND, "--like", call)["now"]["what"] == "replayed"
    assert asyncio.run(look()) == before


def test_a_call_in_doubt_is_held_since_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the command that settles it."""
    ((_, call),) = recorded(tmp_path, POLICY, SEND, scripts=[(*READ_ALL, Reset())])
    now = document(capsys, tmp_path, SEND)["now"]
    assert now["what"] == "in-doubt"
    assert now["since"] is not None
    assert f"semel calls resolve {call}" in now["detail"]


def test_a_key_that_stands_for_something_else_is_a_conflict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The id is that of the other call, and still it is no match."""
    key = ("Idempotency-Key: k",)
    recorded(tmp_path, POLICY, Request("POST", URL, key, '{"to": "bob"}'))
    assert (
        document(capsys, tmp_path, Request("POST", URL, key, '{"to": "eve"}'))["now"]["what"]
        == "key-conflict"
    )


async def test_beside_a_running_proxy_a_call_under_way_is_seen_and_so_is_its_death(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record is opened as one more process. Nothing is recovered by looking: that is a proxy's work."""
    policies = tmp_path / "policies"
    policies.mkdir()

    async def now() -> dict[str, Any]:
        told = await asyncio.to_thread(document, capsys, tmp_path, SEND)
        happens: dict[str, Any] = told["now"]
        return happens

    async with Origin((*READ_ALL, Stall())) as origin:
        (policies / "test.yaml").write_text(POLICY.replace("PORT", str(origin.port)))
        async with SemelProcess(tmp_path / "state", policies) as semel:
            sending = asyncio.create_task(SEND.send(semel.port))
            await until(lambda: origin.started == 1)
            assert (await now())["what"] == "waits"
            await semel.kill()
            await sending
        for _ in range(2):
            happens = await now()
            assert happens["what"] == "in-doubt"
            assert "died" in happens["detail"]


CALL = Call(
    key=b"k" * 16,
    fingerprint=b"f" * 32,
    tenant="default",
    upstream="mail",
    rule="send",
    tool="send",
    safe=False,
    state=State.PENDING,
    version=1,
    fence=1,
    owner="o",
    created_at=1000.0,
    sent_at=1000.0,
)
ANSWER = Answer(status=201, size=2, recorded_at=1000.0, place=Place.INLINE)
DONE = evolve(CALL, state=State.DONE, answer=ANSWER, expires_at=90000.0)
DOUBT = evolve(CALL, state=State.IN_DOUBT, doubt=Doubt(since=1000.0, reason="a reset"))
RELEASED = evolve(CALL, state=State.RELEASED)
AWAITING = evolve(CALL, state=State.AWAITING_APPROVAL, terms=Terms(bound_to=b"this"))


@pytest.mark.parametrize(
    ("decision", "dead", "what", "detail"),
    [
        (core.Claim(None), False, "executed", "nobody has made this call yet"),
        (core.Claim(RELEASED), False, "executed", "nothing came of it"),
        (core.Claim(DONE), False, "executed", "past its time"),
        (core.Replay(DONE, ANSWER), False, "replayed", "recorded 2h ago, for another 22.7h"),
        (core.Replay(evolve(DONE, expires_at=None), ANSWER), False, "replayed", "recorded 2h ago"),
        (core.Wait(CALL), False, "waits", "under way since 1970-01-01 00:16:40Z"),
        (core.Wait(CALL), True, "in-doubt", "died"),
        (core.Wait(evolve(CALL, safe=True)), True, "executed", "sent again"),
        (core.Hold(DOUBT), False, "in-doubt", "since 1970-01-01 00:16:40Z: a reset"),
        (core.Unavailable(DONE, "it was too long"), False, "answer-unavailable", "it was too long"),
        (core.AwaitPerson(AWAITING), False, "awaiting-approval", "held for a person"),
        (core.Refused(CALL), False, "denied", "a person"),
        (core.Lapsed(AWAITING), False, "awaiting-approval", "asked anew"),
        (core.Conflict(CALL), False, "key-conflict", "422"),
        (core.Collision(), False, "identity-collision", "nothing is sent"),
    ],
)
def test_every_decision_has_its_words(decision: core.Decision, dead: bool, what: str, detail: str) -> None:
    """None is left to a default, and each is one of the schema's words."""
    happens = with_record(decision, now=8200.0, owner_is_dead=dead)
    assert happens.what == what
    assert detail in happens.detail
    schema: dict[str, Any] = SCHEMA
    assert what in schema["properties"]["now"]["properties"]["what"]["enum"]


def test_an_address_at_another_of_the_upstreams_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the forward proxy would take it: under a wildcard too, and named with its host."""
    (tmp_path / "policies").mkdir()
    text = "upstream: queue\nbase_url: https://sqs.us.aws.example\nhosts: ['sqs.*.aws.example']\n"
    (tmp_path / "policies" / "test.yaml").write_text(text)
    told = [
        document(capsys, tmp_path, Request("POST", f"https://sqs.{region}.aws.example/x", (), "{}"))
        for region in ("us", "eu")
    ]
    assert [one["request"]["upstream"] for one in told] == ["queue", "queue"]
    assert [one["request"]["target"] for one in told] == ["/x", "/x"]
    assert told[0]["canonical"] == told[1]["canonical"]


# ---- what is wrong ----


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        (["POST", URL, "--run", "no run"], 2, "--run is RUN or RUN+ATTEMPT. A run's name is 1 to 128"),
        (["POST", URL, "--run", "task+"], 2, "An attempt's name is 1 to 64"),
        (["POST", "/@task-1" + URL, "--run", "task-2"], 1, "Two runs are given that differ"),
        (["POST", URL, "-H", "Semel-Attempt: a1"], 1, "An attempt without a run"),
        (["POST", "/nowhere/x"], 1, "404 unknown-upstream"),
        (
            ["POST", "https://elsewhere.example/x"],
            1,
            "No upstream has https://elsewhere.example as its base_url or among its hosts",
        ),
        (["POST", "/mail/a/../b"], 1, "400 bad-request"),
        (["POST", "mail/x"], 1, "400 bad-request"),
        (["POST", "/metrics"], 1, "semel's own page"),
        (["POST", "/@/mail/x"], 1, "An address with @ names a run"),
        (["POST", "https://eve:geheim@api.example/x"], 1, "Credentials do not belong in an address"),
        (["POST", "https://[::x]/x"], 1, "The address cannot be read"),
        (["POST", URL, "-H", "Semel-Run: no run"], 1, "A run's name is 1 to 128"),
        (["POST", URL, "-H", "Semel-Occurence: 2"], 1, "did you mean"),
        (["POST", URL, "-H", "Idempotency-Key:"], 1, "The Idempotency-Key is empty"),
        (["POST", URL, "-H", "X-Secret geheim"], 2, "-H number 1 is not a header"),
        (["POST", URL, "-H", "A: b", "-H", "X-Secret: ge\nheim"], 2, "-H number 2 is not a header"),
        (["POST", URL, "-d", "@/does/not/exist"], 2, "-d @/does/not/exist: the file cannot be read"),
        (["post", URL], 2, "did you mean 'POST'?"),
        (["POST"], 2, "usage: semel explain"),
    ],
)
def test_what_cannot_be_explained_says_why(
    typed: list[str], status: int, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 for what semel itself would refuse, 2 for what was typed wrong; no header's value is repeated."""
    flags = ("--state-dir", place / "state", "--policies", place / "policies")
    ran = run_semel(capsys, "explain", *typed, *flags)
    assert (ran.status, ran.out) == (status, "")
    assert said in ran.err
    assert "geheim" not in ran.err


def test_a_body_over_the_limit_is_refused_as_the_proxy_would(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """limits.request_body."""
    monkeypatch.setenv("SEMEL_LIMITS_REQUEST_BODY", "1KiB")
    ran = explained(capsys, place, Request("POST", URL, (), "x" * 1025))
    assert ran.status == 1
    assert "413 too-large" in ran.err


def test_mistakes_in_policies_are_told_as_check_tells_them(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File, line, column; exit status 2."""
    (place / "policies" / "test.yaml").write_text("upstream: mail\nbase_url: ftp://x\n")
    ran = explained(capsys, place, SEND)
    assert ran.status == 2
    assert "test.yaml:2:11" in ran.err


def test_a_record_that_cannot_be_opened_is_a_mistake_to_mend(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not "no record": the answer would be a guess."""
    (place / "state").mkdir()
    damaged = b"SQLite format 3\0" + bytes(4096)
    for content, said in ((b"no database" * 1000, "is not a record"), (damaged, "cannot be opened")):
        (place / "state" / "ledger.sqlite").write_bytes(content)
        ran = explained(capsys, place, SEND)
        assert (ran.status, ran.out) == (2, "")
        assert f"ledger.sqlite {said}" in ran.err


def test_a_store_in_memory_has_no_record_to_look_into(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lives inside its process: a request is explained without it, and compared with nothing in it."""
    told = document(capsys, place, SEND, "--store", "memory")
    assert "a store in memory" in told["now"]["detail"]
    ran = explained(capsys, place, SEND, "--store", "memory", "--like", "0" * 32)
    assert ran.status == 2
    assert "A store in memory cannot be read" in ran.err


def test_with_tokens_of_several_tenants_somebody_has_to_say_whose_call_it_is(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By --tenant or by the token; the tenant is part of the name."""
    from proxy.tokens import digest

    tokens = {tenant: f"geheim-{tenant}" for tenant in ("acme", "zoo")}
    listed = [
        f"{{sha256: {digest(token)}, tenant: {tenant}, role: agent}}" for tenant, token in tokens.items()
    ]
    (place / "semel.yaml").write_text(f"auth: {{tokens: [{', '.join(listed)}]}}\n")
    monkeypatch.setenv("SEMEL_CONFIG", str(place / "semel.yaml"))
    ran = explained(capsys, place, SEND)
    assert ran.status == 2
    assert "--tenant T, one of acme, zoo" in ran.err
    by_name = document(capsys, place, SEND, "--tenant", "zoo")
    by_token = document(capsys, place, Request("POST", URL, ("Semel-Token: geheim-zoo",), SEND.body))
    assert by_name["request"]["tenant"] == by_token["request"]["tenant"] == "zoo"
    assert by_name["call"] == by_token["call"]
    assert by_name["call"] != document(capsys, place, SEND, "--tenant", "acme")["call"]
    ran = explained(capsys, place, Request("POST", URL, ("Semel-Token: geheim-x",), SEND.body))
    assert ran.status == 1
    assert "401 unauthorized" in ran.err


def test_a_store_in_trouble_is_the_record_s_trouble(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not "semel would refuse this": exit status 1, with what the store says."""

    async def make() -> None:
        await (await EmbeddedStore.open(place / "state")).close()

    async def fail(*_: object) -> None:
        raise StoreUnavailable("the store is not available: the disk reports an error")

    asyncio.run(make())
    monkeypatch.setattr(EmbeddedStore, "get", fail)
    flags = ["--policies", str(place / "policies"), "--state-dir", str(place / "state")]
    ran = run_semel(capsys, "explain", "POST", URL, "-d", "{}", *flags)
    assert ran.status == 1
    assert "the disk reports an error" in ran.err
    assert "would refuse" not in ran.err


def test_a_header_that_semel_replaces_is_left_out_of_the_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `inject` the agent's own value does not count, explain says why, and it needs no secret itself."""
    policy = "upstream: up\nbase_url: http://127.0.0.1:PORT\ninject: {header: X-Own, value_env: UP_KEY}\n"
    monkeypatch.setenv("UP_KEY", "geheim-of-semel")
    sent = [Request("POST", "/up/x", (f"X-Own: geheim-{one}",), "{}") for one in ("a", "b")]

    async def send() -> list[inside.Answer]:
        async with Origin() as origin, semel(tmp_path, policy.replace("PORT", str(origin.port))) as app:
            headers = [dict([one.headers[0].split(": ")]) | JSON for one in sent]
            raw = [request_bytes("POST", "/up/x", each, b"{}", host="localhost") for each in headers]
            return [await raw_call(app.address.port, one) for one in raw]

    first, second = asyncio.run(send())
    name = first.get("Semel-Call")
    assert [(one.semel, one.get("Semel-Call")) for one in (first, second)] == [
        ("executed", name),
        ("replayed", name),
    ]
    monkeypatch.delenv("UP_KEY")
    told = document(capsys, tmp_path, sent[0])
    assert told["call"] == name
    assert {"what": "header x-own", "why": "semel sends its own in its place (inject)"} in told["left_out"]


def test_doubt_and_permission_are_told_as_the_rule_has_it() -> None:
    """What would be sent again, asked about, or shown to a person; and what keeps it held."""
    key = UpstreamKey(header="x-key")
    resent = Rule(name="r", upstream_key=key, in_doubt=OnDoubt.RESEND)
    keyed = evolve(DOUBT, terms=Terms(key="k", place="header x-key", keyed_at=8000.0))
    probed = Rule(
        name="p", in_doubt=OnDoubt.PROBE, probe=Probe(method="GET", target="/{body.ref}", found="ok")
    )
    for decision, rule, what, detail in (
        (core.Hold(keyed), resent, "executed", "under the same upstream key"),
        (core.Hold(DOUBT), resent, "in-doubt", "not sent again"),
        (core.Hold(DOUBT), probed, "in-doubt", "the upstream would be asked first"),
    ):
        happens = with_record(decision, now=8200.0, rule=rule)
        assert happens.what == what
        assert detail in happens.detail
    asked = with_record(core.Claim(None), now=8200.0, bound_to=b"this")
    assert (asked.what, "asked to permit it" in asked.detail) == ("awaiting-approval", True)
    granted = evolve(RELEASED, terms=Terms(bound_to=for_occurrence(b"this", 1), granted=True))
    assert with_record(core.Claim(granted), now=8200.0, bound_to=b"this").what == "executed"
