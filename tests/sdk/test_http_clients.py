"""HTTP clients that people use, in an agent that is killed and started again; it knows nothing of semel."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.sdk.http_agent import CLIENTS
from tests.sdk.scene import KILLED, WAYS, Scene, Tools, agent, scene

pytestmark = pytest.mark.asyncio(loop_scope="module")
# What semel says of an answer; all else is the upstream's.
OF_SEMEL = ("semel-status", "semel-call", "age", "cache-status")
RUNS = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, module_store: None
) -> AsyncIterator[tuple[Scene, Tools]]:
    async with Tools() as tools, scene(tmp_path_factory.mktemp("http"), {"tools": tools}, {}) as made:
        yield made, tools


def said(answer: dict[str, Any], name: str) -> str | None:
    return next((value for key, value in answer["headers"] if key.lower() == name), None)


def upstreams(answer: dict[str, Any]) -> tuple[int, list[tuple[str, str]], str]:
    """What came from the upstream, headers in their order. How the body was framed is between neighbours."""
    skipped = (*OF_SEMEL, "transfer-encoding", "connection")
    headers = [(key, value) for key, value in answer["headers"] if key.lower() not in skipped]
    return answer["status"], headers, answer["body"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_what_was_answered_before_the_crash_is_answered_again(
    stage: tuple[Scene, Tools], client: str, way: str
) -> None:
    """A charge, a look, a stream, killed; then the same bytes, nobody asked, and what is new goes live."""
    needs(client, way)
    made, tools = stage
    run = f"run-{next(RUNS)}"
    mark = f"{client}.{way}."
    calls = [
        ("POST", "/charge", json.dumps({"for": mark})),
        ("GET", f"/look?at={mark}", ""),
        ("GET", f"/look?at={mark}", ""),  # the same again: another answer
        ("GET", f"/events?of={mark}", ""),
    ]
    status, first, err = await agent(
        "http_agent", made.way(way, "tools", run, "one"), client, told={"calls": calls, "killed_after": 4}
    )
    assert status == KILLED, err
    assert [said(answer, "semel-status") for answer in first] == ["executed"] * 4
    assert tools.count(mark) == 4

    new = ("POST", "/charge", json.dumps({"for": mark, "again": True}))
    status, second, err = await agent(
        "http_agent",
        made.way(way, "tools", run, "two"),
        client,
        told={"calls": [*calls, new], "killed_after": 0},
    )
    assert status == 0, err
    assert [said(answer, "semel-status") for answer in second] == ["replayed"] * 4 + ["executed"]
    assert [upstreams(answer) for answer in second[:4]] == [upstreams(answer) for answer in first]
    assert [said(answer, "semel-call") for answer in second[:4]] == [said(a, "semel-call") for a in first]
    assert len({answer["body"] for answer in second}) == 5
    assert b64decode(second[3]["body"]).endswith(b"data: [DONE]\n\n")
    assert tools.count(mark) == 5
    assert tools.count(f"POST /charge {calls[0][2]}") == 1


def needs(client: str, way: str) -> None:
    if client in ("curl", "node") and shutil.which(client) is None:
        pytest.skip(f"{client} is not installed")
    if client == "node" and way != "base" and not node_follows_a_proxy():
        pytest.skip("this node's fetch follows no proxy, not even with NODE_USE_ENV_PROXY=1 (24 does)")


def node_follows_a_proxy() -> bool:
    """Asked of node itself: through a proxy that nobody is at, a fetch must fail for that reason."""
    script = "fetch('http://localhost:9/').catch(e => console.log(String(e.cause?.port ?? e.cause)))"
    env = {**os.environ, "NODE_USE_ENV_PROXY": "1", "HTTP_PROXY": "http://127.0.0.1:7", "NO_PROXY": ""}
    told = subprocess.run(["node", "-e", script], env=env, capture_output=True, timeout=30, check=False)
    return b"7" in told.stdout
