"""What a rule redacts, over the wire: it goes upstream as it is, names the call, and is not in the record."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.policy_file import PolicyMistakes
from tests import ambient
from tests.http.numbered import FORM, JSON, Place, place, problem
from tests.inside import call, raw_call, request_bytes, semel
from tests.origin import OK, READ_ALL, Reset, Script, answer
from tests.presets.api import CASE, Api, new_case
from tests.presets.cases import FORM_TYPE, JSON_TYPE, Told

pytestmark = pytest.mark.usefixtures("some_store")

CARD = "4242-4242-4242-4242"
RULES = """
  - name: pay
    match: {method: POST, path: "/pay/{who}"}
    redact: {args: [card.number, path.who], headers: [x-card]}
  - {name: form, match: {method: POST, path: /form}, redact: {args: [card]}}
  - {name: rest, match: {path: /**}}
"""


async def shown(there: Place, call_id: str | None) -> dict[str, Any]:
    target = f"/_semel/calls/{call_id}"
    got = await raw_call(there.port, request_bytes("GET", target, host=f"127.0.0.1:{there.port}"))
    document: dict[str, Any] = json.loads(got.body)
    return document


def pay(number: str = CARD, **more: object) -> bytes:
    return json.dumps({"amount": 10.50, "card": {"number": number, "name": "Ann"}, **more}).encode()


async def test_it_goes_upstream_and_names_the_call_but_is_not_kept(tmp_path: Path) -> None:
    """Another number is another call; the same in another spelling is not; the page shows the rest."""
    async with place(tmp_path, RULES) as there:
        first = await there.post(f"pay/{CARD}", pay(), {"X-Card": CARD})
        assert first.semel == "executed"
        assert bytes(there.origin.requests[0].body) == pay()
        assert f"/pay/{CARD} ".encode() in there.origin.requests[0].head
        spelled = pay().replace(b"4242-", b"\\u0034242-")
        assert (await there.post(f"pay/%34{CARD[1:]}", spelled, {"X-Card": CARD})).semel == "executed"
        assert (await there.post(f"pay/{CARD}", spelled, {"X-Card": CARD})).semel == "replayed"
        assert (await there.post(f"pay/{CARD}", pay("4111"), {"X-Card": CARD})).semel == "executed"
        document = await shown(there, first.get("Semel-Call"))
        assert document["call"]["args"]["body"]["amount"] == 10.5
        assert document["call"]["args"]["body"]["card"]["name"] == "Ann"
        assert document["call"]["args"]["body"]["card"]["number"].startswith("redacted:")
        assert json.loads(document["request"]["body"])["card"]["number"].startswith("redacted:")
        assert CARD not in json.dumps(document)
    assert CARD.encode() not in await ambient.everything_in(tmp_path / "state")


async def test_compressed_and_long_and_unreadable_bodies(tmp_path: Path) -> None:
    """Read as they mean, or kept as a hash only: never as they are."""
    async with place(tmp_path, RULES) as there:
        packed = gzip.compress(pay(), mtime=0)
        got = await there.post("pay/x", packed, {"Content-Encoding": "gzip"})
        document = await shown(there, got.get("Semel-Call"))
        assert json.loads(document["request"]["body"])["card"]["name"] == "Ann"
        assert (await there.post("pay/x", pay())).semel == "replayed"
        long = pay(filler="x" * 200_000)
        assert (await there.post("pay/long", long)).semel == "executed"
        assert (await there.post("pay/long", long)).semel == "replayed"
        very_long = pay(filler="y" * 2_000_000)
        assert (await there.post("pay/long", very_long)).semel == "executed"
        twice = b'{"card": {"number": "%b"}, "card": 1}' % CARD.encode()
        for _ in range(2):
            got = await there.post("pay/twice", twice)
        assert got.semel == "replayed"
        document = await shown(there, got.get("Semel-Call"))
        assert document["request"]["body"] == ""
    assert CARD.encode() not in await ambient.everything_in(tmp_path / "state")


async def test_a_long_body_is_hidden_whole_also_where_only_a_header_is_redacted(tmp_path: Path) -> None:
    """It is not read, so nothing is said of it; least of all that it was another."""
    rules = "\n  - {name: pay, match: {method: POST, path: /pay}, redact: {headers: [x-card]}}\n"
    async with place(tmp_path, rules) as there:
        got = await there.post("pay", pay(filler="y" * 2_000_000), {"X-Card": CARD})
        document = await shown(there, got.get("Semel-Call"))
        assert document["request"]["body"] == ""
        short = await there.post("pay", pay(), {"X-Card": CARD})
        assert json.loads((await shown(there, short.get("Semel-Call")))["request"]["body"])["amount"] == 10.5


async def test_forms(tmp_path: Path) -> None:
    """By the field's name."""
    async with place(tmp_path, RULES) as there:
        got = await there.post("form", b"card=4242+4242&amount=1", FORM)
        document = await shown(there, got.get("Semel-Call"))
        assert document["request"]["body"].endswith("&amount=1")
        assert "4242" not in json.dumps(document)


async def test_a_hash_is_not_as_good_as_the_secret(tmp_path: Path) -> None:
    """Whoever has seen the page cannot have another's answer by sending the hash."""
    async with place(tmp_path, RULES) as there:
        first = await there.post("pay/x", pay())
        seen = (await shown(there, first.get("Semel-Call")))["call"]["args"]["body"]["card"]["number"]
        assert (await there.post("pay/x", pay(seen))).semel == "executed"


@asynccontextmanager
async def keyed(tmp_path: Path, *scripts: Script, rule: str = "") -> AsyncIterator[Place]:
    rules = (
        f'[{{name: buy, match: {{path: "/buy/{{token}}"}}, upstream_key: {{header: Idempotency-Key}}{rule}}}]'
    )
    async with place(tmp_path, rules, *scripts) as there:
        yield there


LOST: Script = (*READ_ALL, Reset())


async def test_a_resend_takes_the_secrets_of_its_address_from_whoever_asks(tmp_path: Path) -> None:
    """They are not in the record. With another secret it is another call, and the first stays as it is."""
    async with keyed(tmp_path, *[LOST] * 4, OK, OK) as there:
        target = "buy/s3cret-token?sig=s1gnature&n=1"
        got = await there.post(target)
        assert problem(got) == "in-doubt"
        assert b"s3cret" not in await ambient.everything_in(tmp_path / "state")
        assert (await there.post("buy/other-token?sig=s1gnature&n=1")).semel == "executed"
        assert (await there.post(target)).semel == "executed"
        sent = there.origin.requests
        assert sent[-1].head.split(b" ")[1] == f"/{target}".encode()
        assert sent[-1].head.split(b"\r\n")[0] == sent[0].head.split(b"\r\n")[0]
        keys = {dict(one.headers).get(b"idempotency-key") for one in (*sent[:4], sent[-1])}
        assert len(keys) == 1
    assert b"s1gnature" not in await ambient.everything_in(tmp_path / "state")


async def test_redaction_with_a_resend_needs_encryption(tmp_path: Path) -> None:
    """The mistake names the rule, and what to do."""
    for rule in ("upstream_key: {header: K}", "probe: {request: {path: /q?r={body.ref}}, found: a}"):
        policy = f"""\
upstream: up
base_url: http://127.0.0.1:9
rules:
  - name: pay
    match: {{method: POST, path: /pay}}
    {rule.replace("/q?r={body.ref}", '"/q?r={body.ref}"')}
    redact: {{args: [card]}}
"""
        with pytest.raises(PolicyMistakes, match="needs 'encryption'"):
            async with semel(tmp_path, policy):
                pass
        async with semel(tmp_path, policy + "    in_doubt: hold\n"):
            pass


async def test_what_the_upstream_repeats_of_a_secret_is_not_kept(tmp_path: Path) -> None:
    """In a doubt's excerpt: credentials, what is redacted, also where the excerpt ends in its middle."""
    token = "tok-0123456789abcdef"
    said = f"card {CARD} of Bearer {token}, or {token}: no. ".encode()
    filler = b"." * (500 - len(said) - 10)
    scripts = [(*READ_ALL, answer(500, said + filler + token.encode() * 3))]
    async with place(tmp_path, RULES, *scripts) as there:
        got = await there.post("pay/x", pay(), {"Authorization": f"Bearer {token}"})
        assert problem(got) == "in-doubt"
        assert "excerpt" in json.loads(got.body)
        assert b"[redacted]" in got.body
        for secret in (CARD.encode(), token.encode(), token[:8].encode()):
            assert secret not in got.body
            assert secret not in await ambient.everything_in(tmp_path / "state")


async def test_a_run_that_began_before_keeps_its_names_and_not_the_secret(tmp_path: Path) -> None:
    """A policy that redacts from now on: recorded calls are found again, new ones are hidden."""
    policy = "upstream: up\nbase_url: http://127.0.0.1:{}\nrules:\n  - name: pay\n    match: {{path: /pay}}\n"
    async with place(tmp_path, "[]") as other:
        origin = other.origin.port
        state = tmp_path / "second"
        state.mkdir()

        async def ask(port: int, number: str, attempt: str) -> str | None:
            headers = {**JSON, "Semel-Run": "r", "Semel-Attempt": attempt}
            return (await call(port, "POST", "/up/pay", headers, pay(number))).semel

        async with semel(state, policy.format(origin)) as app:
            assert await ask(app.address.port, "1111-first", "a") == "executed"
        async with semel(state, policy.format(origin) + "    redact: {args: [card.number]}\n") as app:
            assert await ask(app.address.port, "1111-first", "b") == "replayed"
            assert await ask(app.address.port, "2222-second", "b") == "executed"
            listed = await raw_call(
                app.address.port,
                request_bytes("GET", "/_semel/calls?run=r", host=f"127.0.0.1:{app.address.port}"),
            )
            assert b"2222-second" not in listed.body
    assert b"2222-second" not in await ambient.everything_in(state / "state")


@pytest.mark.parametrize("before", ["", "rules:\n  - {name: old, match: {path: /pay}}\n"])
async def test_a_run_that_began_before_the_rule_does_not_keep_what_it_hides(
    tmp_path: Path, before: str
) -> None:
    """Neither where no rule was, nor where it had another name."""
    after = "rules:\n  - {name: new, match: {path: /pay}, redact: {args: [card.number, query.ssn]}}\n"
    async with place(tmp_path, "[]") as other:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{other.origin.port}\n"
        state = tmp_path / "second"
        state.mkdir()
        after += "credentials: [x-shop]\n"
        for rules, number in ((before, "1111-first"), (after, "2222-second")):
            run = {**JSON, "Semel-Run": "r", "Semel-Attempt": "a", "X-Shop": f"4{number}"}
            async with semel(state, policy + rules) as app:
                got = await call(app.address.port, "POST", f"/up/pay?ssn=3{number}", run, pay(number))
                assert got.semel == "executed"
    kept = await ambient.everything_in(state / "state")
    assert b"1111-first" in kept
    assert b"2222-second" not in kept


async def test_concurrent_identical_calls_are_one(tmp_path: Path) -> None:
    """Naming through the hash joins as naming without does."""
    async with place(tmp_path, RULES) as there:
        got = await asyncio.gather(*(there.post("pay/x", pay()) for _ in range(10)))
        assert len(there.origin.requests) == 1
        assert {one.semel for one in got} - {"replayed"} == {"executed", "joined"}


@pytest.mark.parametrize("rule", [", redact: {args: [card]}", ""], ids=["redacts", "does-not"])
async def test_what_a_rule_may_have_been_for_is_hidden_in_case(tmp_path: Path, rule: str) -> None:
    """Two readers could see two things in this body, so the rule that looks into it is passed over. What it
    would have hidden is hidden; without such a rule it is there."""
    policy = f"""
rules:
  - {{name: card, match: {{path: /pay, when: "card != `null`"}}{rule}}}
  - {{name: pay, match: {{path: /pay}}}}
"""
    number, case = b"4242424242424242", new_case()
    async with Api() as api:
        api.answers[case].append(Told())
        text = f"upstream: up\nbase_url: http://127.0.0.1:{api.port}{policy}"
        async with semel(tmp_path, text, store=ambient.EMBEDDED) as app:
            body = b'{"card": "%b", "card": "%b"}' % (number, number)
            headers = {"Content-Type": JSON_TYPE, CASE: case}
            assert (await call(app.address.port, "POST", "/up/pay", headers, body)).semel == "executed"
        assert api.received[case][0].body == body
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert (number in kept) == (not rule)


async def test_json_that_is_said_to_be_a_form_is_hidden_whole(tmp_path: Path) -> None:
    """curl's -d says so: its pairs are none, and what the rule redacts stands in it somewhere."""
    number, case = b"4242424242424242", new_case()
    async with Api() as api:
        api.answers[case].append(Told())
        rule = "rules: [{name: pay, match: {path: /pay}, redact: {args: [number]}}]"
        text = f"upstream: up\nbase_url: http://127.0.0.1:{api.port}\n{rule}\n"
        async with semel(tmp_path, text, store=ambient.EMBEDDED) as app:
            body = b'{"kind": "card", "number": "%b"}' % number
            headers = {"Content-Type": FORM_TYPE, CASE: case}
            assert (await call(app.address.port, "POST", "/up/pay", headers, body)).semel == "executed"
        assert api.received[case][0].body == body
    assert not any(number in path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
