"""Linear, as https://linear.app/developers/graphql and …/rate-limiting show it."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

MUTATION = Asked(
    path="/graphql",
    json={
        "query": "mutation($input: IssueCreateInput!) { issueCreate(input: $input) { issue { id } } }",
        "variables": {"input": {"title": "New exception", "teamId": "9cfb482a"}},
    },
    headers={"Authorization": "lin_api_first"},
)
OVER_LIMIT = Told(
    status=400,
    json={"errors": [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]},
)

CASES = [
    Case(
        rule="query",
        request=Asked(path="/graphql", json={"query": "query Me { viewer { id } }"}),
        answer=Told(json={"data": {"viewer": {"id": "a"}}}),
        safe=True,
        refused=(OVER_LIMIT,),
    ),
    Case(
        rule="mutation",
        request=MUTATION,
        answer=Told(json={"data": {"issueCreate": {"success": True, "issue": {"id": "a"}}}}),
        alike=(MUTATION.but(headers={"Authorization": "lin_api_second"}),),
        different=(MUTATION.but(json={"variables": {"input": {"title": "Another", "teamId": "9cfb482a"}}}),),
        refused=(OVER_LIMIT,),
        final=(
            Told(
                json={
                    "data": None,
                    "errors": [{"message": "Entity not found", "extensions": {"code": "INPUT_ERROR"}}],
                }
            ),
        ),
    ),
    Case(
        rule="token",
        request=Asked(
            path="/oauth/token", json={"grant_type": "client_credentials", "client_secret": "secret"}
        ),
        answer=Told(json={"access_token": "secret"}),
        recorded=False,
    ),
]
