"""`semel explain --run`: what it says of a call in a run is what becomes of that call when it is made.

Every past is made by a real semel. The request is explained from the record that it left, which stays as it
was, byte for byte; then the same request is made, and gets what was told.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.core.occurrence import Why
from proxy.explaining.run_now import FIRST, NO_ATTEMPT, USED_UP
from proxy.store.database import FILE_NAME
from tests.cli.command import semel as run_semel
from tests.cli.explaining import document, explained
from tests.explain_pairs import Request
from tests.inside import Answer, semel, until
from tests.origin import OK, READ_ALL, Origin, Reset, Script, Stall, Wait, answer
from tests.process import SemelProcess

POLICY = """upstream: mail
base_url: http://127.0.0.1:PORT
rules:
  - name: send
    match: {method: POST, path: /messages}
    key: {exclude: [trace]}
  - name: guard
    match: {method: POST, path: /guarded}
    repeat: same
  - name: search
    match: {method: GET, path: /search}
    mode: cache
  - name: token
    match: {method: POST, path: /token}
    mode: pass
  - name: admin
    match: {path: /admin}
    mode: deny
"""
FAILS: Script = (*READ_ALL, answer(500, b"no"))
LOST: Script = (*READ_ALL, Reset())


def post(to: str, ref: str = "task+a1", *headers: str, path: str = "messages", trace: int = 1) -> Request:
    return Request("POST", f"/@{ref}/mail/{path}", headers, json.dumps({"to": to, "trace": trace}))


def get(path: str, ref: str = "task+a1", *headers: str) -> Request:
    return Request("GET", f"/@{ref}/mail/{path}", headers)


BOB, READ = post("bob"), get("inbox")
BOB_2, READ_2 = post("bob", "task+a2"), get("inbox", "task+a2")


def made(
    folder: Path, *requests: Request, policy: str = POLICY, scripts: Sequence[Script] = (OK,)
) -> list[Answer]:
    """One after the other, by a semel of their own on the same record."""

    async def serve() -> list[Answer]:
        async with Origin(*scripts) as origin, semel(folder, policy.replace("PORT", str(origin.port))) as app:
            return [await request.send(app.address.port) for request in requests]

    folder.mkdir(exist_ok=True)
    return asyncio.run(serve())


def record(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that is written down, but for who is there to look at it."""
    connection = apsw.Connection(str(folder / "state" / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        assert {"calls", "runs"} <= set(tables)
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}
    finally:
        connection.close()


def problem(given: Answer) -> str:
    return str(json.loads(given.body)["type"]).removeprefix("urn:semel:")


@dataclass(frozen=True, kw_only=True)
class Case:
    past: tuple[Request, ...] = ()
    ask: Request
    what: str
    occurrence: int | None = 1
    why: str = ""
    scripts: tuple[Script, ...] = (OK,)
    recorded: int = 1
    status: str = field(default="")  # Semel-Status; empty: as `what`

    @property
    def semel(self) -> str:
        return self.status or (self.what if self.what in ("executed", "replayed", "passed") else "refused")


TOKEN, RETRY = "Idempotency-Key: k1", "X-Stainless-Retry-Count: 1"
CASES = {
    "a new run": Case(ask=BOB, what="executed", why=FIRST, recorded=0),
    "a new call": Case(past=(READ,), ask=BOB, what="executed", why=FIRST, recorded=0),
    "a second attempt": Case(past=(BOB,), ask=BOB_2, what="replayed", why=Why.NEXT),
    "what the rule leaves out": Case(
        past=(BOB,), ask=post("bob", "task+a2", trace=7), what="replayed", why=Why.NEXT
    ),
    "meant twice": Case(past=(BOB,), ask=BOB, what="executed", occurrence=2, why=USED_UP),
    "the second of two": Case(
        past=(BOB, BOB, BOB_2), ask=BOB_2, what="replayed", occurrence=2, why=Why.NEXT, recorded=2
    ),
    "the same key": Case(
        past=(post("bob", "task+a1", TOKEN),),
        ask=post("bob", "task+a1", TOKEN),
        what="replayed",
        why=Why.TOKEN,
    ),
    "another key": Case(
        past=(post("bob", "task+a1", TOKEN),),
        ask=post("bob", "task+a1", "Idempotency-Key: k2"),
        what="executed",
        occurrence=2,
        why=USED_UP,
    ),
    "a retry by its own word": Case(
        past=(BOB,), ask=post("bob", "task+a1", RETRY), what="replayed", why=Why.RETRY_COUNT
    ),
    "numbered, and there": Case(
        past=(post("bob", "task+a1", "Semel-Occurrence: 3"),),
        ask=post("bob", "task+a2", "Semel-Occurrence: 3"),
        what="replayed",
        occurrence=3,
        why=Why.NUMBERED,
    ),
    "numbered, and new": Case(
        past=(BOB,),
        ask=post("bob", "task+a1", "Semel-Occurrence: 3"),
        what="executed",
        occurrence=3,
        why=Why.NUMBERED,
    ),
    "no attempt, safe": Case(
        past=(READ,), ask=get("inbox", "task"), what="executed", occurrence=2, why=NO_ATTEMPT
    ),
    "no attempt, effects": Case(past=(BOB,), ask=post("bob", "task"), what="replayed", why=Why.SAME),
    "repeat: same": Case(
        past=(post("bob", path="guarded"),), ask=post("bob", path="guarded"), what="replayed", why=Why.SAME
    ),
    "diverged": Case(
        past=(BOB,), ask=post("carol", "task+a2"), what="diverged", why=FIRST, recorded=0
    ),
    "another rule does not diverge": Case(
        past=(BOB,), ask=post("bob", "task+a2", path="guarded"), what="executed", why=FIRST, recorded=0
    ),
    "in doubt": Case(past=(BOB,), scripts=(LOST, OK), ask=BOB_2, what="in-doubt", why=Why.NEXT),
    "in doubt, and gone on": Case(
        past=(BOB, post("bob", path="guarded")), scripts=(LOST, OK), ask=BOB_2, what="in-doubt", why=Why.NEXT
    ),
    "a failure that was gone on from": Case(
        past=(READ, BOB), scripts=(FAILS, OK), ask=READ_2, what="replayed", why=Why.NEXT
    ),
    "a failure at the end": Case(
        past=(BOB, READ), scripts=(OK, FAILS, OK), ask=READ_2, what="executed", why=Why.NEXT
    ),
    "a cached answer of the tenant": Case(
        past=(Request("GET", "/mail/search?q=1"),),
        ask=get("search?q=1"),
        what="replayed",
        why=FIRST,
        recorded=0,
    ),
    "nothing cached": Case(ask=get("search?q=1"), what="executed", why=FIRST, recorded=0),
    "passes": Case(past=(BOB,), ask=post("x", path="token"), what="passed", occurrence=None, recorded=0),
    "denied": Case(past=(BOB,), ask=get("admin"), what="denied", occurrence=None, recorded=0),
    "another run": Case(past=(BOB,), ask=post("bob", "other+a1"), what="executed", why=FIRST, recorded=0),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_told_is_what_happens(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Occurrence, reason, id and fate; and looking leaves the record as it was."""
    made(tmp_path, *(case.past or (Request("GET", "/mail/warm"),)), scripts=case.scripts)
    before = record(tmp_path)
    told = document(capsys, tmp_path, case.ask)
    assert record(tmp_path) == before
    run = told["run"]
    assert told["now"]["what"] == case.what
    assert (run["occurrence"], run["why"], run["recorded"]) == (case.occurrence, case.why, case.recorded)
    (given,) = made(tmp_path, case.ask)
    assert given.semel == case.semel
    if given.semel == "refused":
        assert problem(given) == case.what
    if case.what in ("executed", "replayed"):
        assert told["call"] == given.get("Semel-Call")


def test_the_run_may_be_said_in_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a flag, by the address of the proxy, by headers; they agree."""
    made(tmp_path, BOB)
    plain = replace(BOB, url="/mail/messages")
    by_address = document(capsys, tmp_path, BOB_2)
    ways = [
        document(capsys, tmp_path, plain, "--run", "task+a2"),
        document(capsys, tmp_path, replace(BOB_2, url="http://127.0.0.1:8080" + BOB_2.url)),
        document(capsys, tmp_path, replace(plain, headers=("Semel-Run: task", "Semel-Attempt: a2"))),
        document(capsys, tmp_path, BOB_2, "--run", "task"),
    ]
    for told in ways:
        assert told["run"] == by_address["run"]
        assert told["call"] == by_address["call"]
        assert told["now"]["what"] == "replayed"
    outside = document(capsys, tmp_path, plain)
    assert outside["run"] is None
    assert outside["call"] != by_address["call"]


def test_the_calls_that_were_not_asked_for_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which they are, and what lets the agent go its new way."""
    bob, _ = made(tmp_path, BOB, READ)
    told = document(capsys, tmp_path, post("carol", "task+a2"))
    (unasked,) = told["run"]["unasked"]
    assert unasked == {"call": bob.get("Semel-Call"), "seq": 1, "tool": "POST /messages", "state": "done"}
    page = explained(capsys, tmp_path, post("carol", "task+a2")).out
    assert "now         diverged: " in page
    assert f"not asked for by this attempt\n  step 1  POST /messages  done  {bob.get('Semel-Call')}\n" in page
    assert "semel runs allow task" in page


def test_divergence_that_is_allowed_is_said_to_be_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """runs.on_divergence is the settings' to say."""
    made(tmp_path, BOB)
    monkeypatch.setenv("SEMEL_RUNS_ON_DIVERGENCE", "allow")
    now = document(capsys, tmp_path, post("carol", "task+a2"))["now"]
    assert (now["what"], "noted as diverged" in now["detail"]) == ("executed", True)


def test_a_problem_from_the_record_is_told_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The upstream was away, the agent went on: a later attempt sees it away again."""
    two = POLICY.replace("PORT", "9")
    away, _ = made(tmp_path, READ, policy=two), made(tmp_path, BOB)
    assert problem(away[0]) == "upstream-unreachable"
    told = document(capsys, tmp_path, READ_2)
    assert told["now"]["what"] == "upstream-unreachable"
    assert "semel calls forget" in told["now"]["detail"]
    (given,) = made(tmp_path, READ_2)
    assert problem(given) == "upstream-unreachable"
    forgotten = run_semel(
        capsys, "calls", "forget", told["call"], "--reason", "back", "--state-dir", tmp_path / "state"
    )
    assert forgotten.status == 0, forgotten.err
    again = document(capsys, tmp_path, get("inbox", "task+a3"))
    assert again["now"]["what"] == "executed"
    assert made(tmp_path, get("inbox", "task+a3"))[0].semel == "executed"


def test_a_run_that_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not it has been cleared away: nothing is chosen, and nothing is sent."""
    made(tmp_path, BOB)
    monkeypatch.setenv("SEMEL_RUNS_RETENTION", "1ms")
    told = document(capsys, tmp_path, BOB_2)
    assert (told["now"]["what"], told["run"]["occurrence"], told["run"]["why"]) == ("run-expired", None, "")
    assert "\ncall " not in explained(capsys, tmp_path, BOB_2).out


def test_without_a_record_a_run_begins_with_the_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the id is known all the same: no secret is in it. Nothing is made by looking."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "test.yaml").write_text(POLICY.replace("PORT", "9"))
    told = document(capsys, tmp_path, replace(BOB, headers=("Authorization: Bearer geheim",)))
    assert (told["run"]["new"], told["run"]["occurrence"], told["now"]["what"]) == (True, 1, "executed")
    assert not (tmp_path / "state").exists()
    assert told["call"] == made(tmp_path, BOB)[0].get("Semel-Call")
    assert {"what": "header authorization", "why": "in a run the caller does not count"} in told["left_out"]


def test_a_fork_is_named_as_its_parent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it inherits is the parent's call; what it makes is its own."""
    bob, _ = made(tmp_path, BOB, post("carol"))
    flags = ("--at", 1, "--as", "other", "--resend", "--reason", "try", "--state-dir", tmp_path / "state")
    forked = run_semel(capsys, "runs", "fork", "task", *flags)
    assert forked.status == 0, forked.err
    inherited = document(capsys, tmp_path, post("bob", "other+b1"))
    assert inherited["run"]["parent"] == "task"
    assert (inherited["call"], inherited["now"]["what"]) == (bob.get("Semel-Call"), "replayed")
    in_fork = document(capsys, tmp_path, post("carol", "other+b1"))
    in_parent = document(capsys, tmp_path, post("carol", "task+b1"))
    assert in_fork["run"]["family"] == in_parent["run"]["family"]
    assert in_fork["call"] != in_parent["call"]
    first, second = made(tmp_path, post("bob", "other+b1"), post("carol", "other+b1"))
    assert (first.semel, first.get("Semel-Call")) == ("replayed", inherited["call"])
    assert (second.semel, second.get("Semel-Call")) == ("executed", in_fork["call"])


def test_a_run_keeps_the_rules_it_began_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that counts less since then renames nothing in it, and the page says so."""
    changed = POLICY.replace("exclude: [trace]", "exclude: []")
    made(tmp_path, BOB)
    made(tmp_path, Request("GET", "/mail/warm"), policy=changed)
    ask = post("bob", "task+a2", trace=9)
    told = document(capsys, tmp_path, ask)
    assert (told["run"]["pinned_otherwise"], told["now"]["what"]) == (True, "replayed")
    assert "named by    the rules as they were when the run began" in explained(capsys, tmp_path, ask).out
    other = document(capsys, tmp_path, post("bob", "new+a2", trace=9))
    assert not other["run"]["pinned_otherwise"]
    assert '"trace"' in other["canonical"]
    (given,) = made(tmp_path, ask, policy=changed)
    assert (given.semel, given.get("Semel-Call")) == ("replayed", told["call"])


async def test_a_call_in_flight_is_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nobody types the credentials that it came with; without them it is said what was assumed."""
    policy = POLICY
    bearer = "Authorization: Bearer geheim"
    slow: Script = (*READ_ALL, Wait(go := asyncio.Event()), answer(200, b"ok"))
    async with (
        Origin(slow) as origin,
        semel(tmp_path, policy.replace("PORT", str(origin.port))) as app,
    ):
        first = asyncio.create_task(post("bob", "task+a1", bearer).send(app.address.port))
        await until(lambda: origin.started == 1)
        for ask, assumed in ((BOB, True), (post("bob", "task+a1", bearer), False)):
            told = await asyncio.to_thread(document, capsys, tmp_path, ask)
            assert (told["now"]["what"], told["run"]["occurrence"]) == ("joined", 1)
            assert told["run"]["why"].startswith(Why.IN_FLIGHT)
            assert ("taken to be the same caller" in told["run"]["why"]) is assumed
        other = await asyncio.to_thread(
            document, capsys, tmp_path, post("bob", "task+a1", "Authorization: Bearer geheim-2")
        )
        assert (other["now"]["what"], other["run"]["occurrence"]) == ("executed", 2)
        second = asyncio.create_task(post("bob", "task+a1", bearer).send(app.address.port))
        go.set()
        answers = [await first, await second]
    assert {one.get("Semel-Call") for one in answers} == {told["call"]}


# ---- --like ----


def test_the_line_makes_calls_of_new_runs_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The field that differs, and its YAML; the run at hand keeps its rules, and that is said."""
    bob, _ = made(tmp_path, BOB, READ)
    ask = Request("POST", "/@task+a2/mail/messages", (), '{"to": "bob", "at": 5}')
    like = document(capsys, tmp_path, ask, "--like", bob.get("Semel-Call"))["like"]
    assert [one["field"] for one in like["differences"]] == ["body.at"]
    (suggestion,) = like["suggestions"]
    assert suggestion["yaml"] == "key: {exclude: [trace, at]}"
    assert any("a run keeps the rules that it began with" in one for one in suggestion["careful"])
    page = explained(capsys, tmp_path, ask, "--like", bob.get("Semel-Call")).out
    assert "a run keeps the rules that it began with" in page
    assert "is sent once more" not in page
    after = POLICY.replace("key: {exclude: [trace]}", suggestion["yaml"])
    first, second = made(
        tmp_path, post("bob", "new+a1"), replace(ask, url="/@new+a2/mail/messages"), policy=after
    )
    assert (first.semel, second.semel) == ("executed", "replayed")
    assert first.get("Semel-Call") == second.get("Semel-Call")


def test_the_run_of_the_other_call_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a run nothing could be the same; credentials do not count there, and are not missed."""
    bearer = "Authorization: Bearer geheim"
    bob, read = made(tmp_path, post("bob", "task+a1", bearer), READ)
    for given, ask in (
        (bob, Request("POST", "/mail/messages", (), BOB.body)),
        (read, Request("GET", "/mail/inbox")),
    ):
        told = document(capsys, tmp_path, ask, "--like", given.get("Semel-Call"))
        (assumed,) = told["like"]["assumed"]
        assert assumed == "taken over from the record, since no --run gave it: the run task"
        assert told["run"]["name"] == "task"
        assert told["like"]["differences"] == [] or told["like"]["differences"][0]["part"] == "occurrence"
    assert document(capsys, tmp_path, BOB_2, "--like", bob.get("Semel-Call"))["like"]["same"]


def test_identical_calls_are_told_apart_by_their_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same request may be another occurrence: with the reason, and without a line of YAML."""
    bob, again = made(tmp_path, BOB, BOB)
    like = document(capsys, tmp_path, BOB_2, "--like", again.get("Semel-Call"))["like"]
    (one,) = like["differences"]
    assert (one["part"], one["here"], one["there"]) == ("occurrence", "1", "2")
    assert Why.NEXT in one["fixed"]
    assert (like["same"], like["suggestions"], like["remaining"]) == (False, [], [one])
    assert document(capsys, tmp_path, BOB_2, "--like", bob.get("Semel-Call"))["like"]["same"]


def test_calls_of_two_runs_are_never_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run against another, and against none."""
    bob, outside = made(tmp_path, BOB, Request("POST", "/mail/messages", (), BOB.body))
    for ask, given, here, there in (
        (post("bob", "other+a1"), bob, "other", "task"),
        (BOB_2, outside, "task", None),
    ):
        like = document(capsys, tmp_path, ask, "--like", given.get("Semel-Call"))["like"]
        (run,) = [one for one in like["differences"] if one["part"] == "run"]
        assert (run["here"], run["there"]) == (here, there)
        assert not like["same"]
        assert like["suggestions"] == []


# ---- after a death ----


async def test_a_proxy_that_died_has_left_its_callers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The retry of its caller is the same call, whose doubt comes first; a safe one is sent again."""
    policies = tmp_path / "policies"
    policies.mkdir()

    async def look(ask: Request) -> tuple[str, int, str]:
        told = await asyncio.to_thread(document, capsys, tmp_path, ask)
        return told["now"]["what"], told["run"]["occurrence"], told["run"]["why"]

    async with Origin((*READ_ALL, Stall())) as origin:
        (policies / "test.yaml").write_text(POLICY.replace("PORT", str(origin.port)))
        async with SemelProcess(tmp_path / "state", policies) as process:
            sending = [asyncio.create_task(one.send(process.port)) for one in (BOB, READ)]
            await until(lambda: origin.started == 2)
            assert await look(BOB) == ("joined", 1, Why.IN_FLIGHT)
            await process.kill()
            await asyncio.gather(*sending)
        assert await look(BOB) == ("in-doubt", 1, Why.ABANDONED)
        assert await look(READ) == ("executed", 1, Why.ABANDONED)
    bob, read = await asyncio.to_thread(made, tmp_path, BOB, READ)
    assert (problem(bob), read.semel) == ("in-doubt", "executed")
