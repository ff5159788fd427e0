"""Signing in: what a browser carries instead of a token, how long, and what no other page can do with it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.admin.sessions import IDLE, LONGEST, Sessions
from proxy.app import App
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests import ambient
from tests.admin.scene import FINE, JSON, LOST, POLICY, Scene, problem, scene
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.origin import READ_ALL, Origin, answer
from tests.process import SemelProcess

HOLDERS = {
    "semel_ops": ("acme", Role.OPERATOR),
    "semel_zops": ("zenith", Role.OPERATOR),
    "semel_ann": ("acme", Role.AGENT),
    "semel_zoe": ("zenith", Role.AGENT),
    "semel_prom": ("acme", Role.METRICS),
}
TOKENS = [Token(sha256=digest(token), tenant=tenant, role=role) for token, (tenant, role) in HOLDERS.items()]


@asynccontextmanager
async def desk(tmp_path: Path, *, tokens: list[Token] | None = None) -> AsyncIterator[Scene]:
    async with scene(tmp_path, FINE, LOST, tokens=TOKENS if tokens is None else tokens) as world:
        yield world


def ours(world: Scene, **more: str) -> dict[str, str]:
    """What the page's own requests carry."""
    return {"Origin": world.url, "Sec-Fetch-Site": "same-origin", **more}


async def sign_in(world: Scene, token: str = "semel_ops", headers: Mapping[str, str] | None = None) -> Answer:
    return await world.ask("POST", "session", {"token": token}, ours(world) if headers is None else headers)


def cookie_of(got: Answer) -> str:
    """`name=value`, as it is sent back."""
    return str(got.get("Set-Cookie")).partition(";")[0]


async def signed_in(world: Scene, token: str = "semel_ops") -> str:
    got = await sign_in(world, token)
    assert got.status == 200, got.body
    return cookie_of(got)


async def in_doubt(world: Scene, token: str = "semel_ann") -> str:
    """Behind the first call, which is fine."""
    headers = JSON | {"Semel-Token": token}
    assert (await world.charge(1, headers=headers)).status == 201
    return str((await world.charge(2, headers=headers)).get("Semel-Call"))


RESOLVE = {"as": "not_executed", "reason": "looked it up", "version": 2}


async def test_a_cookie_that_is_not_the_token_stands_for_it(tmp_path: Path) -> None:
    """HttpOnly, same site, only under /_semel/; it looks and decides as the token does."""
    async with desk(tmp_path) as world:
        doubt = await in_doubt(world)
        got = await sign_in(world)
        said = str(got.get("Set-Cookie"))
        assert re.fullmatch(
            r"semel_session_[0-9a-f]{8}=[A-Za-z0-9_-]{60,}; Path=/_semel/; HttpOnly; SameSite=Strict", said
        )
        assert "semel_ops" not in said
        assert digest("semel_ops") not in said
        assert got.get("Cache-Control") == "no-store"
        assert json.loads(got.body)["tenant"] == "acme"
        cookie = {"Cookie": f"theme=dark; {cookie_of(got)}"}
        listed = await world.ask("GET", "calls?state=in_doubt", headers=cookie)
        assert [one["id"] for one in json.loads(listed.body)["calls"]] == [doubt]
        decided = await world.ask("POST", f"calls/{doubt}/resolve", RESOLVE, ours(world) | cookie)
        assert (decided.status, json.loads(decided.body)["call"]["state"]) == (200, "released")


async def test_over_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    """Also where a proxy before semel speaks it: the page says so in its Origin."""
    async with desk(tmp_path) as world:
        got = await sign_in(world, headers={"Origin": f"https://127.0.0.1:{world.port}"})
        assert str(got.get("Set-Cookie")).endswith("; SameSite=Strict; Secure")


@pytest.mark.parametrize(
    ("token", "told"),
    [("semel_ann", (403, "forbidden")), ("semel_prom", (403, "forbidden")), ("nobody", (401, "unauthorized")),
     ("", (401, "unauthorized"))],
)  # fmt: skip
async def test_only_an_operator_signs_in(tmp_path: Path, token: str, told: tuple[int, str]) -> None:
    """An agent's token says 403, an unknown one 401, and neither sets a cookie."""
    async with desk(tmp_path) as world:
        got = await sign_in(world, token)
        assert problem(got) == told
        assert got.get("Set-Cookie") is None


async def test_without_tokens_nobody_needs_to_sign_in(tmp_path: Path) -> None:
    """The page asks first, and is told."""
    async with desk(tmp_path, tokens=[]) as world:
        assert json.loads((await world.ask("GET", "session")).body) == {
            "auth": False, "signed_in": False, "tenant": None, "until": None,
        }  # fmt: skip
        assert problem(await sign_in(world)) == (400, "bad-request")
        assert (await world.ask("GET", "calls")).status == 200


async def test_an_operator_sees_only_its_tenant(tmp_path: Path) -> None:
    """By cookie as by token."""
    async with desk(tmp_path) as world:
        doubt = await in_doubt(world)
        other = {"Cookie": await signed_in(world, "semel_zops")}
        assert json.loads((await world.ask("GET", "calls", headers=other)).body)["calls"] == []
        assert problem(await world.ask("GET", f"calls/{doubt}", headers=other)) == (404, "not-found")
        refused = await world.ask("POST", f"calls/{doubt}/resolve", RESOLVE, ours(world) | other)
        assert problem(refused) == (404, "not-found")


async def test_signing_out_ends_it(tmp_path: Path) -> None:
    """The cookie is taken back, and a copy of it is worth nothing."""
    async with desk(tmp_path) as world:
        cookie = {"Cookie": await signed_in(world)}
        shown = json.loads((await world.ask("GET", "session", headers=cookie)).body)
        assert (shown["signed_in"], shown["tenant"]) == (True, "acme")
        gone = await world.ask("DELETE", "session", headers=ours(world) | cookie)
        assert str(gone.get("Set-Cookie")).startswith(cookie["Cookie"].partition("=")[0] + "=; ")
        assert str(gone.get("Set-Cookie")).endswith("; Max-Age=0")
        assert problem(await world.ask("GET", "calls", headers=cookie)) == (401, "unauthorized")
        assert json.loads((await world.ask("GET", "session", headers=cookie)).body)["signed_in"] is False


async def test_removing_a_token_ends_its_sessions(tmp_path: Path) -> None:
    """Checked at every use; so does making it an agent's. The key is the store's: a restart ends nothing."""
    async with desk(tmp_path) as world:
        cookie = {"Cookie": await signed_in(world)}
    async with desk(tmp_path) as world:
        assert (await world.ask("GET", "calls", headers=cookie)).status == 200
    async with desk(tmp_path, tokens=TOKENS[1:]) as world:
        assert problem(await world.ask("GET", "calls", headers=cookie)) == (401, "unauthorized")
    lower = [Token(sha256=digest("semel_ops"), tenant="acme", role=Role.AGENT), *TOKENS[1:]]
    async with desk(tmp_path, tokens=lower) as world:
        assert problem(await world.ask("GET", "calls", headers=cookie)) == (401, "unauthorized")


async def test_every_worker_knows_a_session(tmp_path: Path) -> None:
    """Signed in at one of them, looking and deciding at whichever answers."""
    config = tmp_path / "semel.yaml"
    config.write_text(
        f"auth: {{tokens: [{{sha256: {digest('semel_ops')}, tenant: acme, role: operator}}, "
        f"{{sha256: {digest('semel_ann')}, tenant: acme, role: agent}}]}}\n"
    )
    async with Origin(LOST) as origin:
        policies = tmp_path / "policies"
        policies.mkdir()
        (policies / "pay.yaml").write_text(POLICY.format(port=origin.port))
        options = ("--config", str(config), "--workers", "2")
        async with SemelProcess(tmp_path / "state", policies, options=options) as process:
            host = f"127.0.0.1:{process.port}"

            async def ask(method: str, path: str, body: object = None, **headers: str) -> Answer:
                said = b"" if body is None else json.dumps(body).encode()
                given = JSON | {"Origin": f"http://{host}"} | headers
                return await raw_call(process.port, request_bytes(method, path, given, said, host=host))

            cookie = cookie_of(await ask("POST", "/_semel/session", {"token": "semel_ops"}))
            made = {"Semel-Token": "semel_ann"}
            doubts = [
                (await ask("POST", "/pay/charge", {"usd": usd}, **made)).get("Semel-Call") for usd in range(8)
            ]
            for doubt in doubts:
                # Each on a connection of its own: the kernel deals them out.
                assert (await ask("GET", f"/_semel/calls/{doubt}", Cookie=cookie)).status == 200
                decided = await ask("POST", f"/_semel/calls/{doubt}/resolve", RESOLVE, Cookie=cookie)
                assert decided.status == 200, decided.body
            await process.stop()


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError

    async def within(self, seconds: float, awaitable: object) -> bool:
        raise AssertionError


def carrying(sessions: Sessions, value: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"Cookie", f"{sessions.cookie}={value}".encode()),)


def test_a_session_ends_when_nobody_is_there_and_when_it_is_old() -> None:
    """Only a person's activity renews it, and never beyond its longest life."""
    clock = Hands()
    sessions = Sessions(b"s" * 32, clock)
    value, session = sessions.begin(digest("t"))
    began = clock.at
    assert sessions.find(carrying(sessions, value)) == session
    clock.at = began + IDLE
    assert sessions.find(carrying(sessions, value)) is None
    clock.at = began
    while clock.at < began + LONGEST - IDLE / 2:
        value, session = sessions.renew(session)
        clock.at += IDLE / 2
        assert sessions.find(carrying(sessions, value)) == session
    value, session = sessions.renew(session)
    clock.at = began + LONGEST
    assert sessions.find(carrying(sessions, value)) is None


def test_a_session_from_the_future_does_not_count() -> None:
    """A clock that was set back does not make old sessions young."""
    clock = Hands()
    sessions = Sessions(b"s" * 32, clock)
    value, _ = sessions.begin(digest("t"))
    clock.at -= 3600
    assert sessions.find(carrying(sessions, value)) is None


def test_no_bit_of_a_session_can_be_changed() -> None:
    """And none of another installation's counts: neither its value nor its name."""
    sessions, others = Sessions(b"s" * 32, Hands()), Sessions(b"x" * 32, Hands())
    value, _ = sessions.begin(digest("t"))
    for at in range(len(value)):
        changed = value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]
        assert sessions.find(carrying(sessions, changed)) is None
    for wrong in ("", value[:-4], value + "AAAA", "é", "=", value.replace("-", "+") + "+"):
        assert sessions.find(carrying(sessions, wrong)) is None
    theirs, _ = others.begin(digest("t"))
    assert sessions.find(carrying(sessions, theirs)) is None
    assert sessions.cookie != others.cookie


def test_sessions_that_were_ended_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number, and only until they would have ended anyway."""
    monkeypatch.setattr("proxy.admin.sessions.MOST_ENDED", 3)
    clock = Hands()
    sessions = Sessions(b"s" * 32, clock)
    for _ in range(9):
        sessions.end(sessions.begin(digest("t"))[1])
    assert len(sessions._ended) == 3
    clock.at += LONGEST + 1
    sessions.end(sessions.begin(digest("t"))[1])
    assert len(sessions._ended) == 1


async def test_somebody_who_is_there_stays_signed_in(tmp_path: Path) -> None:
    """An empty body renews the session that the cookie names; without one there is nothing to renew."""
    async with desk(tmp_path) as world:
        first = await signed_in(world)
        renewed = await world.ask("POST", "session", {}, ours(world) | {"Cookie": first})
        assert renewed.status == 200
        assert cookie_of(renewed).partition("=")[0] == first.partition("=")[0]
        assert (await world.ask("GET", "calls", headers={"Cookie": cookie_of(renewed)})).status == 200
        assert problem(await world.ask("POST", "session", {}, ours(world))) == (401, "unauthorized")


FOREIGN: dict[str, dict[str, str]] = {
    "another site's origin": {"Origin": "https://evil.example"},
    "another port of this host": {"Origin": "http://127.0.0.1:1"},
    "a null origin": {"Origin": "null"},
    "no origin": {},
    "no origin, though the browser says same-origin": {"Sec-Fetch-Site": "same-origin"},
    "cross-site": {"Origin": "OURS", "Sec-Fetch-Site": "cross-site"},
    "same-site": {"Origin": "OURS", "Sec-Fetch-Site": "same-site"},
    "a second origin": {"Origin": "OURS", "origin": "https://evil.example"},
    "a suffix of ours": {"Origin": "OURS.evil.example"},
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_no_other_page_decides_by_the_cookie(tmp_path: Path, name: str) -> None:
    """Refused, and nothing is decided: the call stays in doubt. Nor does it sign anybody out, or on."""
    async with desk(tmp_path) as world:
        doubt = await in_doubt(world)
        cookie = await signed_in(world)
        sent = {key: value.replace("OURS", world.url) for key, value in FOREIGN[name].items()}
        sent |= {"Cookie": cookie}
        refused = await world.ask("POST", f"calls/{doubt}/resolve", RESOLVE, sent)
        assert problem(refused) == (403, "cross-site")
        assert problem(await world.ask("POST", "session", {}, sent)) == (403, "cross-site")
        assert problem(await world.ask("DELETE", "session", headers=sent)) == (403, "cross-site")
        left = await world.ask("GET", f"calls/{doubt}", headers={"Semel-Token": "semel_ops"})
        assert json.loads(left.body)["call"]["state"] == "in_doubt"
        assert (await world.ask("GET", "calls", headers={"Cookie": cookie})).status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
async def test_what_a_form_can_send_decides_nothing(tmp_path: Path, kind: str) -> None:
    """Even from our own origin: only JSON is read, by cookie and for signing in."""
    async with desk(tmp_path) as world:
        doubt = await in_doubt(world)
        sent = ours(world, Cookie=await signed_in(world), **({"Content-Type": kind} if kind else {}))
        body = json.dumps(RESOLVE).encode()
        for path in (f"calls/{doubt}/resolve", "session"):
            request = request_bytes("POST", f"/_semel/{path}", sent, body, host=f"127.0.0.1:{world.port}")
            assert problem(await raw_call(world.port, request)) == (415, "unsupported-media-type")
        left = await world.ask("GET", f"calls/{doubt}", headers={"Semel-Token": "semel_ops"})
        assert json.loads(left.body)["call"]["state"] == "in_doubt"


async def test_other_sites_cannot_read_by_the_cookie(tmp_path: Path) -> None:
    """Nor sign a person in as somebody else."""
    async with desk(tmp_path) as world:
        cookie = await signed_in(world)
        for sent in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
                     {"Sec-Fetch-Site": "same-site"}):  # fmt: skip
            got = await world.ask("GET", "calls", headers=sent | {"Cookie": cookie})
            assert problem(got) == (403, "cross-site")
            assert problem(await sign_in(world, headers=sent)) == (403, "cross-site")


async def test_a_rebound_name_gets_nothing(tmp_path: Path) -> None:
    """Another name for this machine is not semel's, with or without a cookie."""
    async with desk(tmp_path) as world:
        cookie = await signed_in(world)
        got = await world.ask("GET", "calls", headers={"Cookie": cookie}, host="evil.example")
        assert problem(got) == (421, "misdirected")
        assert problem(await world.ask("GET", "session", host="evil.example")) == (421, "misdirected")


async def test_the_cookie_counts_nowhere_else(tmp_path: Path) -> None:
    """Not for calls, not for metrics: those take a token. A token in the header goes before the cookie."""
    async with desk(tmp_path) as world:
        cookie = {"Cookie": await signed_in(world)}
        got = await call(world.port, "POST", "/pay/charge", JSON | cookie, b"{}")
        assert problem(got) == (401, "unauthorized")
        assert problem(await call(world.port, "GET", "/metrics", cookie)) == (401, "unauthorized")
        both = cookie | {"Semel-Token": "semel_ann"}
        assert problem(await world.ask("GET", "calls", headers=both)) == (403, "forbidden")
        assert world.origin.requests == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'"x"', b'{"token": 1}', b'{"token": "a", "more": 1}', b"{" * 100, b'{"token": "\xff"}'],
)
async def test_a_body_that_says_nothing_is_told_so(tmp_path: Path, body: bytes) -> None:
    """400 with what to send."""
    async with desk(tmp_path) as world:
        got = await world.ask("POST", "session", body, ours(world) | JSON)
        assert problem(got) == (400, "bad-request")


async def test_a_long_body_is_not_read(tmp_path: Path) -> None:
    """Whoever has no token yet cannot make semel keep megabytes."""
    async with desk(tmp_path) as world:
        got = await world.ask("POST", "session", b'{"token": "%b"}' % (b"x" * 5000), ours(world) | JSON)
        assert got.status == 413


async def test_other_methods_are_told_which_there_are(tmp_path: Path) -> None:
    """With Allow."""
    async with desk(tmp_path) as world:
        got = await world.ask("PUT", "session", {}, ours(world))
        assert problem(got) == (405, "method-not-allowed")
        assert got.get("Allow") == "GET, HEAD, POST, DELETE"


# ---- through the proxy --------------------------------------------------------------------------


@asynccontextmanager
async def shop(tmp_path: Path) -> AsyncIterator[tuple[App, Origin]]:
    policy = "upstream: pay\nbase_url: http://127.0.0.1:{port}\n"
    async with (
        Origin((*READ_ALL, answer(200, b"ok"))) as origin,
        semel(tmp_path, policy.format(port=origin.port)) as app,
    ):
        yield app, origin


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ("semel_session_12345678=abc", []),
        ("a=1; semel_session_12345678=abc; b=2", [b"a=1; b=2"]),
        ("semel_session_12345678=abc; b=2", [b"b=2"]),
        ("a=1;semel_session=abc", [b"a=1"]),
        ("a=semel_session_12345678; b=2", [b"a=semel_session_12345678; b=2"]),
        ("a=1;b=2", [b"a=1;b=2"]),
    ],
)
async def test_the_cookie_never_goes_upstream(tmp_path: Path, sent: str, left: list[bytes]) -> None:
    """A browser on the same host would send it with a call. Other cookies go on as they came."""
    async with shop(tmp_path) as (app, origin):
        for method, target in (("GET", "/pay/look"), ("POST", "/pay/charge"), ("POST", "/@r+a/pay/charge")):
            got = await call(
                app.address.port, method, target, {"Cookie": sent}, b"" if method == "GET" else b"{}"
            )
            assert got.status == 200
        assert len(origin.requests) == 3
        for request in origin.requests:
            assert [value for name, value in request.headers if name.lower() == b"cookie"] == left
            assert b"abc" not in bytes(request.head)


async def test_the_cookie_is_no_part_of_a_call(tmp_path: Path) -> None:
    """The same call with another session is the same call, and nothing of either is in the store."""
    async with shop(tmp_path) as (app, origin):
        states = []
        for session in ("semel_session_1=hunter1", "semel_session_1=hunter2", ""):
            headers = {"Cookie": f"a=1; {session}" if session else "a=1"}
            states.append((await call(app.address.port, "POST", "/pay/charge", headers, b"{}")).semel)
        assert states == ["executed", "replayed", "replayed"]
        assert len(origin.requests) == 1
    if ambient.store() == ambient.EMBEDDED:
        for file in (tmp_path / "state").rglob("*"):
            assert not file.is_file() or b"hunter" not in file.read_bytes()
