"""`semel runs`: looked at, compared, forked, allowed and exported, over the store and through the proxy."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from proxy.cli import runs_export
from proxy.cli.runs import SCHEMA
from proxy.errors import StoreUnavailable
from tests.admin.run_scene import POLICY, TWO_ATTEMPTS, charge, run_scene, two_attempts
from tests.admin.scene import FINE, Scene, problem
from tests.cli.command import Ran, semel
from tests.inside import call
from tests.origin import Origin
from tests.process import SemelProcess

WAYS = ("store", "proxy")
WHY = ("--reason", "said so")


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


class Runs:
    """`semel runs …` on a scene, one way or the other, while its proxy runs."""

    def __init__(self, world: Scene, capsys: pytest.CaptureFixture[str], tmp_path: Path, way: str) -> None:
        self._capsys = capsys
        self.place = ["--state-dir", str(tmp_path / "state")] if way == "store" else ["--proxy", world.url]

    async def __call__(self, *arguments: object) -> Ran:
        """In a thread: the proxy lives in this one's loop."""
        return await asyncio.to_thread(semel, self._capsys, "runs", *arguments, *self.place)


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_is_listed_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """As a table and as JSON; both ways give the same."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        runs = Runs(world, capsys, tmp_path, way)
        listed = (await runs("list", "--json")).document(SCHEMA)
        assert [run["run"] for run in listed["runs"]] == ["r"]
        table = await runs("list")
        assert table.out.splitlines()[0].split()[:3] == ["run", "state", "steps"]
        detail = (await runs("show", "r", "--json")).document(SCHEMA)
        assert [step["seq"] for step in detail["steps"]] == [1, 2, 3, 4]
        text = (await runs("show", "r")).out
        assert "in doubt:    1 call" in text
        assert f"semel calls show {detail['in_doubt'][0]} {' '.join(runs.place)}" in text
        assert (await runs("list", "--in", "complete")).out == "no runs\n"


@pytest.mark.parametrize("way", WAYS)
async def test_a_diff_shows_both_sides_and_where_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Held as diverged, allowed, sent: now there is one of the same rule on each side."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS, FINE) as world:
        await two_attempts(world)
        runs = Runs(world, capsys, tmp_path, way)
        assert problem(await charge(world, "r+a2", 22)) == (409, "diverged")
        diff = (await runs("diff", "r", "--json")).document(SCHEMA)
        assert (diff["first"], diff["second"], diff["both"]) == ("a1", "a2", 2)
        assert [(one["tool"], one["second"]) for one in diff["differing"]] == [
            ("charge_card", None), ("send_mail", None)
        ]  # fmt: skip
        assert len(diff["diverged"]) == 1
        assert f"semel runs allow r {' '.join(runs.place)} --reason" in (await runs("diff", "r")).out
        allowed = (await runs("allow", "r", *WHY, "--json")).document(SCHEMA)
        assert [one["seq"] for one in allowed["retired"]] == [3, 4]
        assert (await charge(world, "r+a2", 22)).semel == "executed"
        diff = (await runs("diff", "r", "a1", "a2", "--json")).document(SCHEMA)
        charged = diff["differing"][0]
        assert charged["difference"] == {"field": "body.usd", "first": 2, "second": 22}
        assert (charged["first"]["seq"], charged["second"]["seq"]) == (3, 5)
        text = (await runs("diff", "r")).out
        assert "step 3: 2" in text
        assert "step 5: 22" in text
        assert "Nothing was unasked" in (await runs("allow", "r", *WHY)).out


@pytest.mark.parametrize("way", WAYS)
async def test_a_fork_is_made_and_tells_how_to_start_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """And what cannot be forked is refused with what would do."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        runs = Runs(world, capsys, tmp_path, way)
        made = await runs("fork", "r", "--at", 3, "--as", "f", *WHY)
        assert made.status == 0
        assert "semel run --id f --" in made.out
        assert (await charge(world, "f+b1", 2)).semel == "replayed"
        again = (await runs("fork", "r", "--at", 3, "--as", "g", "--resend", *WHY, "--json")).document(SCHEMA)
        assert again["parent"] == {"run": "r", "at": 3, "resend": True}
        for at, name, told in ((3, "f", "choose a name"), (9, "h", "4 at the most"), (1, "a/b", "A-Z")):
            refused = await runs("fork", "r", "--at", at, "--as", name, *WHY)
            assert (refused.status, refused.out) == (1, "")
            assert told in refused.err
        assert "f begins" not in (await runs("list")).out


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_not_there_is_refused_and_slips_are_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Exit status 1 with where it was looked for, 2 with what is wrong."""
    async with run_scene(tmp_path, FINE) as world:
        await charge(world, "r+a1", 1)
        runs = Runs(world, capsys, tmp_path, way)
        for command in (["show", "x"], ["diff", "x"], ["allow", "x", *WHY], ["export", "x"]):
            missing = await runs(*command)
            assert (missing.status, missing.out) == (1, ""), command
            assert "There is no run x in the record" in missing.err
        assert "has 1 of the two attempts" in (await runs("diff", "r")).err
        assert "has no attempt 'zz': it has a1" in (await runs("diff", "r", "a1", "zz")).err
        assert (await runs("diff", "r", "a1")).status == 1
        for slip in (
            ["fork", "r", "--at", "-1", "--as", "f", *WHY], ["fork", "r", "--at", "1", "--as", "f"],
            ["allow", "r", "--reason", " "], ["export"], ["export", "r", "--all"], ["export", "r", "--json"],
            ["list", "--in", "asleep"], ["list", "--limit", "0"],
        ):  # fmt: skip
            assert (await runs(*slip)).status == 2, slip


async def test_a_tenant_is_named_beside_a_store_and_never_to_a_proxy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tenants with a run of the same name: without --tenant nobody guesses."""
    async with run_scene(tmp_path, FINE) as world:
        await charge(world, "r+a1", 1)
        await world.app.store.open_run("acme", "r", "x1", time.time())
        store = Runs(world, capsys, tmp_path, "store")
        unclear = await store("show", "r")
        assert (unclear.status, "--tenant T" in unclear.err) == (1, True)
        detail = (await store("show", "r", "--tenant", "default", "--json")).document(SCHEMA)
        assert len(detail["steps"]) == 1
        assert "acme" in (await store("list")).out
        assert (await Runs(world, capsys, tmp_path, "proxy")("list", "--tenant", "acme")).status == 2
        whole = await store("export", "--all", "--output", tmp_path / "all.jsonl", "--json")
        assert whole.document(SCHEMA)["runs"] == 2


# ---- export ----


@pytest.mark.parametrize("way", WAYS)
async def test_an_export_is_printed_or_written(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], way: str
) -> None:
    """Line by line what the API gives; to a file all at once."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS, FINE) as world:
        await two_attempts(world)
        await charge(world, "s+a1", 7)
        place = ["--state-dir", str(tmp_path / "state")] if way == "store" else ["--proxy", world.url]

        async def runs(*arguments: str) -> bytes:
            from proxy.cli import main

            capfdbinary.readouterr()
            assert await asyncio.to_thread(main, ["runs", *arguments, *place]) == 0
            return capfdbinary.readouterr().out

        printed = await runs("export", "r")
        assert [json.loads(line)["kind"] for line in printed.splitlines()] == ["run", *["step"] * 4]
        target = tmp_path / "out.jsonl"
        told = await runs("export", "--all", "--output", str(target))
        assert f"2 runs, {target.stat().st_size} bytes".encode() in told
        first = [json.loads(line) for line in target.read_bytes().splitlines()]
        assert [line["run"] for line in first if line["kind"] == "run"] == ["s", "r"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "policies", "state"]


async def test_an_export_that_fails_leaves_the_older_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it was written beside it, and that is gone too."""
    target = tmp_path / "out.jsonl"
    target.write_text("older\n")
    async with run_scene(tmp_path, FINE, FINE) as world:
        for run in ("r", "s"):
            await charge(world, f"{run}+a1", 1)
        runs = Runs(world, capsys, tmp_path, "store")
        whole = runs_export._chosen

        async def broken(desk: object, name: str | None) -> object:
            async for chosen in whole(desk, name):  # type: ignore[arg-type]
                yield chosen
                raise StoreUnavailable("the disk is on fire")

        monkeypatch.setattr(runs_export, "_chosen", broken)
        failed = await runs("export", "--all", "--output", target)
        assert (failed.status, "on fire" in failed.err) == (1, True)
        assert target.read_text() == "older\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "policies", "state"]
        nowhere = await runs("export", "r", "--output", tmp_path / "no" / "such" / "file")
        assert (nowhere.status, "No such file" in nowhere.err) == (2, True)
        assert (await runs("export", "r", "--output", tmp_path)).status == 2


# ---- a real process ----


async def test_a_run_outlives_its_proxy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed, its record is looked at and forked beside it; the next proxy serves the fork from it."""
    async with Origin(*[FINE] * 4) as origin:
        policies = tmp_path / "policies"
        policies.mkdir()
        (policies / "pay.yaml").write_text(POLICY.format(port=origin.port))
        headers = {"Content-Type": "application/json"}

        async def charged(port: int, ref: str, usd: int) -> str | None:
            got = await call(port, "POST", f"/@{ref}/pay/charge", headers, b'{"usd": %d}' % usd)
            return got.semel

        async with SemelProcess(tmp_path / "state", policies) as first:
            assert await charged(first.port, "r+a1", 1) == "executed"
            assert await charged(first.port, "r+a1", 2) == "executed"
            await first.kill()
        place = ("--state-dir", tmp_path / "state")
        ran = await asyncio.to_thread(semel, capsys, "runs", "show", "r", "--json", *place)
        assert [step["state"] for step in ran.document(SCHEMA)["steps"]] == ["done", "done"]
        async with SemelProcess(tmp_path / "state", policies) as second:
            fork = ("fork", "r", "--at", 2, "--as", "f", *WHY)
            ran = await asyncio.to_thread(semel, capsys, "runs", *fork, *place)
            assert ran.status == 0, ran.err
            assert [await charged(second.port, "f+b1", usd) for usd in (1, 2, 3)] == [
                "replayed", "replayed", "executed"
            ]  # fmt: skip
            assert await charged(second.port, "r+a2", 1) == "replayed"
            held = await call(second.port, "POST", "/@r+a2/pay/charge", headers, b'{"usd": 9}')
            assert problem(held) == (409, "diverged")
            # Beside the proxy: it is seen by the proxy at once.
            ran = await asyncio.to_thread(semel, capsys, "runs", "allow", "r", *WHY, *place)
            assert "step 2" in ran.out
            assert await charged(second.port, "r+a2", 9) == "executed"
