"""Reading a configuration file's bytes: bounded, regular files only, every failure a mistake."""

from __future__ import annotations

import stat
from pathlib import Path

from proxy.policy_file.mistakes import Log, Place
from proxy.policy_file.nodes import LARGEST_FILE


def read_bytes(path: Path, log: Log) -> bytes | None:
    """At most one byte more than is allowed, and only of a regular file: a pipe would never end."""
    at = Place(str(path), 1, 1)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            log.add(at, "this is not a regular file")
            return None
        with path.open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        log.add(at, "there is no such file or directory: correct the path, or create it")
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        log.add(at, f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
    return None
