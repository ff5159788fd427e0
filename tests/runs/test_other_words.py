"""Names that leave dates out, on the wire: within one attempt two days are two questions."""

from __future__ import annotations

from pathlib import Path

from tests.inside import Answer, call, semel
from tests.origin import READ_ALL, Origin, answer

POLICY = """upstream: model
base_url: http://127.0.0.1:PORT
rules:
  - name: chat
    match: {method: POST, path: /chat}
    safe: true
    key: {normalize: [timestamps]}
"""


async def test_what_a_client_retries_is_what_it_said(tmp_path: Path) -> None:
    """An SDK says that it retries; the question about another day is not what it tried before. After a crash
    the same prompt with another "now" meets its answer."""
    async with Origin(*((*READ_ALL, answer(200, b"answer %d" % n)) for n in (1, 2))) as origin:
        policy = POLICY.replace("PORT", str(origin.port))
        async with semel(tmp_path, policy) as app:

            async def ask(day: str, attempt: str, *retry: tuple[str, str]) -> Answer:
                return await call(
                    app.address.port,
                    "POST",
                    f"/@night+{attempt}/model/chat",
                    headers={"Content-Type": "application/json", **dict(retry)},
                    body=b'{"prompt": "the report for %b"}' % day.encode(),
                )

            retries = ("x-stainless-retry-count", "1")
            told = [
                await ask("2026-11-18", "one"),
                await ask("2026-11-19", "one", retries),
                await ask("2026-11-18", "one", retries),
                await ask("2026-11-20", "two"),
            ]
    assert [(one.semel, one.body) for one in told] == [
        ("executed", b"answer 1"),
        ("executed", b"answer 2"),
        ("replayed", b"answer 1"),
        ("replayed", b"answer 1"),
    ]
