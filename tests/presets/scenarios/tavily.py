"""Requests and answers as Tavily's reference shows them.

https://docs.tavily.com/documentation/api-reference/endpoint/search and its siblings; the numbers of credits:
https://docs.tavily.com/documentation/api-credits
"""

from __future__ import annotations

from typing import Any

from tests.presets.cases import Asked, Case, Told
from tests.presets.scenarios._fresh import FreshAsked

CREDIT = 0.008
AGAIN = {"X-Client-Source": "tavily-python", "X-Request-Id": "8d1c", "User-Agent": "python-requests/2.32"}


def asked(path: str, **body: Any) -> Asked:
    return FreshAsked(path=path, json=body)


def told(credits_: int | None = None, **body: Any) -> Told:
    usage = {} if credits_ is None else {"usage": {"credits": credits_}}
    return Told(
        json={"response_time": 1.67, "request_id": "123e4567-e89b-12d3-a456-426614174111", **body, **usage}
    )


RESULT = {
    "title": "Lionel Messi",
    "url": "https://example.com/messi",
    "content": "A footballer",
    "score": 0.81,
}
PAGE = {"url": "https://example.com/messi", "raw_content": "# Lionel Messi"}
FAILED = {"url": "https://example.com/messi", "error": "Failed to fetch url"}
SEARCH = asked("/search", query="who is Leo Messi?", search_depth="advanced", include_usage=True)
EXTRACT = asked("/extract", urls=["https://example.com/messi"])
RESEARCH = asked("/research", input="What are the latest developments in AI?", model="auto")

CASES = [
    Case(
        rule="search",
        request=SEARCH,
        answer=told(2, query="who is Leo Messi?", results=[RESULT]),
        safe=True,
        arguments={"body.query": "who is Leo Messi?", "body.search_depth": "advanced"},
        alike=(SEARCH.but(headers=AGAIN),),
        different=(
            SEARCH.but(json={"query": "who is Ada Lovelace?"}),
            SEARCH.but(json={"max_results": 20}),
            SEARCH.but(headers={"X-Project-ID": "another"}),
        ),
        cost=2 * CREDIT,
    ),
    # Without `include_usage` the cost is not known.
    Case(
        rule="search",
        request=asked("/search", query="who is Ada Lovelace?", topic="general", time_range="month"),
        answer=told(query="who is Ada Lovelace?", results=[RESULT]),
        safe=True,
    ),
    # What is asked for as it is now.
    Case(
        rule="search-now",
        request=asked("/search", query="elections", topic="news", include_usage=True),
        answer=told(1, query="elections", results=[RESULT]),
        safe=True,
        refused=(
            Told(status=432, json={"detail": {"error": "This request exceeds your plan's set usage limit."}}),
        ),
        cost=CREDIT,
    ),
    Case(
        rule="search-now",
        request=asked("/search", query="elections", time_range="day"),
        answer=told(query="elections", results=[RESULT]),
        safe=True,
    ),
    Case(
        rule="search-now",
        request=asked("/search", query="elections", auto_parameters=True),
        answer=told(query="elections", results=[RESULT]),
        safe=True,
    ),
    Case(
        rule="extract",
        request=EXTRACT,
        answer=told(1, results=[PAGE], failed_results=[]),
        safe=True,
        refused=(told(0, results=[], failed_results=[FAILED]),),
        cost=CREDIT,
    ),
    Case(
        rule="crawl",
        request=asked("/crawl", url="docs.tavily.com", instructions="Find all pages about the Python SDK"),
        answer=told(4, base_url="docs.tavily.com", results=[PAGE]),
        safe=True,
        cost=4 * CREDIT,
    ),
    Case(
        rule="map",
        request=asked("/map", url="docs.tavily.com"),
        answer=told(1, base_url="docs.tavily.com", results=["https://docs.tavily.com/welcome"]),
        safe=True,
        cost=CREDIT,
    ),
    # A job: a second one is a second bill.
    Case(
        rule="research",
        request=RESEARCH,
        answer=Told(status=201, json={"request_id": "123e4567", "status": "pending"}),
        arguments={"body.input": "What are the latest developments in AI?"},
        alike=(RESEARCH.but(headers=AGAIN),),
        different=(RESEARCH.but(json={"model": "pro"}),),
        refused=(
            Told(status=432, json={"detail": {"error": "This request exceeds your plan's set usage limit."}}),
            Told(status=433, json={"detail": {"error": "This request exceeds the pay-as-you-go limit."}}),
            Told(status=401, json={"detail": {"error": "Unauthorized: missing or invalid API key."}}),
        ),
        doubtful=(Told(status=500, json={"detail": {"error": "Internal Server Error"}}),),
        final=(Told(status=400, json={"detail": {"error": "Invalid output schema"}}),),
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path="/research/123e4567"),
        answer=Told(json={"status": "completed", "content": "Much"}),
        safe=True,
    ),
]
