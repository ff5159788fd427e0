"""An agent that calls tools with the `mcp` package: `python -m tests.mcp.agent URL ERA`.

Instead of the URL it takes a command, as a list in JSON: that of a server over stdio.

It hears its calls on standard input as one line of JSON, [[tool, arguments], …], says what each came to in a
line of its own, and is killed after the last: its session is not ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.mcp.clients import agree, told


async def main(url: str, era: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = json.loads(sys.stdin.readline())
    to = _server(url)
    async with Client(to, mode=era, read_timeout_seconds=30, elicitation_callback=agree, cache=None) as at:
        for tool, arguments in calls:
            try:
                said: object = told(await at.call_tool(tool, arguments)).text
            except MCPError as error:
                said = {"code": error.code, "data": error.data}
            print(json.dumps(said), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def _server(url: str) -> str | StdioServerParameters:
    if not url.startswith("["):
        return url
    command, *words = json.loads(url)
    return StdioServerParameters(command=command, args=words, env=dict(os.environ))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
