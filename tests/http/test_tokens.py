"""Tokens: who may call, who may look and decide, whose calls they are; and that no token is left anywhere."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.app import App
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests import ambient
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.origin import READ_ALL, Origin, answer

pytestmark = pytest.mark.usefixtures("any_store")

HOLDERS = {
    "semel_ann": ("acme", Role.AGENT),
    "semel_bob": ("acme", Role.AGENT),
    "semel_zoe": ("zenith", Role.AGENT),
    "semel_ops": ("acme", Role.OPERATOR),
    "semel_prom": ("acme", Role.METRICS),
    "semel_zops": ("zenith", Role.OPERATOR),
}
TOKENS = [Token(sha256=digest(token), tenant=tenant, role=role) for token, (tenant, role) in HOLDERS.items()]
CALL = ("POST", "/pay/charge")
BODY = b'{"usd": 5}'


@asynccontextmanager
async def world(tmp_path: Path, log: io.StringIO | None = None) -> AsyncIterator[tuple[Origin, App]]:
    fine = (*READ_ALL, answer(200, b"ok"))
    async with Origin(fine, fine, fine) as origin:
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy, tokens=TOKENS, log=log) as app:
            yield origin, app


async def ask(app: App, method: str, target: str, token: str | None, body: bytes = b"") -> Answer:
    headers = {} if token is None else {"Semel-Token": token}
    return await call(app.address.port, method, target, headers, body)


@pytest.mark.parametrize("token", [None, "", "semel_an", "semel_annx", "SEMEL_ANN", "semel_\xe9"])
async def test_without_a_known_token_nothing_is_sent(tmp_path: Path, token: str | None) -> None:
    """401 with what to do; the same for an upstream that does not exist, whose name nobody learns."""
    async with world(tmp_path) as (origin, app):
        for target in ("/pay/charge", "/nowhere/charge", "/metrics", "/_semel/calls"):
            refused = await ask(app, "POST" if "charge" in target else "GET", target, token, BODY)
            assert (refused.status, refused.semel) == (401, "refused")
            assert json.loads(refused.body)["type"] == "urn:semel:unauthorized"
            assert "Semel-Token" in json.loads(refused.body)["detail"]
            assert refused.get("WWW-Authenticate") == 'Semel-Token realm="semel"'
        assert origin.requests == []


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("/pay/charge", {Role.AGENT}),
        ("/metrics", {Role.OPERATOR, Role.METRICS}),
        ("/_semel/calls", {Role.OPERATOR}),
        ("/_semel/nothing", {Role.OPERATOR}),
    ],
)
async def test_each_role_has_its_doors(tmp_path: Path, target: str, allowed: set[Role]) -> None:
    """403 for the others, naming the role that may."""
    async with world(tmp_path) as (_, app):
        for token, (_, role) in HOLDERS.items():
            got = await ask(app, "GET", target, token)
            assert (got.status != 403) == (role in allowed), (target, role, got.status)
            if got.status == 403:
                assert f"the role {role} may not" in json.loads(got.body)["detail"]


@pytest.mark.parametrize("target", ["/healthz", "/readyz"])
async def test_probes_need_no_token(tmp_path: Path, target: str) -> None:
    """Who starts and stops the process has none."""
    async with world(tmp_path) as (_, app):
        assert (await ask(app, "GET", target, None)).status == 200
        assert (await ask(app, "GET", target, "wrong")).status == 200


async def test_a_call_belongs_to_its_tenant(tmp_path: Path) -> None:
    """Two agents of one tenant share a call; another tenant's identical call is another."""
    async with world(tmp_path) as (origin, app):
        ann = await ask(app, *CALL, "semel_ann", BODY)
        bob = await ask(app, *CALL, "semel_bob", BODY)
        zoe = await ask(app, *CALL, "semel_zoe", BODY)
        again = await ask(app, *CALL, "semel_zoe", BODY)
        assert [one.semel for one in (ann, bob, zoe, again)] == [
            "executed",
            "replayed",
            "executed",
            "replayed",
        ]
        assert ann.get("Semel-Call") == bob.get("Semel-Call") != zoe.get("Semel-Call")
        assert len(origin.requests) == 2
        row = await app.store.get(bytes.fromhex(str(zoe.get("Semel-Call"))))
        assert row is not None
        assert row.tenant == "zenith"


async def test_an_operator_sees_and_decides_about_calls_of_the_own_tenant_only(tmp_path: Path) -> None:
    """Another tenant's call is not listed, not shown, not forgotten: as if it were not there."""
    async with world(tmp_path) as (origin, app):
        ids = {
            tenant: str((await ask(app, *CALL, token, BODY)).get("Semel-Call"))
            for tenant, token in (("acme", "semel_ann"), ("zenith", "semel_zoe"))
        }
        for token, own, other in (("semel_ops", "acme", "zenith"), ("semel_zops", "zenith", "acme")):
            headers = {"Semel-Token": token, "Host": "127.0.0.1", "Content-Type": "application/json"}

            async def desk(
                method: str, path: str, body: bytes = b"", headers: dict[str, str] = headers
            ) -> Answer:
                request = request_bytes(method, f"/_semel/{path}", headers, body, host="127.0.0.1")
                return await raw_call(app.address.port, request.replace(b"Host: 127.0.0.1\r\n", b"", 1))

            listed = json.loads((await desk("GET", "calls")).body)["calls"]
            assert [one["id"] for one in listed] == [ids[own]]
            assert (await desk("GET", f"calls/{ids[own]}")).status == 200
            decision = b'{"reason": "because"}'
            for method, path, body in (
                ("GET", f"calls/{ids[other]}", b""),
                ("GET", f"calls/{ids[other]}/body", b""),
                ("POST", f"calls/{ids[other]}/forget", decision),
                ("POST", f"calls/{ids[other]}/resolve", b'{"as": "not_executed", "reason": "because"}'),
            ):
                assert (await desk(method, path, body)).status == 404
        for token in ("semel_ann", "semel_zoe"):
            assert (await ask(app, *CALL, token, BODY)).semel == "replayed"
        assert origin.started == 2


async def test_a_token_is_left_nowhere(tmp_path: Path) -> None:
    """Not upstream, not in the record, not in the log, not in a problem."""
    log = io.StringIO()
    async with world(tmp_path, log) as (origin, app):
        bodies = [(await ask(app, *CALL, token, BODY)).body for token in (*HOLDERS, "semel_wrong")]
        sent = b"".join(bytes(seen.head + seen.body) for seen in origin.requests)
        assert b"/charge" in sent
    record = await ambient.everything_in(tmp_path / "state")
    assert b"charge" in record
    for everything in (sent, record, log.getvalue().encode(), *bodies):
        assert b"semel_" not in everything.replace(b"semel_policy", b"")


async def test_without_tokens_everybody_is_the_one_tenant(tmp_path: Path) -> None:
    """On loopback, for one person: a token that is sent all the same does no harm and changes nothing."""
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin:
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy) as app:
            first = await ask(app, *CALL, None, BODY)
            second = await ask(app, *CALL, "whatever", BODY)
            assert (first.semel, second.semel) == ("executed", "replayed")
            row = await app.store.get(bytes.fromhex(str(first.get("Semel-Call"))))
            assert row is not None
            assert row.tenant == "default"
