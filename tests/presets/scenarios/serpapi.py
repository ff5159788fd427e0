"""SerpApi, as https://serpapi.com/search-api shows it."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told
from tests.presets.scenarios._fresh import FreshAsked


def asked(path: str) -> Asked:
    return FreshAsked(method="GET", path=path)


FOUND = Told(
    json={"search_metadata": {"id": "5d", "status": "Success"}, "organic_results": [{"link": "https://a"}]}
)

CASES = [
    Case(
        rule="search",
        request=asked("/search.json?engine=google&q=coffee&api_key=secret"),
        answer=FOUND,
        safe=True,
        arguments={"query.q": ["coffee"], "query.engine": ["google"]},
        different=(asked("/search.json?engine=bing&q=coffee&api_key=secret"),),
        refused=(Told(json={"search_metadata": {"status": "Error"}, "error": "No proxy"}),),
    ),
    Case(rule="search", request=asked("/search?engine=google&q=tea"), answer=FOUND, safe=True),
    Case(
        rule="search-now", request=asked("/search?engine=google&q=tea&no_cache=true"), answer=FOUND, safe=True
    ),
    Case(
        rule=None,
        request=asked("/account?api_key=secret"),
        answer=Told(json={"total_searches_left": 5958}),
        safe=True,
    ),
]
