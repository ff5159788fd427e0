"""Policies that change under a running process: by signal at once, by polling soon, never for the worse."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.inside import call, until
from tests.origin import READ_ALL, Origin, Wait, answer
from tests.process import SemelProcess

pytestmark = pytest.mark.usefixtures("some_store")


def policy(name: str, origin: Origin, rules: str = "[]") -> str:
    return f"upstream: {name}\nbase_url: http://127.0.0.1:{origin.port}\nrules: {rules}\n"


async def told(process: SemelProcess, event: str, number: int = 1) -> dict[str, object]:
    """The number-th line of this name."""

    def found() -> list[dict[str, object]]:
        lines = [json.loads(line) for line in process.log.splitlines()]
        return [line for line in lines if line["event"] == event]

    await until(lambda: len(found()) >= number)
    return found()[number - 1]


async def figure(process: SemelProcess, name: str) -> float | None:
    """As /metrics has it, None if it does not."""
    page = (await call(process.port, "GET", "/metrics")).body.decode()
    found = [line.rpartition(" ") for line in page.splitlines() if line.rpartition(" ")[0] == name]
    return float(found[0][2]) if found else None


async def reloads(process: SemelProcess, result: str) -> float | None:
    return await figure(process, f'semel_policy_reloads_total{{result="{result}"}}')


async def test_a_signal_loads_good_files_and_keeps_the_old_ones_before_bad_ones(tmp_path: Path) -> None:
    """SIGHUP: a new upstream appears, a broken file is named by line and column, calls go on meanwhile."""
    directory = tmp_path / "policies"
    directory.mkdir()
    async with (
        Origin((*READ_ALL, answer(200, b"one"))) as one,
        Origin((*READ_ALL, answer(200, b"two"))) as two,
    ):
        (directory / "one.yaml").write_text(policy("one", one))
        async with SemelProcess(tmp_path / "state", directory, env={"SEMEL_RELOAD": "false"}) as process:
            assert (await call(process.port, "POST", "/two/x", {}, b"{}")).status == 404
            (directory / "two.yaml").write_text(policy("two", two))
            process.send(signal.SIGHUP)
            await told(process, "policies-reloaded")
            assert (await call(process.port, "POST", "/two/x", {}, b"{}")).body == b"two"

            (directory / "two.yaml").write_text(policy("two", two) + "retries: 3\n")
            process.send(signal.SIGHUP)
            kept = await told(process, "policies-kept")
            assert "two.yaml:4:1:" in str(kept["detail"])
            assert "retries" in str(kept["detail"])
            assert await figure(process, "semel_policies_outdated") == 1
            assert (await call(process.port, "POST", "/two/y", {}, b"{}")).body == b"two"
            assert (await call(process.port, "POST", "/one/y", {}, b"{}")).body == b"one"

            (directory / "two.yaml").write_text(
                policy("two", two, "[{name: no, match: {path: /z}, mode: deny}]")
            )
            process.send(signal.SIGHUP)
            await told(process, "policies-reloaded", 2)
            new = 'semel_calls_total{mode="deny",rule="no",status="refused",upstream="two"}'
            assert await figure(process, new) == 0, "a new rule is shown before it is met"
            assert (await call(process.port, "POST", "/two/z", {}, b"{}")).status == 403
            assert await figure(process, new) == 1
            assert (await reloads(process, "good"), await reloads(process, "bad")) == (2, 1)
            assert await figure(process, "semel_policies_outdated") == 0
            assert process.alive


async def test_polling_finds_a_change_by_itself(tmp_path: Path) -> None:
    """No signal: within a few seconds a good file is in place, and a bad one is told of and left out."""
    file = tmp_path / "up.yaml"
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin:
        file.write_text(policy("up", origin))
        async with SemelProcess(tmp_path / "state", file) as process:
            file.write_text(policy("up", origin, "[{name: no, match: {path: /x}, mode: deny}]"))
            await told(process, "policies-reloaded")
            assert (await call(process.port, "POST", "/up/x", {}, b"{}")).status == 403
            file.write_text("upstream: [")
            await told(process, "policies-kept")
            assert (await call(process.port, "POST", "/up/x", {}, b"{}")).status == 403
            assert origin.started == 0


async def test_a_reload_in_the_middle_of_a_call_changes_nothing_for_it(tmp_path: Path) -> None:
    """A call keeps the rule it began with; the record it leaves is replayed under the new policies."""
    file = tmp_path / "up.yaml"
    release = asyncio.Event()
    async with Origin((*READ_ALL, Wait(release), answer(200, b"ok"))) as origin:
        file.write_text(policy("up", origin))
        async with SemelProcess(tmp_path / "state", file) as process:
            flying = asyncio.create_task(call(process.port, "POST", "/up/x", {}, b"{}"))
            await until(lambda: origin.started)
            file.write_text(policy("up", origin, "[{name: new, match: {path: /x}, wait: 5s}]"))
            process.send(signal.SIGHUP)
            await told(process, "policies-reloaded")
            release.set()
            assert (await flying).semel == "executed"
            again = await call(process.port, "POST", "/up/x", {}, b"{}")
            assert (again.semel, again.body) == ("replayed", b"ok")
            assert origin.started == 1
