"""The reference server of the protocol, from npm: it does what a server can do. The old era only.

Installed once per session of tests; where npm, node or the package is not to be had, the
tests that need it are skipped and say why.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters

from tests.mcp.servers import running

PACKAGE = "@modelcontextprotocol/server-everything"
VERSION = "2026.8.31"
INSTALLS_WITHIN = 180.0
# It would listen on every address, and on a port that must be chosen before. Loaded before it: loopback, and
# a port that the kernel chooses and this line names.
LOOPBACK = """
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const then = rest.filter((each) => typeof each === "function");
  this.once("listening", () => require("node:fs").writeSync(1, `{"port": ${this.address().port}}\\n`));
  return listen.call(this, 0, "127.0.0.1", ...then);
};
console.log = () => {};
"""


def installed(at: Path) -> Path:
    """Its program, in a folder that all processes of a session share. Skips the test."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"the reference server needs {' and '.join(missing)}")
    program = at / "node_modules" / PACKAGE / "dist" / "index.js"
    with at.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _install(at)
    return program


def _install(at: Path) -> None:
    words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(at)]
    try:
        done = subprocess.run(
            [*words, f"{PACKAGE}@{VERSION}"],
            capture_output=True,
            text=True,
            timeout=INSTALLS_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install {PACKAGE} within {INSTALLS_WITHIN:.0f} s")
    if done.returncode:
        pytest.skip(f"npm did not install {PACKAGE}: {done.stderr.strip()[-300:]}")


@contextmanager
def running_everything(program: Path, at: Path) -> Iterator[int]:
    """The port where it speaks HTTP."""
    before = at / "loopback.cjs"
    before.write_text(LOOPBACK)
    with running(["node", "--require", str(before), str(program), "streamableHttp"], at) as line:
        yield int(json.loads(line)["port"])


def stdio_everything(program: Path) -> StdioServerParameters:
    return StdioServerParameters(command="node", args=[str(program), "stdio"])
