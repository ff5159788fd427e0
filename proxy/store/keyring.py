"""The keys of a record that is encrypted: what is written is sealed with the first, any of them opens.

A key is 32 random bytes in base64. They come from a file, one to a line, or from SEMEL_ENCRYPTION_KEY. A file
is looked at again while semel runs, so that a key that was added there is used without a restart: at once
when something turns up that no known key opens, and for writing within `LOOK_AGAIN` seconds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from proxy.errors import ConfigurationError

VARIABLE = "SEMEL_ENCRYPTION_KEY"
ID_SIZE = 8
# So old may this process's knowledge of the key file be when it writes. A rotation waits for longer.
LOOK_AGAIN = 0.5
_LARGEST = 64 * 1024
_Seen: TypeAlias = tuple[int, int, int]  # what tells one state of a file from another


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """Shown by its id alone, which tells nothing of it."""

    secret: bytes
    id: bytes

    @classmethod
    def of(cls, secret: bytes) -> Key:
        return cls(secret, hashlib.blake2b(secret, digest_size=ID_SIZE, person=b"semel key id").digest())

    def __repr__(self) -> str:
        return f"Key({self.name})"

    @property
    def name(self) -> str:
        return self.id.hex()


Ring: TypeAlias = tuple[Key, ...]  # the first one seals


class Keys(Protocol):
    def current(self) -> Key:
        """The one to seal with."""

    def find(self, key_id: bytes) -> Key | None:
        """The one of this id, if it is there by now."""

    @property
    def ring(self) -> Ring: ...

    @property
    def shown(self) -> str:
        """Where they come from, for people."""


class GivenKeys:
    """From the environment: they stay what they are for as long as the process lives."""

    def __init__(self, text: str, shown: str = VARIABLE) -> None:
        self.ring = parse(text, shown)
        self.shown = shown

    def current(self) -> Key:
        return self.ring[0]

    def find(self, key_id: bytes) -> Key | None:
        return _among(self.ring, key_id)


class FileKeys:
    """A file that cannot be read later, or makes no sense, changes nothing: the keys known so far go on."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._now = now
        self._looked_at = now()
        self._seen, self.ring = _read(path)

    @property
    def shown(self) -> str:
        return str(self.path)

    def current(self) -> Key:
        if self._now() - self._looked_at > LOOK_AGAIN:
            self._look()
        return self.ring[0]

    def find(self, key_id: bytes) -> Key | None:
        known = _among(self.ring, key_id)
        if known is None and self._look():
            known = _among(self.ring, key_id)
        return known

    def _look(self) -> bool:
        """Whether there is something new. A look costs little: who damages records gains nothing by it."""
        self._looked_at = self._now()
        try:
            if _state(self.path) == self._seen:
                return False
            self._seen, self.ring = _read(self.path)
        except (OSError, ConfigurationError):
            return False
        return True


def _among(ring: Iterable[Key], key_id: bytes) -> Key | None:
    return next((key for key in ring if key.id == key_id), None)


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def parse(text: str, shown: str) -> Ring:
    """ConfigurationError, without a word of what stands there."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    keys = [Key.of(_decoded(word, shown)) for line in lines for word in re.split(r"[\s,]+", line) if word]
    if not keys:
        raise ConfigurationError(f"{shown} has no key. Make one with `semel keys new --key-file FILE`.")
    return tuple(dict.fromkeys(keys))


def _decoded(word: str, shown: str) -> bytes:
    try:
        secret = base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != 32:
        raise ConfigurationError(
            f"{shown}: a key is 32 bytes in base64 (44 characters), one to a line, and something there is "
            "not. `semel keys new` prints one."
        )
    return secret


def _read(path: Path) -> tuple[_Seen, Ring]:
    try:
        seen = _state(path)
        if seen[2] > _LARGEST:
            raise ConfigurationError(f"{path} is too large for a file of keys: name another.")
        text = path.read_text("ascii")
    except OSError as error:
        raise ConfigurationError(
            f"the key file {path} cannot be read: {error.strerror}. `semel keys new --key-file {path}` makes "
            "one for a new record; a record that is encrypted needs the key it was written with."
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a file of keys: keys are base64, one to a line.") from None
    return seen, parse(text, str(path))


def _state(path: Path) -> _Seen:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def open_to_others(path: Path) -> bool:
    """Whether others than its user may read it."""
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False
