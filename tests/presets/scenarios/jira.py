"""Jira Cloud, as https://developer.atlassian.com/cloud/jira/platform/rest/v3/ shows it."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

ISSUE = Asked(
    path="/rest/api/3/issue",
    json={"fields": {"project": {"key": "EX"}, "issuetype": {"id": "10000"}, "summary": "Order entry fails"}},
)
NOT_FOUND = Told(
    status=404, json={"errorMessages": ["No project could be found with key 'EX'."], "errors": {}}
)

CASES = [
    Case(
        rule="search",
        request=Asked(path="/rest/api/3/search/jql", json={"jql": "project = EX", "maxResults": 50}),
        answer=Told(json={"issues": [], "isLast": True}),
        safe=True,
    ),
    Case(
        rule="issue",
        request=ISSUE,
        answer=Told(status=201, json={"id": "10000", "key": "EX-24"}),
        arguments={"body.fields.summary": "Order entry fails", "path.version": "3"},
        alike=(ISSUE.but(headers={"Authorization": "Basic new", "X-Atlassian-Token": "no-check"}),),
        different=(ISSUE.but(json={"fields": {"summary": "Order entry works"}}),),
        refused=(NOT_FOUND, Told(status=429, json={"errorMessages": ["Rate limited"]})),
        doubtful=(Told(status=503, text="Unavailable"),),
        final=(Told(status=400, json={"errors": {"summary": "You must specify a summary of the issue."}}),),
    ),
    Case(
        rule="comment",
        request=Asked(path="/rest/api/3/issue/EX-24/comment", json={"body": {"type": "doc", "content": []}}),
        answer=Told(status=201, json={"id": "10001"}),
        refused=(NOT_FOUND,),
    ),
    Case(
        rule="transition",
        request=Asked(path="/rest/api/3/issue/EX-24/transitions", json={"transition": {"id": "5"}}),
        answer=Told(status=204),
        different=(Asked(path="/rest/api/3/issue/EX-24/transitions", json={"transition": {"id": "6"}}),),
    ),
]
