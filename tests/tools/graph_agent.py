"""A LangGraph agent with tools of its own, for tests that kill it: `python -m tests.tools.graph_agent PLAN`.

The plan is JSON, see `graphs.py`. Its model is a script: what it says follows from how often it has spoken.
What its tools do is counted in a file that neither semel nor LangGraph knows of. It prints how it ended, as
one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from threading import Event
from typing import Annotated, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

import semel

PLAN: dict[str, Any] = json.loads(sys.argv[1])
PREFIX = f"call-{os.getpid()}" if PLAN["new_ids"] else "call"
ended: defaultdict[str, Event] = defaultdict(Event)  # by the name of the tool


def tell(**what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def pass_by(point: str) -> None:
    """Die here if the plan says so, when the other tool has ended that it waits for; or stand here."""
    if point == PLAN["dies"]:
        assert not PLAN["when_ended"] or ended[PLAN["when_ended"]].wait(30)
        os.kill(os.getpid(), signal.SIGKILL)
    if point == PLAN["stands"]:
        tell(at=point)
        os.read(0, 1)


def do(name: str, about: object) -> dict[str, object]:
    counted = os.open(PLAN["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(counted, f"{name} {about}\n".encode())
    os.close(counted)
    pass_by(f"inside {name}")
    return {name: about, "pid": os.getpid()}


# ---- the tools ----


@tool
@semel.tool
def pay(order: int) -> dict[str, object]:
    """Pay for an order."""
    return do("pay", order)


@tool
@semel.tool
def mail(to: str) -> dict[str, object]:
    """Write to somebody."""
    return do("mail", to)


@tool
@semel.tool
async def book(seat: str) -> dict[str, object]:
    """Book a seat."""
    return await asyncio.to_thread(do, "book", seat)


@tool
@semel.tool(key=lambda arguments: str(arguments["tool_call_id"]))
def refund(order: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> dict[str, object]:
    """Give an order's money back: once for each time that the model asks for it."""
    return do("refund", order)


class Declined(Exception):
    pass


@tool
@semel.tool
def charge(order: int) -> dict[str, object]:
    """Take money; the bank does not want to."""
    do("charge", order)
    raise Declined("no money")


@tool
def shaky() -> str:
    """No tool of semel's. It fails at its first call in every process."""
    if not ended["shaky"].is_set():
        ended["shaky"].set()
        raise ConnectionError("not now")
    return "steady"


@semel.tool
def send_money(order: int) -> dict[str, object]:
    return do("transfer", order)


@tool
def transfer(order: int) -> object:
    """Asks a person, and then has the effect."""
    return send_money(order) if interrupt("May I?") == "yes" else "refused"


@tool
@semel.tool
def hasty(order: int) -> object:
    """Asks a person inside of what semel records."""
    return do("hasty", order) if interrupt("May I?") == "yes" else "refused"


TOOLS = [pay, mail, book, refund, charge, shaky, transfer, hasty]


# ---- the graph ----


class Script(BaseChatModel):
    """Says the plan's turns, as a recorded model with the same ids at every start."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        asked = PLAN["turns"][turn] if turn < len(PLAN["turns"]) else []
        calls = [
            {"id": f"{PREFIX}-{turn}-{number}", "name": name, "args": arguments}
            for number, (name, arguments) in enumerate(asked)
        ]
        said = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


def think(state: MessagesState) -> dict[str, Any]:
    if isinstance(state["messages"][-1], ToolMessage):
        pass_by("between nodes")
    return {"messages": [Script().invoke(state["messages"])]}


def told(error: Exception) -> str:
    """What the model may know of, in the same words after a crash. Everything else ends the graph."""
    if isinstance(error, Declined):
        return str(error)
    if isinstance(error, semel.ToolFailed) and error.type == Declined.__name__:
        return error.message
    raise error


class Watch(BaseCallbackHandler):
    def on_tool_end(self, output: object, *, name: str = "", **_: object) -> None:
        """The tool has returned to LangChain; LangGraph has written nothing yet."""
        ended[name].set()
        pass_by(f"after {name}")


def graph() -> StateGraph[MessagesState]:
    kinds: dict[str, dict[str, Any]] = {
        "raised": {},
        "to the model": {"handle_tool_errors": True},
        "told": {"handle_tool_errors": told},
    }
    errors = kinds[PLAN["errors"]]
    made = StateGraph(MessagesState)
    made.add_node("think", think)
    made.add_node(
        "tools",
        ToolNode(TOOLS, **errors),
        retry_policy=RetryPolicy(initial_interval=0.01) if PLAN["retries"] else None,
    )
    made.add_edge(START, "think")
    made.add_conditional_edges("think", tools_condition, ["tools", END])
    made.add_edge("tools", "think")
    return made


CONFIG: RunnableConfig = {"configurable": {"thread_id": "task"}, "callbacks": [Watch()]}
if PLAN["at_a_time"]:
    CONFIG["max_concurrency"] = PLAN["at_a_time"]
TASK: MessagesState = {"messages": [HumanMessage("Do it.")]}
GO_ON: Any = Command(resume=PLAN["resume"]) if PLAN["resume"] else None


def say(state: dict[str, Any], resumed: bool) -> None:
    answers = [message.content for message in state["messages"] if isinstance(message, ToolMessage)]
    tell(answers=answers, said=state["messages"][-1].content, resumed=resumed)


def run() -> None:
    if not PLAN["checkpoints"]:
        return say(graph().compile().invoke(TASK, CONFIG), False)
    with SqliteSaver.from_conn_string(PLAN["checkpoints"]) as saver:
        agent = graph().compile(checkpointer=saver)
        begun = bool(agent.get_state(CONFIG).next)
        return say(agent.invoke(GO_ON if begun else TASK, CONFIG, durability="sync"), begun)


async def run_async() -> None:
    if not PLAN["checkpoints"]:
        return say(await graph().compile().ainvoke(TASK, CONFIG), False)
    async with AsyncSqliteSaver.from_conn_string(PLAN["checkpoints"]) as saver:
        agent = graph().compile(checkpointer=saver)
        begun = bool((await agent.aget_state(CONFIG)).next)
        return say(await agent.ainvoke(GO_ON if begun else TASK, CONFIG, durability="sync"), begun)


if __name__ == "__main__":
    try:
        run() if PLAN["style"] == "sync" else asyncio.run(run_async())
    except semel.SemelError as error:
        tell(error=type(error).__name__, message=str(error), call=error.problem.get("call"))
        sys.exit(3)
