"""Kinds b and c, the calls whose doubt can be settled: an upstream that knows keys, one that can be asked.

The upstream keeps books (bank.py), and what stands in them is what happened. Killed at every fault point, or
failing in every way of its own, the call made again must leave exactly one act, and give its answer.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy import carrying
from proxy.app import App
from proxy.faults import Point
from tests.crash.bank import STATUSES, Bank, Fault
from tests.crash.scene import JSON, problem, states, states_left, told, until, write_policy
from tests.crash.test_fault_matrix import LEFT_ON_DISK, PASSAGES, Passage, Row
from tests.inside import Answer, call, semel
from tests.process import SemelProcess, kill_at

pytestmark = pytest.mark.usefixtures("any_store")

POLICY = """\
upstream: api
base_url: http://127.0.0.1:{port}
timeout: {{connect: 1s, idle: {idle}, total: {total}}}
rules:
  - name: b
    match: {{method: POST, path: /b}}
    key: {{credential: exclude}}
    upstream_key: {{header: Idempotency-Key, retention: 24h, mismatch: [422]}}
  - name: c
    match: {{method: POST, path: /c}}
    probe:
      request: {{path: "/c?ref={{body.ref}}"}}
      found: "length(items) > `0`"
      result: items[0]
      settle: 0s
"""


def policy(bank: Bank, *, idle: str = "300ms", total: str = "1s") -> str:
    return POLICY.format(port=bank.port, idle=idle, total=total)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between resends: an upstream of the test needs no time to recover."""
    monkeypatch.setattr(carrying, "RESEND_PAUSES", (0.01, 0.02))


async def ask(port: int, kind: str, size: int = 0, token: str = "t") -> Answer:
    body = json.dumps({"ref": "order 7", "text": "r" * size}).encode()
    return await call(port, "POST", f"/api/{kind}", {**JSON, "Authorization": token}, body, within=30)


async def ask_until_settled(port: int, kind: str, size: int = 0) -> Answer:
    """As an agent that comes back until it is told something: absence counts only after a while."""
    async with asyncio.timeout(20):
        while True:
            answer = await ask(port, kind, size)
            if told(answer) != "in-doubt 409":
                return answer
            assert "counts only in" in str(problem(answer)["detail"])
            await asyncio.sleep(0.1)


CELLS = [pytest.param(passage, kind, id=f"{passage.id}-kind-{kind}") for passage in PASSAGES for kind in "bc"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("passage", "kind"), CELLS)
async def test_killed_at(passage: Passage, kind: str, tmp_path: Path) -> None:
    """Die there, start again, make the identical call twice more: one act, its answer, and nobody asked."""
    dead = asyncio.Event()
    async with Bank(padding="w" * passage.answer, second_half=dead if passage.streamed else None) as bank:
        policies = write_policy(tmp_path, policy(bank, idle="20s", total="40s"))
        state = tmp_path / "state"
        async with SemelProcess(state, policies, kill_at(passage.point, passage.after)) as doomed:
            await ask(doomed.port, kind, passage.request)
            assert await doomed.died() == -signal.SIGKILL
        dead.set()
        assert await states_left(state) == LEFT_ON_DISK[passage.row]
        acted = len(bank.acts)
        async with semel(tmp_path, policy(bank)) as app:
            second = await ask_until_settled(app.address.port, kind, passage.request)
            third = await ask(app.address.port, kind, passage.request)
            assert await states(app) == ["done"]
    assert len(bank.acts) == 1
    found = passage.row is Row.NO_REPLY or (passage.row is Row.NO_RESULT and kind == "c" and acted)
    assert told(second) == ("replayed 200" if found else "executed 200")
    assert told(third) == "replayed 200"
    assert json.loads(second.body) == json.loads(third.body) == bank.acts[0]
    if kind == "b":
        assert len(set(bank.keys)) == 1


@dataclass(frozen=True, slots=True)
class Row6:
    """What the first caller gets, and whoever calls again; how often the bank was posted to, and acted."""

    first: str
    second: str
    posts: int
    acts: int = 1


DONE, AGAIN = "executed 200", "replayed 200"


def row_of(kind: str, fault: Fault) -> Row6:
    status = STATUSES.get(fault, 0)
    match fault:
        case Fault.BUSY | Fault.UNPAID | Fault.STRANGER | Fault.FORBIDDEN:
            return Row6(f"executed {status}", DONE, 2)
        case Fault.WRONG | Fault.GONE | Fault.ELSEWHERE:
            return Row6(f"executed {status}", f"replayed {status}", 1, acts=0)
        case Fault.CONFLICT if kind == "c":
            return Row6("executed 409", "replayed 409", 1, acts=0)
        case _ if kind == "b":
            return Row6(DONE, AGAIN, 2)
        case Fault.RESET_BEFORE | Fault.ERROR_BEFORE | Fault.TIMEOUT:
            return Row6("in-doubt 409", DONE, 2)
        case _:
            return Row6("in-doubt 409", AGAIN, 1)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("kind", ["b", "c"])
async def test_what_an_upstream_does_to_it(kind: str, fault: Fault, tmp_path: Path) -> None:
    """The rows about connections, answers and statuses: in the end one act, or a refusal that is kept."""
    row = row_of(kind, fault)
    async with world(tmp_path, fault) as (bank, app):
        assert told(await ask(app.address.port, kind)) == row.first
        assert told(await ask_until_settled(app.address.port, kind)) == row.second
    assert (bank.posts, len(bank.acts)) == (row.posts, row.acts)


@asynccontextmanager
async def world(tmp_path: Path, *faults: Fault) -> AsyncIterator[tuple[Bank, App]]:
    async with Bank() as bank:
        bank.faults.extend(faults)
        async with semel(tmp_path, policy(bank)) as app:
            yield bank, app


@pytest.mark.parametrize("kind", ["b", "c"])
async def test_an_upstream_that_cannot_be_reached_is_released(kind: str, tmp_path: Path) -> None:
    """Connect fails: nothing was sent, and the next call goes out."""
    async with Bank() as bank:
        text = policy(bank)
        await bank._runner.cleanup()
        async with semel(tmp_path, text) as app:
            assert told(await ask(app.address.port, kind)) == "upstream-unreachable 502"
            assert await states(app) == ["released"]
    assert bank.posts == 0


@pytest.mark.parametrize(
    ("then", "told_then"),
    [(Fault.STRANGER, 401), (Fault.BUSY, 429), (Fault.ERROR_BEFORE, 500), (Fault.RESET_BEFORE, None)],
)
async def test_a_resend_that_proves_nothing_stays_in_doubt(
    then: Fault, told_then: int | None, tmp_path: Path
) -> None:
    """Until one is answered; the new caller's credentials go out with it, and one key is used throughout."""
    many = 1 + len(carrying.RESEND_PAUSES)
    async with world(tmp_path, Fault.RESET_AFTER, *[then] * (2 * many - 1)) as (bank, app):
        for token in ("first", "second"):
            answer = await ask(app.address.port, "b", token=token)
            assert told(answer) == "in-doubt 409"
            assert problem(answer).get("upstream_status") == told_then
            assert await states(app) == ["in_doubt"]
        assert told(await ask(app.address.port, "b", token="third")) == DONE
    assert len(bank.acts) == 1
    assert len(set(bank.keys)) == 1
    assert bank.tokens == ["first"] * many + ["second"] * many + ["third"]


async def test_a_resend_to_an_upstream_that_is_gone_stays_in_doubt(tmp_path: Path) -> None:
    """A refused connection proves that nothing was sent now, and nothing of what was sent before."""
    async with Bank() as bank:
        bank.faults.append(Fault.RESET_AFTER)
        state, policies = tmp_path / "state", write_policy(tmp_path, policy(bank))
        async with SemelProcess(state, policies, kill_at(Point.ANSWER_COMPLETE)) as doomed:
            await ask(doomed.port, "b")
            assert await doomed.died() == -signal.SIGKILL
        text = policy(bank)
        await bank._runner.cleanup()
        async with semel(tmp_path, text) as app:
            answer = await ask(app.address.port, "b")
            assert told(answer) == "in-doubt 409"
            assert "nothing was sent now" in str(problem(answer)["detail"])
            assert await states(app) == ["in_doubt"]


@pytest.mark.parametrize("point", [Point.CLAIMED, Point.REQUEST_SENT, Point.ANSWER_COMPLETE, Point.SETTLED])
async def test_killed_again_while_resending(point: Point, tmp_path: Path) -> None:
    """The second process dies in the resend as the first did in the send: one act all the same."""
    async with Bank() as bank:
        state, policies = tmp_path / "state", write_policy(tmp_path, policy(bank))
        for where in (Point.REQUEST_SENT, point):
            async with SemelProcess(state, policies, kill_at(where)) as doomed:
                await ask(doomed.port, "b")
                assert await doomed.died() == -signal.SIGKILL
        async with semel(tmp_path, policy(bank)) as app:
            last = await ask(app.address.port, "b")
            assert told(last) == (AGAIN if point is Point.SETTLED else DONE)
    assert len(bank.acts) == 1
    assert json.loads(last.body) == bank.acts[0]


@pytest.mark.parametrize(
    ("point", "left"), [(Point.COMMIT_BEGUN, "in_doubt"), (Point.COMMITTED, "done")], ids=["before", "after"]
)
async def test_killed_while_it_settles_by_a_probe(point: Point, left: str, tmp_path: Path) -> None:
    """Before or after that commit: it is asked again, or known."""
    async with Bank() as bank:
        state, policies = tmp_path / "state", write_policy(tmp_path, policy(bank))
        async with SemelProcess(state, policies, kill_at(Point.ANSWER_COMPLETE)) as doomed:
            await ask(doomed.port, "c")
            assert await doomed.died() == -signal.SIGKILL
        # The first commit of the next process is the recovery's, the second what the probe found.
        async with SemelProcess(state, policies, kill_at(point, 1)) as doomed:
            await ask(doomed.port, "c")
            assert await doomed.died() == -signal.SIGKILL
        assert await states_left(state) == [left]
        async with semel(tmp_path, policy(bank)) as app:
            assert told(await ask(app.address.port, "c")) == AGAIN
    assert len(bank.acts) == 1


@pytest.mark.parametrize("kind", ["b", "c"])
async def test_an_agent_that_leaves_finds_the_answer(kind: str, tmp_path: Path) -> None:
    """After its request was complete: the call is finished and kept."""
    async with (
        Bank(second_half=asyncio.Event()) as bank,
        semel(tmp_path, policy(bank, idle="5s", total="9s")) as app,
    ):
        asking = asyncio.create_task(ask(app.address.port, kind))
        await until(lambda: bool(bank.acts))
        asking.cancel()
        assert bank.second_half is not None
        bank.second_half.set()
        assert told(await ask(app.address.port, kind)) in (AGAIN, "joined 200")
    assert len(bank.acts) == 1


@pytest.mark.parametrize("kind", ["b", "c"])
async def test_two_proxies_that_are_asked_at_once_after_a_crash_act_once(kind: str, tmp_path: Path) -> None:
    """Both find it in doubt: one settles it, everybody gets that answer."""
    async with Bank() as bank:
        state, policies = tmp_path / "state", write_policy(tmp_path, policy(bank))
        async with SemelProcess(state, policies, kill_at(Point.REQUEST_SENT)) as doomed:
            await ask(doomed.port, kind)
            assert await doomed.died() == -signal.SIGKILL
        await until(lambda: bool(bank.acts))
        async with semel(tmp_path, policy(bank)) as one, semel(tmp_path, policy(bank)) as two:
            ports = [app.address.port for app in (one, two) for _ in range(5)]
            answers = await asyncio.gather(*(ask(port, kind) for port in ports))
    assert {json.loads(answer.body)["id"] for answer in answers} == {1}
    assert len(bank.acts) == 1
