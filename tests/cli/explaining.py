"""Requests sent through a real semel, then explained from the record that it left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.explain import SCHEMA
from tests.cli.command import Ran
from tests.cli.command import semel as run_semel
from tests.explain_pairs import Request
from tests.inside import semel
from tests.origin import OK, Origin, Script

# No value of a credential in any test is without this word, and no output may have it.
SECRET_WORD = "geheim"


def recorded(
    folder: Path, policy: str, *requests: Request, scripts: Sequence[Script] = (OK,)
) -> list[tuple[str, str]]:
    """What semel did with each request, and the call's id. PORT in the policy is the upstream's."""

    async def serve() -> list[tuple[str, str]]:
        async with Origin(*scripts) as origin, semel(folder, policy.replace("PORT", str(origin.port))) as app:
            answers = [await request.send(app.address.port) for request in requests]
        return [(answer.semel or "", answer.get("Semel-Call") or "") for answer in answers]

    folder.mkdir(exist_ok=True)
    return asyncio.run(serve())


def explained(capsys: pytest.CaptureFixture[str], folder: Path, request: Request, *more: object) -> Ran:
    place = ("--state-dir", folder / "state", "--policies", folder / "policies")
    ran = run_semel(capsys, "explain", *request.typed, *more, *place)
    assert SECRET_WORD not in ran.out + ran.err
    return ran


def document(
    capsys: pytest.CaptureFixture[str], folder: Path, request: Request, *more: object
) -> dict[str, Any]:
    ran = explained(capsys, folder, request, *more, "--json")
    assert ran.status == 0, ran.err
    found: dict[str, Any] = ran.document(SCHEMA)
    return found
