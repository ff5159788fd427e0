"""Exa, as https://exa.ai/docs/reference/search shows it."""

from __future__ import annotations

from typing import Any

from tests.presets.cases import Asked, Case, Told
from tests.presets.scenarios._fresh import FreshAsked


def asked(path: str, **body: Any) -> Asked:
    return FreshAsked(path=path, json=body)


RESULTS = Told(
    json={"requestId": "b5947044", "results": [{"url": "https://a"}], "costDollars": {"total": 0.007}}
)
SEARCH = asked("/search", query="Latest research in LLMs", type="auto")

CASES = [
    Case(
        rule="search",
        request=SEARCH,
        answer=RESULTS,
        safe=True,
        different=(SEARCH.but(json={"numResults": 20}),),
        cost=0.007,
    ),
    Case(
        rule="search-now",
        request=SEARCH.but(json={"contents": {"text": True, "livecrawl": "always"}}),
        answer=RESULTS,
        safe=True,
        cost=0.007,
    ),
    Case(
        rule="contents", request=asked("/contents", urls=["https://a"]), answer=RESULTS, safe=True, cost=0.007
    ),
    Case(
        rule="answer",
        request=asked("/answer", query="Who is the president?"),
        answer=Told(json={"answer": "Somebody", "costDollars": {"total": 0.005}}),
        safe=True,
        cost=0.005,
    ),
    Case(
        rule="research",
        request=asked("/research/v1", instructions="Summarise the history of computing"),
        answer=Told(status=201, json={"researchId": "01jszdfs0052sg4jc552sg4jc5", "status": "running"}),
        different=(asked("/research/v1", instructions="Summarise the history of art"),),
        refused=(Told(status=402, json={"error": "NO_MORE_CREDITS"}),),
    ),
    Case(
        rule="agent",
        request=asked("/agent/runs", query="Find founders"),
        answer=Told(json={"id": "run_1", "status": "running"}),
    ),
]
