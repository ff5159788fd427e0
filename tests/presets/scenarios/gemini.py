"""Gemini API, as https://ai.google.dev/api/generate-content shows it."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

MODELS = "/v1beta/models"
GENERATE = Asked(
    path=f"{MODELS}/gemini-3-pro:generateContent",
    json={"contents": [{"parts": [{"text": "Today is 2026-11-17. How does AI work?"}]}]},
    headers={"x-goog-api-key": "AIza-first"},
)
ANSWER = Told(json={"candidates": [{"content": {"parts": [{"text": "In layers."}]}, "finishReason": "STOP"}]})
STREAM = Told(
    text='data: {"candidates": [{"content": {"parts": [{"text": "In layers."}]}}]}\r\n\r\n',
    headers={"Content-Type": "text/event-stream"},
)

CASES = [
    Case(
        rule="generate",
        request=GENERATE,
        answer=ANSWER,
        safe=True,
        arguments={"path.call": "gemini-3-pro:generateContent"},
        alike=(
            GENERATE.but(headers={"x-goog-api-key": "AIza-second"}),
            GENERATE.but(
                json={"contents": [{"parts": [{"text": "Today is 2026-11-18. How does AI work?"}]}]},
            ),
        ),
        different=(GENERATE.but(path=f"{MODELS}/gemini-3-flash:generateContent"),),
        refused=(Told(status=429, json={"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}),),
    ),
    Case(
        rule="generate",
        request=GENERATE.but(path=f"{MODELS}/gemini-3-pro:streamGenerateContent?alt=sse"),
        answer=STREAM,
        safe=True,
    ),
    # The key in the query: another one after the crash is the same question.
    Case(
        rule="generate",
        request=GENERATE.but(path=f"{GENERATE.path}?key=AIza-first"),
        answer=ANSWER,
        safe=True,
        alike=(GENERATE.but(path=f"{GENERATE.path}?key=AIza-second"),),
    ),
    Case(
        rule="count-or-embed",
        request=GENERATE.but(path=f"{MODELS}/gemini-3-pro:countTokens"),
        answer=Told(json={"totalTokens": 10}),
        safe=True,
    ),
    Case(
        rule="predict",
        request=Asked(path=f"{MODELS}/imagen-4:predict", json={"instances": [{"prompt": "A robot"}]}),
        answer=Told(json={"predictions": [{"bytesBase64Encoded": "AA=="}]}),
        safe=True,
    ),
    Case(
        rule="interaction",
        request=Asked(path="/v1beta/interactions", json={"model": "gemini-3-pro", "input": "Hello"}),
        answer=Told(json={"id": "v1_abc", "status": "completed"}),
        safe=True,
    ),
    # A job, and somebody's server that may act: with effects.
    Case(
        rule=None,
        request=GENERATE.but(
            json={
                "tools": [{"mcpServers": [{"name": "crm", "streamableHttpTransport": {"url": "https://a"}}]}]
            }
        ),
        answer=ANSWER,
    ),
    Case(
        rule="generate",
        request=GENERATE.but(json={"tools": [{"googleSearch": {}}]}),
        answer=ANSWER,
        safe=True,
    ),
    Case(
        rule=None,
        request=Asked(
            path="/v1beta/interactions", json={"agent": "deep-research", "input": "AI", "background": True}
        ),
        answer=Told(json={"id": "v1_abc", "status": "in_progress"}),
    ),
    Case(
        rule=None,
        request=Asked(
            path="/v1beta/interactions",
            json={
                "model": "gemini-3-pro",
                "input": "Hello",
                "tools": [{"type": "mcp_server", "url": "https://a"}],
            },
        ),
        answer=Told(json={"id": "v1_abc", "status": "completed"}),
    ),
    Case(
        rule=None,
        request=Asked(
            path=f"{MODELS}/gemini-3-pro:batchGenerateContent", json={"batch": {"display_name": "a"}}
        ),
        answer=Told(json={"name": "batches/123"}),
    ),
    Case(
        rule=None,
        request=Asked(path=f"{MODELS}/veo-3:predictLongRunning", json={"instances": [{"prompt": "A robot"}]}),
        answer=Told(json={"name": "operations/123"}),
    ),
    Case(
        rule="file-upload",
        request=Asked(path="/upload/v1beta/files?key=AIza-first", json={"file": {"display_name": "a"}}),
        answer=Told(json={"file": {"name": "files/123"}}),
        alike=(Asked(path="/upload/v1beta/files?key=AIza-second", json={"file": {"display_name": "a"}}),),
    ),
    Case(
        rule="cached-content",
        request=Asked(path="/v1beta/cachedContents", json={"model": "models/gemini-3-pro", "ttl": "300s"}),
        answer=Told(json={"name": "cachedContents/123"}),
    ),
]
