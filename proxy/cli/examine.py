"""The examinations of `semel doctor`: each looks at one thing, changes nothing, takes a bounded time.

A finding that is not `ok` says what to do. The upstreams are looked at in handshake.py.
"""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from proxy.ca import FOLDER, load
from proxy.cli.ca import ADDING, REPLACING
from proxy.cli.open_files import allow_open_files
from proxy.cli.reach import SQLITE
from proxy.errors import ConfigurationError
from proxy.quantities import show_duration
from proxy.settings import Settings
from proxy.store.database import FILE_NAME
from proxy.store.owners import living

PATIENCE = 5.0
MIB = 1 << 20
# Below the first the ledger may stop any minute; below the second somebody should look.
NO_SPACE, LITTLE_SPACE = 64 * MIB, 1024 * MIB
# Clocks are corrected by some seconds all the time; a record from further ahead shows one that jumped.
AHEAD = 120.0


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    verdict: Verdict
    found: str
    do: str = ""

    def __post_init__(self) -> None:
        if (self.verdict is Verdict.OK) == bool(self.do):
            raise ValueError("what is not ok says what to do, and only that")


def ok(about: str, found: str) -> Finding:
    return Finding(about=about, verdict=Verdict.OK, found=found)


def warning(about: str, found: str, do: str) -> Finding:
    return Finding(about=about, verdict=Verdict.WARN, found=found, do=do)


def failure(about: str, found: str, do: str) -> Finding:
    return Finding(about=about, verdict=Verdict.FAIL, found=found, do=do)


def whose_files(proxy: str | None) -> Iterator[Finding]:
    """What a running proxy reads can only be seen where it runs."""
    if proxy is not None:
        yield ok(
            "files",
            f"these are the files here: {proxy} is only asked whether it is ready, and may have others",
        )


# ---- this machine ----


def machine(settings: Settings) -> Iterator[Finding]:
    told = allow_open_files(settings.limits.connections)
    if told:
        found, _, do = told.partition(". ")
        yield warning("open files", f"{found}.", do)
    else:
        yield ok("open files", f"enough for {settings.limits.connections} connections")
    yield clock(settings.state, time.time())


def clock(state: Path, now: float) -> Finding:
    """Against the record's own files: what was written cannot lie in the future."""
    newest = 0.0
    for path in (state, state / FILE_NAME, state / f"{FILE_NAME}-wal"):
        try:
            newest = max(newest, path.stat().st_mtime)
        except OSError:
            continue  # not there yet: nothing to compare with
    if newest > now + AHEAD:
        return failure(
            "clock",
            f"the record was last written {show_duration(round(newest - now))} in the future",
            "Set the clock of this machine: by a wrong one, calls are kept too long or lapse too early.",
        )
    return ok("clock", time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(now)))


def proxy_variables(proxy: str, authority: Path) -> Iterator[Finding]:
    """Of this environment, which is taken to be the agent's as well. `authority`: semel's certificate."""
    host, place = urlsplit(proxy).hostname or "", urlsplit(proxy).netloc
    for scheme, value in sorted(getproxies_environment().items()):
        about = f"{scheme.upper()}_PROXY"
        named = urlsplit(value if "//" in value else f"//{value}").netloc.rpartition("@")[2]
        if scheme in ("http", "https", "all") and named == place:
            yield _as_proxy(about, authority)
        elif scheme in ("http", "all") and not proxy_bypass(host):
            yield warning(
                about,
                "clients would look for semel behind another proxy",
                f"Add {host} to NO_PROXY in the agent's environment.",
            )


def _as_proxy(about: str, authority: Path) -> Finding:
    """What comes by HTTPS is only understood by clients that trust semel's authority."""
    found = "points at semel, as a forward proxy"
    files = [os.environ[name] for name in (*REPLACING, ADDING) if os.environ.get(name)]
    if about == "HTTP_PROXY" or any(_holds(Path(file), authority) for file in files):
        return ok(about, found)
    return warning(about, f"{found}, and no client is told to trust it", "`semel ca` says what to set.")


def _holds(bundle: Path, certificate: Path) -> bool:
    try:
        return certificate.read_text().strip() in bundle.read_text()
    except (OSError, UnicodeDecodeError):
        return False


# ---- the state directory ----


def state_directory(settings: Settings) -> Iterator[Finding]:
    about, state = "state directory", settings.state
    if settings.store == "memory":
        yield warning(
            "store", "memory: everything is forgotten when the process ends", "Use `store: embedded`."
        )
        return
    # Not Path.exists: what lies below a directory that may not be entered is not seen, and that is no error.
    there = next(path for path in (state.absolute(), *state.absolute().parents) if os.path.exists(path))  # noqa: PTH110
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        what = "is not a directory" if not there.is_dir() else "may not be written by this user"
        yield failure(about, f"{there} {what}", "Name another with --state-dir, or mend this one.")
        return
    if not state.exists():
        yield ok(about, f"{state} will be made by `semel serve`")
    elif (mode := stat.S_IMODE(state.stat().st_mode)) & 0o077:
        yield warning(
            about,
            f"{state} may be entered by others (mode {mode:04o})",
            f"Close it: chmod 700 {state}. `semel serve` does so if nothing but its own files are in it.",
        )
    else:
        users = living(state / "owners")
        yield ok(about, f"{state}, private, {users} living process{'' if users == 1 else 'es'}")
    yield _space(there)
    yield from _contents(state)


def _space(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    found = f"{free // MIB} MiB left on the disk of {directory}"
    if free >= LITTLE_SPACE:
        return ok("disk space", found)
    do = "Make room: without it semel refuses calls. `semel gc` removes what has lapsed."
    return (failure if free < NO_SPACE else warning)("disk space", found, do)


def _contents(state: Path) -> Iterator[Finding]:
    """What can be seen without opening the database, which would be one more process on it."""
    database = state / FILE_NAME
    try:
        if database.exists():
            with database.open("rb") as file:
                begins = file.read(len(SQLITE))
            if begins not in (SQLITE, b""):
                yield failure("record", f"{database} is not a database", "Restore it from a backup.")
        if (state / FOLDER).exists():
            load(state)
            yield ok("certificate authority", f"{state / FOLDER}")
    except ConfigurationError as error:
        found, _, do = str(error).partition(". ")
        yield failure("certificate authority", f"{found}.", do or "Run `semel ca` to see what is wrong.")
    except OSError as error:
        yield failure(
            "state directory",
            f"{error.filename} cannot be read: {error.strerror}",
            "Let the user who runs semel own it.",
        )


# ---- the listener ----


def listener(settings: Settings, proxy: str | None) -> Iterator[Finding]:
    """The address is free, or a semel is there already. With `proxy`: that one must be there."""
    if proxy is not None:
        yield from _semel_at(proxy, "Start it with `semel serve`, or correct --proxy.")
        return
    about, listen = "listen", settings.listen
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        socket.create_server((listen.host, listen.port), family=family).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            yield failure(
                about, f"{listen}: {error.strerror}", "Choose another with --listen or in semel.yaml."
            )
            return
        yield from _semel_at(
            f"http://{listen}", "Stop what uses the address, or choose another with `semel serve --listen`."
        )
    else:
        yield ok(about, f"{listen} is free: `semel serve` can use it")


def _semel_at(url: str, do: str) -> Iterator[Finding]:
    about = "proxy"
    try:
        lives, ready = _get(url, "/healthz"), _get(url, "/readyz")
    except (OSError, http.client.HTTPException) as error:
        yield failure(about, f"{url} does not answer: {getattr(error, 'strerror', None) or error}", do)
        return
    if lives != (200, "ok\n"):
        yield failure(about, f"what answers on {url} is not semel", do)
    elif ready != (200, "ready\n"):
        yield failure(about, f"semel on {url} is not ready (/readyz says {ready[0]})", "Look at its log.")
    else:
        yield ok(about, f"semel on {url} lives and is ready")


def _get(url: str, path: str) -> tuple[int, str]:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(100).decode("utf-8", "replace")
    finally:
        connection.close()
