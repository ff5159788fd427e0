"""No room for working space: the caller is told, or gets its answer all the same. It is never a defect."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from proxy.spool import Spool
from tests.http.streaming import CHUNKED, JSON, LAST, chunk, world
from tests.inside import call
from tests.origin import READ_ALL, answer

BODY = bytes(range(256)) * 12_000  # 3 MB: more than is held in memory


def no_room(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes this many bytes of every temporary file, the last piece of them only in part."""
    real = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: room - offset], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


@pytest.mark.parametrize("room", [0, 1500, 3000, 4500])
def test_what_does_not_fit_is_not_added_and_what_was_there_stays(
    room: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before, while and after it moves to the disk; when there is room again it goes on."""
    parts = [bytes([number]) * 1000 for number in range(6)]
    kept = Spool(2000, tmp_path)
    with monkeypatch.context() as full:
        no_room(room, full)
        fitting = []
        for part in parts:
            try:
                kept.append(part)
            except OSError:
                break
            fitting.append(part)
        assert len(fitting) == max(2, room // 1000)
        assert (kept.size, kept.whole()) == (len(fitting) * 1000, b"".join(fitting))
    kept.append(b"more")
    assert kept.whole() == b"".join(fitting) + b"more"
    assert kept.on_disk
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["hold", "read", "plain"])
async def test_a_request_for_which_there_is_no_room(
    path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """503 that says what is wrong and what to do; nothing was sent, and with room it is."""
    async with world(tmp_path, (*READ_ALL, answer(200, b"ok"))) as (origin, port):
        with monkeypatch.context() as full:
            no_room(2_000_000, full)
            got = await call(port, "POST", f"/up/{path}", {}, BODY)
        problem = json.loads(got.body)
        assert (got.status, problem["type"]) == (503, "urn:semel:store-unavailable")
        assert "No space left on device" in problem["detail"]
        assert "nothing was sent" in problem["detail"]
        assert got.get("Retry-After") == "1"
        assert origin.started == 0
        assert (await call(port, "POST", f"/up/{path}", {}, BODY)).status == 200


@pytest.mark.parametrize("framed", [True, False], ids=["length", "chunked"])
@pytest.mark.parametrize("room", [0, 2_000_000])
@pytest.mark.parametrize("path", ["hold", "read"])
async def test_an_answer_for_which_there_is_no_room(
    path: str, room: int, framed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It passes whole and is not kept, as one over the limit: no doubt, no defect, no second send."""
    whole = answer(200, BODY) if framed else CHUNKED + chunk(BODY) + LAST
    async with world(tmp_path, (*READ_ALL, whole)) as (origin, port):
        with monkeypatch.context() as full:
            no_room(room, full)
            first = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        assert (first.status, first.semel, first.complete) == (200, "executed", True)
        assert first.body == BODY
        second = await call(port, "POST", f"/up/{path}", JSON, b"{}")
        if path == "read":
            assert (second.semel, second.body == BODY, origin.started) == ("executed", True, 2)
        else:
            assert (second.status, json.loads(second.body)["type"]) == (410, "urn:semel:answer-unavailable")
            assert origin.started == 1
