"""The page of metrics as Prometheus's own linter sees it."""

from __future__ import annotations

from pathlib import Path

from tests.dashboards.alerting import needs_promtool, promtool
from tests.inside import call, semel
from tests.origin import READ_ALL, Origin, Reset, answer


@needs_promtool
async def test_promtool_has_nothing_against_the_metrics(tmp_path: Path) -> None:
    """After calls executed, replayed, passed, refused and lost: names, units, help, no series twice."""
    fine = (*READ_ALL, answer(200, b"ok"))
    async with Origin(fine, fine, (*READ_ALL, Reset())) as origin:
        policy = (
            f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n"
            "rules: [{name: charge, match: {method: POST, path: '/charge/{id}'}, cost: {usd: 0.5}}]\n"
        )
        async with semel(tmp_path, policy, store="embedded") as app:
            port = app.address.port
            await call(port, "POST", "/pay/charge/1", {}, b"{}")
            await call(port, "POST", "/pay/charge/1", {}, b"{}")
            await call(port, "GET", "/pay/anything")
            await call(port, "POST", "/pay/charge/2", {}, b"{}")
            await call(port, "POST", "/nobody/x", {}, b"{}")
            page = (await call(port, "GET", "/metrics")).body
    for said in (
        b'status="executed"',
        b'status="replayed"',
        b'status="passed"',
        b'code="lost"',
        b"semel_saved",
    ):
        assert said in page
    told = promtool("check", "metrics", given=page)
    assert (told.returncode, told.stdout.decode()) == (0, "")
