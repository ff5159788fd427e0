"""Serper, as https://serper.dev shows it."""

from __future__ import annotations

from tests.presets.cases import Case, Told
from tests.presets.scenarios._fresh import FreshAsked

FOUND = Told(json={"searchParameters": {"q": "apple inc"}, "organic": [{"link": "https://a"}], "credits": 1})
SEARCH = FreshAsked(path="/search", json={"q": "apple inc", "gl": "us"})

CASES = [
    Case(
        rule="search",
        request=SEARCH,
        answer=FOUND,
        safe=True,
        arguments={"body.q": "apple inc"},
        different=(SEARCH.but(json={"gl": "de"}), SEARCH.but(path="/images")),
    ),
    Case(rule="search-now", request=SEARCH.but(path="/news"), answer=FOUND, safe=True),
    Case(rule="search-now", request=SEARCH.but(json={"tbs": "qdr:h"}), answer=FOUND, safe=True),
    Case(
        rule="search-now",
        request=FreshAsked(method="GET", path="/search?q=apple&tbs=qdr:h&apiKey=secret"),
        answer=FOUND,
        safe=True,
    ),
    Case(
        rule="scrape",
        request=FreshAsked(path="/", json={"url": "https://a"}),
        answer=Told(json={"text": "A page"}),
        safe=True,
    ),
]
