"""What is sent to hurt: much of it, secrets in odd places, texts that would be headers."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import operator
from proxy.admin import api, checked, desk
from proxy.admin.decision import Decision, Resolution
from proxy.admin.rules import segments_in
from proxy.admin.schemas import BASE64, ref
from proxy.answers import Answers
from proxy.clock import SystemClock
from proxy.core.patterns import PathPattern
from proxy.core.policy import PolicySet, Rule, Upstream
from proxy.errors import BadRequest
from proxy.observe import Deaf
from proxy.operator import Verdict
from proxy.store.codec import Codec
from tests.admin.scene import FINE, JSON, LOST, Scene, damage, detail_of, problem, scene
from tests.cli.explaining import document, explained, recorded
from tests.explain_pairs import Request
from tests.inside import call, semel
from tests.origin import Origin

# ---- much ----


def test_no_more_mistakes_are_sought_than_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the name that was meant is the costly part: twenty times, and never for a long name."""
    asked: list[str] = []

    def suggestion(name: str, known: list[str]) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(checked, "suggestion", suggestion)
    with pytest.raises(BadRequest) as refused:
        checked.check(ref("Forget"), {f"{n:05}" + "k" * 1000: 1 for n in range(50_000)}, "The body")
    assert len(asked) <= checked.MOST_MISTAKES
    assert max(map(len, asked)) <= checked.LONGEST_NAME
    assert "and perhaps more" in refused.value.detail
    assert len(refused.value.detail) < 5000


@pytest.mark.parametrize(
    "body",
    [
        b"{" + b",".join(b'"k%d":1' % number for number in range(9000)) + b"}",
        b'{"reason":[' + b"[]," * 9000 + b"1]}",
        b'{"reason":[' + b'"",' * 9000 + b"1]}",
        b'{"reason":["\\\\' + b'","\\\\' * 9000 + b'"]}',
        b" " * 20_000 + b"{}",
        b'"' * 40_000,
    ],
)
async def test_a_body_that_is_long_outside_of_its_texts_is_never_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """Parsing holds everything up: millions of names or lists are refused by their length."""
    async with scene(tmp_path, LOST) as world:
        path = f"calls/{await world.charged()}/resolve"

        def loads(data: bytes) -> object:
            raise AssertionError(data[:20])

        monkeypatch.setattr("proxy.admin.api.orjson.loads", loads)
        got = await world.ask("POST", path, body)
        assert problem(got) == (400, "bad-request")
        assert "too large for a decision" in detail_of(got)


@given(st.lists(st.text(alphabet='a"\\\n,[é', max_size=12), max_size=6))
def test_texts_do_not_count_whatever_they_hold(texts: list[str]) -> None:
    """Quotes, backslashes, brackets: what stands outside is measured to the byte."""
    body = json.dumps(texts).encode()
    outside = len(body) - sum(len(json.dumps(text)) - 2 for text in texts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "LARGEST_OUTSIDE_TEXTS", outside)
        api._check_flat(body)
        patched.setattr(api, "LARGEST_OUTSIDE_TEXTS", outside - 1)
        with pytest.raises(BadRequest):
            api._check_flat(body)


async def test_a_long_text_is_taken(tmp_path: Path) -> None:
    """With all that has to be escaped."""
    answer = json.dumps({"a": ["\\", '"', {}]} | {str(n): [] for n in range(50_000)})
    async with scene(tmp_path, LOST) as world:
        said = {"as": "executed", "reason": "r", "body": answer}
        got = await world.ask("POST", f"calls/{await world.charged()}/resolve", said)
        assert got.status == 200, got.body[:200]
        assert (await world.charge()).body == answer.encode()


def test_base64_is_decoded_and_never_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern is for readers of the schema; it says the same."""

    def pattern(wanted: str, value: str) -> str:
        raise AssertionError(wanted)

    monkeypatch.setitem(checked._KEYWORDS, "pattern", pattern)
    for text in ("", "YQ==", "YWI=", "YWJj", "YWJj" * 1000):
        assert checked.mistakes(BASE64, text) == []
        assert checked._pattern(BASE64["pattern"], text) == ""
    for text in ("Y", "YQ", "YQ=", "YQ===", "=", "====", "YW Jj", "YWJ\n", "YQ==YQ==", "ab-_", "é"):
        assert checked.mistakes(BASE64, text) == ["is not base64"]
        assert checked._pattern(BASE64["pattern"], text)
    assert BASE64["contentEncoding"] == "base64"


async def test_a_large_body_is_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a small one where it is; both are refused alike."""
    threads: list[threading.Thread] = []

    def check(schema: Any, value: object, what: str) -> None:
        if what == "The body":
            threads.append(threading.current_thread())
        checked.check(schema, value, what)

    monkeypatch.setattr(api, "check", check)
    async with scene(tmp_path, LOST) as world:
        path = f"calls/{await world.charged()}/resolve"
        for size in (1, api.LARGEST_AT_ONCE):
            got = await world.ask("POST", path, {"as": "executed", "reason": "r", "body_base64": "?" * size})
            assert problem(got) == (400, "bad-request")
            assert "is not base64" in detail_of(got)
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


async def test_a_page_ends_where_it_is_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `next` behind the last one given; page after page, every call is there once, damaged ones too."""
    monkeypatch.setattr(desk, "PORTION", 2)
    monkeypatch.setattr(desk, "LARGEST_PAGE_BYTES", 20_000)
    async with scene(tmp_path, *[FINE] * 9) as world:
        made = []
        for number in range(9):
            body = json.dumps({"n": number, "pad": "x" * 8000}).encode()
            made.append((await call(world.port, "POST", "/pay/charge", JSON, body)).get("Semel-Call"))
        damage(tmp_path / "state", str(made[4]))
        seen: list[str] = []
        sizes: list[int] = []
        after = ""
        while not sizes or after:
            page = await world.document(f"calls?limit=1000{after}")
            sizes.append(len(page["calls"] + page["unreadable"]))
            seen += [one["id"] for one in page["calls"] + page["unreadable"]]
            after = "" if page["next"] is None else f"&after={page['next']}"
        assert sizes == [4, 4, 1]
        assert sorted(seen) == sorted(map(str, made))
        few = await world.document("calls?limit=3")
        assert [one["id"] for one in few["calls"]] == made[:5:-1]
        rest = await world.document(f"calls?limit=1&after={few['next']}")
        assert [one["id"] for one in rest["calls"]] == [made[5]]


# ---- secrets ----

BOT = """upstream: bot
base_url: http://127.0.0.1:{port}/base
rules:
  - {{name: some, match: {{path: "/bot/{{token}}/some"}}, key: {{include: [body.usd]}}}}
  - {{name: rest, match: {{path: "/bot/{{token}}/rest"}}, key: {{exclude: [path.token]}}}}
  - {{name: whole, match: {{path: "/bot/{{token}}/**"}}}}
"""


@pytest.mark.parametrize("last", ["some", "rest", "long"])
async def test_a_secret_segment_is_hidden_also_where_the_arguments_do_not_name_it(
    tmp_path: Path, last: str
) -> None:
    """Under include, under exclude, and where the arguments are too long to be kept in words."""
    async with Origin(FINE) as origin, semel(tmp_path, BOT.format(port=origin.port)) as app:
        body = json.dumps({"usd": 1, "pad": "x" * (70_000 if last == "long" else 1)}).encode()
        made = await call(app.address.port, "POST", f"/bot/bot/hunter%32/{last}", JSON, body)
        shown = await Scene(app, origin, tmp_path).document(f"calls/{made.get('Semel-Call')}")
        assert shown["request"]["target"] == f"/base/bot/[redacted]/{last}"
        assert "hunter" not in json.dumps(shown)


def test_a_rule_that_is_gone_leaves_its_segments_to_those_that_fit() -> None:
    """Rather too much is hidden than too little; an upstream that is gone names nothing."""
    rules = tuple(
        Rule(name=name, path=PathPattern.parse(path))
        for name, path in (("a", "/x/{token}"), ("b", "/x/{id}"))
    )
    up = Upstream(name="up", scheme="http", host="h", port=80, base_path="/v1", rules=rules)
    names = segments_in(lambda: PolicySet(upstreams={"up": up}))
    assert names("up", "b", "/v1/x/1") == {"id": "1"}
    assert names("up", "gone", "/v1/x/1") == {"token": "1", "id": "1"}
    assert names("up", "a", "/v1/y/1") == {}
    assert names("none", "a", "/v1/x/1") == {}


EXPLAINED = """upstream: up
base_url: http://127.0.0.1:PORT
rules:
  - {name: send, match: {method: POST, path: "/v1/{api_key}/send"}}
"""


@pytest.mark.parametrize("more", ["", "&x=%ff"])
def test_explain_says_that_a_secret_differs_and_not_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    """Neither the record's nor the one typed, where they are compared; nor in a query as a whole."""
    first = Request("POST", f"/up/v1/hunter2/send?token=hunter2&q=1;sig=hunter2{more}", (), "{}")
    second = Request("POST", "/up/v1/typed3/send?token=typed3&q=2;sig=typed3", (), "{}")
    ((_, made),) = recorded(tmp_path, EXPLAINED, first)
    like = document(capsys, tmp_path, second, "--like", made)["like"]
    fields = {one["field"]: (one["here"], one["there"]) for one in like["differences"]}
    path = "/v1/[redacted]/send"
    if more:
        assert fields.keys() == {"path", "query"}
    else:
        assert fields == {
            "path": (path, path),
            "query.token": ("[redacted]", "[redacted]"),
            "query.q": ('["2;sig=[redacted]"]', '["1;sig=[redacted]"]'),
        }
    told = json.dumps(like["differences"])
    assert "hunter2" not in told
    assert "typed3" not in told
    assert "hunter2" not in explained(capsys, tmp_path, second, "--like", made).out


# ---- what is written into the record ----


@pytest.mark.parametrize("text", ["caf\udce9", "a\nb", "\x1b[2J", "\x9b", "x" * 2001, " ", ""])
async def test_a_desk_takes_only_reasons_and_types_that_are_lines_of_text(tmp_path: Path, text: str) -> None:
    """Whoever asks it: for the API and the command line this is the one place."""
    async with scene(tmp_path, LOST, FINE) as world:
        doubtful, done = await world.charged(1), await world.charged(2)
        local = desk.LocalDesk(
            store=world.app.store, codec=Codec(), clock=SystemClock(), lifetimes=lambda upstream, rule: None
        )
        with pytest.raises(BadRequest, match="reason"):
            await local.forget(done, Decision(by="a", reason=text))
        for reason, kind, told in ((text, "text/plain", "reason"), ("r", f"text/{text}", "content type")):
            resolution = Resolution(
                by="a", reason=reason, verdict=Verdict.EXECUTED, body=b"x", content_type=kind
            )
            with pytest.raises(BadRequest, match=told):
                await local.resolve(doubtful, resolution)
        for call_id in (doubtful, done):
            assert (await local.call(call_id))["call"]["version"] == 2


@pytest.mark.parametrize("value", [b"text/html\r\nX: 1", b"a\nb", b"a\rb", b"a\0b"])
async def test_no_answer_of_a_person_holds_a_header_that_splits(tmp_path: Path, value: bytes) -> None:
    """Whoever forgot to look: the decision itself refuses."""
    async with scene(tmp_path, LOST) as world:
        call_id, store = await world.charged(), world.app.store
        answers = Answers(store=store, codec=Codec(), observer=Deaf(), inline_body=1024)
        for header in ((b"Content-Type", value), (value, b"x")):
            with pytest.raises(ValueError, match="no line break"):
                await operator.resolve(
                    store, answers, SystemClock(), call_id, verdict=Verdict.EXECUTED, reason="r", actor="a",
                    version=None, headers=(header,), body=b"x",
                )  # fmt: skip
        assert (await world.document(f"calls/{call_id}"))["call"]["state"] == "in_doubt"
