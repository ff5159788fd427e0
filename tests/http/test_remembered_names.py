"""Names remembered for requests that come again: what differs in any byte is another request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, answer

pytestmark = pytest.mark.usefixtures("some_store")

POLICY = """upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: narrow, match: {{path: /narrow}}, key: {{include: [a]}}}}
"""
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("turned", [False, True], ids=["as they stand", "the other first"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("POST", "/up/x", b"{}"), ("POST", "/up/x?None", b"{}")),
        (("POST", "/up/x", b"{}"), ("POST", "/up/x?", b"{}")),
        (("POST", "/up/x?a", b"{}"), ("POST", "/up/x", b"a{}")),
        (("POST", "/up/x", b"{}"), ("PUT", "/up/x", b"{}")),
        (("POST", "/up/x y".replace(" ", "%20"), b"{}"), ("POST", "/up/x", b"{}")),
    ],
)
async def test_requests_that_differ_are_not_taken_for_one(
    tmp_path: Path, first: tuple[str, str, bytes], second: tuple[str, str, bytes], turned: bool
) -> None:
    """Both orders, since either may be remembered first. An empty query names the same call as none."""
    pair = (second, first) if turned else (first, second)
    async with (
        Origin((*READ_ALL, answer(200, b"one")), (*READ_ALL, answer(200, b"two"))) as origin,
        semel(tmp_path, POLICY.format(port=origin.port)) as app,
    ):
        got = [await call(app.address.port, method, path, JSON, body) for method, path, body in pair]
    same_call = second[1].endswith("?")
    assert [reply.semel for reply in got] == ["executed", "replayed" if same_call else "executed"]
    assert origin.started == (1 if same_call else 2)


async def test_a_reload_forgets_the_names(tmp_path: Path) -> None:
    """The rule that named the call is another one now; so is the call."""
    async with (
        Origin((*READ_ALL, answer(200, b"one"))) as origin,
        semel(tmp_path, POLICY.format(port=origin.port)) as app,
    ):
        port = app.address.port
        assert (await call(port, "POST", "/up/narrow", JSON, b'{"a": 1, "b": 1}')).semel == "executed"
        assert (await call(port, "POST", "/up/narrow", JSON, b'{"a": 1, "b": 2}')).semel == "replayed"
        text = POLICY.format(port=origin.port).replace("include: [a]", "include: [b]")
        (tmp_path / "policies" / "test.yaml").write_text(text)
        assert await app.watch.check_now()
        assert (await call(port, "POST", "/up/narrow", JSON, b'{"a": 1, "b": 2}')).semel == "executed"
