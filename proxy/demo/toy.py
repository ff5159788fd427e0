"""The pretended APIs of compose.yaml in one process, until a signal says stop: the tools and the model.

Nothing beyond them is known of it, and it keeps nothing but its books: `GET /books` of the tools, `GET
/requests` of the model.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading

from proxy.demo.model import ModelApi
from proxy.demo.tools import Tools

# Seconds before an answer: long enough to be seen beside a replay.
TOOL_WORK, MODEL_WORK = 0.05, 0.2
# Of the model's requests; what was asked before them is only counted.
REMEMBERED = 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.toy", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="where both listen (default: 127.0.0.1)")
    parser.add_argument("--tools", type=int, default=9000, metavar="PORT", help="default: 9000")
    parser.add_argument("--model", type=int, default=9001, metavar="PORT", help="default: 9001")
    given = parser.parse_args()
    asyncio.run(_serve(given.host, given.tools, given.model))


async def _serve(host: str, tools_port: int, model_port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    model = ModelApi(host=host, port=model_port, work=MODEL_WORK, keeps=REMEMBERED)
    with Tools(TOOL_WORK, (host, tools_port)) as tools:
        serving = threading.Thread(target=tools.serve_forever, daemon=True)
        serving.start()
        async with model:
            print(f"the tools are ready on http://{host}:{tools.server_address[1]}", flush=True)
            print(f"the model is ready on {model.url}", flush=True)
            await stopped.wait()
        tools.shutdown()


if __name__ == "__main__":
    main()
