"""Plans that no longer hold: the next request of the same head follows what is in force now."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.front.plans import NoPlan, Plan
from tests.forward.scene import client
from tests.http.planned import JSON, Side, planning, policy, post, rule
from tests.inside import call
from tests.origin import OK, Origin

SMALL, OTHER, GREAT = b'{"usd": 10}', b'{"usd": 11}', b'{"usd": 99}'
EXECUTED, REPLAYED, PASSED = (200, "executed"), (200, "replayed"), (200, "passed")


async def _reloaded(there: Side, tmp_path: Path, rules: str, port: int | None = None) -> None:
    text = policy(there.origin.port if port is None else port, rules)
    (tmp_path / "policies" / "test.yaml").write_text(text)
    assert await there.app.watch.check_now()


@pytest.mark.parametrize(
    ("rules", "then"),
    [
        (rule("mode: deny"), [(403, "refused")] * 2),
        (rule("mode: pass"), [PASSED] * 2),
        (rule("safe: true"), [PASSED] * 2),
        (rule("budget: {calls: 1/1h}"), [EXECUTED, (429, "refused")]),
        (rule("key: {include: [usd]}"), [EXECUTED, EXECUTED]),
        (rule("key: {exclude: [usd]}"), [EXECUTED, REPLAYED]),
        (rule("shadow: true"), [PASSED] * 2),
        ("[]", [EXECUTED, EXECUTED]),
    ],
)
async def test_the_next_request_follows_the_new_rule(
    tmp_path: Path, by_plan: list[bytes], rules: str, then: list[tuple[int, str]]
) -> None:
    """Whatever was planned by the old one; and back again. The requests between have the same head."""
    async with planning(tmp_path) as there:
        for body in (SMALL, OTHER):
            await there.ask(post(body))
        assert by_plan == [OTHER]
        await _reloaded(there, tmp_path, rules)
        told = [await there.told(post(body)) for body in (b'{"usd": 20}', b'{"usd": 21}')]
        statuses = [dict(one.answer[1])[b"Semel-Status"].decode() for one in told]
        assert list(zip([one.answer[0] for one in told], statuses, strict=True)) == then
        assert {one.row.rule for one in told if one.row is not None} <= {"default" if rules == "[]" else "r"}
        await _reloaded(there, tmp_path, rule())
        by_plan.clear()
        assert (await there.ask(post(b'{"usd": 30}'))).semel == "executed"
        assert by_plan == [b'{"usd": 30}']


async def test_a_new_address_is_gone_to(tmp_path: Path, by_plan: list[bytes]) -> None:
    """And an upstream that is gone is gone; when there is one again, its head may have a plan again."""
    async with planning(tmp_path) as there, Origin(OK) as elsewhere:
        for body in (SMALL, OTHER):
            await there.ask(post(body))
        await _reloaded(there, tmp_path, rule(), elsewhere.port)
        assert (await there.ask(post(GREAT))).body == b"ok"
        assert (there.origin.started, elsewhere.started) == (2, 1)
        assert isinstance(there.plan_of(post(GREAT)), Plan)
        file = tmp_path / "policies" / "test.yaml"
        file.write_text(file.read_text().replace("upstream: up", "upstream: down"))
        assert await there.app.watch.check_now()
        assert (await there.ask(post(GREAT))).status == 404
        assert isinstance(there.plan_of(post(GREAT)), NoPlan)
        by_plan.clear()
        await _reloaded(there, tmp_path, rule())
        assert (await there.ask(post(b'{"usd": 12}'))).semel == "executed"
        assert (len(by_plan), there.origin.started, elsewhere.started) == (1, 3, 1)


async def test_files_that_are_wrong_leave_the_plan(tmp_path: Path, by_plan: list[bytes]) -> None:
    """The old policies are kept, and what was planned by them."""
    async with planning(tmp_path) as there:
        for body in (SMALL, OTHER):
            await there.ask(post(body))
        plan = there.plan_of(post(GREAT))
        (tmp_path / "policies" / "test.yaml").write_text("upstream: [")
        assert not await there.app.watch.check_now()
        assert (await there.ask(post(GREAT))).semel == "executed"
        assert there.plan_of(post(GREAT)) is plan
        assert by_plan == [OTHER, GREAT]


async def test_a_body_without_its_key_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    """Whichever body came first behind a head, on one connection: what is refused is neither sent nor
    written."""
    rules = rule("upstream_key: {body: ref}, key: {client_key: require}")
    bodies = [(b'{"ref": "k%d"}' % n, 200) if n % 2 else (b'{"rof": "k%d"}' % n, 400) for n in range(6)]
    async with planning(tmp_path, rules=rules) as there, client(there.port) as outside:
        for body, status in bodies:
            assert (await outside.ask(post(body))).status == status
        assert isinstance(there.plan_of(post(bodies[0][0])), NoPlan)
        assert (there.origin.started, await there.recorded()) == (3, 3)


async def test_a_lower_limit_holds_for_what_was_planned(tmp_path: Path, by_plan: list[bytes]) -> None:
    """Limits are read when semel starts: behind the next one the same head is refused, however often."""
    for limit, statuses in ((2, [200] * 4), (1, [413] * 4)):
        async with planning(tmp_path, settings={"limits.request_body": f"{limit}KiB"}) as there:
            bodies = [(b'{"n": %d%d}' % (limit, n)).ljust(1025) for n in range(4)]
            got = [await there.ask(post(body)) for body in bodies]
            assert ([one.status for one in got], there.origin.started) == (statuses, statuses.count(200))
            shorter = await call(there.port, "POST", "/up/x/ann", JSON, b'{"n": 1%d}' % limit)
            assert shorter.semel == "executed"
    assert len(by_plan) == 3
