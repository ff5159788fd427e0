"""A LangGraph agent with a checkpointer: `python -m tests.sdk.graph_agent MODEL_URL PAY_URL DATABASE THREAD`.

The model decides to charge, the tool charges, the model says what was done. With DIES=1 in its environment it
is killed when the charge is answered, before LangGraph has written a checkpoint. It prints how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import OpenAI

MODEL, PAY, DATABASE, THREAD = sys.argv[1:]
TASK = "Charge Ada five dollars."


@tool
def charge(usd: int) -> str:
    """Take money from the customer's card."""
    body = json.dumps({"usd": usd, "customer": THREAD}).encode()
    asked = urllib.request.Request(f"{PAY}/charge", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as got:
        answer: str = got.read().decode()
    if os.environ.get("DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def told(message: BaseMessage) -> dict[str, Any]:
    """As OpenAI's API wants it."""
    if isinstance(message, AIMessage):
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
            }
            for call in message.tool_calls
        ]
        return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "content": message.content, "tool_call_id": message.tool_call_id}
    return {"role": "user", "content": message.content}


def think(state: MessagesState) -> dict[str, Any]:
    client = OpenAI(base_url=f"{MODEL}/v1", api_key="sk-test")
    messages: Any = [told(message) for message in state["messages"]]
    said = client.chat.completions.create(model="gpt-4.1", messages=messages).choices[0].message
    calls = [
        {"id": call.id, "name": call.function.name, "args": json.loads(call.function.arguments)}
        for call in said.tool_calls or ()
        if call.type == "function"
    ]
    return {"messages": [AIMessage(said.content or "", tool_calls=calls)]}


def main() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([charge]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition, ["tools", END])
    graph.add_edge("tools", "think")
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        agent = graph.compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        begun = bool(agent.get_state(config).next)
        ended = agent.invoke(None if begun else {"messages": [HumanMessage(TASK)]}, config, durability="sync")
    print(json.dumps({"begun": begun, "said": [message.content for message in ended["messages"]]}))


if __name__ == "__main__":
    main()
