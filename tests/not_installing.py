"""A machine on which no package can be had."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from benchmarks.peers import installing

WORDS = "ERROR: No matching distribution found"


def no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on in this test: every Python fails with the installer's own words."""
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\necho '{WORDS}' >&2\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(installing, "PLACE", tmp_path / "peers")
    monkeypatch.setattr(sys, "executable", str(broken))
