"""semel's own answers: every refusal has its problem, by the names and statuses of the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy import errors
from proxy.core.intent import State
from proxy.front.incoming import said_to_semel
from proxy.problem import PROBLEMS, render
from tests.inside import call, semel
from tests.origin import READ_ALL, Close, Origin, Reset, Stall, answer

pytestmark = pytest.mark.usefixtures("some_store")

# The contract's table: name, status, and whether a retry can mend it.
CONTRACT = {
    "in-doubt": (409, False),
    "in-progress": (409, True),
    "awaiting-approval": (409, False),
    "diverged": (409, False),
    "stale": (409, False),
    "denied": (403, False),
    "key-conflict": (422, False),
    "answer-unavailable": (410, False),
    "run-expired": (410, False),
    "bad-request": (400, False),
    "unauthorized": (401, False),
    "forbidden": (403, False),
    "unknown-upstream": (404, False),
    "too-large": (413, False),
    "headers-too-large": (431, False),
    "upstream-unreachable": (502, True),
    "upstream-timeout": (504, True),
    "store-unavailable": (503, True),
    "budget-exceeded": (429, True),
    "identity-collision": (500, False),
}
# Beside the contract: what a server says when it is full, and when it has a defect; what operators are told.
FURTHER = {
    "overloaded": (503, True),
    "internal-error": (500, False),
    "not-found": (404, False),
    "unreadable": (409, False),
    "stale-version": (409, False),
    "not-in-doubt": (409, False),
    "still-in-doubt": (409, False),
    "not-awaiting": (409, False),
    "not-settled": (409, False),
    "run-exists": (409, False),
    "cross-site": (403, False),
    "misdirected": (421, False),
    "method-not-allowed": (405, False),
    "unsupported-media-type": (415, False),
}


def leaves(kind: type[errors.Refusal] = errors.Refusal) -> Iterator[type[errors.Refusal]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from leaves(each)


def test_every_refusal_has_a_problem_and_no_problem_is_left_over() -> None:
    """The tree's leaves and the table's keys are the same."""
    assert set(leaves()) == set(PROBLEMS)


def test_names_and_statuses_are_those_of_the_contract() -> None:
    """Each name once, each with its status."""
    table = {problem.name: (problem.status, problem.retry_after is not None) for problem in PROBLEMS.values()}
    assert table == CONTRACT | FURTHER
    assert len(table) == len(PROBLEMS)


@pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.__name__)
def test_how_a_problem_is_written(kind: type[errors.Refusal]) -> None:
    """RFC 9457 members, semel's status, and word to the SDKs whether to try again."""
    status, pairs, body = render(kind("Do this.", call="0" * 32, tool="send", upstream_status=500))
    headers = {name.decode().lower(): value.decode() for name, value in pairs}
    members = json.loads(body)
    name = members["type"].removeprefix("urn:semel:")
    expected, retryable = (CONTRACT | FURTHER)[name]
    assert (status, members["status"]) == (expected, expected)
    assert members["title"]
    assert members["detail"].startswith("Do this.")
    assert members["message"] == members["detail"]
    assert (members["call"], members["tool"], members["upstream_status"]) == ("0" * 32, "send", 500)
    assert headers["content-type"] == "application/problem+json"
    assert headers["content-length"] == str(len(body))
    assert body.endswith(b"}\n"), "a shell's prompt would stick to it"
    assert headers["semel-status"] == "refused"
    assert headers["semel-call"] == "0" * 32
    if retryable:
        assert int(headers["retry-after"]) > 0
        assert "x-should-retry" not in headers
    else:
        assert headers["x-should-retry"] == headers["stripe-should-retry"] == "false"
        assert "retry-after" not in headers


@pytest.mark.parametrize(
    ("name", "told"), [(b"Semel-Tol", ": did you mean 'semel-tool'?"), (b"Semel-X9z9z9z9z9", "semel-tool.")]
)
def test_an_unknown_header_of_semels_is_told_in_one_sentence(name: bytes, told: str) -> None:
    """Which ends once."""
    with pytest.raises(errors.BadRequest) as refused:
        said_to_semel(((name, b"x"),))
    assert refused.value.detail.endswith(told)


def test_a_store_in_trouble_says_what_to_do() -> None:
    """What comes from deep inside knows only what is wrong; the caller is told the rest, and never twice."""
    told = json.loads(render(errors.StoreUnavailable("the store is not available: the disk is full"))[2])
    assert told["detail"].startswith(
        "The store is not available: the disk is full. Nothing was sent: call again"
    )
    enough = json.loads(render(errors.StoreUnavailable("Nothing was sent; do this."))[2])
    assert enough["detail"] == "Nothing was sent; do this."


RULES = """
timeout: {connect: 1s, idle: 300ms, total: 5s}
rules: [{name: read, match: {path: /read}, safe: true, repeat: same}]
"""


def policy(port: int, rules: str = "") -> str:
    return f"upstream: up\nbase_url: http://127.0.0.1:{port}\n{rules}"


async def test_an_upstream_that_cannot_be_reached(tmp_path: Path) -> None:
    """502, nothing sent, call again: and the next call is sent when it is back."""
    async with Origin() as gone:
        port = gone.port
    async with semel(tmp_path, policy(port, RULES)) as app:
        for path in ("x", "read"):
            got = await call(app.address.port, "POST", f"/up/{path}", {}, b"{}")
            assert (got.status, json.loads(got.body)["type"]) == (502, "urn:semel:upstream-unreachable")
            assert got.get("Retry-After") == "1"
        assert (await app.store.census()).by_state[State.RELEASED] == 2


@pytest.mark.parametrize(
    ("path", "status", "name", "sends"),
    [("x", 409, "in-doubt", 1), ("read", 504, "upstream-timeout", 2)],
)
async def test_an_upstream_that_does_not_answer(
    tmp_path: Path, path: str, status: int, name: str, sends: int
) -> None:
    """With effects: doubt, one send. Safe: one retry, then 504."""
    async with Origin((*READ_ALL, Stall())) as origin, semel(tmp_path, policy(origin.port, RULES)) as app:
        got = await call(app.address.port, "POST", f"/up/{path}", {}, b"{}")
        assert (got.status, json.loads(got.body)["type"]) == (status, f"urn:semel:{name}")
        assert origin.started == sends


@pytest.mark.parametrize("ending", [Reset(), Close()], ids=["reset", "close"])
async def test_a_doubt_says_what_is_known(tmp_path: Path, ending: Reset | Close) -> None:
    """The call's id, its tool, since when, and what to do."""
    async with Origin((*READ_ALL, ending)) as origin:
        async with semel(tmp_path, policy(origin.port)) as app:
            first = await call(app.address.port, "POST", "/up/x", {"Semel-Tool": "send_mail"}, b"{}")
            second = await call(app.address.port, "POST", "/up/x", {}, b"{}")
        for got in (first, second):
            members = json.loads(got.body)
            assert members["type"] == "urn:semel:in-doubt"
            assert members["call"] == got.get("Semel-Call")
            assert members["tool"] == "send_mail"
            assert members["since"].endswith("+00:00")
            assert members["resolve"] == f"/_semel/calls/{members['call']}/resolve"
            assert "not sent again" in members["detail"]
            how = f"`semel calls show {members['call']} --proxy URL`, URL being this proxy's, says what is"
            assert how in members["detail"]
        assert origin.started == 1


async def test_a_problem_of_the_upstreams_own_is_the_upstreams(tmp_path: Path) -> None:
    """An answer that looks like ours is handed on as what it is."""
    own = answer(404, b'{"type": "urn:semel:denied"}', (b"Content-Type", b"application/problem+json"))
    async with Origin((*READ_ALL, own)) as origin, semel(tmp_path, policy(origin.port)) as app:
        got = await call(app.address.port, "POST", "/up/x", {}, b"{}")
        assert (got.status, got.semel) == (404, "executed")
