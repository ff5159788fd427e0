"""A page's `sh` blocks pasted into one shell, one after the other, as a reader would.

The shell stands in a folder that looks like a clone after `make install`. Three things differ from a reader's
terminal: addresses get free ports, the home directory is a scratch one, and `make` does nothing, since it
would install anew; `make soak` pastes the same pages into a real clone with the real `make`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT, Block

PATIENCE = 150.0
PATIENCE_WITH_MAKE = 900.0
GOODBYE = 20.0
ADDRESS = re.compile(r"127\.0\.0\.1(?::|\", )(\d{4,5})")
# Ends a block in the output; the word cannot come from a command.
_BLOCK, _FAILED = "@end-of-block@", "@failed-with@"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    block: Block
    output: str  # both streams
    failures: tuple[int, ...]  # exit statuses of the commands that failed, in order


def looks_like_a_clone(folder: Path) -> Path:
    """Everything of the repository by its name, and the environment that runs this test as `.venv`."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") or entry.name == ".ci":
            (folder / entry.name).symlink_to(entry)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def free_ports(number: int) -> list[str]:
    """Held all at once, so that no two are the same."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


def renamed(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def paste(blocks: Sequence[Block], folder: Path, scratch: Path, *, make: bool) -> list[Pasted]:
    """In one shell; nothing that it started is left behind. `make`: whether `make` is really run."""
    script = ["" if make else "make() { :; }", f"trap 'echo {_FAILED} $?' ERR"]
    for block in blocks:
        script += [block.text, f"echo; echo {_BLOCK}"]
    text = "\n".join([*script, ""])
    named = sorted(set(ADDRESS.findall(text)))
    ports = dict(zip(named, free_ports(len(named)), strict=True))
    said = _shell(renamed(text, ports), folder, scratch, PATIENCE_WITH_MAKE if make else PATIENCE)
    said = renamed(said, {free: port for port, free in ports.items()})
    outputs = said.split(f"{_BLOCK}\n")
    assert len(outputs) == len(blocks) + 1, f"the shell ended early: {said}"
    return [
        Pasted(
            block=block,
            output=re.sub(rf"^{_FAILED} \d+\n", "", output, flags=re.MULTILINE),
            failures=tuple(int(one) for one in re.findall(rf"{_FAILED} (\d+)", output)),
        )
        for block, output in zip(blocks, outputs, strict=False)
    ]


def environment(home: Path) -> dict[str, str]:
    """A reader's: no settings by variable, no virtual environment but the one that the page activates."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "VIRTUAL_"))}
    own = str(Path(sys.executable).parent)
    path = [entry for entry in kept["PATH"].split(":") if entry != own or sys.prefix == sys.base_prefix]
    return {**kept, "PATH": ":".join(path), "HOME": str(home), "TMPDIR": str(home.parent)}


def _shell(script: str, folder: Path, scratch: Path, patience: float) -> str:
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    (scratch / "pasted").write_text(script)
    shell = subprocess.Popen(
        ["bash", "--norc", str(scratch / "pasted")],
        cwd=folder,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        said = shell.communicate(timeout=patience)[0]
        assert _all_ended(shell.pid), f"what was started is still running:\n{said}"
        return said
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()


def _all_ended(group: int) -> bool:
    """An example stops what it starts. What was told to stop may take a moment: calls are let finish."""
    until = time.monotonic() + GOODBYE
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False
