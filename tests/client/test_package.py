"""What a developer installs: `import semel` from the wheel, typed, without the proxy's dependencies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# -S: no site-packages at all; -I: nothing from here.
ALONE = "import sys; sys.path.insert(0, sys.argv[1]); import semel; print(semel.__all__[-1], semel.__file__)"


def test_the_wheel_has_it_and_it_needs_nothing_else(tmp_path: Path) -> None:
    """Imported from the wheel by a Python that has no packages."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(wheel)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["tool", f"{wheel}/semel/__init__.py"]
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "semel/py.typed" in listed.stdout
