"""Plans that are not made: what hangs on more than a head takes the long way.

Each of these would come to something else by a plan, and is asked so often that it would have one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.front.plans import NoPlan, Plan
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.forward.scene import client
from tests.http.planned import JSON, Side, planning, post, rule
from tests.inside import Answer, request_bytes, semel
from tests.mcp.bank import Bank
from tests.mcp.test_batches import pays
from tests.mcp.wire import BOTH
from tests.origin import ECHO, OK, READ_ALL, Origin, Script, answer

ROLES = {"agent-token": Role.AGENT, "people-token": Role.OPERATOR}
TOKENS = tuple(Token(sha256=digest(text), tenant="acme", role=role) for text, role in ROLES.items())
AGENT = {**JSON, "Semel-Token": "agent-token"}
SMALL, OTHER, GREAT = b'{"usd": 10}', b'{"usd": 11}', b'{"usd": 99}'
EXECUTED = (200, "executed")
REPLAYED = (200, "replayed")
PASSED = (200, "passed")
LIVE = [EXECUTED] * 4
NO = answer(200, b'{"ok": false}', (b"Content-Type", b"application/json"))


class Case(NamedTuple):
    """SMALL, OTHER, GREAT and GREAT again, and what becomes of each."""

    comes_to: Sequence[tuple[int, str]]
    rules: str = rule()
    headers: Mapping[str, str] = JSON
    target: str = "/up/x/ann"
    method: str = "POST"
    script: Script = ECHO
    tokens: Sequence[Token] = ()
    settings: Mapping[str, object] = {}
    more: str = ""
    size: int | None = None  # of the bodies, where it is not their own

    def request(self, body: bytes) -> bytes:
        sized = body if self.size is None else body.ljust(self.size)[: self.size]
        return request_bytes(self.method, self.target, self.headers, sized, host="127.0.0.1")


CASES = {
    # The n-th identical call of an attempt is the n-th recorded one.
    "in a run": Case(LIVE, target="/@r+1/up/x/ann"),
    "in a run, by headers": Case(LIVE, headers={**JSON, "Semel-Run": "r", "Semel-Attempt": "1"}),
    "a read": Case([PASSED] * 4, method="GET"),
    "said to be safe": Case([PASSED] * 4, rules=rule("safe: true")),
    # What goes wrong with a call that does no harm is handed on, and asked for again.
    "said to be safe, and shared": Case(
        [(500, "executed")] * 4,
        rules=rule("safe: true, repeat: same"),
        script=(*READ_ALL, answer(500, b"broken")),
    ),
    "passed": Case([PASSED] * 4, rules=rule("mode: pass")),
    "denied": Case([(403, "refused")] * 4, rules=rule("mode: deny")),
    "fetched anew": Case(LIVE, rules=rule("mode: cache"), headers={**JSON, "Semel-Refresh": "1"}),
    "looked on": Case([PASSED] * 4, rules=rule("shadow: true")),
    "looked on elsewhere": Case(
        [EXECUTED] * 3 + [REPLAYED], rules=rule()[:-1] + ", {name: s, match: {path: /y}, shadow: true}]"
    ),
    "a person is asked": Case(
        [(409, "refused")] * 4, rules=rule("approval: {wait: 0ms}"), headers=AGENT, tokens=TOKENS
    ),
    "a person is asked of some": Case(
        [EXECUTED, EXECUTED, (409, "refused"), (409, "refused")],
        rules=rule("approval: {when: 'usd > `50`', wait: 0ms}"),
        headers=AGENT,
        tokens=TOKENS,
    ),
    "chosen by what it says": Case(
        [EXECUTED, EXECUTED, (403, "refused"), (403, "refused")],
        rules="[{name: no, match: {path: /x/ann, when: 'usd > `50`'}, mode: deny}, {name: r}]",
    ),
    "a budget": Case([EXECUTED] * 2 + [(429, "refused")] * 2, rules=rule("budget: {calls: 2/1h}")),
    "answers that are read": Case(
        LIVE, rules=rule("outcome: {not_executed_if: 'ok == `false`'}"), script=(*READ_ALL, NO)
    ),
    "answers that are read for doubt": Case(
        [(409, "refused")] * 4,
        rules=rule("outcome: {in_doubt_if: 'ok == `false`'}"),
        script=(*READ_ALL, NO),
    ),
    "a key is required in the body": Case(
        [(400, "refused")] * 4,
        rules=rule("upstream_key: {body: ref}, key: {client_key: require}"),
    ),
    "a key is required": Case([(400, "refused")] * 4, rules=rule("key: {client_key: require}")),
    "no such upstream": Case([(404, "refused")] * 4, target="/nobody/x"),
    "no such address": Case([(400, "refused")] * 4, target="/up/x/../y"),
    "no such header": Case([(400, "refused")] * 4, headers={**JSON, "Semel-Tol": "x"}),
    "no token": Case([(401, "refused")] * 4, tokens=TOKENS),
    "a wrong token": Case(
        [(401, "refused")] * 4, headers={**JSON, "Semel-Token": "other-token"}, tokens=TOKENS
    ),
    "a token for other things": Case(
        [(403, "refused")] * 4, headers={**JSON, "Semel-Token": "people-token"}, tokens=TOKENS
    ),
    "from a page of another site": Case(
        [(403, "refused")] * 4,
        headers={**JSON, "Origin": "http://elsewhere.example"},
        more="inject: {header: Authorization, value_env: MAIL_KEY}\n",
    ),
    "over the limit": Case([(413, "refused")] * 4, settings={"limits.request_body": "1KiB"}, size=1025),
    "without a body": Case([EXECUTED] + [REPLAYED] * 3, size=0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
async def test_what_hangs_on_more_than_the_head_takes_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_plan: list[bytes], case: Case
) -> None:
    """No plan is kept, none is gone by, and each request comes to what it should."""
    monkeypatch.setenv("MAIL_KEY", "Bearer wohl-verwahrt")
    about = {"rules": case.rules, "more": case.more, "settings": case.settings, "tokens": case.tokens}
    async with planning(tmp_path, case.script, **about) as there:  # type: ignore[arg-type]
        got = [await there.ask(case.request(body)) for body in (SMALL, OTHER, GREAT, GREAT)]
        assert [(one.status, one.semel) for one in got] == list(case.comes_to)
        assert isinstance(there.plan_of(case.request(SMALL)), NoPlan)
        assert by_plan == []
        live = [one for one in got if one.semel in ("executed", "passed")]
        doubted = [one for one in got if _problem(one) == "in-doubt"]
        assert there.origin.started == len(live) + len({one.get("Semel-Call") for one in doubted})


def _problem(got: Answer) -> str:
    is_problem = got.get("Content-Type") == "application/problem+json"
    return str(json.loads(got.body)["type"]).removeprefix("urn:semel:") if is_problem else ""


async def test_each_call_has_a_key_of_its_own_for_the_upstream(tmp_path: Path, by_plan: list[bytes]) -> None:
    """It is minted for each."""
    async with planning(tmp_path, rules=rule("upstream_key: {header: Idempotency-Key}")) as there:
        for body in (SMALL, OTHER, GREAT):
            assert (await there.ask(post(body))).semel == "executed"
        heads = [{name.lower(): value for name, value in seen.headers} for seen in there.origin.requests]
        keys = [given[b"idempotency-key"] for given in heads]
        assert len(set(keys)) == 3
        assert isinstance(there.plan_of(post(SMALL)), NoPlan)
        assert by_plan == []


async def test_what_is_packed_is_named_by_what_is_in_it(tmp_path: Path, by_plan: list[bytes]) -> None:
    """However it is packed."""
    packed = [gzip.compress(body, mtime=0) for body in (SMALL, OTHER, GREAT)]
    packed.append(gzip.compress(GREAT, mtime=1))
    assert len({len(body) for body in packed}) == 1
    requests = [post(body, {**JSON, "Content-Encoding": "gzip"}) for body in packed]
    async with planning(tmp_path, OK) as there:
        got = [await there.ask(request) for request in requests]
        assert [one.semel for one in got] == ["executed"] * 3 + ["replayed"]
        assert isinstance(there.plan_of(requests[0]), NoPlan)
        assert by_plan == []


async def test_what_a_call_costs_is_told_of_each(tmp_path: Path, by_plan: list[bytes]) -> None:
    """By what its answer says."""
    costs = [answer(200, b'{"usd": %d}' % n, (b"Content-Type", b"application/json")) for n in (1, 2, 3)]
    scripts = [(*READ_ALL, said) for said in costs]
    async with planning(tmp_path, *scripts, rules=rule("cost: {usd_from: usd}")) as there:
        rows = [(await there.told(post(body))).row for body in (SMALL, OTHER, GREAT)]
        assert [row.cost_usd for row in rows if row is not None] == [1, 2, 3]
        assert isinstance(there.plan_of(post(SMALL)), NoPlan)
        assert by_plan == []


async def test_what_is_hidden_is_hidden_of_each(tmp_path: Path, by_plan: list[bytes]) -> None:
    """Neither body nor arguments show it."""
    async with planning(tmp_path, OK, rules=rule("redact: {args: [pin]}")) as there:
        for pin in (b"4711", b"4712", b"4713"):
            told = await there.told(post(b'{"pin": "%b"}' % pin))
            assert told.request is not None
            assert told.request.redacted
            assert pin not in told.request.body + told.request.arguments
        assert isinstance(there.plan_of(post(b'{"pin": "4711"}')), NoPlan)
        assert by_plan == []


async def test_tools_of_an_mcp_server_take_the_long_way(tmp_path: Path, by_plan: list[bytes]) -> None:
    """The id of a message names no call, and each is answered under its own."""
    headers = {**JSON, "Accept": BOTH}
    requests = [
        request_bytes("POST", "/shop/mcp", headers, json.dumps(pays(number, order)).encode())
        for number, order in ((1, "a"), (2, "b"), (3, "c"), (4, "c"))
    ]
    async with Bank() as bank:
        text = f"upstream: shop\nprotocol: mcp\nbase_url: http://127.0.0.1:{bank.port}\n"
        async with semel(tmp_path, text, settings={"recall": False}) as app, Origin(OK) as nobody:
            there = Side(app, nobody, None)  # type: ignore[arg-type]
            got = [await there.ask(request) for request in requests]
            assert [one.semel for one in got] == ["executed"] * 3 + ["replayed"]
            assert [json.loads(one.body)["id"] for one in got] == [1, 2, 3, 4]
            assert isinstance(there.plan_of(requests[0]), NoPlan)
    assert (bank.paid, by_plan) == (["a", "b", "c"], [])


async def test_the_same_bytes_inside_a_connect_are_another_request(
    tmp_path: Path, by_plan: list[bytes]
) -> None:
    """There the host is another, and the path is that host's; what is planned outside does not count."""
    async with planning(tmp_path) as there:
        for body in (SMALL, OTHER):
            await there.ask(post(body))
        assert isinstance(there.plan_of(post(GREAT)), Plan)
        by_plan.clear()
        async with client(there.port) as outside:
            assert (await outside.connect(f"127.0.0.1:{there.origin.port}")).status == 200
            got = [await outside.ask(post(body)) for body in (SMALL, OTHER, GREAT)]
        assert [one.body[:16] for one in got] == [b"POST /up/x/ann|{"] * 3
        assert by_plan == []
        assert (await there.ask(post(GREAT))).body == b"POST /base/x/ann|" + GREAT
        assert by_plan == [GREAT]
