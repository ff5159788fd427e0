"""The Python of docs/how-to/langgraph-tools.md, as it stands. Its shell: tests/docs/test_pasted.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

import semel
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "langgraph-tools.md"
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def block(word: str, **around: object) -> dict[str, Any]:
    """What the page's only block with this word defines, in an agent that has these names already."""
    (found,) = [one for one in blocks(PAGE, "python") if word in one.text]
    names: dict[str, Any] = dict(around)
    exec(found.text, names)
    return names


class Ledger:
    def __init__(self) -> None:
        self.orders: list[int] = []

    def write(self, order: int) -> None:
        self.orders.append(order)


@pytest.fixture
def _off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is said here is LangGraph's part: the functions simply run."""
    monkeypatch.delenv("SEMEL_URL", raising=False)
    monkeypatch.setenv("SEMEL_OFF", "1")
    semel._default.cache_clear()
    yield
    semel._default.cache_clear()


@tool
def nothing() -> None:
    """Does nothing."""


def graph_of(node: ToolNode) -> StateGraph[MessagesState]:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    return graph


def asking_for(name: str, **arguments: object) -> MessagesState:
    return {"messages": [AIMessage("", tool_calls=[{"id": "call", "name": name, "args": arguments}])]}


def test_the_handler_tells_what_it_knows_and_raises_the_rest() -> None:
    """A failure in the same words before and after a crash; doubt and other failures are raised."""
    page = block("def told", TOOLS=[nothing])
    assert isinstance(page["node"], ToolNode)
    assert page["told"](page["Declined"]("no money")) == "no money"
    assert page["told"](semel.ToolFailed("Declined", "no money")) == "no money"
    for error in (semel.ToolFailed("OSError", "no disk"), semel.InDoubt("nobody knows")):
        with pytest.raises(type(error)):
            page["told"](error)


@pytest.mark.usefixtures("_off")
@pytest.mark.parametrize(("says", "orders"), [("yes", [7]), ("no", [])])
def test_a_person_is_asked(says: str, orders: list[int]) -> None:
    """The graph stands still until somebody answers, and the effect comes after a yes alone."""
    ledger = Ledger()
    transfer = block("interrupt(", ledger=ledger)["transfer"]
    assert set(transfer.tool_call_schema.model_json_schema()["properties"]) == {"order"}, "seen by the model"
    agent = graph_of(ToolNode([transfer])).compile(checkpointer=InMemorySaver())
    (asked,) = agent.invoke(asking_for("transfer", order=7), THREAD)["__interrupt__"]
    assert (asked.value, ledger.orders) == ("Refund 7?", [])
    agent.invoke(Command(resume=says), THREAD)
    assert ledger.orders == orders


def test_the_call_of_a_graph_with_a_checkpointer() -> None:
    """It begins, and it may be made again when there is nothing to resume."""
    agent = graph_of(ToolNode([nothing])).compile(checkpointer=InMemorySaver())
    (task,) = asking_for("nothing")["messages"]
    assert block("durability", agent=agent, task=task)["begun"] is False


def test_every_block_is_tried() -> None:
    assert len(blocks(PAGE, "python")) == 3
