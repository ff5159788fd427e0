"""Rules that look at headers, over the wire: what chooses a rule and names a call is what is sent."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from proxy.core.clauses import Approval, Redact, UpstreamKey
from proxy.core.policy import Implied, KeyRecipe, Looks, Rule, Upstream
from proxy.front.address import UpstreamAddress
from proxy.front.naming import Named, ToName, name_in_full
from proxy.spool import Spool
from tests.inside import Answer, call, semel
from tests.presets.api import CASE, Api, new_case
from tests.presets.cases import Told

POLICY = """
upstream: up
base_url: http://127.0.0.1:{port}
accounts: [X-Account]
rules:
  - {{name: dry, match: {{headers: {{X-Dry-Run: "true"}}}}, safe: true}}
  - {{name: read, match: {{path: /rpc, headers: {{X-Target: "A.Get*"}}}}, safe: true}}
"""


class Stage:
    def __init__(self, port: int, api: Api) -> None:
        self.port, self.api, self.case = port, api, new_case()
        api.answers[self.case].extend(Told(json={"number": number}) for number in range(1, 9))

    async def ask(self, path: str = "/x", run: str = "", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await call(self.port, "POST", f"{run}/up{path}", {CASE: self.case, **named}, b"{}")


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with Api() as api, semel(tmp_path, POLICY.format(port=api.port)) as app:
        yield Stage(app.address.port, api)


async def test_what_connection_keeps_here_chooses_and_names_nothing(stage: Stage) -> None:
    """The upstream never sees it: to that it is an ordinary call, of no account in particular."""
    assert (await stage.ask(X_Dry_Run="true")).semel == "passed"
    kept = await stage.ask(X_Dry_Run="true", Connection="keep-alive, X-Dry-Run")
    assert kept.semel == "executed"
    assert "x-dry-run" not in stage.api.received[stage.case][-1].headers
    for account, connection, status in (
        ("a", "keep-alive", "executed"),
        ("b", "keep-alive", "executed"),
        ("a", "X-Account", "replayed"),  # as without an account
    ):
        assert (await stage.ask(X_Account=account, Connection=connection)).semel == status


async def test_what_one_rule_looks_at_tells_all_calls_apart(stage: Stage) -> None:
    """Also those that no rule is for: two operations with equal bodies are two calls."""
    answers = [await stage.ask("/rpc", X_Target=target) for target in ("A.Create", "A.Delete", "A.Create")]
    assert [answer.semel for answer in answers] == ["executed", "executed", "replayed"]
    assert json.loads(answers[2].body) == {"number": 1}


LOOKS_AT_THE_TYPE = """
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: uploads, match: {{path: /files, headers: {{Content-Type: "multipart/*"}}}}}}
"""


@pytest.mark.parametrize("path", ["/files", "/other"])
async def test_a_boundary_names_no_call_where_a_rule_looks_at_the_type(tmp_path: Path, path: str) -> None:
    """It is made anew for every request: the same upload again is the same call."""
    async with Api() as api, semel(tmp_path, LOOKS_AT_THE_TYPE.format(port=api.port)) as app:
        case = new_case()
        api.answers[case].extend([Told(json={}), Told(json={})])
        told = []
        for boundary in ("one", "two"):
            part = f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--{boundary}--\r\n'
            headers = {CASE: case, "Content-Type": f"multipart/form-data; boundary={boundary}"}
            told.append((await call(app.address.port, "POST", f"/up{path}", headers, part.encode())).semel)
    assert told == ["executed", "replayed"]


# ---- in a run that began before ----


def named_in_run(present: Rule, body: bytes, *headers: tuple[bytes, bytes]) -> Named:
    """In a run that began without rules, by the policies of now."""
    began, now = (
        Upstream(name="up", scheme="http", host="up.example", port=80, rules=rules)
        for rules in ((), (present,))
    )
    request = ToName(
        began, UpstreamAddress("up", "/x", None), "POST", ((b"Content-Type", b"application/json"), *headers),
        Spool.of(body), 1, "", origin="run", present=now,
    )  # fmt: skip
    return name_in_full(request, b"s" * 32, 2**20)


def test_a_permission_is_for_what_the_rule_of_now_tells_apart() -> None:
    """One for staging is none for prod, though the run names the two alike."""
    looks = Looks(headers=(("x-env", ("staging", "prod")),))
    key = KeyRecipe(implied=Implied(headers=("x-env",)))
    rule = Rule(name="guard", looks=looks, key=key, approval=Approval())
    one, two = (named_in_run(rule, b"{}", (b"X-Env", env)) for env in (b"staging", b"prod"))
    assert one.identity == two.identity
    assert one.bound_to
    assert two.bound_to
    assert one.bound_to != two.bound_to


@pytest.mark.parametrize("body", [b'{"kind": "card", "kind": "x", "number": "4242"}', b'{"number": "4242"}'])
def test_what_a_rule_of_now_may_be_for_is_hidden_in_case(body: bytes) -> None:
    """Also in a run that began before there was such a rule."""
    rule = Rule(name="card", looks=Looks(when="kind == 'card'"), redact=Redact(args=("number",)))
    assert named_in_run(rule, body).match.rule.redacts_now == Redact(args=("number",))
    assert named_in_run(rule, b'{"kind": "x", "number": "4242"}').match.rule.redacts_now == Redact()


# ---- what a person permits ----

PAY = Rule(
    name="pay",
    approval=Approval(),
    upstream_key=UpstreamKey(body="reference"),
    key=KeyRecipe(implied=Implied(client_field="reference")),
)


@pytest.mark.parametrize(
    ("headers", "replaced"),
    [((), True), (((b"X-Signature", b"s"),), False), (((b"Content-Encoding", b"gzip"),), False)],
    ids=["plain", "signed", "gzip"],
)
def test_a_person_permits_what_semel_does_not_replace(
    headers: tuple[tuple[bytes, bytes], ...], replaced: bool
) -> None:
    """A client's key gives way to semel's own and is not looked at; where it cannot, it goes out as it is."""
    upstream = Upstream(name="up", scheme="http", host="up.example", port=80, rules=(PAY,))
    bound = []
    for reference in (b"rent", b"for Mallory"):
        body = b'{"amount": 5, "reference": "%b"}' % reference
        sent = gzip.compress(body) if (b"Content-Encoding", b"gzip") in headers else body
        request = ToName(
            upstream,
            UpstreamAddress("up", "/x", None),
            "POST",
            ((b"Content-Type", b"application/json"), *headers),
            Spool.of(sent),
            1,
            "",
        )
        bound.append(name_in_full(request, b"s" * 32, 2**20).bound_to)
    assert all(bound)
    assert (bound[0] == bound[1]) is replaced
