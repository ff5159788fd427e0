"""A LangGraph agent, killed between its tool's effect and the checkpoint: that alone charges twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.demo.model import play
from proxy.demo.turn import Step, ToolCall
from tests.sdk.scene import KILLED, Api, Model, Route, Tools, agent, scene

SCRIPT = play(Step("", (ToolCall("charge", {"usd": 5}),)), Step("Charged."))


async def killed_and_resumed(tmp_path: Path, urls: list[tuple[str, str]]) -> dict[str, Any]:
    """Two starts with one thread, each with its addresses of the model and the tool; how the second ends."""
    database = str(tmp_path / "checkpoints.sqlite")
    (first, charge), (second, charge_again) = urls
    status, said, err = await agent("graph_agent", Route(first, {"DIES": "1"}), charge, database, "ada")
    assert (status, said) == (KILLED, []), err
    status, said, err = await agent("graph_agent", Route(second, {}), charge_again, database, "ada")
    assert status == 0, err
    assert said[0]["begun"], "it went on from its checkpoint"
    ended: dict[str, Any] = said[0]
    return ended


async def test_without_semel_it_charges_twice(tmp_path: Path) -> None:
    """The tool's effect is behind the last checkpoint, so LangGraph calls the tool again."""
    async with Model(SCRIPT) as model, Tools() as tools:
        ended = await killed_and_resumed(tmp_path, [(model.url, f"http://127.0.0.1:{tools.plain}")] * 2)
    assert tools.asked == ['POST /charge {"usd": 5, "customer": "ada"}'] * 2
    assert json.loads(ended["said"][2]) == {"answer": 2}


@pytest.mark.usefixtures("module_store")
async def test_with_semel_it_charges_once(tmp_path: Path) -> None:
    """The same agent, the same kill: the tool is called again, and answered with the charge that was made."""
    async with Model(SCRIPT) as model, Tools() as tools:
        apis: dict[str, Api] = {"openai": model, "tools": tools}
        async with scene(tmp_path, apis, {"openai": "extends: openai"}) as made:
            urls = [
                (
                    made.way("base", "openai", "ada", attempt).url,
                    made.way("base", "tools", "ada", attempt).url,
                )
                for attempt in ("one", "two")
            ]
            ended = await killed_and_resumed(tmp_path, urls)
    assert tools.asked == ['POST /charge {"usd": 5, "customer": "ada"}']
    assert json.loads(ended["said"][2]) == {"answer": 1}
    assert ended["said"][3] == "Charged. [answer 2]"
    assert model.count() == 2
