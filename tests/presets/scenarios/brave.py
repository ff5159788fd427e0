"""Brave Search, as https://api-dashboard.search.brave.com/documentation/quickstart shows it."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told
from tests.presets.scenarios._fresh import FreshAsked


def asked(path: str, **headers: str) -> Asked:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FreshAsked(method="GET", path=path, headers={"X-Subscription-Token": "secret", **named})


FOUND = Told(json={"type": "search", "web": {"results": [{"url": "https://a"}]}})

CASES = [
    Case(
        rule="search",
        request=asked("/res/v1/web/search?q=brave"),
        answer=FOUND,
        safe=True,
        arguments={"path.kind": "web", "query.q": ["brave"]},
        different=(
            asked("/res/v1/images/search?q=brave"),
            asked("/res/v1/web/search?q=brave", X_Loc_Country="DE"),
        ),
        refused=(Told(status=429, json={"error": {"code": "RATE_LIMITED"}}),),
    ),
    Case(rule="search-now", request=asked("/res/v1/news/search?q=brave"), answer=FOUND, safe=True),
    Case(
        rule="search-now", request=asked("/res/v1/web/search?q=brave&freshness=pd"), answer=FOUND, safe=True
    ),
    Case(
        rule="answer",
        request=FreshAsked(
            path="/res/v1/chat/completions",
            json={"model": "brave", "messages": [{"role": "user", "content": "Who?"}]},
        ),
        answer=Told(json={"choices": [{"message": {"content": "Somebody"}}]}),
        safe=True,
    ),
]
