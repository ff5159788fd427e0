"""Anthropic. Shapes as in https://platform.claude.com/docs/en/api/messages."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

BUSY = Told(
    status=429,
    json={"type": "error", "error": {"type": "rate_limit_error", "message": "…"}},
    headers={"retry-after": "1"},
)
OVERLOADED = Told(status=529, json={"type": "error", "error": {"type": "overloaded_error", "message": "…"}})
INVALID = Told(status=400, json={"type": "error", "error": {"type": "invalid_request_error", "message": "…"}})
SDK = {"anthropic-version": "2023-06-01", "x-stainless-retry-count": "0", "x-api-key": "sk-ant-1"}
OTHER_SDK = {"x-stainless-retry-count": "1", "x-api-key": "sk-ant-2", "user-agent": "Anthropic/JS"}


def prompt(text: str) -> dict[str, object]:
    return {
        "model": "claude-opus-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
    }


MESSAGE = Asked(path="/v1/messages", json=prompt("Now: 2026-11-16T10:00:00Z"), headers=SDK)
LATER = Asked(path="/v1/messages", json=prompt("Now: 2026-11-17T11:30:00Z"), headers=SDK).but(
    headers=OTHER_SDK
)
SAID = Told(
    json={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }
)


def mcp(token: str | None = None) -> dict[str, object]:
    secret = {} if token is None else {"authorization_token": token}
    return {"mcp_servers": [{"type": "url", "url": "https://mcp.crm.example", "name": "crm", **secret}]}


BATCH = Asked(
    path="/v1/messages/batches",
    json={"requests": [{"custom_id": "one", "params": prompt("Hello")}]},
    headers=SDK,
)
SESSION = Asked(path="/v1/sessions", json={"agent": "agent_1", "environment_id": "env_1"}, headers=SDK)


def repository(token: str) -> dict[str, object]:
    url = "https://github.com/acme/site"
    return {"resources": [{"type": "github_repository", "url": url, "authorization_token": token}]}


WORKING = SESSION.but(
    json={"initial_events": [{"type": "user.message", "content": []}], **repository("of Ann")}
)

CASES = [
    Case(
        rule="messages",
        request=MESSAGE,
        safe=True,
        answer=SAID,
        arguments={"body.model": "claude-opus-5"},
        alike=(LATER,),
        different=(
            MESSAGE.but(json={"max_tokens": 200}),
            MESSAGE.but(headers={"anthropic-version": "2026-01-01"}),
            MESSAGE.but(headers={"anthropic-beta": "files-api-2025-04-14"}),
            MESSAGE.but(headers={"anthropic-workspace-id": "wrkspc_1"}),
            MESSAGE.but(headers={"anthropic-user-profile-id": "uprof_1"}),
        ),
        refused=(BUSY, OVERLOADED, INVALID),
        cost=0.0075,
    ),
    Case(
        rule="messages-acting",
        request=MESSAGE.but(json=mcp("of Ann")),
        answer=SAID,
        alike=(MESSAGE.but(json=mcp("of Ann"), headers=OTHER_SDK),),
        different=(
            # In another one's name, or about another day.
            MESSAGE.but(json=mcp("of Bob")),
            MESSAGE.but(json=mcp()),
            LATER.but(json=mcp("of Ann")),
            MESSAGE.but(json={**mcp("of Ann"), "max_tokens": 200}),
            MESSAGE.but(json=mcp("of Ann"), headers={"anthropic-beta": "mcp-client-2025-11-20"}),
        ),
        refused=(BUSY,),
        doubtful=(OVERLOADED,),
        final=(INVALID,),
        cost=0.0075,
    ),
    Case(
        rule="count-tokens",
        request=MESSAGE.but(path="/v1/messages/count_tokens", json={"max_tokens": None}),
        safe=True,
        answer=Told(json={"input_tokens": 10}),
    ),
    Case(
        rule="complete",
        request=Asked(path="/v1/complete", json={"model": "claude-2", "prompt": "…"}, headers=SDK),
        safe=True,
        answer=Told(json={"type": "completion", "completion": "…", "stop_reason": "stop_sequence"}),
    ),
    Case(
        rule="batch",
        request=BATCH,
        answer=Told(json={"id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress"}),
        # By a newer SDK it is the same batch.
        alike=(BATCH.but(headers={"anthropic-version": "2026-01-01", "anthropic-beta": "new"}),),
        different=(BATCH.but(headers={"anthropic-workspace-id": "wrkspc_1"}),),
        refused=(BUSY,),
        doubtful=(OVERLOADED,),
        final=(INVALID,),
    ),
    Case(
        rule="batch-cancel",
        request=Asked(path="/v1/messages/batches/msgbatch_1/cancel", headers=SDK),
        answer=Told(json={"id": "msgbatch_1", "type": "message_batch", "processing_status": "canceling"}),
        arguments={"path.batch": "msgbatch_1"},
    ),
    Case(
        rule="file-upload",
        request=Asked(
            path="/v1/files",
            text='--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--b--\r\n',
            headers={**SDK, "Content-Type": "multipart/form-data; boundary=b"},
        ),
        answer=Told(json={"id": "file_1", "type": "file", "filename": "a"}),
    ),
    # Each user's own, although nothing in the request says whose.
    Case(
        rule="session",
        request=SESSION,
        safe=True,
        answer=Told(json={"id": "sesn_1", "type": "session", "status": "idle"}),
        different=(SESSION.but(json={"agent": "agent_2"}),),
        refused=(BUSY,),
    ),
    # It begins to work at once, as whoever the token is of.
    Case(
        rule="session-acting",
        request=WORKING,
        answer=Told(json={"id": "sesn_1", "type": "session", "status": "running"}),
        alike=(WORKING.but(headers=OTHER_SDK),),
        different=(WORKING.but(json=repository("of Bob")),),
        doubtful=(OVERLOADED,),
    ),
    Case(
        rule="enrollment-url",
        request=Asked(path="/v1/user_profiles/uprof_1/enrollment_url", headers=SDK),
        answer=Told(json={"type": "enrollment_url", "url": "https://x.example/e", "expires_at": "…"}),
        recorded=False,
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path="/v1/messages/batches/msgbatch_1", headers=SDK),
        safe=True,
        answer=Told(json={"id": "msgbatch_1", "type": "message_batch", "processing_status": "ended"}),
    ),
]
