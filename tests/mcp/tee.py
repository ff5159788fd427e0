"""Between a client and a server over stdio: keeps every byte. `python -m tests.mcp.tee FILES COMMAND…`: what
goes to the command is in FILES.in, what it says in FILES.out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading


def copied(source: int, target: int, name: str) -> None:
    with open(name, "ab", buffering=0) as kept:  # noqa: PTH123 (starts faster without)
        while data := os.read(source, 65536):
            kept.write(data)
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
    os.close(target)


def main() -> None:
    files, *command = sys.argv[1:]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    asking = threading.Thread(target=copied, args=(0, process.stdin.fileno(), f"{files}.in"), daemon=True)
    asking.start()
    copied(process.stdout.fileno(), 1, f"{files}.out")
    os._exit(process.wait())


if __name__ == "__main__":
    main()
