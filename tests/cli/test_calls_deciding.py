"""`semel calls approve`, `deny`, `probe`: the commands that `show` prints, over the store or the proxy."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.app import App
from tests.cli.command import semel as command
from tests.crash.bank import Bank, Fault
from tests.http.test_approval import AGENT, OPERATOR, TOKENS
from tests.inside import Answer, call, semel

POLICY = """\
upstream: bank
base_url: http://127.0.0.1:{port}
timeout: {{connect: 1s, idle: 300ms, total: 1s}}
rules:
  - name: pay
    match: {{method: POST, path: /d}}
    key: {{include: [order]}}
    approval: {{wait: 0ms}}
  - name: mail
    match: {{method: POST, path: /c}}
    probe: {{request: {{path: "/c?ref={{body.ref}}"}}, found: "length(items) > `0`", settle: 0s}}
  - name: keyed
    match: {{method: POST, path: /b}}
    upstream_key: {{header: Idempotency-Key}}
"""


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[Bank, App]]:
    async with Bank() as bank, semel(tmp_path, POLICY.format(port=bank.port), tokens=TOKENS) as app:
        yield bank, app


async def make(app: App, path: str, **body: object) -> Answer:
    headers = {"Content-Type": "application/json", "Semel-Token": AGENT}
    return await call(app.address.port, "POST", f"/bank{path}", headers, json.dumps(body).encode())


def place(way: str, app: App, tmp_path: Path) -> list[str]:
    if way == "store":
        return ["--state-dir", str(tmp_path / "state")]
    return ["--proxy", f"http://127.0.0.1:{app.address.port}"]


@pytest.mark.parametrize("way", ["store", "proxy"])
@pytest.mark.parametrize(("how", "then"), [("approve", "executed"), ("deny", "refused")])
async def test_what_show_prints_decides(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    how: str,
    then: str,
) -> None:
    """It shows all that is permitted, and the command to paste; then the call goes its way."""
    monkeypatch.setenv("SEMEL_TOKEN", OPERATOR)
    async with world(tmp_path) as (bank, app):
        held = json.loads((await make(app, "/d", order=1, usd=500, ref="r")).body)["call"]
        there = place(way, app, tmp_path)
        shown = await asyncio.to_thread(command, capsys, "calls", "show", held, *there)
        assert '"usd": 500' in shown.out
        assert "A person has to permit it" in shown.out
        (printed,) = re.findall(rf"(?m)^ +semel (calls {how} .*)$", shown.out)
        decided = await asyncio.to_thread(command, capsys, *shlex.split(printed.replace("…", "seen")))
        assert decided.status == 0, decided.err
        again = await asyncio.to_thread(command, capsys, *shlex.split(printed.replace("…", "seen")))
        assert again.status == 1
        assert "has changed" in again.err
        assert (await make(app, "/d", order=1, usd=500, ref="r")).semel == then
        assert len(bank.acts) == (then == "executed")


async def test_a_probe_needs_the_proxy_and_says_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: done. Not settled: status 1, why, and a line in the history. Beside the proxy: what to do."""
    monkeypatch.setenv("SEMEL_TOKEN", OPERATOR)
    async with world(tmp_path) as (bank, app):
        bank.faults.extend((Fault.RESET_AFTER, Fault.RESET_BEFORE))
        found = json.loads((await make(app, "/c", ref="there")).body)["call"]
        absent = json.loads((await make(app, "/c", ref="not there")).body)["call"]
        beside = await asyncio.to_thread(
            command, capsys, "calls", "probe", found, "--reason", "r", *place("store", app, tmp_path)
        )
        assert beside.status == 1
        assert "--proxy" in beside.err
        there = place("proxy", app, tmp_path)
        shown = await asyncio.to_thread(command, capsys, "calls", "show", found, *there)
        assert "semel asks the upstream first" in shown.out
        (printed,) = re.findall(r"(?m)^ +semel (calls probe .*)$", shown.out)
        done = await asyncio.to_thread(command, capsys, *shlex.split(printed.replace("…", "back again")))
        assert done.status == 0
        assert re.search(r"(?m)^state: +done$", done.out)
        assert "a probe found it (200): back again" in done.out
        still = await asyncio.to_thread(
            command, capsys, "calls", "probe", absent, "--reason", "looked", *there
        )
        assert still.status == 1
        assert "counts only in" in still.err
        history = await asyncio.to_thread(command, capsys, "calls", "show", absent, *there)
        assert re.search(r"probed .*operator:api:acme", history.out)
        assert (await make(app, "/c", ref="there")).semel == "replayed"


async def test_a_call_with_a_key_says_what_happens_when_it_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And `explain` says the same."""
    monkeypatch.setattr("proxy.carrying.RESEND_PAUSES", ())
    monkeypatch.setenv("SEMEL_TOKEN", OPERATOR)
    async with world(tmp_path) as (bank, app):
        bank.faults.append(Fault.RESET_AFTER)
        held = json.loads((await make(app, "/b", ref="x")).body)["call"]
        there = place("proxy", app, tmp_path)
        shown = await asyncio.to_thread(command, capsys, "calls", "show", held, *there)
        assert "sends it again under its upstream key" in shown.out
        probed = await asyncio.to_thread(command, capsys, "calls", "probe", held, "--reason", "r", *there)
        assert (probed.status, "have no probe" in probed.err) == (1, True)
        assert (await make(app, "/b", ref="x")).semel == "executed"
        assert len(bank.acts) == 1
