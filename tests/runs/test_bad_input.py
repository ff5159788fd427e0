"""Runs as nobody should name them: a clear problem for each, nothing is sent, and the proxy stays up."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.inside import Answer, call, raw_call, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, answer

pytestmark = pytest.mark.usefixtures("some_store")

BODY = b'{"usd": 5}'
TOKENS = [
    Token(sha256=digest(token), tenant=tenant, role=Role.AGENT)
    for token, tenant in (("semel_ann", "acme"), ("semel_zoe", "zenith"))
]


class World(NamedTuple):
    origin: Origin
    port: int

    async def ask(self, asked: Asked) -> Answer:
        """`//` stands for the upstream as a proxy is asked for it, `///` for semel itself so asked."""
        target = asked.target.replace("///", f"http://127.0.0.1:{self.port}/", 1)
        if asked.target[:3] != "///":
            target = target.replace("//", f"http://127.0.0.1:{self.origin.port}/", 1)
        headers = dict(asked.headers)
        if asked.user is not None:
            user = base64.b64encode(asked.user.encode()).decode()
            headers["Proxy-Authorization"] = f"Basic {user}"
        return await call(self.port, "POST", target, headers, BODY)

    async def is_up(self) -> None:
        """And says so of another run."""
        before = self.origin.started
        good = await call(self.port, "POST", "/@good+one/pay/charge", {"Semel-Token": "semel_ann"}, BODY)
        assert (good.status, good.semel) == (200, "executed")
        assert self.origin.started == before + 1


@asynccontextmanager
async def world(
    tmp_path: Path, tokens: Sequence[Token] = (), settings: Mapping[str, object] | None = None
) -> AsyncIterator[World]:
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin:
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy, tokens=tokens, settings=settings) as app:
            yield World(origin, app.address.port)


class Asked(NamedTuple):
    target: str = "/pay/charge"
    headers: Mapping[str, str] = {}
    user: str | None = None
    status: int = 400
    problem: str = "bad-request"


def by_address(*names: str) -> dict[str, Asked]:
    return {f"address {name[:12]!r} of {len(name)}": Asked(f"/@{name}/pay/charge") for name in names}


def by_user(*users: str) -> dict[str, Asked]:
    return {f"proxy user {user[:12]!r} of {len(user)}": Asked("//charge", user=user) for user in users}


def by_header(name: str, *values: str, **more: str) -> dict[str, Asked]:
    others = {"Semel-" + other.capitalize(): value for other, value in more.items()}
    return {
        f"{name} {value[:12]!r} of {len(value)}": Asked(headers={**others, name: value}) for value in values
    }


LONG_RUN, LONG_ATTEMPT = "r" * 129, "a" * 65
ILLEGAL_RUNS = ("a b", "a/b", "a:b", "a@b", "a*", "{run}", "$RUN", LONG_RUN, "l\xf6wenzahn")
ILLEGAL_ATTEMPTS = ("a b", "a/b", "a+b", "a@b", LONG_ATTEMPT, "\xe9")
# As an address can say them: `:` would begin a token, `/` the upstream.
IN_ADDRESS = ("a%20b", "a%2Fb", "a%2fb", "a@b", "a*", "%7Brun%7D", "$RUN", LONG_RUN, "l%C3%B6wenzahn", "%00")
ATTEMPTS_IN_ADDRESS = ("", "a%20b", "a%2Fb", "a+b", "a%2Bb", "a@b", LONG_ATTEMPT, "%C3%A9", "%ff")
NAMES = {
    **by_address(*IN_ADDRESS, *(f"run+{attempt}" for attempt in ATTEMPTS_IN_ADDRESS), "+one", "+", ":token"),
    **by_header("Semel-Run", *ILLEGAL_RUNS, "run+one", "run:token"),
    **by_header("Semel-Attempt", *ILLEGAL_ATTEMPTS, run="run"),
    **by_user("a b", "a/b", "a@b", LONG_RUN, "run+", "run+a b", f"run+{LONG_ATTEMPT}", "run+a+b", "+one"),
    # Given, and nothing in it: a variable that was not set. It must not become a call outside the run.
    **by_header("Semel-Run", ""),
    **by_header("Semel-Attempt", "", run="run"),
    "no run at all": Asked("/@/x"),
    "a run and nothing to call": Asked("/@run", status=404, problem="unknown-upstream"),
    "a run, a slash and nothing to call": Asked("/@run/", status=404, problem="unknown-upstream"),
    "a run and an upstream nobody knows": Asked("/@run/x", status=404, problem="unknown-upstream"),
    "an attempt that is empty": Asked("/@run+/x"),
    "two runs in one address": Asked("/@run/@run/pay/charge", status=404, problem="unknown-upstream"),
    "an attempt without a run": Asked(headers={"Semel-Attempt": "one"}),
    "an attempt without a run, through the proxy": Asked("//charge", {"Semel-Attempt": "one"}, user=":"),
    **by_header(
        "Semel-Occurrence", "0", "-1", "+1", "1.0", "01", "1e3", "two", "", "9" * 10, "9" * 400, run="r"
    ),
}


def differing(first: str, second: str) -> dict[str, str]:
    return {"Semel-Run": first, "Semel-Attempt": second}


CONTRADICTIONS = {
    "run: address, header": Asked("/@run/pay/charge", {"Semel-Run": "other"}),
    "attempt: address, header": Asked("/@run+one/pay/charge", differing("run", "two")),
    "run: proxy user, header": Asked("//charge", {"Semel-Run": "other"}, "run:"),
    "attempt: proxy user, header": Asked("//charge", differing("run", "two"), "run+one:"),
    "run: proxy user, address": Asked("///@run/pay/charge", {}, "other:"),
    "attempt: proxy user, address": Asked("///@run+one/pay/charge", {}, "run+two:"),
    "run: upper and lower case": Asked("/@run/pay/charge", {"Semel-Run": "RUN"}),
}
ANN, ZOE = {"Semel-Token": "semel_ann"}, {"Semel-Token": "semel_zoe"}
TOKENS_DIFFER = {
    "token: address, header": Asked("/@run+one:semel_ann/pay/charge", ZOE),
    "token: proxy user, header": Asked("//charge", ZOE, "run+one:semel_ann"),
    "token: proxy user, address": Asked("///@run+one:semel_ann/pay/charge", {}, "run+one:semel_zoe"),
    "token: a wrong one beside a good one": Asked("/@run+one:semel_ann/pay/charge", {"Semel-Token": "x"}),
}


def told(refused: Answer, asked: Asked) -> str:
    """The problem's advice; all that every problem has is there."""
    assert (refused.status, refused.semel) == (asked.status, "refused"), refused
    assert refused.get("Content-Type") == "application/problem+json"
    assert refused.get("x-should-retry") == "false"
    problem = json.loads(refused.body)
    assert (problem["type"], problem["status"]) == (f"urn:semel:{asked.problem}", asked.status)
    detail: str = problem["detail"]
    assert len(detail) > 20
    return detail


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    """In the address, in a header, as the proxy's user: what to write instead, and nothing is sent."""
    async with world(tmp_path) as there:
        told(await there.ask(NAMES[name]), NAMES[name])
        assert there.origin.started == 0
        await there.is_up()


@pytest.mark.parametrize("name", CONTRADICTIONS)
async def test_two_sources_that_differ_are_refused(tmp_path: Path, name: str) -> None:
    """Which of them is meant cannot be known."""
    async with world(tmp_path) as there:
        assert "differ" in told(await there.ask(CONTRADICTIONS[name]), CONTRADICTIONS[name])
        assert there.origin.started == 0
        await there.is_up()


@pytest.mark.parametrize("name", TOKENS_DIFFER)
async def test_two_tokens_that_differ_are_refused(tmp_path: Path, name: str) -> None:
    """Though each may be a good one: whose call it is cannot be known; neither is repeated in the answer."""
    async with world(tmp_path, TOKENS) as there:
        refused = await there.ask(TOKENS_DIFFER[name])
        assert "differ" in told(refused, TOKENS_DIFFER[name])
        assert b"semel_" not in refused.body
        assert there.origin.started == 0
        await there.is_up()


async def test_a_header_given_twice_is_refused_if_it_differs(tmp_path: Path) -> None:
    """The same twice does no harm."""
    async with world(tmp_path) as there:
        twice = request_bytes("POST", "/pay/charge", {"Semel-Run": "one", "semel-run": "two"}, BODY)
        told(await raw_call(there.port, twice), Asked())
        assert there.origin.started == 0
        same = request_bytes("POST", "/pay/charge", {"Semel-Run": "one", "semel-run": "one"}, BODY)
        assert (await raw_call(there.port, same)).semel == "executed"


async def test_sources_that_agree_are_one(tmp_path: Path) -> None:
    """Said by all of them, or by each a part: one run, one attempt, one call."""
    async with world(tmp_path, TOKENS) as there:
        ways = [
            Asked("/@run+one:semel_ann/pay/charge", {**differing("run", "one"), **ANN}),
            Asked("/@run/pay/charge", {"Semel-Attempt": "two", **ANN}),
            Asked("//charge", {"Semel-Attempt": "three", **ANN}, "run:"),
            Asked("//charge", {}, "run+four:semel_ann"),
            Asked("///@run+five/pay/charge", {}, "run:semel_ann"),
        ]
        got = [await there.ask(way) for way in ways]
        assert [one.semel for one in got] == ["executed"] + ["replayed"] * 4
        assert len({one.get("Semel-Call") for one in got}) == 1
        assert there.origin.started == 1


async def test_the_longest_names_are_names(tmp_path: Path) -> None:
    """128 and 64 characters, every kind of them."""
    run, attempt = ("Az09._-" * 19)[:128], ("-_.90zA" * 10)[:64]
    async with world(tmp_path) as there:
        first = await there.ask(Asked(f"/@{run}+{attempt}/pay/charge"))
        second = await there.ask(Asked(headers=differing(run, "2")))
        assert (first.semel, second.semel) == ("executed", "replayed")


async def test_an_expired_run_is_refused(tmp_path: Path) -> None:
    """Its retention is over: reads, writes and new calls alike get 410, and nothing is sent."""
    async with world(tmp_path, settings={"runs.retention": "300ms"}) as there:
        assert (await there.ask(Asked("/@run+one/pay/charge"))).semel == "executed"
        over = time.time() + 0.4
        await until(lambda: time.time() > over)
        for target in ("/@run+one/pay/charge", "/@run+two/pay/charge", "/@run/pay/other"):
            asked = Asked(target, status=410, problem="run-expired")
            assert "run" in told(await there.ask(asked), asked)
        read = await call(there.port, "GET", "/@run+three/pay/look")
        assert (read.status, json.loads(read.body)["type"]) == (410, "urn:semel:run-expired")
        assert there.origin.started == 1
        await there.is_up()
