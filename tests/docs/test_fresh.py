"""From nothing: a fresh clone, a fresh environment, the two commands, every block of every page."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.pasting import environment, free_ports, paste
from tests.docs.test_pasted import WITH_COMMANDS, check

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository's history"),
]


def cloned(folder: Path) -> Path:
    """What a clone of the present files would have: nothing that is ignored, nothing that was made here."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def test_a_fresh_clone_does_what_the_pages_say(tmp_path: Path) -> None:
    """The README installs; the other pages go on from there; `make run` serves."""
    clone = cloned(tmp_path / "clone")
    assert not (clone / ".venv").exists()
    first = ROOT / "README.md"
    for page in [first, *(page for page in WITH_COMMANDS if page != first)]:
        for pasted in paste(blocks(page, "sh"), clone, tmp_path, make=True):
            check(pasted)
    make_run_serves(clone, tmp_path)


def make_run_serves(clone: Path, tmp_path: Path) -> None:
    """Without a policy there is no upstream, and it says so; Ctrl-C ends it."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        ["make", "run", f"ARGS=--listen 127.0.0.1:{port}"],
        cwd=clone,
        env=environment(tmp_path / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        expected = {f"semel is ready on http://127.0.0.1:{port}"}
        for line in iter(process.stdout.readline, ""):
            expected -= {one for one in expected if line.startswith(one)}
            if not expected:
                break
        assert expected == set()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
