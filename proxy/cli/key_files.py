"""Changing a file of keys: whole or not at all, private, and durable before anything is sealed with it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from proxy.errors import ConfigurationError
from proxy.store.keyring import new_key, parse


def add_key(path: Path, *, make: bool = True) -> tuple[str, bool]:
    """A new key before the others: its name, and whether it is the only one."""
    text = _text(path, make=make)
    key = new_key()
    others = parse(text, str(path)) if text else ()
    _replace(path, f"{key}\n{text}")
    return parse(key, str(path))[0].name, not others


def drop_key(path: Path, name: str) -> None:
    """Whatever else stands in the file stays, comments too."""
    lines = _text(path, make=False).splitlines(keepends=True)
    kept = [line for line in lines if name not in _names(line, str(path))]
    _replace(path, "".join(kept))


def _names(line: str, shown: str) -> list[str]:
    return [key.name for key in parse(line, shown)] if line.partition("#")[0].strip() else []


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
    """Keys that are lost are records that are lost: on the disk before the old file goes."""
    try:
        fd, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                Path(made).chmod(path.stat().st_mode & 0o777)
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise ConfigurationError(
            f"the key file {path} cannot be written: {error.strerror}. Nothing was changed."
        ) from None
