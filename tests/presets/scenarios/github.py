"""Requests and answers as GitHub's description of its API shows them.

https://github.com/github/rest-api-description, and the pages that policies/github.yaml cites.
"""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

REPO = "/repos/octocat/Hello-World"
VERSIONED = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2026-03-10"}
# A new token and a new SDK after the crash.
AGAIN = {"Authorization": "Bearer ghp_new", "User-Agent": "PyGithub/Python", "X-Request-Id": "8d1c"}

# https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit
SECONDARY = Told(
    status=403,
    json={"message": "You have exceeded a secondary rate limit. Please wait a few minutes."},
    headers={"Retry-After": "60"},
)
PRIMARY = Told(
    status=429, json={"message": "API rate limit exceeded"}, headers={"x-ratelimit-remaining": "0"}
)
HIDDEN = Told(status=404, json={"message": "Not Found", "status": "404"})
REFUSED = (SECONDARY, PRIMARY, HIDDEN)
DOUBTFUL = (
    Told(status=502, json={"message": "Server Error"}),
    Told(status=503, json={"message": "Unavailable"}),
)
INVALID = Told(
    status=422,
    json={
        "message": "Validation Failed",
        "errors": [{"resource": "Issue", "field": "assignees", "code": "invalid"}],
    },
)

ISSUE = Asked(
    path=f"{REPO}/issues",
    json={"title": "Found a bug", "body": "I'm having a problem with this.", "labels": ["bug"]},
    headers=VERSIONED,
)
COMMENT = Asked(path=f"{REPO}/issues/1347/comments", json={"body": "Me too"}, headers=VERSIONED)
PULL = Asked(
    path=f"{REPO}/pulls",
    json={"title": "Amazing new feature", "head": "octocat:new-feature", "base": "master"},
    headers=VERSIONED,
)
MERGE = Asked(
    method="PUT",
    path=f"{REPO}/pulls/1347/merge",
    json={"commit_title": "Expand enum", "commit_message": "Add a new value to the merge_method enum"},
    headers=VERSIONED,
)
RELEASE = Asked(
    path=f"{REPO}/releases", json={"tag_name": "v1.0.0", "name": "v1.0.0", "draft": False}, headers=VERSIONED
)
FILE = Asked(
    method="PUT",
    path=f"{REPO}/contents/docs/notes/hello.txt",
    json={
        "message": "my commit message",
        "content": "bXkgbmV3IGZpbGUgY29udGVudHM=",
        "sha": "95b966ae1c166bd92f8ae7d1c313e738c731dfc3",
    },
    headers=VERSIONED,
)
QUERY = Asked(path="/graphql", json={"query": "query { viewer { login } }"}, headers=VERSIONED)
MUTATION = Asked(
    path="/graphql",
    json={
        "query": "mutation($input: AddReactionInput!) { addReaction(input: $input) { subject { id } } }",
        "variables": {"input": {"subjectId": "MDU6SXNzdWUyMzEzOTE1NTE=", "content": "HOORAY"}},
    },
    headers=VERSIONED,
)
SHA = "6dcb09b5b57875f334f61aebed695e2e4193db5e"

# https://docs.github.com/graphql/overview/rate-limits-and-node-limits-for-the-graphql-api
OVER_LIMIT = Told(
    json={"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]},
    headers={"x-ratelimit-remaining": "0"},
)

CASES = [
    # ---- tokens ----
    *(
        Case(
            rule=rule,
            request=Asked(path=path, headers=VERSIONED),
            answer=Told(status=201, json={"token": "ghs_1", "expires_at": "…"}),
            recorded=False,
        )
        for rule, path in (
            ("installation-token", "/app/installations/1/access_tokens"),
            ("runner-token", "/repos/octocat/hello-world/actions/runners/registration-token"),
            ("runner-token", "/repos/octocat/hello-world/actions/runners/remove-token"),
            ("org-runner-token", "/orgs/github/actions/runners/registration-token"),
            ("org-runner-token", "/orgs/github/actions/runners/remove-token"),
        )
    ),
    Case(
        rule="token-check",
        request=Asked(path="/applications/Iv1.8a61f9b3a7aba766/token", json={"access_token": "gho_1"}),
        answer=Told(json={"id": 1, "token": "gho_1"}),
        recorded=False,
    ),
    Case(
        rule="graphql-query",
        request=QUERY,
        answer=Told(json={"data": {"viewer": {"login": "octocat"}}}),
        safe=True,
        arguments={"body.query": "query { viewer { login } }"},
        alike=(QUERY.but(headers=AGAIN),),
        different=(QUERY.but(json={"query": "query { viewer { name } }"}),),
        refused=(OVER_LIMIT,),
    ),
    # In short form, and after a comment: neither has the word.
    Case(
        rule="graphql-query",
        request=QUERY.but(json={"query": "# who am I\n{ viewer { login } }"}),
        answer=Told(json={"data": {"viewer": {"login": "octocat"}}}),
        safe=True,
    ),
    Case(
        rule="graphql-mutation",
        request=MUTATION,
        answer=Told(json={"data": {"addReaction": {"subject": {"id": "MDU6SXNzdWUyMzEzOTE1NTE="}}}}),
        arguments={"body.variables.input.content": "HOORAY"},
        alike=(MUTATION.but(headers=AGAIN),),
        different=(MUTATION.but(json={"variables": {"input": {"subjectId": "MDU6", "content": "HEART"}}}),),
        refused=(OVER_LIMIT, SECONDARY),
        doubtful=DOUBTFUL,
        final=(
            Told(
                json={
                    "data": {"addReaction": None},
                    "errors": [{"type": "NOT_FOUND", "path": ["addReaction"]}],
                }
            ),
            # One of two was carried out before the limit was reached.
            Told(json={"data": {"a": {"id": "1"}, "b": None}, "errors": [{"type": "RATE_LIMITED"}]}),
        ),
    ),
    # The name of one operation chooses among several: the text could change something.
    Case(
        rule="graphql-mutation",
        request=QUERY.but(
            json={"query": "query A { viewer { login } } mutation B { a { b } }", "operationName": "A"}
        ),
        answer=Told(json={"data": {"viewer": {"login": "octocat"}}}),
    ),
    Case(
        rule="markdown",
        request=Asked(path="/markdown", json={"text": "Hello **world**"}, headers=VERSIONED),
        answer=Told(text="<p>Hello <strong>world</strong></p>", headers={"Content-Type": "text/html"}),
        safe=True,
    ),
    Case(
        rule="markdown-raw",
        request=Asked(path="/markdown/raw", text="Hello **world**", headers={"Content-Type": "text/plain"}),
        answer=Told(text="<p>Hello <strong>world</strong></p>", headers={"Content-Type": "text/html"}),
        safe=True,
    ),
    Case(
        rule="release-notes",
        request=Asked(path=f"{REPO}/releases/generate-notes", json={"tag_name": "v1.0.0"}, headers=VERSIONED),
        answer=Told(json={"name": "Release v1.0.0 is now available!", "body": "##Changes"}),
        safe=True,
    ),
    Case(
        rule="issue",
        request=ISSUE,
        answer=Told(status=201, json={"id": 1, "number": 1347, "state": "open", "title": "Found a bug"}),
        arguments={"path.owner": "octocat", "path.repo": "Hello-World", "body.title": "Found a bug"},
        alike=(ISSUE.but(headers=AGAIN), ISSUE.but(headers={"X-GitHub-Api-Version": "2022-11-28"})),
        different=(
            ISSUE.but(json={"title": "Found another bug"}),
            ISSUE.but(path="/repos/octocat/Other/issues"),
        ),
        refused=REFUSED,
        doubtful=DOUBTFUL,
        final=(INVALID, Told(status=410, json={"message": "Issues are disabled for this repo"})),
    ),
    Case(
        rule="comment",
        request=COMMENT,
        answer=Told(status=201, json={"id": 1, "body": "Me too"}),
        arguments={"path.issue": "1347", "body.body": "Me too"},
        alike=(COMMENT.but(headers=AGAIN),),
        different=(COMMENT.but(path=f"{REPO}/issues/1348/comments"), COMMENT.but(json={"body": "Not me"})),
        refused=REFUSED,
        final=(INVALID,),
    ),
    Case(
        rule="pull",
        request=PULL,
        answer=Told(status=201, json={"id": 1, "number": 1347, "state": "open"}),
        arguments={"body.head": "octocat:new-feature", "body.base": "master"},
        alike=(PULL.but(headers=AGAIN),),
        different=(PULL.but(json={"base": "develop"}),),
        refused=(
            *REFUSED,
            Told(
                status=422,
                json={
                    "message": "Validation Failed",
                    "errors": [
                        {"resource": "PullRequest", "message": "No commits between master and new-feature"}
                    ],
                },
            ),
        ),
        doubtful=DOUBTFUL,
    ),
    Case(
        rule="review",
        request=Asked(
            path=f"{REPO}/pulls/12/reviews", json={"event": "APPROVE", "body": "Fine"}, headers=VERSIONED
        ),
        answer=Told(json={"id": 80, "state": "APPROVED"}),
        refused=REFUSED,
        final=(Told(status=422, json={"message": "Can not approve your own pull request"}),),
    ),
    Case(
        rule="merge",
        request=MERGE,
        answer=Told(json={"sha": SHA, "merged": True, "message": "Pull Request successfully merged"}),
        arguments={"path.pull": "1347", "body.commit_title": "Expand enum"},
        alike=(MERGE.but(headers=AGAIN),),
        different=(MERGE.but(path=f"{REPO}/pulls/1348/merge"),),
        refused=(
            *REFUSED,
            Told(status=405, json={"message": "Pull Request is not mergeable"}),
            Told(status=409, json={"message": "Head branch was modified. Review and try the merge again."}),
        ),
        doubtful=DOUBTFUL,
        probe=f"{REPO}/pulls/1347",
        found=Told(json={"number": 1347, "state": "closed", "merged": True, "merge_commit_sha": SHA}),
        absent=Told(json={"number": 1347, "state": "open", "merged": False, "merge_commit_sha": None}),
    ),
    Case(
        rule="release",
        request=RELEASE.but(json={"draft": True}),
        answer=Told(status=201, json={"id": 1, "tag_name": "v1.0.0", "draft": True}),
        refused=REFUSED,
        final=(INVALID,),
    ),
    Case(
        rule="release",
        request=RELEASE,
        answer=Told(status=201, json={"id": 1, "tag_name": "v1.0.0", "draft": False}),
        alike=(RELEASE.but(headers=AGAIN),),
        different=(RELEASE.but(json={"tag_name": "v1.0.1"}),),
        refused=REFUSED,
        doubtful=DOUBTFUL,
        final=(
            Told(
                status=422,
                json={
                    "message": "Validation Failed",
                    "errors": [{"resource": "Release", "code": "already_exists", "field": "tag_name"}],
                },
            ),
        ),
    ),
    Case(
        rule="file",
        request=FILE,
        answer=Told(json={"content": {"name": "hello.txt"}, "commit": {"sha": "7638417db6d59f3c"}}),
        alike=(FILE.but(headers=AGAIN),),
        different=(
            FILE.but(path=f"{REPO}/contents/docs/notes/bye.txt"),
            FILE.but(json={"content": "b3RoZXI="}),
        ),
        refused=(
            *REFUSED,
            Told(status=409, json={"message": "is at 95b966ae but expected 7638417d"}),
        ),
        doubtful=DOUBTFUL,
        final=(Told(status=422, json={"message": 'Invalid request. "sha" wasn\'t supplied.'}),),
    ),
    Case(
        rule="branch",
        request=Asked(path=f"{REPO}/git/refs", json={"ref": "refs/heads/new", "sha": SHA}, headers=VERSIONED),
        answer=Told(status=201, json={"ref": "refs/heads/new", "object": {"sha": SHA}}),
        refused=REFUSED,
        final=(Told(status=422, json={"message": "Reference already exists"}),),
    ),
    Case(
        rule="workflow",
        request=Asked(
            path=f"{REPO}/actions/workflows/deploy.yml/dispatches",
            json={"ref": "main", "inputs": {"to": "production"}},
            headers=VERSIONED,
        ),
        answer=Told(status=204),
        different=(
            Asked(
                path=f"{REPO}/actions/workflows/deploy.yml/dispatches",
                json={"ref": "main", "inputs": {"to": "staging"}},
                headers=VERSIONED,
            ),
        ),
        refused=REFUSED,
        doubtful=DOUBTFUL,
    ),
    Case(
        rule="dispatch",
        request=Asked(path=f"{REPO}/dispatches", json={"event_type": "on-demand-test"}, headers=VERSIONED),
        answer=Told(status=204),
        refused=REFUSED,
    ),
    Case(
        rule="gist",
        request=Asked(path="/gists", json={"files": {"a.txt": {"content": "Hello"}}}, headers=VERSIONED),
        answer=Told(status=201, json={"id": "2decf6c462d9b4418f2"}),
        refused=REFUSED,
        final=(INVALID,),
    ),
    # Without a rule: labels, and reads.
    Case(
        rule=None,
        request=Asked(path=f"{REPO}/issues/1347/labels", json={"labels": ["bug"]}, headers=VERSIONED),
        answer=Told(json=[{"name": "bug"}]),
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path=f"{REPO}/issues?state=open", headers=VERSIONED),
        answer=Told(json=[]),
        safe=True,
    ),
]
