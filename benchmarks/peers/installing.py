"""Each project in an environment of its own under .peers/, made once and again when its pins change."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.programs import ROOT

HERE = Path(__file__).parent
PLACE = ROOT / ".peers"
WITHIN = 600.0
PYTHON_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


class NotInstalled(Exception):
    """Why."""


async def _run(words: Sequence[str], cwd: Path = ROOT) -> str:
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(WITHIN):
            out, errors = await process.communicate()
    except TimeoutError:
        raise NotInstalled(f"{words[0]} took longer than {WITHIN:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = [line for line in errors.decode(errors="replace").splitlines() if "error" in line.lower()]
        raise NotInstalled(said[0][:200] if said else f"{words[0]} ended with {process.returncode}")
    return out.decode().strip()


def _is_made(place: Path, pins: str) -> bool:
    stamp = place / "made"
    return stamp.exists() and stamp.read_text() == _digest(pins)


def _digest(pins: str) -> str:
    return hashlib.sha256(pins.encode()).hexdigest()


def installed(name: str) -> bool:
    """Whether it could be used without asking anybody for a package."""
    return _is_made(PLACE / name, _pins(name).read_text())


def _pins(name: str) -> Path:
    node = HERE / name / "package.json"
    return node if node.exists() else HERE / "requirements" / f"{name}.txt"


async def python(name: str, pins: Path | None = None) -> Path:
    """The interpreter of an environment that has what the pins name."""
    pins, place = pins or _pins(name), PLACE / name
    if not _is_made(place, pins.read_text()):
        shutil.rmtree(place, ignore_errors=True)
        await _run([sys.executable, "-m", "venv", str(place)])
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        await _run([*pip, "--disable-pip-version-check", "-r", str(pins)])
        (place / "made").write_text(_digest(pins.read_text()))
    return place / "bin" / "python"


async def node(name: str) -> Path:
    """Its node_modules. Nothing in a package is run while it is installed."""
    pins, place = _pins(name), PLACE / name
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotInstalled(f"there is no {program} on this machine")
    if not _is_made(place, pins.read_text()):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copy(pins, place)
        words = ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
        await _run(words, place)
        (place / "made").write_text(_digest(pins.read_text()))
    return place / "node_modules"


async def version(name: str, package: str) -> str:
    if (HERE / name / "package.json").exists():
        told = json.loads((PLACE / name / "node_modules" / package / "package.json").read_text())
        return str(told["version"])
    return await _run([str(PLACE / name / "bin" / "python"), "-c", PYTHON_VERSION, package])
