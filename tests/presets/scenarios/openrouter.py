"""OpenRouter, as https://openrouter.ai/docs/use-cases/usage-accounting shows it."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

CHAT = Asked(
    path="/v1/chat/completions",
    json={"model": "openai/gpt-5", "messages": [{"role": "user", "content": "Say hello"}]},
    headers={"HTTP-Referer": "https://example.com", "X-Title": "An agent"},
)
USAGE = {"prompt_tokens": 194, "completion_tokens": 2, "total_tokens": 196, "cost": 0.00095}

CASES = [
    Case(
        rule="chat",
        request=CHAT,
        answer=Told(json={"id": "gen-1", "choices": [{"message": {"content": "Hello"}}], "usage": USAGE}),
        safe=True,
        alike=(CHAT.but(headers={"X-Title": "The same agent"}),),
        different=(CHAT.but(json={"model": "anthropic/claude-opus-5"}),),
        refused=(
            Told(json={"error": {"code": 502, "message": "Provider returned error"}}),
            Told(status=402, json={"error": {"code": 402, "message": "Insufficient credits"}}),
        ),
        cost=0.00095,
    ),
    Case(
        rule="responses",
        request=Asked(path="/v1/responses", json={"model": "openai/gpt-5", "input": "Say hello"}),
        answer=Told(json={"id": "gen-2", "output": [], "usage": USAGE, "error": None}),
        safe=True,
        cost=0.00095,
    ),
    Case(
        rule=None,
        request=Asked(
            path="/v1/responses",
            json={
                "model": "openai/gpt-5",
                "input": "Say hello",
                "tools": [{"type": "mcp", "server_url": "https://a"}],
            },
        ),
        answer=Told(json={"id": "gen-3", "output": []}),
    ),
    Case(
        rule="embeddings",
        request=Asked(
            path="/v1/embeddings", json={"model": "openai/text-embedding-3-small", "input": "Hello"}
        ),
        answer=Told(json={"data": [{"embedding": [0.1]}], "usage": {"total_tokens": 1, "cost": 0.00002}}),
        safe=True,
        cost=0.00002,
    ),
]
