"""An MCP server over stdio that is made by hand, starts at once, and does what servers should not do.

`python -m tests.mcp.odd LEDGER [WORD…]`: a call of a tool is a line in the ledger, and so is every
notification that it hears. The words: `stubborn` (it ends neither with its stdin nor when it is asked to).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.mcp.ledger import Ledger

ANY = {"type": "object"}
HINTS = {
    "look": {"annotations": {"readOnlyHint": True}},
    "wipe": {"annotations": {"readOnlyHint": False, "destructiveHint": True}},
}
_lock = threading.Lock()
_answers: dict[str, Any] = {}
_last: list[object] = []  # what is answered when its stdin has ended


def say(message: object) -> None:
    line = message if isinstance(message, bytes) else json.dumps(message).encode()
    with _lock:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def result(id_: object, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": {"content": [{"type": "text", "text": text}]}}


def held(ledger: Ledger) -> None:
    while ledger.hold.exists():
        time.sleep(0.005)


def ask_client(method: str, params: dict[str, Any]) -> Any:
    id_ = f"{method} {len(_answers)}"
    say({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
    while id_ not in _answers:
        time.sleep(0.005)
    return _answers[id_]


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def twice(id_: object, told: str) -> None:
    say(result(id_, told))
    time.sleep(0.1)
    say(result(id_, "the second answer"))
    say(NOTE)


def leave_a_child(id_: object, told: str) -> None:
    """It holds the pipes while its parent is gone. Its name says whose it is."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]], stderr=2)
    os._exit(7)


def flood(id_: object, told: str) -> None:
    for n in range(200):
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": n, "data": "x" * 4096}})
    say(result(id_, told))


def close_stdin(id_: object, told: str) -> None:
    os.close(0)
    say({"jsonrpc": "2.0", "method": "notifications/closed"})


def say_all(*messages: object) -> None:
    for each in messages:
        say(each)


def half(id_: object, told: str) -> None:
    sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id')
    sys.stdout.buffer.flush()
    os._exit(0)


NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}
UNREADABLE = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "unreadable"}}
# By the name of the tool: what it does with the request's id and the words of a proper answer.
DOES: dict[str, Callable[[Any, str], None]] = {
    "die": lambda id_, told: die(signal.SIGKILL),
    "exit": lambda id_, told: os._exit(3),
    "twice": twice,
    "wrong": lambda id_, told: say_all(result("nobody's", told), result(id_, told)),
    "as_text": lambda id_, told: say(result(str(id_), told)),
    "noise": lambda id_, told: say_all(b"Server is listening...", b"\xff\xfe{", result(id_, told)),
    "silent": lambda id_, told: None,
    "array": lambda id_, told: say([NOTE, result(id_, told)]),
    "half": half,
    "child": leave_a_child,
    "flood": flood,
    "deaf": close_stdin,
    "unreadable": lambda id_, told: say(UNREADABLE),
}


def properly(id_: object, told: str) -> None:
    say(result(id_, told))


def call(ledger: Ledger, id_: object, params: dict[str, Any]) -> None:
    tool, arguments = params["name"], params.get("arguments") or {}
    number = ledger.write(f"{tool} {arguments.get('order', '')}".strip())
    told = f"{tool} {number}"
    if token := params.get("_meta", {}).get("progressToken"):
        told_so = {"progressToken": token, "progress": 1}
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": told_so})
    held(ledger)
    if tool == "large":
        told = "x" * arguments["size"]
    elif tool == "asks":
        told += f": {ask_client(arguments['method'], {'order': arguments.get('order')})}"
        told += "x" * arguments.get("pad", 0)
    elif tool == "umask":
        mask = os.umask(0)
        told = f"{mask:03o}"
    DOES.get(tool, properly)(id_, told)


def hear(ledger: Ledger, message: dict[str, Any]) -> None:
    method, id_ = message.get("method"), message.get("id")
    if method is None:
        _answers[str(id_)] = message.get("result", message.get("error"))
    elif method == "tools/call":
        threading.Thread(target=call, args=(ledger, id_, message["params"]), daemon=True).start()
    elif id_ is None:
        ledger.write(f"heard {method} {json.dumps(message.get('params'))}")
    elif method == "tools/list":
        tools = [
            {"name": name, "inputSchema": ANY, **HINTS.get(name, {})} for name in ("look", "pay", "wipe")
        ]
        say({"jsonrpc": "2.0", "id": id_, "result": {"tools": tools}})
    elif method == "slow":
        ledger.write("slow")
    elif method == "last":
        _last.append(id_)
    elif method == "initialize":
        info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
        say({"jsonrpc": "2.0", "id": id_, "result": {"protocolVersion": "2025-11-25", **info}})
    else:
        say({"jsonrpc": "2.0", "id": id_, "result": {"method": method, "params": message.get("params")}})


def heard_lines() -> Iterator[bytes]:
    try:
        yield from sys.stdin.buffer
    except OSError:  # it has closed it
        while True:
            time.sleep(1)


def main() -> None:
    ledger = Ledger(Path(sys.argv[1]))
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in heard_lines():
        try:
            message = json.loads(line)
        except ValueError:
            say({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no JSON"}})
            continue
        for each in message if isinstance(message, list) else [message]:
            hear(ledger, each)
    for id_ in _last:
        say(result(id_, "the last word"))
    while "stubborn" in sys.argv:
        time.sleep(1)


if __name__ == "__main__":
    main()
