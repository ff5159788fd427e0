"""What a LangGraph agent makes of a tool's errors, of doubt, and of a person who is asked first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import semel
from tests.tools.graphs import PAY, REFUND, Call, killed, plan, start

# ---- a person is asked ----


def test_a_person_is_asked_before_the_effect(tmp_path: Path) -> None:
    """`interrupt` outside of the function that semel records: asked, permitted, killed, and done once."""
    asks = plan(tmp_path, [("transfer", {"order": 7})], checkpointed=True)
    assert start(tmp_path, asks).answers == []
    assert asks.done == []
    permitted = replace(asks, resume="yes", dies="after transfer")
    killed(tmp_path, permitted)
    ended = start(tmp_path, permitted)
    assert ended.resumed
    assert len(ended.answers) == 1
    assert asks.done == ["transfer 7"]


def test_a_person_is_asked_inside_of_what_is_recorded(tmp_path: Path) -> None:
    """`interrupt` is an exception: semel records that the function failed, and it does not run."""
    asks = plan(tmp_path, [("hasty", {"order": 7})], checkpointed=True)
    assert start(tmp_path, asks).answers == []
    assert start(tmp_path, replace(asks, resume="yes")).error == "ToolFailed"
    assert asks.done == []


# ---- errors ----


@tool
def doubtful() -> None:
    """Nobody knows what came of it."""
    raise semel.InDoubt("nobody knows")


def only_failures(error: Exception) -> str:
    if isinstance(error, semel.ToolFailed):
        return error.message
    raise error


@pytest.mark.parametrize(("tool", "done"), [(PAY, ["pay 7"]), (REFUND, ["refund 7"] * 2)])
def test_doubt_that_is_given_to_the_model(tmp_path: Path, tool: Call, done: list[str]) -> None:
    """`handle_tool_errors=True` makes a message of it. A model that tries again in the same words hears the
    same; but if the tool knows calls by their ids, that is a new one, and it is done."""
    tries = plan(tmp_path, [tool], [tool], dies=f"inside {tool[0]}", errors="to the model")
    killed(tmp_path, tries)
    answers = start(tmp_path, tries).answers
    assert [answer.startswith("Error: InDoubt(") for answer in answers] == [True, len(done) == 1]
    assert "Whether this call took effect is not known" in answers[0]
    assert answers[0].endswith("Please fix your mistakes.")
    assert tries.done == done


def test_a_failure_is_told_in_the_same_words(tmp_path: Path) -> None:
    """The first attempt sees the tool's own exception, the next one `semel.ToolFailed`; the model no
    difference."""
    failing = plan(tmp_path, [("charge", {"order": 7})], errors="told")
    assert [start(tmp_path, failing).answers for _ in range(2)] == [["no money"], ["no money"]]
    assert failing.done == ["charge 7"]


def test_told_lets_doubt_end_the_graph(tmp_path: Path) -> None:
    """What the handler does not know it raises again."""
    inside = plan(tmp_path, [PAY], dies="inside pay", errors="told")
    killed(tmp_path, inside)
    assert start(tmp_path, inside).error == "InDoubt"


@pytest.mark.parametrize(
    ("handler", "wrapped", "ends"),
    [
        (None, True, "raised"),  # None: ToolNode's own
        ((semel.ToolFailed,), False, "raised"),
        ((semel.ToolFailed,), True, "told"),
        (only_failures, True, "raised"),
    ],
)
def test_what_a_tool_node_makes_of_doubt(handler: object, wrapped: bool, ends: str) -> None:
    """With a wrapper it does not look at the types that it was given: only a function that raises is safe."""
    errors: dict[str, Any] = {} if handler is None else {"handle_tool_errors": handler}
    if wrapped:
        errors["wrap_tool_call"] = lambda request, execute: execute(request)
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([doubtful], **errors))
    graph.add_edge(START, "tools")
    asked = AIMessage("", tool_calls=[{"id": "call", "name": "doubtful", "args": {}}])
    try:
        graph.compile().invoke({"messages": [asked]})
    except semel.InDoubt:
        assert ends == "raised"
    else:
        assert ends == "told"
