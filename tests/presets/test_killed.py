"""semel killed while calls of every preset are at their APIs, and started again: who is sent again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple

from proxy.core.clauses import OnDoubt
from tests.inside import Answer, call, until
from tests.presets.api import CASE, Api, new_case
from tests.presets.cases import Asked, Case
from tests.presets.test_rules import SCENARIOS
from tests.process import SemelProcess


class Asking(NamedTuple):
    """A case in a run of its own."""

    preset: str
    case: Case
    name: str

    def ask(self, port: int, attempt: str, asked: Asked) -> Awaitable[Answer]:
        target = f"/@{self.name}+{attempt}/{self.preset}{asked.path}"
        return call(port, asked.method, target, {**asked.all_headers, CASE: self.name}, asked.body, within=60)


async def test_killed_before_the_answer_came(tmp_path: Path) -> None:
    """Every case of every preset is at its API when semel dies. Asked again, as a restarted agent would: safe
    calls are made again, those with a native key are sent again under that key, those that can be asked about
    are, and all others are held."""
    every = [
        Asking(name, case, new_case()) for name, cases in SCENARIOS.items() for case in cases if case.is_named
    ]
    async with Api() as api:
        policies = api.policies(tmp_path / "presets", list(SCENARIOS))
        async with SemelProcess(tmp_path / "state", policies) as first:
            asks = [asyncio.ensure_future(one.ask(first.port, "one", one.case.request)) for one in every]
            await until(lambda: api.total == len(every), within=60)
            await first.kill()
            cut = await asyncio.gather(*asks)
        assert not any(answer.complete for answer in cut)
        for one in every:
            api.answers[one.name].append(one.case.found or one.case.answer)
        async with SemelProcess(tmp_path / "state", policies) as second:
            again = [one.ask(second.port, "two", (*one.case.alike, one.case.request)[0]) for one in every]
            answers = await asyncio.gather(*again)
    wrong = [
        f"{one.preset}: {one.case}: {answer.status} {answer.body[:200]!r}"
        for one, answer in zip(every, answers, strict=True)
        if not _is_as_promised(one, answer, api)
    ]
    assert not wrong


def _is_as_promised(one: Asking, answer: Answer, api: Api) -> bool:
    received, case = api.received[one.name], one.case
    given = (answer.status, answer.body) == (case.answer.status, case.answer.body)
    if case.way_out is None:
        return given and len(received) == 2
    if case.way_out is OnDoubt.RESEND:
        assert case.key is not None
        same = (
            received[0].key(case.key) == received[-1].key(case.key) and received[0].body == received[-1].body
        )
        return given and same and len(received) == 2
    sends = [request for request in received if request.method == case.request.method]
    if case.way_out is OnDoubt.PROBE:
        return answer.semel == "replayed" and len(sends) == 1 and len(received) == 2
    held = answer.status == 409 and json.loads(answer.body)["type"] == "urn:semel:in-doubt"
    return held and len(sends) == 1
