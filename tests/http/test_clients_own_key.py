"""A key that the client puts where the upstream takes one: in a header of that API's own, or in the body.

semel's key takes its place on the way out, so whatever the upstream would have done by the client's key semel
has to do: the same key is the same call, and another key another one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.inside import Answer, call, semel
from tests.presets.api import CASE, Api, new_case
from tests.presets.cases import Told

POLICY = """
upstream: pay
base_url: http://127.0.0.1:{port}
rules:
  - name: header
    match: {{path: /header}}
    upstream_key: {{header: PayPal-Request-Id}}
  - name: body
    match: {{path: /body}}
    upstream_key: {{body: idempotency_key, max_length: 45}}
  - name: nested
    match: {{path: /nested}}
    upstream_key: {{body: headers.idempotencyKey}}
  - name: nonce
    match: {{path: /nonce}}
    key: {{exclude: [enforce]}}
    upstream_key: {{body: nonce, with: {{enforce: true}}}}
  - name: looked-at
    match: {{path: /looked-at, headers: {{PayPal-Request-Id: "*"}}}}
    upstream_key: {{header: PayPal-Request-Id}}
  - name: required
    match: {{path: /required}}
    key: {{client_key: require}}
    upstream_key: {{body: idempotency_key}}
"""
PLACES = {"/header": "header paypal-request-id", "/body": "body idempotency_key"} | {
    "/nested": "body headers.idempotencyKey"
}
each_place = pytest.mark.parametrize("path", PLACES)


class Pay(NamedTuple):
    """One client of one API. Every answer has its number."""

    port: int
    api: Api
    case: str

    async def __call__(
        self, path: str, key: str | None, amount: int = 1, *, run: str = "", generic: str = ""
    ) -> Answer:
        body: dict[str, object] = {"amount": amount}
        headers = {"Content-Type": "application/json", CASE: self.case}
        if generic:
            headers["Idempotency-Key"] = generic
        if key is not None and path == "/header":
            headers["PayPal-Request-Id"] = key
        elif key is not None and path == "/nested":
            body["headers"] = {"idempotencyKey": key}
        elif key is not None:
            body["idempotency_key"] = key
        return await call(self.port, "POST", f"{run}/pay{path}", headers, json.dumps(body).encode())

    def keys(self, path: str) -> list[str | None]:
        """What the upstream got."""
        return [received.key(PLACES[path]) for received in self.api.received[self.case]]


@pytest_asyncio.fixture
async def pay(tmp_path: Path) -> AsyncIterator[Pay]:
    async with Api() as api, semel(tmp_path, POLICY.format(port=api.port)) as app:
        case = new_case()
        api.answers[case].extend(Told(json={"number": number}) for number in range(1, 9))
        yield Pay(app.address.port, api, case)


def told(answer: Answer) -> tuple[str | None, int]:
    return answer.semel, json.loads(answer.body)["number"]


@each_place
async def test_outside_a_run_it_names_the_call(pay: Pay, path: str) -> None:
    """The same key is the same call, another key, or none, is another one. What goes out is semel's."""
    answers = [await pay(path, key) for key in ("k1", "k1", "k2", None, None)]
    assert [told(answer) for answer in answers] == [
        ("executed", 1),
        ("replayed", 1),
        ("executed", 2),
        ("executed", 3),
        ("replayed", 3),
    ]
    sent = pay.keys(path)
    assert len(set(sent)) == len(sent) == 3
    assert not {"k1", "k2", None} & set(sent)


@each_place
async def test_outside_a_run_another_amount_under_it_is_a_conflict(pay: Pay, path: str) -> None:
    """As the upstream would say, and nothing is sent."""
    assert (await pay(path, "k1", 1)).semel == "executed"
    conflict = await pay(path, "k1", 2)
    assert (conflict.status, json.loads(conflict.body)["type"]) == (422, "urn:semel:key-conflict")
    assert len(pay.keys(path)) == 1


@each_place
async def test_in_a_run_a_newly_minted_one_is_the_same_call(pay: Pay, path: str) -> None:
    """A crashed agent mints another key and must meet its past."""
    one, two = await pay(path, "k1", run="/@r+one"), await pay(path, "k2", run="/@r+two")
    assert [told(answer) for answer in (one, two)] == [("executed", 1), ("replayed", 1)]


@each_place
async def test_in_a_run_the_same_one_within_an_attempt_is_a_retry(pay: Pay, path: str) -> None:
    """Also when the answer was delivered: the upstream would have known the key, but it never sees it."""
    answers = [await pay(path, key, run="/@r+one") for key in ("k1", "k1", "k1")]
    assert [told(answer) for answer in answers] == [("executed", 1), ("replayed", 1), ("replayed", 1)]
    assert len(pay.keys(path)) == 1


@each_place
async def test_in_a_run_another_one_within_an_attempt_is_another_call(pay: Pay, path: str) -> None:
    """A second payment that is meant. The next attempt makes both again, with keys of its own."""
    first = [await pay(path, key, run="/@r+one") for key in ("k1", "k2")]
    again = [await pay(path, key, run="/@r+two") for key in ("k3", "k4")]
    assert [told(answer) for answer in (*first, *again)] == [
        ("executed", 1),
        ("executed", 2),
        ("replayed", 1),
        ("replayed", 2),
    ]
    assert len(set(pay.keys(path))) == len(pay.keys(path)) == 2


@each_place
async def test_an_idempotency_key_counts_where_there_is_no_other(pay: Pay, path: str) -> None:
    """What the API takes a key by counts first."""
    for key, generic, number in ((None, "g1", 1), (None, "g1", 1), (None, "g2", 2), ("k1", "g1", 3)):
        assert told(await pay(path, key, generic=generic))[1] == number
    assert told(await pay(path, "k1", generic="g3")) == ("replayed", 3)
    assert all("idempotency-key" not in received.headers for received in pay.api.received[pay.case])


async def test_a_key_that_a_rule_looks_at_does_not_name_the_call(pay: Pay) -> None:
    """It is minted anew after a crash, also where it chooses the rule."""
    headers = {"Content-Type": "application/json", CASE: pay.case}
    answers = [
        await call(pay.port, "POST", f"/@r+{key}/pay/looked-at", {**headers, "PayPal-Request-Id": key}, b"{}")
        for key in ("k1", "k2")
    ]
    assert [told(answer) for answer in answers] == [("executed", 1), ("replayed", 1)]


async def test_nor_does_it_name_calls_of_other_rules(pay: Pay) -> None:
    """What one rule looks at names all calls of the upstream, but for a key that is minted anew."""
    headers = {"Content-Type": "application/json", CASE: pay.case}
    answers = [
        await call(pay.port, "POST", "/pay/elsewhere", {**headers, "PayPal-Request-Id": key}, b"{}")
        for key in ("k1", "k2")
    ]
    assert [told(answer) for answer in answers] == [("executed", 1), ("replayed", 1)]


async def test_a_key_that_is_required_is_looked_for_there(pay: Pay) -> None:
    """And what is missing is said with its place."""
    refused = await pay("/required", None)
    assert (refused.status, "'idempotency_key' in the body" in refused.body.decode()) == (400, True)
    assert (await pay("/required", "k1")).semel == "executed"


LONG = (1300000000000000001, 1300000000000000002)


async def test_a_long_number_is_a_key_too(pay: Pay) -> None:
    """Two of them are two calls, and one of them with another amount is a conflict."""
    headers = {"Content-Type": "application/json", CASE: pay.case}
    for key, number in ((LONG[0], 1), (LONG[1], 2), (LONG[0], 1)):
        body = json.dumps({"amount": 1, "idempotency_key": key}).encode()
        assert told(await call(pay.port, "POST", "/pay/body", headers, body))[1] == number
    other = json.dumps({"amount": 2, "idempotency_key": LONG[0]}).encode()
    assert (await call(pay.port, "POST", "/pay/body", headers, other)).status == 422


@pytest.mark.parametrize(
    ("content_type", "bodies"),
    [
        ("application/json", [b'{"idempotency_key": 1.5}', b'{"idempotency_key": 2.5}']),
        ("application/x-www-form-urlencoded", [b"idempotency_key=a", b"idempotency_key=b"]),
    ],
    ids=["fraction", "form"],
)
async def test_what_cannot_be_replaced_stays_an_argument(
    pay: Pay, content_type: str, bodies: list[bytes]
) -> None:
    """The upstream gets it as it is, so two of them are two calls."""
    headers = {"Content-Type": content_type, CASE: pay.case}
    answers = [await call(pay.port, "POST", "/pay/body", headers, body) for body in bodies]
    assert [answer.semel for answer in answers] == ["executed", "executed"]


async def test_a_key_that_needs_something_beside_it_is_none_without(pay: Pay) -> None:
    """It is no argument either: agents mint it anew, and the upstream does not go by it."""
    headers = {"Content-Type": "application/json", CASE: pay.case}

    async def ask(**body: object) -> tuple[str | None, int]:
        return told(await call(pay.port, "POST", "/pay/nonce", headers, json.dumps(body).encode()))

    assert [await ask(text="a", nonce="1"), await ask(text="b", nonce="1")] == [
        ("executed", 1),
        ("executed", 2),
    ]
    assert await ask(text="a", nonce="2") == ("replayed", 1)
    enforced = [await ask(text="a", nonce=nonce, enforce=True) for nonce in ("3", "3", "4")]
    assert enforced == [("executed", 3), ("replayed", 3), ("executed", 4)]


@pytest.mark.parametrize("key", ["", None, True, [], {"a": 1}], ids=str)
async def test_what_is_no_key_is_none(pay: Pay, key: object) -> None:
    """It names nothing: the arguments do."""
    headers = {"Content-Type": "application/json", CASE: pay.case}
    for status in ("executed", "replayed"):
        body = json.dumps({"amount": 1, "idempotency_key": key}).encode()
        assert (await call(pay.port, "POST", "/pay/body", headers, body)).semel == status
    assert len(pay.keys("/body")) == 1
