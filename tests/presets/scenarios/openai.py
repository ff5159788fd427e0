"""OpenAI. Shapes as in https://developers.openai.com/api/reference."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

ERROR = {"error": {"message": "…", "type": "invalid_request_error", "param": None, "code": None}}
BUSY = Told(
    status=429,
    json={
        "error": {"message": "Rate limit reached", "type": "requests", "param": None, "code": "rate_limit"}
    },
    headers={"Retry-After": "1"},
)
SDK = {"X-Stainless-Retry-Count": "0", "X-Stainless-Lang": "python", "User-Agent": "OpenAI/Python 3.49.0"}
OTHER_SDK = {"X-Stainless-Retry-Count": "1", "X-Stainless-Lang": "js", "User-Agent": "OpenAI/JS 6.0.0"}
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def chat(text: str) -> dict[str, object]:
    return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}]}


def asked(path: str, json: object, **headers: str) -> Asked:
    return Asked(path=path, json=json, headers={**SDK, **headers})


CHAT = asked("/v1/chat/completions", chat("It is 2026-11-16. Hello."))
RESPONSE = asked("/v1/responses", {"model": "gpt-4o-mini", "input": "Hello"})
RESPONDED = Told(
    json={
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-4o-mini",
        "output": [{"type": "message", "role": "assistant", "content": []}],
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }
)


def mcp(**more: object) -> dict[str, object]:
    crm = {"type": "mcp", "server_label": "crm", "server_url": "https://mcp.crm.example"}
    return {"tools": [{**crm, **more}]}


OF_ANN = RESPONSE.but(json=mcp(authorization="of Ann", headers={"X-Key": "of Ann"}))
AUTO = {"type": "auto"}
ALLOWED = {
    "type": "allowlist",
    "allowed_domains": ["crm.example"],
    "domain_secrets": [{"domain": "crm.example", "name": "KEY", "value": "secret"}],
}


def made(kind: str, **more: object) -> Told:
    return Told(json={"id": f"{kind}_1", "object": kind, **more})


CASES = [
    Case(
        rule="chat",
        request=CHAT,
        safe=True,
        answer=made("chat.completion", model="gpt-4o-mini", choices=[], usage=USAGE),
        arguments={"body.model": "gpt-4o-mini"},
        alike=(asked("/v1/chat/completions", chat("It is 2026-11-17. Hello."), **OTHER_SDK),),
        different=(
            CHAT.but(json={"stream": True}),
            CHAT.but(json={"model": "gpt-4o"}),
            CHAT.but(headers={"OpenAI-Project": "proj_1"}),
            CHAT.but(headers={"OpenAI-Organization": "org-1"}),
        ),
        refused=(BUSY, Told(status=400, json=ERROR)),
        cost=0.00021,
    ),
    Case(
        rule="completions",
        request=asked("/v1/completions", {"model": "gpt-4o-mini", "prompt": "Hello"}),
        safe=True,
        answer=made("text_completion", model="gpt-4o-mini", choices=[], usage=USAGE),
        cost=0.00021,
    ),
    Case(
        rule="responses",
        request=RESPONSE,
        safe=True,
        answer=RESPONDED,
        alike=(RESPONSE.but(headers=OTHER_SDK), RESPONSE.but(headers={"Idempotency-Key": "minted"})),
        different=(
            RESPONSE.but(json={"input": "Bye"}),
            RESPONSE.but(json={"tools": [{"type": "web_search"}]}),
        ),
        refused=(Told(json={"id": "resp_1", "status": "failed", "error": {"code": "server_error"}}),),
        cost=0.00021,
    ),
    # Tools that only read, or that the client itself runs.
    *(
        Case(
            rule="responses",
            request=RESPONSE.but(json={"tools": [tool]}),
            safe=True,
            answer=RESPONDED,
            cost=0.00021,
        )
        for tool in (
            {"type": "function", "name": "pay", "parameters": {}},
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
            {"type": "shell", "environment": {"type": "local"}},
            {"type": "code_interpreter", "container": AUTO},
            {"type": "code_interpreter", "container": {**AUTO, "network_policy": {"type": "disabled"}}},
        )
    ),
    Case(
        rule="responses",
        request=RESPONSE.but(json={"input": [{"role": "user", "content": "Hello"}], "tools": []}),
        safe=True,
        answer=RESPONDED,
        cost=0.00021,
    ),
    # In somebody's name: with another one's token it is another request, whatever the words are.
    Case(
        rule="responses-acting",
        request=OF_ANN,
        answer=RESPONDED,
        alike=(OF_ANN.but(headers=OTHER_SDK),),
        different=(
            RESPONSE.but(json=mcp(authorization="of Bob", headers={"X-Key": "of Ann"})),
            RESPONSE.but(json=mcp(authorization="of Ann", headers={"X-Key": "of Bob"})),
            RESPONSE.but(json=mcp(server_url="https://mcp.erp.example")),
        ),
        cost=0.00021,
    ),
    # Two orders that differ in the day alone are two.
    Case(
        rule="responses-acting",
        request=RESPONSE.but(json={**mcp(), "input": "Book 2026-11-18"}),
        answer=RESPONDED,
        different=(RESPONSE.but(json={**mcp(), "input": "Book 2026-11-19"}),),
        cost=0.00021,
    ),
    *(
        Case(
            rule="responses-acting",
            request=RESPONSE.but(json=acting),
            answer=RESPONDED,
            alike=(RESPONSE.but(json=acting, headers=OTHER_SDK),),
            different=(RESPONSE.but(json={**acting, "input": "Bye"}),),
            final=(Told(status=400, json=ERROR),),
            cost=0.00021,
        )
        for acting in (
            {"background": True},
            {"conversation": "conv_1"},
            {"prompt": {"id": "pmpt_1"}},
            mcp(),
            {"tools": [{"type": "web_search"}, {"type": "not_known_yet"}]},
            {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
            {
                "tools": [
                    {"type": "shell", "environment": {"type": "container_auto", "network_policy": ALLOWED}}
                ]
            },
            {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
            {"tools": [{"type": "code_interpreter", "container": {**AUTO, "network_policy": ALLOWED}}]},
        )
    ),
    Case(
        rule="responses-acting",
        request=RESPONSE.but(json={"input": [{"type": "additional_tools", "tools": []}]}),
        answer=RESPONDED,
        cost=0.00021,
    ),
    # Two readers could see two things in it: nobody may say that repeating does no harm.
    Case(
        rule="responses-acting",
        request=Asked(
            path="/v1/responses",
            text='{"model": "gpt-4o-mini", "input": "Hello", "background": true, "background": false}',
            headers={**SDK, "Content-Type": "application/json"},
        ),
        answer=RESPONDED,
        cost=0.00021,
    ),
    Case(
        rule="compact",
        request=asked("/v1/responses/compact", {"model": "gpt-4o-mini", "input": []}),
        safe=True,
        answer=made("response.compaction", output=[]),
    ),
    Case(
        rule="count-tokens",
        request=asked("/v1/responses/input_tokens", {"model": "gpt-4o-mini", "input": "Hello"}),
        safe=True,
        answer=Told(json={"object": "response.input_tokens", "input_tokens": 1}),
    ),
    Case(
        rule="embeddings",
        request=asked("/v1/embeddings", {"model": "text-embedding-3-small", "input": "2026-11-16"}),
        safe=True,
        answer=made("list", model="text-embedding-3-small", data=[], usage={"prompt_tokens": 1000}),
        different=(asked("/v1/embeddings", {"model": "text-embedding-3-small", "input": "2026-11-17"}),),
        cost=0.00002,
    ),
    Case(
        rule="moderations",
        request=asked("/v1/moderations", {"input": "Hello"}),
        safe=True,
        answer=made("moderation", results=[]),
    ),
    Case(
        rule="batch",
        request=asked("/v1/batches", {"input_file_id": "file-1", "endpoint": "/v1/responses"}),
        answer=made("batch", status="validating"),
        refused=(BUSY,),
        final=(Told(status=400, json=ERROR),),
    ),
    Case(
        rule="file-upload",
        request=Asked(
            path="/v1/files",
            text='--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n',
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        ),
        answer=made("file", purpose="batch"),
        alike=(
            Asked(
                path="/v1/files",
                text='--c\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--c--\r\n',
                headers={"Content-Type": "multipart/form-data; boundary=c"},
            ),
        ),
    ),
    Case(
        rule="fine-tuning",
        request=asked("/v1/fine_tuning/jobs", {"model": "gpt-4.1-mini", "training_file": "file-1"}),
        answer=made("fine_tuning.job", status="queued"),
    ),
    Case(
        rule="thread-run",
        request=asked("/v1/threads/thread_1/runs", {"assistant_id": "asst_1"}),
        answer=made("thread.run", status="queued"),
        arguments={"path.thread": "thread_1"},
        kept=60,
    ),
    # Each user's own, although nothing in the request says whose.
    *(
        Case(rule=rule, request=asked(path, body), safe=True, answer=made(kind), refused=(BUSY,))
        for rule, path, kind, body in (
            ("conversation", "/v1/conversations", "conversation", {}),
            ("conversation", "/v1/conversations", "conversation", {"items": []}),
            ("thread", "/v1/threads", "thread", {}),
            ("vector-store", "/v1/vector_stores", "vector_store", {}),
            ("vector-store", "/v1/vector_stores", "vector_store", {"name": "docs", "file_ids": []}),
        )
    ),
    # With files in it, indexing begins, and is charged for what is kept.
    Case(
        rule=None,
        request=asked("/v1/vector_stores", {"file_ids": ["file-1"]}),
        answer=made("vector_store"),
    ),
    Case(
        rule="vector-search",
        request=asked("/v1/vector_stores/vs_1/search", {"query": "What is the return policy?"}),
        safe=True,
        answer=made("vector_store.search_results.page", data=[]),
        arguments={"path.store": "vs_1"},
        different=(asked("/v1/vector_stores/vs_2/search", {"query": "What is the return policy?"}),),
    ),
    # Secrets that are handed to a browser.
    *(
        Case(rule=rule, request=asked(path, {}), answer=made("secret"), recorded=False)
        for rule, path in (
            ("realtime-secret", "/v1/realtime/client_secrets"),
            ("realtime-secret", "/v1/realtime/sessions"),
            ("realtime-secret", "/v1/realtime/transcription_sessions"),
            ("translation-secret", "/v1/realtime/translations/client_secrets"),
            ("chatkit-session", "/v1/chatkit/sessions"),
        )
    ),
    Case(rule=None, request=asked("/v1/realtime/calls", {}), answer=made("call")),
    Case(rule=None, request=asked("/v1/images/generations", {"prompt": "a cat"}), answer=made("image")),
    Case(
        rule=None, request=Asked(method="GET", path="/v1/models", headers=SDK), safe=True, answer=made("list")
    ),
]
