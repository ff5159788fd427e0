"""Notion, as https://developers.notion.com/reference shows it; errors: …/reference/status-codes."""

from __future__ import annotations

from typing import Any

from tests.presets.cases import Asked, Case, Told

VERSION = {"Notion-Version": "2025-09-03"}


def failed(status: int, code: str) -> Told:
    return Told(status=status, json={"object": "error", "status": status, "code": code, "message": "No."})


def asked(path: str, method: str = "POST", **body: Any) -> Asked:
    return Asked(method=method, path=path, json=body, headers=VERSION)


LIST = Told(json={"object": "list", "results": [], "has_more": False})
PAGE = asked("/v1/pages", parent={"data_source_id": "d9824bdc"}, properties={"Name": {"title": []}})
REFUSED = (failed(404, "object_not_found"), failed(409, "conflict_error"), failed(429, "rate_limited"))

CASES = [
    Case(
        rule="token",
        request=Asked(path="/v1/oauth/token", json={"grant_type": "authorization_code", "code": "secret"}),
        answer=Told(json={"access_token": "secret"}),
        recorded=False,
    ),
    Case(rule="search", request=asked("/v1/search", query="roadmap"), answer=LIST, safe=True),
    Case(rule="query", request=asked("/v1/data_sources/d9824bdc/query"), answer=LIST, safe=True),
    Case(rule="query-database", request=asked("/v1/databases/d9824bdc/query"), answer=LIST, safe=True),
    Case(
        rule="page",
        request=PAGE,
        answer=Told(json={"object": "page", "id": "59833787"}),
        alike=(
            PAGE.but(headers={"User-Agent": "notionhq-client/5"}),
            PAGE.but(headers={"Notion-Version": "2022-06-28"}),
        ),
        different=(PAGE.but(json={"parent": {"data_source_id": "other"}}),),
        refused=REFUSED,
        doubtful=(failed(503, "service_unavailable"), failed(504, "gateway_timeout")),
        final=(failed(400, "validation_error"),),
    ),
    Case(
        rule="append",
        request=asked("/v1/blocks/59833787/children", method="PATCH", children=[{"object": "block"}]),
        answer=LIST,
        refused=REFUSED,
    ),
    Case(
        rule="comment",
        request=asked("/v1/comments", parent={"page_id": "59833787"}, rich_text=[]),
        answer=Told(json={"object": "comment", "id": "94cc56ab"}),
        refused=REFUSED,
    ),
    Case(
        rule="update-page",
        request=asked("/v1/pages/59833787", method="PATCH", archived=True),
        answer=Told(json={"object": "page", "id": "59833787"}),
        refused=REFUSED,
    ),
]
