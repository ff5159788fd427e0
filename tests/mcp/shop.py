"""An MCP server whose tools write into a ledger. As a program: `python -m tests.mcp.shop LEDGER http|stdio`.

Over HTTP it has two doors and says their ports in one line: `json` gives whole answers, `sse` gives streams.
Both speak both eras. Every answer bears the number of its execution: a second one never looks like the first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ToolAnnotations,
)
from pydantic import BaseModel

from tests.mcp.ledger import Ledger

MANY = 30
MODERN = "2026-07-28"
OWN_CODE = -32050
DOORS = ("json", "sse")


class Agreed(BaseModel):
    agreed: bool


def shop(ledger: Ledger) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("shop", version="1", instructions="Pay once.")
    _paying(server, ledger)
    _failing(server, ledger)
    _annotated(server, ledger)
    _to_read(server, ledger)
    for number in range(MANY):
        _one_of_many(server, ledger, f"tool_{number:02}")
    return server


def _paying(server: MCPServer[Any], ledger: Ledger) -> None:
    @server.tool(structured_output=False)
    async def pay(order: str, dawdle: float = 0.0) -> str:
        """Pays, dawdles, and says so."""
        number = ledger.write(f"pay {order}")
        await ledger.wait(dawdle)
        return f"payment {number}"

    @server.tool(structured_output=False)
    async def pay_in_steps(order: str, ctx: Context) -> str:
        """Says how it goes, before it pays and after."""
        await ctx.report_progress(1, 2, "before")
        number = ledger.write(f"pay_in_steps {order}")
        await ctx.report_progress(2, 2, "after")
        await ledger.wait()
        return f"payment {number}"

    @server.tool(structured_output=False)
    async def pay_if_agreed(order: str, ctx: Context) -> str | InputRequiredResult:
        """Asks the client first: on the stream, or in the new era by an answer that is none."""
        if ctx.protocol_version == MODERN:
            said = (ctx.input_responses or {}).get("agreed")
            if not isinstance(said, ElicitResult):
                ledger.write(f"asked {order}")
                return InputRequiredResult(input_requests={"agreed": _question(order)}, request_state=order)
            agreed = bool(said.content and said.content["agreed"])
        else:
            ledger.write(f"asked {order}")
            heard = await ctx.elicit(f"Pay {order}?", Agreed)
            agreed = heard.action == "accept" and heard.data.agreed
        return f"payment {ledger.write(f'pay_if_agreed {order}')}, agreed: {agreed}"


def _question(order: str) -> ElicitRequest:
    schema = {"type": "object", "properties": {"agreed": {"type": "boolean"}}, "required": ["agreed"]}
    return ElicitRequest(params=ElicitRequestFormParams(message=f"Pay {order}?", requested_schema=schema))


def _failing(server: MCPServer[Any], ledger: Ledger) -> None:
    @server.tool(structured_output=False)
    async def pay_and_fail(order: str) -> str:
        """Half of the work is done when it fails: a result with `isError`."""
        raise ToolError(f"failure {ledger.write(f'pay_and_fail {order}')}")

    @server.tool(structured_output=False)
    async def pay_and_break(order: str) -> str:
        """The same as an error of the protocol."""
        raise MCPError(OWN_CODE, f"break {ledger.write(f'pay_and_break {order}')}", {"order": order})


def _annotated(server: MCPServer[Any], ledger: Ledger) -> None:
    @server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
    async def look(what: str) -> str:
        """Its server says that it only reads."""
        return f"look {ledger.write(f'look {what}')}"

    @server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
    async def put(what: str) -> str:
        """Its server says that once more does nothing more."""
        return f"put {ledger.write(f'put {what}')}"

    @server.tool(
        structured_output=False, annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True)
    )
    async def wipe(what: str) -> str:
        """Its server says that it destroys."""
        return f"wipe {ledger.write(f'wipe {what}')}"


def _to_read(server: MCPServer[Any], ledger: Ledger) -> None:
    @server.resource("stock://all")
    def stock() -> str:
        return "seven"

    @server.resource("stock://slow")
    async def slow_stock() -> str:
        ledger.write("slow_stock")
        await ledger.wait()
        return "eight"

    @server.prompt()
    def greet(name: str) -> str:
        return f"Greet {name}."


def _one_of_many(server: MCPServer[Any], ledger: Ledger, name: str) -> None:
    async def run(order: str) -> str:
        return f"{name} {ledger.write(f'{name} {order}')}"

    server.add_tool(run, name=name, structured_output=False)


async def _serve(ledger: Ledger) -> None:
    doors = [_bound() for _ in DOORS]
    print(json.dumps({door: at.getsockname()[1] for door, at in zip(DOORS, doors, strict=True)}), flush=True)
    apps = [shop(ledger).streamable_http_app(json_response=door == "json") for door in DOORS]
    serving = [uvicorn.Server(uvicorn.Config(app, log_level="warning")) for app in apps]
    await asyncio.gather(*(server.serve(sockets=[at]) for server, at in zip(serving, doors, strict=True)))


def _bound() -> socket.socket:
    """Whoever connects before the server runs waits."""
    at = socket.socket()
    at.bind(("127.0.0.1", 0))
    at.listen(128)
    return at


def main() -> None:
    ledger = Ledger(Path(sys.argv[1]))
    logging.disable(logging.ERROR)  # tools that fail on purpose
    if sys.argv[2] == "stdio":
        shop(ledger).run("stdio")
    else:
        asyncio.run(_serve(ledger))


if __name__ == "__main__":
    main()
