"""The example of docs/local-tools.md in TypeScript, as Node runs it against a real semel."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import playwright
import pytest
import pytest_asyncio

from tests.cli.test_run_process import clean_environment
from tests.docs.pages import ROOT, blocks
from tests.inside import until
from tests.process import SemelProcess
from tests.relay import Relay
from tests.tools.workers import HASTY, PATIENT, Worker

PAGE = ROOT / "docs" / "local-tools.md"
EXAMPLE = ROOT / "docs" / "local-tools.ts"
WITHIN = 60.0
BEATS = {"owners.heartbeat": "50ms"}
# What an agent does: one call whose function counts itself, and says how it ended. With a gate: it is open
# when that file is there.
AGENT = """\
import { appendFileSync, existsSync } from "node:fs";
import { once } from "./local-tools.mjs";

const [effects, fails] = process.argv.slice(2);
try {
  const result = await once("pay", { usd: 5 }, async () => {
    appendFileSync(effects, "pay\\n");
    const gate = process.env.GATE;
    while (gate && !existsSync(gate)) await new Promise((done) => setTimeout(done, 10));
    if (fails) throw new RangeError("no money");
    return { paid: 5, pid: process.pid };
  });
  console.log(JSON.stringify({ result }));
} catch (error) {
  console.log(JSON.stringify({ name: error.name, message: error.message }));
}
"""
STRIP = """\
const { readFileSync } = require("node:fs");
const { stripTypeScriptTypes } = require("node:module");
process.stdout.write(stripTypeScriptTypes(readFileSync(process.argv[1], "utf8")));
"""


def nodes() -> list[str]:
    """Debian's reads no types; the one that Playwright brings along does."""
    of_playwright = Path(playwright.__file__).parent / "driver" / "node"
    return [node for node in (shutil.which("node"), shutil.which(of_playwright)) if node]


@cache
def stripped() -> str:
    """The example without its types: as JavaScript that every Node reads."""
    for node in nodes():
        words = [node, "--disable-warning=ExperimentalWarning", "-e", STRIP, str(EXAMPLE)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN, check=False)
        if ran.returncode == 0:
            return ran.stdout
    pytest.skip("no Node is installed that can strip types (22.13 and later can)")


def process(at: Path, lease: Mapping[str, str]) -> SemelProcess:
    policy = at / "other.yaml"
    policy.write_text("upstream: other\nbase_url: http://127.0.0.1:9\n")
    env = {f"SEMEL_{name.replace('.', '_').upper()}": value for name, value in lease.items()}
    return SemelProcess(at / "state", policy, env=env)


@pytest_asyncio.fixture
async def semel(tmp_path: Path) -> AsyncIterator[SemelProcess]:
    async with process(tmp_path, PATIENT) as running:
        yield running


async def agent(at: Path, port: int, *, run: str = "", fails: bool = False, gate: str = "") -> dict[str, Any]:
    """What one start of it came to. `run`: as the address has it."""
    (at / "local-tools.mjs").write_text(stripped())
    (at / "agent.mjs").write_text(AGENT)
    url, in_run = f"http://127.0.0.1:{port}", {"SEMEL_RUN": run.partition("+")[0]} if run else {}
    process = await asyncio.create_subprocess_exec(
        nodes()[0],
        str(at / "agent.mjs"),
        str(at / "effects"),
        *(["fails"] if fails else []),
        env=clean_environment(SEMEL_URL=f"{url}/@{run}" if run else url, GATE=gate, **in_run),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WITHIN):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.kill(process.pid, 9)
            await process.wait()
    told: dict[str, Any] = json.loads(out)
    return told


def runs(at: Path) -> int:
    return len((at / "effects").read_text().splitlines())


def test_the_page_shows_the_file() -> None:
    """Whoever copies from the page has what is run here."""
    (shown,) = blocks(PAGE, "ts")
    assert shown.text == EXAMPLE.read_text()


@pytest.mark.parametrize("run", ["", "night+"])
async def test_it_runs_once_and_is_given_again(tmp_path: Path, semel: SemelProcess, run: str) -> None:
    """The second start has the first one's result, and so has whoever speaks the protocol by hand."""
    first, second = [await agent(tmp_path, semel.port, run=run and f"{run}a{n}") for n in (1, 2)]
    assert first["result"]["paid"] == 5
    assert second == first
    assert runs(tmp_path) == 1
    by_hand = Worker(semel.port, run.removesuffix("+"), "a3")
    assert (await by_hand.begin()).document == first


async def test_what_it_threw_is_thrown_again(tmp_path: Path, semel: SemelProcess) -> None:
    """By its name and message; the function is not run to see."""
    first, second = [await agent(tmp_path, semel.port, fails=fails) for fails in (True, False)]
    assert first == {"name": "RangeError", "message": "no money"}
    assert second == first
    assert runs(tmp_path) == 1


async def test_what_another_does_is_not_run(tmp_path: Path, semel: SemelProcess) -> None:
    """In somebody else's hands: it waits, and has that one's result."""
    other = Worker(semel.port)
    handed = await other.begin()
    async with Relay(semel.port) as relay:
        waiting = asyncio.create_task(agent(tmp_path, relay.port))
        await until(lambda: relay.seen_up, within=WITHIN)
        await other.complete(handed, "by another")
        assert await waiting == {"result": "by another"}
    assert not (tmp_path / "effects").exists()


async def test_what_is_in_doubt_is_not_run(tmp_path: Path) -> None:
    """Whoever had it in hand fell silent: it says so, and does nothing."""
    async with process(tmp_path, HASTY) as semel:
        await Worker(semel.port).begin()
        told = await agent(tmp_path, semel.port)
    assert told["message"].startswith("urn:semel:in-doubt: ")
    assert not (tmp_path / "effects").exists()


async def test_while_it_runs_it_gives_signs_of_life(tmp_path: Path) -> None:
    """Again and again, for as long as the function takes."""
    gate = tmp_path / "gate"
    async with process(tmp_path, PATIENT | BEATS) as semel, Relay(semel.port) as relay:
        running = asyncio.create_task(agent(tmp_path, relay.port, gate=str(gate)))
        await until((tmp_path / "effects").exists, within=WITHIN)
        for _ in range(3):
            so_far = relay.seen_up
            await until(lambda before=so_far: relay.seen_up > before, within=WITHIN)  # type: ignore[misc]
        gate.touch()
        assert (await running)["result"]["paid"] == 5
    assert runs(tmp_path) == 1
