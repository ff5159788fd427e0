"""Every route x every role x own tenant or another's, from the route table itself: a new one is in it.

What is not listed here as open to another role is for operators of the tenant alone.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.admin.route import PREFIX, Route
from proxy.admin.routes import ROUTES
from proxy.errors import Refusal
from proxy.front import door
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.admin.run_scene import POLICY
from tests.admin.scene import FINE, JSON, LOST
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.origin import Origin

OURS, THEIRS = "acme", "zenith"
TOKENS = {(role, tenant): f"semel_{role}_{tenant}" for role in Role for tenant in (OURS, THEIRS)}
KNOWN = [Token(sha256=digest(token), tenant=tenant, role=role) for (role, tenant), token in TOKENS.items()]
# Open to an agent of the run's tenant: it looks at its run, and says that it ended well.
FOR_AGENTS = frozenset({"showRun", "completeRun"})
# They say the same to operators of every tenant: the API itself, and figures over all of the store.
OF_NOBODY = frozenset({"showApi", "showStats"})
SECRET = "word-of-acme"
# What a decision says; one that is not here takes a reason, as every decision does.
SAID: dict[str, dict[str, Any]] = {
    "Resolve": {"as": "not_executed", "reason": "looked"},
    "Fork": {"at": 1, "as": "new-one", "reason": "looked"},
    "Complete": {"attempt": "1"},
}


@dataclass(frozen=True, slots=True)
class World:
    port: int
    done: str
    doubtful: str

    async def ask(self, route: Route, token: str | None, *, call_id: str = "", method: str = "") -> Answer:
        path = route.path.format(id=call_id or self.done, run="trip")
        said = SAID.get(route.body, {"reason": "looked"}) if route.body else None
        headers = {**(JSON if said is not None else {}), **({} if token is None else {"Semel-Token": token})}
        body = b"" if said is None else json.dumps(said).encode()
        host = f"127.0.0.1:{self.port}"
        raw = request_bytes(method or route.method, PREFIX + path, headers, body, host=host)
        return await raw_call(self.port, raw, is_head=method == "HEAD")


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """acme has a run, a call that is done and one in doubt; zenith has nothing."""
    async with (
        Origin(FINE, FINE, LOST) as origin,
        semel(tmp_path, POLICY.format(port=origin.port), tokens=KNOWN) as app,
    ):
        port, headers = app.address.port, {**JSON, "Semel-Token": TOKENS[Role.AGENT, OURS]}
        said = b'{"usd": 1, "note": "%b"}' % SECRET.encode()
        assert (await call(port, "POST", "/@trip+1/pay/charge", headers, said)).status == 201
        done = await call(port, "POST", "/pay/charge", headers, said)
        doubtful = await call(port, "POST", "/pay/mail", headers, said)
        assert (done.status, doubtful.status) == (201, 409)
        yield World(port, str(done.get("Semel-Call")), str(doubtful.get("Semel-Call")))


def roles_of(route: Route) -> frozenset[Role]:
    return frozenset({Role.OPERATOR, Role.AGENT} if route.name in FOR_AGENTS else {Role.OPERATOR})


def kind(got: Answer) -> str:
    return str(json.loads(got.body).get("type", "")).removeprefix("urn:semel:")


def test_the_table_knows_its_exceptions() -> None:
    """A route that was renamed must not take its exception along unseen."""
    names = {route.name for route in ROUTES}
    assert names >= FOR_AGENTS | OF_NOBODY
    assert len(names) == len(ROUTES)
    assert not [route.name for route in ROUTES if route.name in FOR_AGENTS and "{run}" not in route.path]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@pytest.mark.parametrize("method", ["", "HEAD"])
async def test_each_route_lets_in_its_roles_and_no_other(tmp_path: Path, route: Route, method: str) -> None:
    """401 without a known token, 403 with a role that may not, whatever the tenant; a HEAD is a GET."""
    if method == "HEAD" and route.method != "GET":
        return
    async with world(tmp_path) as there:
        for token in (None, "semel_unknown", digest(TOKENS[Role.OPERATOR, OURS])):
            assert (await there.ask(route, token, method=method)).status == 401
        for (role, tenant), token in TOKENS.items():
            if role not in roles_of(route):
                got = await there.ask(route, token, method=method)
                assert got.status == 403, (route.name, role, tenant)
                assert method == "HEAD" or kind(got) == "forbidden"
        for role in roles_of(route):
            for call_id in (there.done, there.doubtful):
                got = await there.ask(route, TOKENS[role, OURS], call_id=call_id, method=method)
                assert got.status not in (401, 403), (route.name, role, got.body)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_another_tenant_s_record_is_as_good_as_not_there(tmp_path: Path, route: Route) -> None:
    """404 for what is named; nothing of it in what is listed; and nothing has changed afterwards."""
    async with world(tmp_path) as there:
        before = await everything(there)
        assert SECRET in before
        for role in roles_of(route):
            for call_id in (there.done, there.doubtful):
                got = await there.ask(route, TOKENS[role, THEIRS], call_id=call_id)
                named = "{id}" in route.path or "{run}" in route.path
                assert got.status == (404 if named else 200), (route.name, role, got.body)
                said = got.body.decode()
                assert SECRET not in said
                if route.name not in OF_NOBODY and not named:
                    assert not [word for word in (there.done, there.doubtful, "trip") if word in said]
        assert await everything(there) == before


async def everything(there: World) -> str:
    """All that the operator of acme can see."""
    token = TOKENS[Role.OPERATOR, OURS]
    reads = [route for route in ROUTES if route.method == "GET" and route.name not in OF_NOBODY]
    answers = [
        await there.ask(route, token, call_id=call_id)
        for route in reads
        for call_id in (there.done, there.doubtful)
    ]
    # An age is that of the moment at which it was asked.
    return re.sub(r'("(?:age|\w*seconds)": )[0-9.]+', r"\1-", "\n".join(one.body.decode() for one in answers))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_an_agent_s_door_to_its_run_opens_nothing_beside(tmp_path: Path, method: str) -> None:
    """Spellings that lead elsewhere, with every method: refused, and nothing is decided."""
    async with world(tmp_path) as there:
        before = await everything(there)
        for path in (
            "runs/trip/allow",
            "runs/trip/fork",
            "runs/trip/export",
            "runs/trip/",
            "runs/trip/complete/",
            "runs/trip%2Fallow",
            "runs/trip%2fexport",
            "runs//allow",
            "runs/trip;/allow",
            "runs",
            "runs/",
            f"runs/trip%2F..%2F..%2Fcalls%2F{there.done}",
            f"calls/{there.done}?x=/_semel/runs/trip",
            f"calls/{there.doubtful}/resolve",
        ):
            headers = {**JSON, "Semel-Token": TOKENS[Role.AGENT, OURS]}
            host = f"127.0.0.1:{there.port}"
            raw = request_bytes(method, PREFIX + path, headers, b'{"reason": "r"}', host=host)
            got = await raw_call(there.port, raw)
            assert got.status in (400, 403, 404, 405), (path, got.status)
            assert SECRET not in got.body.decode()
        assert await everything(there) == before


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/metrics", {Role.OPERATOR, Role.METRICS}),
        ("/healthz", set(Role)),
        ("/readyz", set(Role)),
        ("/pay/look", {Role.AGENT}),
        ("/@trip+2/pay/look", {Role.AGENT}),
    ],
)
async def test_what_is_not_in_the_table(tmp_path: Path, path: str, allowed: set[Role]) -> None:
    """Metrics, probes, and calls themselves: an operator makes none, a metrics token does nothing else."""
    async with world(tmp_path) as there:
        for (role, _), token in TOKENS.items():
            got = await call(there.port, "GET", path, {"Semel-Token": token})
            assert (got.status not in (401, 403)) == (role in allowed), (path, role, got.status)


async def test_prometheus_sends_its_token_as_a_bearer_s(tmp_path: Path) -> None:
    """For /metrics the same token by the header that Prometheus has; nothing else is opened by it."""
    async with world(tmp_path) as there:
        told = {role: {"Authorization": f"bearer {TOKENS[role, OURS]}"} for role in Role}
        got = {role: (await call(there.port, "GET", "/metrics", told[role])).status for role in Role}
        assert got == {Role.AGENT: 403, Role.OPERATOR: 200, Role.METRICS: 200}
        for wrong in ("Basic", "", TOKENS[Role.METRICS, OURS], "Bearer semel_unknown"):
            assert (await call(there.port, "GET", "/metrics", {"Authorization": wrong})).status == 401
        assert (await call(there.port, "GET", "/_semel/calls", told[Role.OPERATOR])).status == 401
        assert (await call(there.port, "POST", "/pay/charge", told[Role.AGENT])).status == 401
        for second, status in (("semel_unknown", 400), (TOKENS[Role.METRICS, OURS], 200)):
            both = {**told[Role.METRICS], "Semel-Token": second}
            assert (await call(there.port, "GET", "/metrics", both)).status == status


async def test_a_token_that_is_its_own_digest_lets_nobody_in(tmp_path: Path) -> None:
    """Whoever has read semel.yaml has digests, and no token."""
    async with world(tmp_path) as there:
        for known in KNOWN:
            for shown in (known.sha256, known.sha256.upper(), f"sha256:{known.sha256}"):
                got = await call(there.port, "GET", "/metrics", {"Semel-Token": shown})
                assert got.status == 401


def test_every_known_digest_is_compared_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In constant time and all of them: neither the first nor the last is found sooner."""
    compared: list[str] = []

    def compare(known: str, presented: str) -> bool:
        compared.append(known)
        return hmac.compare_digest(known, presented)

    monkeypatch.setattr(door, "hmac", SimpleNamespace(compare_digest=compare))
    for token in (TOKENS[Role.AGENT, OURS], TOKENS[Role.METRICS, THEIRS], "semel_unknown"):
        compared.clear()
        with contextlib.suppress(Refusal):
            door.Door(KNOWN).for_calls(token)
        assert compared == [known.sha256 for known in KNOWN]
