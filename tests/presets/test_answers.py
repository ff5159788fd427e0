"""The presets on the wire: what semel makes of the answers that their documentation names, in runs.

Each test counts at the API. `one`, `two`: the attempts of a run, so what a crashed agent asks again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from proxy import carrying
from proxy.core.clauses import OnDoubt
from proxy.core.outcome import Verdict, judge_status
from tests.inside import Answer, call, semel
from tests.presets.api import CASE, Api, Received, new_case
from tests.presets.cases import Asked, Case, Told
from tests.presets.test_rules import SCENARIOS, rule_of

pytestmark = [pytest.mark.asyncio(loop_scope="module")]
BUSY, FAILED = Told(status=429, json={}), Told(status=500, json={})


def cases_with(field: str) -> pytest.MarkDecorator:
    """Each case with each of its answers of a kind."""
    every = [
        pytest.param(name, case, told, id=f"{name}: {case}: {told.status}")
        for name, cases in SCENARIOS.items()
        for case in cases
        for told in _told(name, case, field)
        if case.is_named
    ]
    return pytest.mark.parametrize(("preset", "case", "told"), every)


def _told(preset: str, case: Case, field: str) -> tuple[Told, ...]:
    given: tuple[Told, ...] = getattr(case, field)
    if field == "refused" and not any(told.status == BUSY.status for told in given):
        return (*given, BUSY)
    outcome = rule_of(preset, case).outcome
    if field == "doubtful" and judge_status(500, safe=False, rule=outcome) is Verdict.IN_DOUBT:
        return (*given, FAILED)
    return given


@dataclass(slots=True)
class Stage:
    api: Api
    port: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    at = tmp_path_factory.mktemp("presets")
    async with Api() as api:
        policies = api.policies(at / "presets", list(SCENARIOS))
        async with semel(at, "upstream: none\nbase_url: http://127.0.0.1:1\n", store="memory",
                         settings={"policies": [str(policies)]}) as app:  # fmt: skip
            yield Stage(api, app.address.port)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "RESEND_PAUSES", (0.0, 0.0, 0.0))


class Agent:
    """A run of one case, whose API answers these in turn."""

    def __init__(self, stage: Stage, preset: str, *answers: Told) -> None:
        self.case = new_case()
        self._stage, self._preset = stage, preset
        stage.api.answers[self.case].extend(answers)

    async def ask(self, attempt: str, asked: Asked) -> Answer:
        target = f"/@{self.case}+{attempt}/{self._preset}{asked.path}"
        headers = {**asked.all_headers, CASE: self.case}
        return await call(self._stage.port, asked.method, target, headers, asked.body)

    @property
    def received(self) -> list[Received]:
        return self._stage.api.received[self.case]

    @property
    def left(self) -> int:
        """Answers that nobody asked for."""
        return len(self._stage.api.answers[self.case])


def is_told(answer: Answer, told: Told) -> bool:
    return (answer.status, answer.body) == (told.status, told.body)


def is_held(answer: Answer) -> bool:
    return answer.status == 409 and json.loads(answer.body)["type"] == "urn:semel:in-doubt"


DENIED = [(name, case) for name, cases in SCENARIOS.items() for case in cases if case.denied]


@pytest.mark.parametrize(("preset", "case"), DENIED, ids=str)
async def test_what_is_denied_never_reaches_the_api(stage: Stage, preset: str, case: Case) -> None:
    agent = Agent(stage, preset, case.answer)
    answer = await agent.ask("one", case.request)
    assert (answer.status, json.loads(answer.body)["type"]) == (403, "urn:semel:denied")
    assert not agent.received


@pytest.mark.parametrize(
    ("preset", "case"),
    [
        pytest.param(name, case, id=f"{name}: {case}")
        for name, cases in SCENARIOS.items()
        for case in cases
        if not case.denied
    ],
)
async def test_asked_again_after_a_crash_it_is_not_made_again(stage: Stage, preset: str, case: Case) -> None:
    """However it is spelled by then; what no rule records is passed on each time."""
    asks = (case.request, *case.alike) if case.alike else (case.request, case.request)
    agent = Agent(stage, preset, *[case.answer] * (1 if case.is_named else len(asks)))
    for n, asked in enumerate(asks):
        answer = await agent.ask(f"attempt-{n}", asked)
        assert is_told(answer, case.answer)
        assert answer.semel == ("passed" if not case.is_named else "replayed" if n else "executed")
    assert agent.left == 0
    assert len(agent.received) == (1 if case.is_named else len(asks))
    _check_sent(agent.received[0], preset, case)


def _check_sent(received: Received, preset: str, case: Case) -> None:
    """What reached the API is what was sent, but for the key."""
    assert (received.method, received.target) == (case.request.method, f"/{preset}{case.request.path}")
    if case.key is None:
        assert received.body == case.request.body
        return
    key = rule_of(preset, case).upstream_key
    value = received.key(case.key)
    assert key is not None
    assert value is not None
    assert 16 <= len(value) <= key.max_length
    assert value not in "".join(case.request.headers.values())
    for field, member in case.beside.items():
        assert json.loads(received.body)[field] == member


@cases_with("refused")
async def test_an_answer_that_says_no_lets_it_be_sent_again(
    stage: Stage, preset: str, case: Case, told: Told
) -> None:
    """Nothing happened: the caller hears it, and the next attempt's try is a new one, with a key of its own.
    (Within an attempt it would be the next of several in any case.)"""
    agent = Agent(stage, preset, told, case.answer)
    assert is_told(await agent.ask("one", case.request), told)
    again = await agent.ask("two", case.request)
    assert (again.semel, is_told(again, case.answer)) == ("executed", True)
    assert len(agent.received) == 2
    if case.key is not None:
        assert len({received.key(case.key) for received in agent.received}) == 2


@cases_with("doubtful")
async def test_an_answer_that_leaves_it_open_is_never_a_second_effect(
    stage: Stage, preset: str, case: Case, told: Told
) -> None:
    """Safe calls: handed on. Under a native key: sent again with that key. By probe: asked about. Else held,
    whoever asks."""
    agent = Agent(stage, preset, told, case.answer)
    first = await agent.ask("one", case.request)
    if case.way_out is None:
        assert is_told(first, told)
        return
    if case.way_out is OnDoubt.RESEND:
        assert case.key is not None
        assert (first.semel, is_told(first, case.answer)) == ("executed", True)
        keys = [received.key(case.key) for received in agent.received]
        assert len(keys) == 2
        assert len(set(keys)) == 1
        assert agent.received[0].body == agent.received[1].body
        return
    assert is_held(first)
    if case.way_out is OnDoubt.PROBE:
        await _settled_by_probe(stage, agent, case)
        return
    assert is_held(await agent.ask("one", case.request))
    assert is_held(await agent.ask("two", case.request))
    assert len(agent.received) == 1


async def _settled_by_probe(stage: Stage, agent: Agent, case: Case) -> None:
    assert case.found is not None
    stage.api.answers[agent.case].clear()
    stage.api.answers[agent.case].append(case.found)
    second = await agent.ask("two", case.request)
    assert (second.semel, second.status) == ("replayed", 200)
    sent, probed = agent.received
    assert (sent.method, probed.method) == (case.request.method, "GET")
    assert case.probe is not None
    assert probed.target.endswith(case.probe)


@cases_with("mismatch")
async def test_a_key_that_was_used_for_something_else_is_doubt(
    stage: Stage, preset: str, case: Case, told: Told
) -> None:
    """Sending again under it would only be told the same."""
    agent = Agent(stage, preset, told)
    assert is_held(await agent.ask("one", case.request))
    assert len(agent.received) == 1


@cases_with("final")
async def test_a_failure_that_is_the_last_word_is_kept(
    stage: Stage, preset: str, case: Case, told: Told
) -> None:
    """The next attempt is told the same, and the API is not asked."""
    agent = Agent(stage, preset, told)
    for attempt, status in (("one", "executed"), ("two", "replayed")):
        answer = await agent.ask(attempt, case.request)
        assert (answer.semel, is_told(answer, told)) == (status, True)
    assert len(agent.received) == 1
