"""The shortest way through everything: one POST executed, then replayed; one upstream hit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inside import call, semel
from tests.origin import Origin, ReadBody, answer

pytestmark = pytest.mark.usefixtures("any_store")


async def test_second_identical_post_is_replayed(tmp_path: Path) -> None:
    """The same bytes come back, and the upstream is called once."""
    async with Origin([ReadBody(), answer(200, b'{"paid": true}')]) as origin:
        policy = f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy) as app:
            headers = {"Content-Type": "application/json"}
            first = await call(app.address.port, "POST", "/pay/charge", headers, b'{"usd": 1}')
            second = await call(app.address.port, "POST", "/pay/charge", headers, b'{ "usd": 1.0 }')
    assert (first.semel, second.semel) == ("executed", "replayed")
    assert first.body == second.body == b'{"paid": true}'
    assert origin.started == 1
