"""Runs over the operator's API: seen, forked, allowed, completed, and by whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.admin.schemas import document
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.admin.run_scene import SEEN, TWO_ATTEMPTS, ask, charge, decide, run_scene, two_attempts
from tests.admin.scene import FINE, LOST, Scene, detail_of, problem
from tests.inside import Answer

WHY = "said so"


def fits(component: str, given: object) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.validate(
        given, document(component), cls=jsonschema.Draft202012Validator, format_checker=checker
    )


async def shown(world: Scene, run: str = "r") -> Any:
    detail = await world.document(f"runs/{run}")
    fits("RunDetail", detail)
    return detail


def made(got: Answer, component: str) -> Any:
    assert got.status == 200, got.body
    said = json.loads(got.body)
    fits(component, said)
    return said


# ---- looking ----


async def test_a_run_shows_its_attempts_steps_and_what_is_in_doubt(tmp_path: Path) -> None:
    """Steps in the order of their claims, with who asked them; counts by attempt; the doubt by its id."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        run = await shown(world)
    steps = run["steps"]
    assert [step["seq"] for step in steps] == [1, 2, 3, 4]
    assert [step["tool"] for step in steps] == ["charge_card", "GET /look", "charge_card", "send_mail"]
    assert [step["safe"] for step in steps] == [False, True, False, False]
    assert [step["state"] for step in steps] == ["done", "done", "done", "in_doubt"]
    assert [step["status_code"] for step in steps] == [201, 200, 201, None]
    assert [step["asked_by"] for step in steps] == [["a1", "a2"], ["a1", "a2"], ["a1"], ["a1"]]
    assert steps[3]["received"] == [{"attempt": "a1", "problem": "in-doubt"}]
    assert run["in_doubt"] == [steps[3]["call"]]
    counted = [
        (one["name"], one["executed"], one["replayed"], one["joined"], one["refused"])
        for one in run["attempts"]
    ]
    assert counted == [("a1", 3, 0, 0, 1), ("a2", 0, 2, 0, 0)]
    assert (run["run"], run["state"], run["last_seq"], run["parent"]) == ("r", "open", 4, None)
    assert all(step["age"] >= 0 and step["seconds"] >= 0 for step in steps[:3])
    assert steps[3]["age"] is None


async def test_money_and_time_are_summed_up_where_they_are_known(tmp_path: Path) -> None:
    """Two charges at 0.25 were made, one was replayed. A run without prices says null, not nothing."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS, SEEN) as world:
        await two_attempts(world)
        run = await shown(world)
        await ask(world, "free+a1", "GET", "/look")
        free = await shown(world, "free")
    assert (run["spent_usd"], run["saved_usd"]) == (0.5, 0.25)
    replayed = [step["seconds"] for step in run["steps"] if "a2" in step["asked_by"]]
    assert run["saved_seconds"] == pytest.approx(sum(replayed), abs=0.002)
    assert (free["spent_usd"], free["saved_usd"], free["saved_seconds"]) == (None, None, 0)


async def test_a_list_of_runs_says_which_are_held(tmp_path: Path) -> None:
    """Until a person has allowed it."""
    async with run_scene(tmp_path, FINE) as world:
        await charge(world, "held+a1", 1)
        await charge(world, "other+a1", 1)
        assert (await charge(world, "held+a2", 2)).status == 409
        listed = (await world.document("runs"))["runs"]
        assert {one["run"]: one["diverged"] for one in listed} == {"held": 1, "other": 0}
        assert (await decide(world, "held/allow", reason="meant")).status == 200
        assert [one["diverged"] for one in (await world.document("runs"))["runs"]] == [0, 0]


async def test_runs_are_listed_newest_first_in_pages_and_by_state(tmp_path: Path) -> None:
    """`next` of a page is `after` of the following one; the last has none."""
    async with run_scene(tmp_path, *[FINE] * 3) as world:
        for number, run in enumerate(("one", "two", "three")):
            await charge(world, f"{run}+a", number)
        assert (await decide(world, "two/complete", attempt="a")).status == 200
        first = await world.document("runs?limit=2")
        rest = await world.document(f"runs?limit=2&after={first['next']}")
        complete = await world.document("runs?state=complete")
        for page in (first, rest, complete):
            fits("RunPage", page)
        assert [run["run"] for run in first["runs"] + rest["runs"]] == ["three", "two", "one"]
        assert rest["next"] is None
        assert [run["run"] for run in complete["runs"]] == ["two"]
        assert problem(await world.ask("GET", "runs?state=asleep")) == (400, "bad-request")


async def test_calls_say_which_run_they_are_of(tmp_path: Path) -> None:
    """Run, attempt, number, occurrence and cost, in lists and alone."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        calls = (await world.document("calls?run=r"))["calls"]
    by_seq = sorted((call["seq"], call["run"], call["attempt"], call["cost_usd"]) for call in calls)
    assert by_seq == [(1, "r", "a1", 0.25), (2, "r", "a1", None), (3, "r", "a1", 0.25), (4, "r", "a1", None)]


# ---- errors ----


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "runs/nobody", None),
        ("GET", "runs/nobody/export", None),
        ("POST", "runs/nobody/fork", {"at": 0, "as": "n", "reason": WHY}),
        ("POST", "runs/nobody/allow", {"reason": WHY}),
        ("POST", "runs/nobody/complete", {"attempt": "a"}),
    ],
)
async def test_a_run_that_there_is_not(tmp_path: Path, method: str, path: str, said: object) -> None:
    """404 from every address, and looking makes none."""
    async with run_scene(tmp_path) as world:
        assert problem(await world.ask(method, path, said)) == (404, "not-found")
        assert (await world.document("runs"))["runs"] == []


async def test_names_that_no_run_can_have_are_refused(tmp_path: Path) -> None:
    """In the address, as the name of a fork, as an attempt."""
    async with run_scene(tmp_path, FINE) as world:
        await charge(world, "r+a1", 1)
        for path in ("runs/a%2Fb", f"runs/{'x' * 129}", "runs/a+b", "runs/"):
            assert problem(await world.ask("GET", path)) == (400, "bad-request"), path
        for name in ("", "a/b", "x" * 129, "ü"):
            got = await decide(world, "r/fork", **{"at": 1, "as": name, "reason": WHY})
            assert problem(got) == (400, "bad-request"), name
        assert problem(await decide(world, "r/complete", attempt="a b")) == (400, "bad-request")
        assert problem(await decide(world, "r/allow", reason="two\nlines")) == (400, "bad-request")
        assert problem(await decide(world, "r/fork", at=1, resend="yes", reason=WHY)) == (400, "bad-request")


async def test_an_expired_run_is_only_a_name(tmp_path: Path) -> None:
    """It is shown as expired, without steps; whatever else is asked of it is 410."""
    async with run_scene(tmp_path, FINE) as world:
        await charge(world, "r+a1", 1)
        store = world.app.store
        while (await store.collect(0.0, runs_before=2**40)).more:
            pass
        run = await shown(world)
        assert (run["state"], run["steps"]) == ("expired", [])
        assert [one["state"] for one in (await world.document("runs"))["runs"]] == ["expired"]
        fork = {"at": 0, "as": "n", "reason": WHY}
        for path, said in (("fork", fork), ("allow", {"reason": WHY}), ("complete", {"attempt": "a1"})):
            assert problem(await world.ask("POST", f"runs/r/{path}", said)) == (410, "run-expired"), path
        assert problem(await world.ask("GET", "runs/r/export")) == (410, "run-expired")
        taken = await decide(world, "r/fork", **{"at": 0, "as": "r", "reason": WHY})
        assert problem(taken) == (410, "run-expired")


async def test_a_run_whose_time_is_over_is_expired_before_it_is_collected(tmp_path: Path) -> None:
    """As agents are told, so operators are."""
    async with run_scene(tmp_path, FINE, settings={"runs.retention": "500ms"}) as world:
        await charge(world, "r+a1", 1)
        async with asyncio.timeout(30):
            while (await shown(world))["state"] != "expired":
                pass
        assert (await world.document("runs?state=open"))["runs"] == []
        assert problem(await decide(world, "r/allow", reason=WHY)) == (410, "run-expired")


# ---- forks ----


async def test_a_fork_begins_with_its_parents_past(tmp_path: Path) -> None:
    """Answers up to the step and effects always, from the record; its own steps are numbered after them."""
    async with run_scene(tmp_path, FINE, SEEN, FINE, SEEN, FINE) as world:
        await charge(world, "r+a1", 1)
        await ask(world, "r+a1", "GET", "/look")
        await charge(world, "r+a1", 2)
        fork = made(await decide(world, "r/fork", **{"at": 1, "as": "f", "reason": WHY}), "Run")
        assert fork["parent"] == {"run": "r", "at": 1, "resend": False}
        assert (fork["run"], fork["state"], fork["last_seq"], fork["attempts"]) == ("f", "open", 3, 0)
        assert (await charge(world, "f+a1", 1)).semel == "replayed"
        assert (await ask(world, "f+a1", "GET", "/look")).semel == "executed"
        assert (await charge(world, "f+a1", 3)).semel == "executed"
        assert (await charge(world, "f+a2", 2)).semel == "replayed"
        seen = await shown(world, "f")
        told = [(step["seq"], step["run"], step["inherited"]) for step in seen["steps"]]
        assert told == [(1, "r", True), (3, "r", True), (4, "f", False), (5, "f", False)]
        # The parent's attempts are others, whatever their names.
        assert [step["asked_by"] for step in seen["steps"]] == [["a1"], ["a2"], ["a1"], ["a1"]]
        events = (await shown(world))["events"] + seen["events"]
        assert [event["event"] for event in events if event["actor"] == "operator:api"] == ["forked"] * 2
        assert all(WHY in event["why"] for event in events if event["event"] == "forked")


async def test_a_fork_that_resends_makes_later_effects_again(tmp_path: Path) -> None:
    """Only those after the step; a fork of a fork keeps its numbers going."""
    async with run_scene(tmp_path, FINE, FINE, FINE) as world:
        for usd in (1, 2):
            await charge(world, "r+a1", usd)
        said = {"at": 1, "as": "f", "resend": True, "reason": WHY}
        assert made(await decide(world, "r/fork", **said), "Run")["parent"]["resend"] is True
        assert (await charge(world, "f+b1", 1)).semel == "replayed"
        assert (await charge(world, "f+b1", 2)).semel == "executed"
        again = made(await decide(world, "f/fork", **{"at": 3, "as": "g", "reason": WHY}), "Run")
        assert again["last_seq"] == 3
        assert (await charge(world, "g+c1", 2)).semel == "replayed"


async def test_a_fork_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    """Past the end: 400 with the highest step. Onto a name that is taken: 409, and that run is as it was."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS, FINE) as world:
        await two_attempts(world)
        await charge(world, "other+a1", 9)
        before = await world.document("runs")
        beyond = await decide(world, "r/fork", **{"at": 5, "as": "f", "reason": WHY})
        assert problem(beyond) == (400, "bad-request")
        assert "4 at the most" in detail_of(beyond)
        for name in ("other", "r"):
            taken = await decide(world, "r/fork", **{"at": 4, "as": name, "reason": WHY})
            assert problem(taken) == (409, "run-exists")
        assert problem(await decide(world, "r/fork", **{"at": 4, "as": "f"})) == (400, "bad-request")
        assert await world.document("runs") == before


# ---- leaving the record ----


async def test_what_is_allowed_lets_the_latest_attempt_go_on(tmp_path: Path) -> None:
    """Held as diverged; the calls it has not asked are retired, with a line in their history; then it is
    sent. What the attempt has asked, and other runs, are not touched."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS, FINE) as world:
        await two_attempts(world)
        assert problem(await charge(world, "r+a2", 22)) == (409, "diverged")
        assert (await shown(world))["diverged"] == 1
        allowed = made(await decide(world, "r/allow", reason=WHY), "Allowed")
        assert allowed["attempt"] == "a2"
        assert [one["seq"] for one in allowed["retired"]] == [3, 4]
        assert [step["retired"] for step in (await shown(world))["steps"]] == [False, False, True, True]
        for one in allowed["retired"]:
            line = (await world.document(f"calls/{one['call']}"))["events"][-1]
            assert (line["event"], line["actor"]) == ("retired", "operator:api")
            assert WHY in line["why"]
        assert (await charge(world, "r+a2", 22)).semel == "executed"
        assert made(await decide(world, "r/allow", reason=WHY), "Allowed")["retired"] == []
        run = await shown(world)
        assert run["diverged"] == 0, "what a person has let go on is no warning any more"
        assert [event["event"] for event in run["events"] if WHY in event["why"]] == ["allowed"]


async def test_a_retired_call_is_still_replayed(tmp_path: Path) -> None:
    """It stays in the record: asked after all, nothing is sent."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        assert (await decide(world, "r/allow", reason=WHY)).status == 200
        assert (await charge(world, "r+a2", 2)).semel == "replayed"


async def test_allowing_a_fork_opens_nothing_in_its_parent(tmp_path: Path) -> None:
    """The parent's row is retired for the fork alone, and for what is forked from that."""
    async with run_scene(tmp_path, FINE, FINE, FINE) as world:
        await charge(world, "r+a1", 1)
        await decide(world, "r/fork", **{"at": 1, "as": "f", "reason": WHY})
        assert problem(await charge(world, "f+b1", 5)) == (409, "diverged")
        allowed = made(await decide(world, "f/allow", reason=WHY), "Allowed")
        assert [one["seq"] for one in allowed["retired"]] == [1]
        assert [step["retired"] for step in (await shown(world, "f"))["steps"]] == [True]
        assert [step["retired"] for step in (await shown(world))["steps"]] == [False]
        assert (await charge(world, "f+b1", 5)).semel == "executed"
        assert problem(await charge(world, "r+a2", 5)) == (409, "diverged")
        await decide(world, "f/fork", **{"at": 2, "as": "g", "reason": WHY})
        assert [step["retired"] for step in (await shown(world, "g"))["steps"]] == [True, False]


# ---- complete ----


async def test_a_run_is_complete_until_it_is_started_again(tmp_path: Path) -> None:
    """Said twice it is said once; a new attempt opens it, and finds its record."""
    async with run_scene(tmp_path, FINE) as world:
        await charge(world, "r+a1", 1)
        for _ in range(2):
            assert made(await decide(world, "r/complete", attempt="a1"), "Run")["state"] == "complete"
        events = [event for event in (await shown(world))["events"] if event["event"] == "completed"]
        assert [event["why"] for event in events] == ["by a1"]
        assert (await charge(world, "r+a2", 1)).semel == "replayed"
        assert (await shown(world))["state"] == "open"


async def test_what_a_person_resolved_is_seen_by_the_next_attempt(tmp_path: Path) -> None:
    """The proxy's own memory of a run hears of what its desk decides."""
    async with run_scene(tmp_path, LOST) as world:
        doubtful = await ask(world, "r+a1", "POST", "/mail", {"to": "ann"})
        assert problem(await ask(world, "r+a2", "POST", "/mail", {"to": "ann"})) == (409, "in-doubt")
        said = {"as": "executed", "body": "sent it", "reason": WHY}
        resolved = await world.ask("POST", f"calls/{doubtful.get('Semel-Call')}/resolve", said)
        assert resolved.status == 200
        got = await ask(world, "r+a2", "POST", "/mail", {"to": "ann"})
        assert (got.semel, got.body) == ("replayed", b"sent it")


# ---- who may ----


def tokens_of(*whose: tuple[str, Role]) -> tuple[list[Token], list[dict[str, str]]]:
    secrets = [f"{tenant}-{role}" for tenant, role in whose]
    known = [
        Token(sha256=digest(secret), tenant=tenant, role=role)
        for secret, (tenant, role) in zip(secrets, whose, strict=True)
    ]
    return known, [{"Semel-Token": secret} for secret in secrets]


async def test_an_agent_may_look_at_its_run_and_complete_it_and_nothing_else(tmp_path: Path) -> None:
    """Of its own tenant: another tenant's run is not there, for agents and operators alike."""
    known, (agent, operator, stranger, metrics) = tokens_of(
        ("acme", Role.AGENT), ("acme", Role.OPERATOR), ("beta", Role.AGENT), ("acme", Role.METRICS)
    )
    async with run_scene(tmp_path, FINE, tokens=known) as world:
        assert (await charge(world, "r+a1", 1, **agent)).status == 201
        for headers in (agent, operator):
            assert (await world.ask("GET", "runs/r", headers=headers)).status == 200
        done = await world.ask("POST", "runs/r/complete", {"attempt": "a1"}, agent)
        assert made(done, "Run")["state"] == "complete"
        for method, path, said in (
            ("GET", "runs", None),
            ("GET", "runs/r/export", None),
            ("POST", "runs/r/allow", {"reason": WHY}),
            ("POST", "runs/r/fork", {"at": 1, "as": "f", "reason": WHY}),
        ):
            assert problem(await world.ask(method, path, said, agent)) == (403, "forbidden"), path
        assert problem(await world.ask("GET", "runs/r", headers=metrics)) == (403, "forbidden")
        assert problem(await world.ask("GET", "runs/r")) == (401, "unauthorized")
        assert problem(await world.ask("GET", "runs/r", headers=stranger)) == (404, "not-found")
        missing = await world.ask("POST", "runs/r/complete", {"attempt": "a1"}, stranger)
        assert problem(missing) == (404, "not-found")
        actors = json.loads((await world.ask("GET", "runs/r", headers=operator)).body)["events"]
        assert [one["actor"] for one in actors if one["event"] == "completed"] == ["agent:acme"]
