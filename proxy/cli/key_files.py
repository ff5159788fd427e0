"""Changing a file of keys: whole or not at all, private, and durable before anything is sealed with it.

One change after another: of two at once that both read first, one would lose the other's key, with which
something may be sealed by then.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.errors import ConfigurationError
from proxy.store.keyring import new_key, parse


def add_key(path: Path, *, make: bool = True) -> tuple[str, bool]:
    """A new key before the others: its name, and whether it is the only one."""
    with _alone(path) as file:
        text = _text(file, make=make)
        key = new_key()
        others = parse(text, str(path)) if text else ()
        _replace(file, f"{key}\n{text}")
    return parse(key, str(path))[0].name, not others


def drop_key(path: Path, name: str) -> None:
    """Whatever else stands in the file stays: comments, and keys in the same line too."""
    with _alone(path) as file:
        lines = _text(file, make=False).splitlines(keepends=True)
        _replace(file, "".join([_without(line, name, str(path)) for line in lines]))


def _without(line: str, name: str, shown: str) -> str:
    said, mark, comment = line.partition("#")
    words = [word for word in re.split(r"[\s,]+", said) if word]
    kept = [word for word in words if parse(word, shown)[0].name != name]
    if kept == words:
        return line
    return " ".join([*kept, f"{mark}{comment}".strip()]).strip() + "\n" if kept else ""


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """The file itself, where the path is a link to it, with nobody else changing it. The lock is on the
    directory: the file is another one after each change."""
    file = path.resolve()
    try:
        directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield file
        os.fsync(directory)
    except OSError as error:
        raise _not_written(path, error) from None
    finally:
        os.close(directory)


def _not_written(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"the key file {path} cannot be written: {error.strerror}. Nothing was changed."
    )


def _text(path: Path, *, make: bool) -> str:
    try:
        return path.read_text("ascii")
    except FileNotFoundError:
        if make:
            return ""
        raise ConfigurationError(
            f"there is no key file {path}: `semel keys new --key-file {path}`."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the key file {path} cannot be read: {error}.") from None


def _replace(path: Path, text: str) -> None:
    """Keys that are lost are records that are lost: on the disk before the old file goes. Whoever reads it
    now reads it afterwards: a change by root must not take it from its owner."""
    fd, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text)
            if path.exists():
                known = path.stat()
                if (known.st_uid, known.st_gid) != (os.geteuid(), os.fstat(fd).st_gid):
                    os.fchown(fd, known.st_uid, known.st_gid)
                os.fchmod(fd, known.st_mode & 0o777)
            file.flush()
            os.fsync(fd)
        Path(made).replace(path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
