"""Requests and answers as Firecrawl's reference shows them.

https://docs.firecrawl.dev/api-reference/endpoint/scrape and its siblings, v1 and v2.
"""

from __future__ import annotations

from typing import Any

from tests.presets.cases import Asked, Case, Told
from tests.presets.scenarios._fresh import FreshAsked

AGAIN = {"x-idempotency-key": "9f1c1b0e-6c1f-4a4c-9f0a-0d6a3f1f9c11", "User-Agent": "firecrawl-py/4"}


def asked(path: str, **body: Any) -> Asked:
    return FreshAsked(path=path, json=body)


PAGE = Told(
    json={
        "success": True,
        "data": {"markdown": "# Firecrawl", "metadata": {"statusCode": 200, "creditsUsed": 1}},
    }
)
BROKEN = Told(json={"success": False, "error": "The page could not be read."})
JOB = Told(json={"success": True, "id": "9c1f", "url": "https://api.firecrawl.dev/v2/crawl/9c1f"})
POOR = Told(status=402, json={"success": False, "error": "Insufficient credits to perform this request."})
BUSY = Told(status=429, json={"success": False, "error": "Rate limit exceeded."})
USED = Told(status=409, json={"success": False, "error": "Idempotency key already used"})
INVALID = Told(status=400, json={"success": False, "error": "Bad Request"})
ERROR = Told(status=500, json={"success": False, "error": "An unexpected error occurred on the server."})

UPLOAD = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.html"\r\n\r\nHi\r\n--b--\r\n'

SCRAPE = asked("/v2/scrape", url="https://firecrawl.dev", formats=["markdown"])
CRAWL = asked("/v2/crawl", url="https://docs.firecrawl.dev", limit=10)
BATCH = asked("/v2/batch/scrape", urls=["https://firecrawl.dev"], headers={"Cookie": "session=1"})
ACTING = SCRAPE.but(json={"actions": [{"type": "click", "selector": "#order"}]})
SEARCH_ACTING = asked("/v2/search", query="orders", scrapeOptions={"actions": [{"type": "click"}]})
# https://github.com/firecrawl/firecrawl, apps/api/src/controllers/v1/types.ts and v2/types.ts
ACTING_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/scrape", {"agent": {"model": "FIRE-1", "prompt": "Order it"}}),
    ("/v1/scrape", {"formats": ["extract"], "extract": {"agent": {"model": "FIRE-1"}}}),
    ("/v1/scrape", {"formats": ["json"], "jsonOptions": {"agent": {"model": "FIRE-1"}}}),
    ("/v2/scrape", {"profile": {"name": "me"}}),
    ("/v2/scrape", {"profile": {"name": "me"}, "maxAge": 0}),
)

CASES = [
    Case(
        rule="scrape",
        request=SCRAPE,
        answer=PAGE,
        safe=True,
        arguments={"path.version": "v2", "body.url": "https://firecrawl.dev"},
        alike=(
            SCRAPE.but(headers=AGAIN),
            SCRAPE.but(json={"origin": "python-sdk@4.12.0", "integration": "crewai"}),
        ),
        different=(
            SCRAPE.but(json={"url": "https://example.com"}),
            SCRAPE.but(json={"formats": ["html"]}),
            SCRAPE.but(json={"headers": {"Cookie": "session=1"}}),
        ),
        refused=(BROKEN, POOR),
    ),
    Case(
        rule="scrape",
        request=asked("/v1/scrape", url="https://firecrawl.dev", maxAge=86400000),
        answer=PAGE,
        safe=True,
    ),
    Case(
        rule="scrape-now",
        request=SCRAPE.but(json={"maxAge": 0}),
        answer=PAGE,
        safe=True,
        refused=(Told(status=408, json={"success": False, "code": "SCRAPE_TIMEOUT"}),),
    ),
    Case(
        rule="scrape-now",
        request=SCRAPE.but(json={"formats": ["markdown", {"type": "changeTracking"}]}),
        answer=PAGE,
        safe=True,
    ),
    # Two readers could see two things in it, and one of them a click.
    Case(
        rule="scrape-acting",
        request=Asked(
            path="/v2/scrape",
            text='{"url": "https://shop.example", "actions": [], "actions": [{"type": "click"}]}',
            headers={"Content-Type": "application/json"},
        ),
        answer=PAGE,
    ),
    *(
        Case(
            rule="scrape-acting",
            request=asked(path, url="https://shop.example", **more),
            answer=PAGE,
            alike=(asked(path, url="https://shop.example", origin="python-sdk@4.12.0", **more),),
        )
        for path, more in ACTING_WAYS
    ),
    # A click may order something.
    Case(
        rule="scrape-acting",
        request=ACTING,
        answer=PAGE,
        alike=(ACTING.but(headers=AGAIN),),
        different=(ACTING.but(json={"actions": [{"type": "click", "selector": "#cancel"}]}),),
        refused=(POOR, BUSY),
        doubtful=(ERROR,),
        final=(INVALID,),
    ),
    Case(
        rule="search",
        request=asked("/v2/search", query="firecrawl", limit=5),
        answer=Told(
            json={"success": True, "data": {"web": [{"url": "https://firecrawl.dev"}]}, "creditsUsed": 2}
        ),
        safe=True,
        refused=(BROKEN,),
    ),
    Case(
        rule="search",
        request=asked("/v2/search", query="firecrawl", scrapeOptions={"formats": ["markdown"]}),
        answer=Told(json={"success": True, "data": {"web": []}, "creditsUsed": 2}),
        safe=True,
    ),
    Case(
        rule="search-now",
        request=asked("/v2/search", query="firecrawl", scrapeOptions={"maxAge": 0}),
        answer=Told(json={"success": True, "data": {"web": []}, "creditsUsed": 2}),
        safe=True,
    ),
    *(
        Case(
            rule="search-acting",
            request=SEARCH_ACTING.but(json=more),
            answer=Told(json={"success": True, "data": {"web": []}, "creditsUsed": 2}),
            alike=(SEARCH_ACTING.but(headers=AGAIN, json={**more, "origin": "python-sdk@4.12.0"}),),
            different=(SEARCH_ACTING.but(json={**more, "query": "shop"}),),
            refused=(POOR, BUSY),
            doubtful=(ERROR,),
            final=(INVALID,),
        )
        for more in (
            {},
            {"tbs": "qdr:h"},
            {"scrapeOptions": {"profile": {"name": "me"}}},
        )
    ),
    Case(
        rule="search-acting",
        request=Asked(
            path="/v2/search",
            text='{"query": "shop", "scrapeOptions": {}, "scrapeOptions": {"actions": [{"type": "click"}]}}',
            headers={"Content-Type": "application/json"},
        ),
        answer=PAGE,
    ),
    Case(
        rule="search-now",
        request=asked("/v2/search", query="firecrawl", tbs="qdr:h"),
        answer=Told(json={"success": True, "data": {"web": []}, "creditsUsed": 2}),
        safe=True,
    ),
    Case(
        rule="search-now",
        request=asked("/v2/search", query="firecrawl", sources=["web", "news"]),
        answer=Told(json={"success": True, "data": {"news": []}, "creditsUsed": 2}),
        safe=True,
    ),
    Case(
        rule="map",
        request=asked("/v2/map", url="https://firecrawl.dev"),
        answer=Told(json={"success": True, "links": [{"url": "https://firecrawl.dev/blog"}]}),
        safe=True,
        refused=(BROKEN,),
    ),
    Case(
        rule="crawl-preview",
        request=asked("/v2/crawl/params-preview", url="https://firecrawl.dev", prompt="The blog"),
        answer=Told(json={"success": True, "data": {"includePaths": ["/blog/.*"]}}),
        safe=True,
    ),
    Case(
        rule="parse",
        request=Asked(
            path="/v2/parse",
            text=UPLOAD,
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        ),
        answer=PAGE,
        safe=True,
    ),
    Case(
        rule="crawl",
        request=CRAWL,
        answer=JOB,
        arguments={"path.version": "v2", "body.url": "https://docs.firecrawl.dev", "body.limit": 10},
        alike=(CRAWL.but(headers=AGAIN),),
        different=(CRAWL.but(json={"limit": 20}), CRAWL.but(path="/v1/crawl")),
        refused=(POOR, BUSY),
        doubtful=(ERROR,),
        # The key is the client's own: what it says is handed on.
        final=(INVALID, USED),
    ),
    Case(
        rule="batch",
        request=BATCH,
        answer=JOB,
        alike=(BATCH.but(headers=AGAIN),),
        different=(BATCH.but(json={"headers": {"Cookie": "session=2"}}),),
        refused=(POOR,),
        doubtful=(ERROR,),
    ),
    Case(
        rule="extract",
        request=asked("/v2/extract", urls=["https://firecrawl.dev/*"], prompt="The mission"),
        answer=JOB,
        refused=(POOR,),
    ),
    Case(
        rule="agent",
        request=asked("/v2/agent", prompt="Find the founders of Firecrawl"),
        answer=JOB,
        refused=(POOR,),
    ),
    Case(
        rule=None,
        request=Asked(method="DELETE", path="/v2/crawl/9c1f"),
        answer=Told(json={"status": "cancelled"}),
    ),
]
