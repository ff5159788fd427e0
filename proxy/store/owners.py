"""Which processes live: each holds a lock on a file of its own, and the kernel lets go when it dies.

An epoch is unique for ever, so a dead one never comes back, and a file that is gone means dead. The lock is
taken before the file gets its name: no epoch is ever seen unlocked while its process lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
import weakref
from pathlib import Path

from proxy.errors import ConfigurationError

_EPOCH = re.compile(r"[0-9]+-[0-9]+-[0-9a-f]{16}")
_SUFFIX = ".lock"
_UNNAMED = "new-"
# No process takes so many seconds to name its file.
ABANDONED = 3600.0
# How old a look at the own file may be when a send asks: a look is a system call, and there are thousands
# of sends a second. The kernel keeps the lock while the process lives, awake or asleep, so it cannot be
# lost; only somebody's hand can remove the file. A send in the moment after that is as one begun the moment
# before: to others its call is in doubt, nobody repeats it yet, and its answer settles it.
LOOK_EVERY = 0.25


class Owner:
    """This process's epoch, held until `release`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self.epoch = f"{time.time_ns()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._path = self._path_of(self.epoch)
        unnamed = directory / f"{_UNNAMED}{self.epoch}"
        self._fd = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._lock(unnamed)
            unnamed.rename(self._path)
        except BaseException:
            os.close(self._fd)
            unnamed.unlink(missing_ok=True)
            raise
        self._held = True
        self._next_look = 0.0
        _close_after_fork(self)

    def _lock(self, path: Path) -> None:
        """Take the lock, and prove that it keeps others out: on some network file systems it does not."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            works = not _can_lock(path)
        except OSError:
            works = False
        if not works:
            raise ConfigurationError(
                f"file locks do not work in {self._directory}, and semel needs them to know which of its "
                "processes live. Use a --state-dir on a local disk."
            )

    def holds(self) -> bool:
        """For every send: what `look` said, at most LOOK_EVERY ago."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self.look()
        return self._held

    def look(self) -> bool:
        """False once released, or when somebody removed the file: others then take this process for dead."""
        self._held = self._held and os.fstat(self._fd).st_nlink > 0
        return self._held

    def is_dead(self, epoch: str) -> bool:
        if epoch == self.epoch:
            return not self.look()
        if not _EPOCH.fullmatch(epoch):
            return True  # not a name that this store ever gave
        try:
            return _can_lock(self._path_of(epoch))
        except FileNotFoundError:
            return True

    def living(self) -> int:
        return living(self._directory)

    def others_live(self) -> bool:
        return self.living() > 1

    def forget_dead(self, needed: frozenset[str]) -> None:
        """Remove the files of dead owners, save those in `needed`."""
        for path in self._directory.glob(f"*{_SUFFIX}"):
            epoch = path.name.removesuffix(_SUFFIX)
            if epoch not in needed and self.is_dead(epoch) and epoch != self.epoch:
                path.unlink(missing_ok=True)
        for path in self._directory.glob(f"{_UNNAMED}*"):  # left by a crash between making and naming it
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - ABANDONED:
                    path.unlink()

    def release(self) -> None:
        if self._fd >= 0:
            if self.look():
                self._path.unlink(missing_ok=True)
            self._let_go()

    def after_fork(self) -> None:
        """In a child: the lock belongs to the parent and must die with it, so its copy is closed."""
        if self._fd >= 0:
            self._let_go()

    def _let_go(self) -> None:
        self._held = False
        os.close(self._fd)
        self._fd = -1

    def _path_of(self, epoch: str) -> Path:
        return self._directory / f"{epoch}{_SUFFIX}"


def living(directory: Path) -> int:
    """How many processes use the store now. Looking changes nothing and disturbs nobody."""
    count = 0
    for path in directory.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            count += not _can_lock(path)
    return count


def _can_lock(path: Path) -> bool:
    """Shared, so that two who look at once do not take each other for the owner."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _close_after_fork(owner: Owner) -> None:
    reference = weakref.ref(owner)

    def close() -> None:
        with contextlib.suppress(OSError):
            if (held := reference()) is not None:
                held.after_fork()

    os.register_at_fork(after_in_child=close)
