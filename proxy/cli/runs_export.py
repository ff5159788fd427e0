"""Writing runs out: to standard output as they come, or to a file that is whole or not there.

A file is written beside its name and renamed when everything is in it and on disk, so that whoever reads it
never meets half an export, and an export that fails leaves the older file as it was.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proxy.cli.output import Refused, counted, warn
from proxy.errors import ConfigurationError, RunExpired

if TYPE_CHECKING:
    from proxy.admin.desk import Desk

PAGE = 100
# How often a terminal is told, in bytes written.
TELL_EVERY = 1024 * 1024


class Written(NamedTuple):
    runs: int
    size: int


async def export(desk: Desk, name: str | None, output: str | None) -> Written:
    """One run, or all that have not expired."""
    if output is None:
        return await _print(desk, name)
    with landing(output) as write:
        return await _write(desk, name, write)


@contextmanager
def landing(output: str) -> Iterator[Callable[[bytes], object]]:
    """What is written lands under that name at the end, all of it; after an error nothing does."""
    path = Path(output)
    try:
        if path.is_dir():
            raise ConfigurationError(f"--output {output}: it is a directory; name a file.")
        handle, made = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise ConfigurationError(f"--output {output}: {error.strerror}.") from None
    unfinished = Path(made)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        unfinished.chmod(0o666 & ~_umask())  # as a plain new file would be
        unfinished.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise Refused(f"{output} was not written: {error.strerror}. What was there is as it was.") from None
    finally:
        with suppress(OSError):
            unfinished.unlink()


async def _print(desk: Desk, name: str | None) -> Written:
    if sys.stdout is None:
        raise Refused("Standard output is closed: there is nowhere to print to. Use --output FILE.")
    if sys.stdout.isatty():
        from proxy.cli.calls_text import harmless

        return await _write(desk, name, lambda part: print(harmless(part), end=""), quiet=True)
    sys.stdout.flush()
    return await _write(desk, name, sys.stdout.buffer.write)


async def _write(
    desk: Desk, name: str | None, write: Callable[[bytes], object], *, quiet: bool = False
) -> Written:
    runs = size = told = 0
    tells = not quiet and name is None and sys.stderr is not None and sys.stderr.isatty()
    async for one, whose in _chosen(desk, name):
        try:
            parts = await whose.runs.export(one)
        except RunExpired:
            if name is not None:
                raise
            continue  # since it was listed
        async for part in parts:
            write(part)
            size += len(part)
            if tells and size - told >= TELL_EVERY:
                told = size
                print(f"\r{counted(runs, 'run')}, {size} bytes", end="", file=sys.stderr, flush=True)
        runs += 1
    if told:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if name is None and not runs:
        warn("There is no run to export.")
    return Written(runs, size)


async def _chosen(desk: Desk, name: str | None) -> AsyncIterator[tuple[str, Desk]]:
    """Names, each with the desk of its tenant: two tenants may use the same one."""
    from proxy.admin.desk import LocalDesk
    from proxy.store.base import RunQuery

    if name is not None:
        yield name, desk
        return
    after: int | None = None
    while True:
        page = await desk.runs.page(RunQuery(limit=PAGE, after=after))
        for run in page["runs"]:
            if run["state"] != "expired":
                yield run["run"], desk.of(run["tenant"]) if isinstance(desk, LocalDesk) else desk
        after = page["next"]
        if after is None:
            return


def _umask() -> int:
    """There is no way to read it but to set it."""
    present = os.umask(0o077)
    os.umask(present)
    return present


def _sync(directory: Path) -> None:
    """The new name is on disk too."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
