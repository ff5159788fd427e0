"""A run as JSON Lines: everything that was asked and answered, and nothing that is secret."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.admin import run_export
from tests.admin.run_scene import TWO_ATTEMPTS, ask, charge, decide, run_scene, two_attempts
from tests.admin.scene import FINE, Scene
from tests.inside import Answer
from tests.origin import READ_ALL, answer

GZIPPED = gzip.compress(b'{"packed": "yes"}')
BINARY = bytes(range(256))


async def exported(world: Scene, run: str = "r") -> list[Any]:
    got = await world.ask("GET", f"runs/{run}/export")
    assert (got.status, got.complete) == (200, True), got
    assert got.get("Content-Type") == "application/x-ndjson"
    return lines(got)


def lines(got: Answer) -> list[Any]:
    assert got.body.endswith(b"\n")
    return [json.loads(line) for line in got.body.splitlines()]


async def test_one_line_for_the_run_and_one_for_each_step(tmp_path: Path) -> None:
    """The run's line has what `show` has, without the steps; a step's has arguments, request and answer."""
    async with run_scene(tmp_path, *TWO_ATTEMPTS) as world:
        await two_attempts(world)
        run, *steps = await exported(world)
        shown = await world.document("runs/r")
    assert run["kind"] == "run"
    assert {name: run[name] for name in ("run", "state", "last_seq", "attempts", "in_doubt")} == {
        name: shown[name] for name in ("run", "state", "last_seq", "attempts", "in_doubt")
    }
    assert [(step["kind"], step["seq"]) for step in steps] == [("step", seq) for seq in (1, 2, 3, 4)]
    first, look, _, doubtful = steps
    assert first["args"] == {"body": {"usd": 1}}
    assert (first["request"]["method"], first["request"]["target"]) == ("POST", "/charge")
    assert json.loads(first["request"]["body"]) == {"usd": 1}
    assert (first["answer"]["status_code"], json.loads(first["answer"]["body"])) == (201, {"charge": "ch_1"})
    assert look["answer"]["body"] == '{"seen": true}'
    assert (doubtful["answer"], doubtful["state"]) == (None, "in_doubt")
    assert "connection broke" in doubtful["doubt"]["reason"]


async def test_bodies_are_text_without_their_coding_or_base64(tmp_path: Path) -> None:
    """Compressed text is text; what is no text is base64; both are what the agent was given."""
    packed = (*READ_ALL, answer(200, GZIPPED, (b"Content-Encoding", b"gzip")))
    binary = (*READ_ALL, answer(200, BINARY))
    async with run_scene(tmp_path, packed, binary) as world:
        await ask(world, "r+a1", "GET", "/packed", headers={"Accept-Encoding": "gzip"})
        await ask(world, "r+a1", "GET", "/binary")
        _, text, octets = await exported(world)
    assert text["answer"]["body"] == '{"packed": "yes"}'
    assert base64.b64decode(octets["answer"]["body_base64"]) == BINARY


async def test_what_is_too_long_or_lost_is_said_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body over the bound, a blob that is gone: the line is there, and says why the body is not."""
    large = (*READ_ALL, answer(200, b"x" * 100_000))
    lost = (*READ_ALL, answer(200, b"y" * 90_000))
    monkeypatch.setattr(run_export, "LARGEST_BODY", 95_000)
    async with run_scene(tmp_path, large, lost, FINE) as world:
        await ask(world, "r+a1", "GET", "/large")
        await ask(world, "r+a1", "GET", "/lost")
        await charge(world, "r+a1", 1)
        blobs = [path for path in (tmp_path / "state" / "blobs").rglob("*") if path.is_file()]
        (damaged,) = [path for path in blobs if path.stat().st_size == 90_000]
        damaged.unlink()
        _, too_long, gone, fine = await exported(world)
    assert "100000 bytes" in too_long["answer"]["left_out"]
    assert "lost" in gone["answer"]["left_out"]
    assert fine["answer"]["body"] == '{"charge": "ch_1"}'


async def test_no_credential_is_exported(tmp_path: Path) -> None:
    """Not from headers, the query, named path segments, or cookies that were set."""
    setting = (*READ_ALL, answer(200, b"{}", (b"Set-Cookie", b"sid=hunter5"), (b"X-Auth-Token", b"hunter6")))
    async with run_scene(tmp_path, setting) as world:
        headers = {"Authorization": "Bearer hunter1", "X-Api-Key": "hunter2", "X-Session-Token": "hunter7"}
        await ask(world, "r+a1", "GET", "/by/hunter3/thing?token=hunter4&page=7", headers=headers)
        got = await world.ask("GET", "runs/r/export")
    assert b"hunter" not in got.body
    assert b"page=7" in got.body


async def test_a_fork_is_exported_with_what_it_was_given(tmp_path: Path) -> None:
    """Its parent's steps are among its own, marked as inherited."""
    async with run_scene(tmp_path, FINE, FINE) as world:
        await charge(world, "r+a1", 1)
        await decide(world, "r/fork", **{"at": 1, "as": "f", "reason": "why"})
        await charge(world, "f+b1", 1)
        await ask(world, "f+b1", "POST", "/mail", {"to": "bob"})
        run, *steps = await exported(world, "f")
    assert run["parent"]["run"] == "r"
    assert [(step["inherited"], step["tool"]) for step in steps] == [
        (True, "charge_card"),
        (False, "send_mail"),
    ]


async def test_an_export_that_breaks_off_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails in the middle: the reader sees that something is missing."""
    async with run_scene(tmp_path, FINE, FINE) as world:
        for usd in (1, 2):
            await charge(world, "r+a1", usd)
        store, asked = world.app.store, []
        get = store.get

        async def failing(key: bytes, *rest: object) -> object:
            asked.append(key)
            if len(asked) == 2:
                raise RuntimeError("the disk is on fire")
            return await get(key)

        monkeypatch.setattr(store, "get", failing)
        got = await world.ask("GET", "runs/r/export")
    assert len(got.body.splitlines()) == 2
    assert not got.complete
