"""Calls that a person permits, over the wire: who may permit, what is permitted, and once."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.app import App
from proxy.policy_file import PolicyMistakes
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.counts import count
from tests.crash.bank import Bank
from tests.inside import Answer, call, raw_call, request_bytes, semel

pytestmark = pytest.mark.usefixtures("any_store")

AGENT, OPERATOR, METRICS, STRANGER = "semel_agent", "semel_operator", "semel_metrics", "semel_stranger"
ROLES = {AGENT: Role.AGENT, OPERATOR: Role.OPERATOR, METRICS: Role.METRICS}
TOKENS = [
    *(Token(sha256=digest(token), tenant="acme", role=role) for token, role in ROLES.items()),
    Token(sha256=digest(STRANGER), tenant="zenith", role=Role.OPERATOR),
]
POLICY = """\
upstream: bank
base_url: http://127.0.0.1:{port}
rules:
  - name: pay
    match: {{method: [GET, POST], path: /d}}
    key: {{include: [order], exclude: [trace]}}
    approval: {{when: {when}, wait: {wait}, expires: {expires}}}
    ttl: 2s
  - {{name: rest, match: {{path: /**}}}}
"""


@dataclass(frozen=True)
class World:
    bank: Bank
    app: App

    async def pay(self, order: int = 1, usd: object = 500, **more: object) -> Answer:
        body = json.dumps({"order": order, "usd": usd, "ref": f"order {order}", **more}).encode()
        return await self.post(body)

    async def post(self, body: bytes, headers: dict[str, str] | None = None, method: str = "POST") -> Answer:
        given = {"Content-Type": "application/json", "Semel-Token": AGENT, **(headers or {})}
        return await call(self.app.address.port, method, "/bank/d", given, body, within=60)

    async def decide(
        self, call_id: str, how: str, token: str = OPERATOR, version: int | None = None
    ) -> Answer:
        said: dict[str, object] = {"reason": "seen"}
        said |= {"as": "not_executed"} if how == "resolve" else {}
        said |= {} if version is None else {"version": version}
        headers = {"Content-Type": "application/json", "Semel-Token": token}
        return await own(self.app, "POST", f"{call_id}/{how}", headers, json.dumps(said).encode())

    async def shown(self, call_id: str) -> dict[str, Any]:
        got = await own(self.app, "GET", call_id, {"Semel-Token": OPERATOR})
        document: dict[str, Any] = json.loads(got.body)
        return document


@asynccontextmanager
async def world(
    tmp_path: Path, *, when: str = "usd > `100`", wait: str = "0ms", expires: str = "24h"
) -> AsyncIterator[World]:
    async with Bank() as bank:
        text = POLICY.format(port=bank.port, when=json.dumps(when), wait=wait, expires=expires)
        async with semel(tmp_path, text, tokens=TOKENS) as app:
            yield World(bank, app)


async def own(app: App, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """Behind /_semel/calls/."""
    host = f"127.0.0.1:{app.address.port}"
    request = request_bytes(method, f"/_semel/calls/{path}", headers, body, host=host)
    return await raw_call(app.address.port, request)


def told(answer: Answer) -> str:
    if answer.semel == "refused":
        return str(json.loads(answer.body)["type"]).removeprefix("urn:semel:")
    return f"{answer.semel} {answer.status}"


def id_in(answer: Answer) -> str:
    return str(json.loads(answer.body)["call"])


async def test_it_waits_is_permitted_and_goes_out_once(tmp_path: Path) -> None:
    """The problem says what to do and is not for SDKs to retry; the record shows what is asked."""
    async with world(tmp_path) as there:
        held = await there.pay()
        assert (held.status, told(held)) == (409, "awaiting-approval")
        assert held.get("x-should-retry") == held.get("stripe-should-retry") == "false"
        problem = json.loads(held.body)
        assert problem["resolve"] == f"/_semel/calls/{problem['call']}/approve"
        assert problem["tool"] == "POST /d"
        assert "expires" in problem
        shown = await there.shown(id_in(held))
        assert shown["call"]["state"] == "awaiting_approval"
        assert shown["call"]["args"] == {"include": {"order": 1}}
        assert json.loads(shown["request"]["body"]) == {"order": 1, "usd": 500, "ref": "order 1"}
        assert there.bank.posts == 0
        assert (await there.decide(id_in(held), "approve")).status == 200
        assert told(await there.pay()) == "executed 200"
        assert told(await there.pay()) == "replayed 200"
        assert len(there.bank.acts) == 1


async def test_what_the_rule_lets_through_is_not_held(tmp_path: Path) -> None:
    """By an honest false."""
    async with world(tmp_path) as there:
        assert told(await there.pay(usd=100)) == "executed 200"


@pytest.mark.parametrize(
    ("body", "headers", "method"),
    [
        (b'{"order": 1, "usd": "5000"}', {}, "POST"),  # a number as a text
        (b'{"order": 1, "usd": null}', {}, "POST"),
        (b'{"order": 1}', {}, "POST"),
        (b'{"order": 1, "usd": 5, "usd": 5000}', {}, "POST"),  # one reader sees the first, another the last
        (b'{"order": 1, "usd": 5, "body": {"usd": 1}, "usd": 5000}', {}, "POST"),
        (b'{"order": 1, "usd": 5', {}, "POST"),
        (b"order=1&usd=5", {"Content-Type": "application/x-www-form-urlencoded"}, "POST"),
        (b"<pay/>", {"Content-Type": "text/xml"}, "POST"),
        (b"\x1f\x8b\x08\x00garbage", {"Content-Encoding": "gzip"}, "POST"),
        (b"", {}, "GET"),
        (b"", {}, "POST"),
    ],
)
async def test_nothing_gets_around_the_person(
    tmp_path: Path, body: bytes, headers: dict[str, str], method: str
) -> None:
    """Whatever the expression cannot honestly say no to is asked."""
    async with world(tmp_path) as there:
        held = await there.post(body, headers, method)
        assert told(held) == "awaiting-approval"
        assert there.bank.tokens == []


async def test_a_body_that_cannot_be_read_is_asked_about_whatever_the_rule_says(tmp_path: Path) -> None:
    """An expression that is honestly false about nothing at all says nothing about what is sent."""
    async with world(tmp_path, when="usd == `5000`") as there:
        assert told(await there.pay(usd=10)) == "executed 200"
        assert told(await there.post(b'{"order": 2, "usd": 5000, "usd": 5000}')) == "awaiting-approval"
        assert told(await there.post(b"usd: 5000", {"Content-Type": "text/yaml"})) == "awaiting-approval"
        assert len(there.bank.acts) == 1


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("when", "body", "headers"),
    [
        ("env == 'prod'", b"env=prod&ref=1", FORM),  # the values of a form are lists
        ("env == 'prod'", b'[{"env": "prod"}]', {}),
        ("env == 'prod'", b'{"ref": 1}', {}),
        ("env != 'dev'", b'{"env": ["dev"]}', {}),
        ("usd > `100` || env == 'prod'", b"usd=5000&env=dev", FORM),
        ("usd > `100` || env == 'prod'", b'{"usd": [5000], "env": "dev"}', {}),
        ("!(usd <= `100`)", b'{"usd": "5000"}', {}),
        ("usd > `100`", b'{"usd": 1, "n": ' + b"9" * 5000 + b"}", {}),
    ],
)
async def test_another_shape_is_no_way_around(
    tmp_path: Path, when: str, body: bytes, headers: dict[str, str]
) -> None:
    """A comparison with what is not there, or is of another kind, is false and says nothing."""
    async with world(tmp_path, when=when) as there:
        assert told(await there.post(body, headers)) == "awaiting-approval"
        assert there.bank.posts == 0


async def test_a_form_can_be_judged_by_who_knows_its_shape(tmp_path: Path) -> None:
    """Lists of texts, by their first."""
    async with world(tmp_path, when="to_number(usd[0]) > `100`") as there:
        assert told(await there.post(b"usd=5000&order=1", FORM)) == "awaiting-approval"
        assert told(await there.post(b'{"order": 2, "usd": [50]}')) == "executed 200"


async def test_a_read_that_nobody_has_to_permit_stays_one(tmp_path: Path) -> None:
    """Polled outside a run it goes live each time, as without semel; held it is where somebody has to."""
    async with world(tmp_path, when="query.force[0] == 'yes'") as there:
        headers = {"Semel-Token": AGENT}
        for _ in range(2):
            got = await call(there.app.address.port, "GET", "/bank/d?force=no&ref=1", headers)
            assert got.semel == "passed"
        held = await call(there.app.address.port, "GET", "/bank/d?force=yes&ref=1", headers)
        assert told(held) == "awaiting-approval"


async def test_the_order_of_headers_undoes_no_permission(tmp_path: Path) -> None:
    """As it names no other call."""
    async with world(tmp_path) as there:
        body = b'{"order": 1, "usd": 500}'
        held = await there.post(body, {"Accept": "*/*", "Prefer": "x"})
        await there.decide(id_in(held), "approve")
        assert told(await there.post(body, {"Prefer": "x", "Accept": "*/*"})) == "executed 200"


async def test_a_changed_amount_under_include_is_not_what_was_permitted(tmp_path: Path) -> None:
    """The same call by its name: permitted is the request that was shown, without what is excluded."""
    async with world(tmp_path) as there:
        held = await there.pay(usd=500, trace="a")
        await there.decide(id_in(held), "approve")
        more = await there.pay(usd=5000)
        assert (told(more), id_in(more)) == ("awaiting-approval", id_in(held))
        assert json.loads((await there.shown(id_in(held)))["request"]["body"])["usd"] == 5000
        await there.decide(id_in(held), "approve")
        assert told(await there.pay(usd=500)) == "awaiting-approval"
        await there.decide(id_in(held), "approve")
        assert told(await there.pay(usd=500, trace="b")) == "executed 200"
        assert len(there.bank.acts) == 1


@pytest.mark.parametrize("token", [AGENT, METRICS, STRANGER, "", "semel_guess"])
async def test_only_an_operator_of_the_tenant_decides(tmp_path: Path, token: str) -> None:
    """403 for an agent, 404 for another tenant's operator, 401 for nobody; nothing changes."""
    async with world(tmp_path) as there:
        held = id_in(await there.pay())
        wanted = {AGENT: 403, METRICS: 403, STRANGER: 404}.get(token, 401)
        for how in ("approve", "deny", "probe", "resolve", "forget"):
            assert (await there.decide(held, how, token)).status == wanted, how
        assert (await there.shown(held))["call"]["version"] == 1
        assert told(await there.pay()) == "awaiting-approval"
        assert there.bank.posts == 0


async def test_without_tokens_nobody_decides(tmp_path: Path) -> None:
    """A record with a call that waits, opened by a semel without tokens: an agent could be anybody there."""
    async with world(tmp_path) as there:
        held = id_in(await there.pay())
        port = there.bank.port
    async with semel(tmp_path, f"upstream: bank\nbase_url: http://127.0.0.1:{port}\n") as app:
        for how in ("approve", "deny"):
            headers = {"Content-Type": "application/json"}
            got = await own(app, "POST", f"{held}/{how}", headers, b'{"reason": "r"}')
            assert (got.status, told(got)) == (403, "forbidden")


async def test_approval_without_an_operator_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    """At the start, with file and line; a reload that brings it in is refused, and the old rules stay."""
    text = POLICY.format(port=9, when='"`true`"', wait="0ms", expires="24h")
    agents = [Token(sha256=digest(AGENT), tenant="acme", role=Role.AGENT)]
    for tokens in ([], agents):
        with pytest.raises(
            PolicyMistakes, match=r"test\.yaml:7:5: 'approval' of the rule 'pay' needs somebody"
        ):
            async with semel(tmp_path, text, tokens=tokens):
                raise AssertionError("it must not start")
    plain = "upstream: bank\nbase_url: http://127.0.0.1:9\n"
    async with semel(tmp_path, plain, tokens=agents) as app:
        (tmp_path / "policies" / "test.yaml").write_text(text)
        assert not await app.watch.check_now()
        assert app.watch.current.upstreams["bank"].rules == ()


@pytest.mark.parametrize(
    ("before", "after", "then"),
    [
        ("name: pay", "name: pay", "awaiting-approval"),
        ("name: pay", "name: charge", "awaiting-approval"),  # renamed
        ("name: pay\n    safe: true", "name: pay", "awaiting-approval"),
        ("name: pay\n    mode: pass", "name: pay", "denied"),
        ("name: other\n    match: {path: /x}\n  - name: all", "name: pay", "awaiting-approval"),
        ("name: pay", "name: no\n    mode: deny", "denied"),
    ],
)
async def test_a_run_asks_people_as_the_policies_are_now(
    tmp_path: Path, before: str, after: str, then: str
) -> None:
    """A run keeps how its calls are named. Whom they must be permitted by is not part of that, whatever its
    rules were called or did when it began."""
    policy = "upstream: bank\nbase_url: http://127.0.0.1:{port}\nrules:\n  - {rule}\n"
    headers = {"Content-Type": "application/json", "Semel-Token": AGENT}
    async with (
        Bank() as bank,
        semel(tmp_path, policy.format(port=bank.port, rule=before), tokens=TOKENS) as app,
    ):
        port = app.address.port
        await call(port, "POST", "/@r+a1/bank/d", headers, b'{"ref": "first"}')
        rule = f"{after}\n    match: {{path: /d}}"
        rule += "" if "deny" in after else "\n    approval: {wait: 0ms}"
        (tmp_path / "policies" / "test.yaml").write_text(policy.format(port=bank.port, rule=rule))
        assert await app.watch.check_now()
        held = await call(port, "POST", "/@r+a1/bank/d", headers, b'{"ref": "second"}')
        assert told(held) == then
    assert [asked["ref"] for asked in bank.asked] == ["first"]


async def test_double_clicks_and_stale_pages(tmp_path: Path) -> None:
    """One decision wins, everybody else is told how it stands."""
    async with world(tmp_path) as there:
        held = id_in(await there.pay())
        version = (await there.shown(held))["call"]["version"]
        clicks = await asyncio.gather(*(there.decide(held, "approve", version=version) for _ in range(8)))
        assert sorted(click.status for click in clicks) == [200] + [409] * 7
        late = await there.decide(held, "deny", version=version)
        assert (late.status, told(late)) == (409, "stale-version")
        assert json.loads(late.body)["state"] == "released"
        assert told(await there.decide(held, "approve")) == "not-awaiting"
        assert told(await there.pay()) == "executed 200"


async def test_a_refusal_is_told_with_its_reason_until_it_lapses(tmp_path: Path) -> None:
    """The rule's time to live; then somebody is asked anew."""
    async with world(tmp_path) as there:
        held = id_in(await there.pay())
        await there.decide(held, "deny")
        refused = await there.pay()
        assert (refused.status, told(refused)) == (403, "denied")
        assert "seen" in json.loads(refused.body)["detail"]
        async with asyncio.timeout(10):
            while told(await there.pay()) == "denied":
                await asyncio.sleep(0.1)
        assert told(await there.pay()) == "awaiting-approval"
        assert there.bank.posts == 0


async def test_a_question_that_lapsed_cannot_be_answered(tmp_path: Path) -> None:
    """Whoever is late is told; the next ask is a new question."""
    async with world(tmp_path, expires="100ms") as there:
        held = id_in(await there.pay())
        await asyncio.sleep(0.11)
        late = await there.decide(held, "approve")
        assert told(late) == "not-awaiting"
        assert told(await there.pay()) == "awaiting-approval"
        assert there.bank.posts == 0


async def test_permission_races_with_the_call(tmp_path: Path) -> None:
    """Approve, deny, double clicks and callers with one amount or another, all at once, many times: at most
    one send per order, only of what was permitted, never of what was not."""
    seed = int(os.environ.get("SEMEL_SEED", "0")) or random.randrange(2**32)
    print(f"SEMEL_SEED={seed}")
    dice = random.Random(seed)
    async with world(tmp_path, wait="300ms") as there:
        permitted: dict[int, set[int]] = {}
        for order in range(count(8, 200)):
            held = id_in(await there.pay(order, 500))

            async def decide(how: str, order: int = order, held: str = held) -> None:
                await asyncio.sleep(dice.random() * 0.02)
                seen = json.loads((await there.shown(held))["request"]["body"])["usd"]
                answer = await there.decide(held, how)
                if how == "approve" and answer.status == 200:
                    now = json.loads((await there.shown(held))["request"]["body"])["usd"]
                    permitted.setdefault(order, set()).update({seen, now})

            async def ask(usd: int, order: int = order) -> Answer:
                await asyncio.sleep(dice.random() * 0.02)
                return await there.pay(order, usd)

            hows = dice.choices(("approve", "approve", "deny"), k=2)
            amounts = dice.choices((500, 500, 5000), k=4)
            answers = await asyncio.gather(*map(decide, hows), *map(ask, amounts))
            sent = [asked["usd"] for asked in there.bank.asked if asked["order"] == order]
            assert len(sent) <= 1, (order, hows, amounts)
            if sent:
                executed = [got for got in answers if got is not None and got.semel == "executed"]
                assert len(executed) == 1
                assert sent[0] in permitted.get(order, ()), (order, hows, amounts)
        assert there.bank.acts, "no round was permitted and asked: the test shows nothing"
