"""Planted secrets: whatever becomes of the call, they go upstream and are nowhere else.

Looked through: the store's files or rows, the log with the traceback of a defect, the metrics, the answers to
the agent, the operator's API and page, the run's export, a notification's body.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from proxy import faults
from proxy.app import App
from proxy.core import divergence
from proxy.core.intent import State
from proxy.faults import Point
from proxy.notifying.event import of_call
from proxy.settings import Role, Token
from proxy.store.base import Query
from proxy.tokens import digest
from tests import ambient
from tests.http.numbered import FORM, JSON
from tests.inside import Answer, raw_call, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, Script, answer

pytestmark = pytest.mark.usefixtures("some_store")

AGENT, OPERATOR = "semel_agent-0123456789", "semel_operator-0123456789"
S = "pl4nted-s3cret/+"  # with characters that have other spellings in addresses, forms and JSON
IN_URL = "pl4nted-s3cret%2F%2B"
TEXT = {"Content-Type": "text/plain"}


@dataclass(frozen=True)
class Plant:
    headers: Mapping[str, str] = field(default_factory=dict)
    target: str = "open"
    body: bytes = b'{"a": 1}'


def j(**members: object) -> bytes:
    return json.dumps(members).encode()


PLANTS = {
    "bearer": Plant({"Authorization": f"Bearer {S}"}),
    "basic": Plant({"Authorization": f"Basic {S}"}),
    "cookie": Plant({"Cookie": f"sid={S}"}),
    "x-api-key": Plant({"X-Api-Key": S}),
    "api-key": Plant({"Api-Key": S}),
    "goog": Plant({"X-Goog-Api-Key": S}),
    "policy's credential": Plant({"X-Shop": S}),
    "sounds secret": Plant({"X-Vault-Token": S}),
    "redacted header": Plant({"X-Card": S}, "hidden"),
    "keyed and redacted header": Plant({"X-Keyed": S}, "hidden"),
    "credential that counts": Plant({"Authorization": S}, "keyed"),
    "referer": Plant({"Referer": f"https://a.example/?token={IN_URL}"}),
    "api_key in the address": Plant(target=f"open?api_key={IN_URL}&page=1"),
    "access_token": Plant(target=f"open?access_token={IN_URL}"),
    "signature": Plant(target=f"open?X-Amz-Signature={IN_URL}"),
    "behind a semicolon": Plant(target=f"open?a=1;token={IN_URL}"),
    "redacted in the query": Plant(target=f"hidden?ssn={IN_URL}&page=2"),
    "token in the path": Plant(target=f"bot/{IN_URL}/send"),
    "redacted in the path": Plant(target=f"users/{IN_URL}/cards"),
    "json": Plant(target="hidden", body=j(card=S, amount=1)),
    "nested json": Plant(target="hidden", body=j(who={"card": {"number": S}}, amount=2)),
    "json in arrays": Plant(target="hidden", body=j(items=[{"pin": S}, {"pin": {"x": [S]}}])),
    "json with two meanings": Plant(target="hidden", body=j(card=S)[:-1] + b', "card": 1}'),
    "form": Plant(FORM, "hidden", f"a=1&card={IN_URL}".encode()),
    "text": Plant(TEXT, "hidden", f"the card is {S}".encode()),
    "long json": Plant(target="hidden", body=j(card=S, filler="x" * 100_000)),
    "very long json": Plant(target="hidden", body=j(card=S, filler="x" * 1_500_000)),
    "the agent's own token": Plant({"Semel-Token": AGENT}),
}
POLICY = """\
upstream: up
base_url: http://127.0.0.1:{port}
credentials: [x-shop]
rules:
  - name: hidden
    match: {{path: /hidden}}
    key: {{headers: [x-keyed]}}
    redact:
      args: [card, who.card, "items[].pin", query.ssn]
      headers: [x-card, x-keyed]
  - {{name: users, match: {{path: "/users/{{who}}/cards"}}, redact: {{args: [path.who]}}}}
  - {{name: bot, match: {{path: "/bot/{{token}}/send"}}}}
  - {{name: keyed, match: {{path: /keyed}}, key: {{credential: include}}}}
"""
TOKENS = [
    Token(sha256=digest(AGENT), tenant="acme", role=Role.AGENT),
    Token(sha256=digest(OPERATOR), tenant="acme", role=Role.OPERATOR),
]
SECRETS = (S, IN_URL, AGENT, OPERATOR, json.dumps(S)[1:-1])


class Watched:
    """A semel and everything it says to anybody but the upstream."""

    def __init__(self, app: App, origin: Origin, log: io.StringIO) -> None:
        self.app, self.origin, self.log = app, origin, log
        self.said: list[bytes] = []
        self._numbers = count()

    async def ask(self, plant: Plant, run: str = "") -> Answer:
        """Each time another call, by a field that says nothing."""
        mark = "&" if "?" in plant.target else "?"
        given = {**JSON, "Semel-Token": AGENT, **plant.headers}
        given |= {"Semel-Run": run, "Semel-Attempt": f"a{next(self._numbers)}"} if run else {}
        target = f"/up/{plant.target}{mark}n={next(self._numbers)}"
        got = await raw_call(self.app.address.port, request_bytes("POST", target, given, plant.body))
        self.said += [got.body, *(value for pair in got.headers for value in pair)]
        return got

    async def look(self, path: str) -> bytes:
        host = f"127.0.0.1:{self.app.address.port}"
        got = await raw_call(
            self.app.address.port, request_bytes("GET", path, {"Semel-Token": OPERATOR}, host=host)
        )
        assert got.status == 200, (path, got)
        self.said.append(got.body)
        return got.body

    async def look_everywhere(self, run: str) -> None:
        for path in ("/metrics", "/_semel/stats", "/_semel/calls", "/_semel/", "/_semel/runs"):
            await self.look(path)
        for call in json.loads(await self.look("/_semel/calls?limit=100"))["calls"]:
            await self.look(f"/_semel/calls/{call['id']}")
        await self.look(f"/_semel/runs/{run}")
        await self.look(f"/_semel/runs/{run}/export")
        page = await self.app.store.find(Query(limit=1000))
        self.said += [of_call(call).body("") for call in page.calls if call.state is State.IN_DOUBT]


@asynccontextmanager
async def watched(tmp_path: Path, *scripts: Script) -> AsyncIterator[Watched]:
    log = io.StringIO()
    async with (
        Origin(*scripts) as origin,
        semel(tmp_path, POLICY.format(port=origin.port), tokens=TOKENS, log=log) as app,
    ):
        yield Watched(app, origin, log)


def repeated(plant: Plant) -> bytes:
    """An upstream that says all it was told."""
    told = [*plant.headers.values(), plant.target, plant.body[:200].decode()]
    return "; ".join(told).encode()


@pytest.mark.parametrize("name", PLANTS)
async def test_a_planted_secret_is_nowhere(tmp_path: Path, name: str) -> None:
    """Done, in a run, in doubt with the upstream's own words, refused by it, and with a defect of semel's."""
    plant = PLANTS[name]
    fine: Script = (*READ_ALL, answer(200, b"fine"))
    doubtful: Script = (*READ_ALL, answer(500, b"sorry: " + repeated(plant)))
    async with watched(tmp_path, fine, fine, doubtful, doubtful, fine) as there:
        assert (await there.ask(plant)).semel == "executed"
        assert (await there.ask(plant, run="r")).semel == "executed"
        for run in ("", "r"):
            got = await there.ask(plant, run=run)
            assert got.status == 409, got
        try:
            secret = AGENT if AGENT in plant.headers.values() else f"{S} and {IN_URL}"
            faults.arm(Point.ANSWER_COMPLETE, partial(_stumble_over, secret), times=1)
            assert (await there.ask(plant)).status == 409
        finally:
            faults.disarm_all()
        await there.look_everywhere("r")
        if name != "the agent's own token":
            sent = b"".join(bytes(one.head) + bytes(one.body) for one in there.origin.requests)
            assert S.encode() in sent or IN_URL.encode() in sent, "it was not planted"
    said = b"\n".join(there.said) + there.log.getvalue().encode()
    kept = await ambient.everything_in(tmp_path / "state")
    assert "RuntimeError" in there.log.getvalue(), "the defect was not told of"
    for secret in SECRETS:
        assert secret.encode() not in said
        assert secret.encode() not in kept


async def test_planted_secrets_are_nowhere_in_shadow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, looked on at: done and in doubt, in and outside a run. For the record of the shadow, and
    what is said of it, the same holds as for the real one."""
    monkeypatch.setattr(divergence, "GRACE", 0.01)  # each attempt here leaves the record
    rules = re.sub(r"name: (users|bot|keyed),", r"name: \1, shadow: true,", POLICY)
    rules = rules.replace("name: hidden\n", "name: hidden\n    shadow: true\n")
    rules += "  - {{name: rest, shadow: true}}\n"
    log = io.StringIO()
    scripts = [(*READ_ALL, answer(code, b"said")) for _ in PLANTS for code in (200, 500)]
    async with (
        Origin(*scripts) as origin,
        semel(tmp_path, rules.format(port=origin.port), tokens=TOKENS, log=log, store="embedded") as app,
    ):
        there = Watched(app, origin, log)
        for number, plant in enumerate(PLANTS.values()):
            for code in (200, 500):
                got = await there.ask(plant, run="r" if number % 2 else "")
                assert (got.status, got.semel) == (code, "passed")
        await until(lambda: not app.shadow.under_way)
        metrics = (await there.look("/metrics")).decode()
        unjudged = [line for line in metrics.splitlines() if 'would="unjudged"' in line]
        assert unjudged
        assert all(line.endswith(" 0.0") for line in unjudged)
        works = app.shadow.works
        assert works is not None
        rows = (await works.store.find(Query(limit=1000))).calls
        assert {row.state for row in rows} == {State.DONE, State.IN_DOUBT}
    said = b"\n".join(there.said) + log.getvalue().encode()
    with ambient.kept_in("embedded"):
        kept = await ambient.everything_in(tmp_path / "state")
    for secret in SECRETS:
        assert secret.encode() not in said
        assert secret.encode() not in kept


def _stumble_over(secret: str) -> None:
    raise RuntimeError(f"stumbled over {secret}")
