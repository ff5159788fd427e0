"""The tokens of a first start: made once, printed once, known afterwards by their digests.

For containers and first servers, where nobody can run `semel token new` beforehand. Whoever has lost them
removes the file and starts again.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from proxy.errors import ConfigurationError
from proxy.settings import Role, Token
from proxy.tokens import digest, new_token

FILE_NAME = "tokens.json"
TENANT = "default"
# In the place of those that are not made yet, to see whether everything else is right.
ANY_TOKEN = Token(sha256="0" * 64, tenant=TENANT, role=Role.AGENT)
# An operator decides, an agent calls: one token for both would let an agent settle its own calls.
_ROLES = (Role.AGENT, Role.OPERATOR)


def first_tokens(state: Path) -> tuple[tuple[Token, ...], dict[Role, str]]:
    """What the state directory knows, and the tokens themselves if they were made just now."""
    path = state / FILE_NAME
    try:
        if not path.exists():
            made = {role: new_token() for role in _ROLES}
            if _create(path, made):
                return _read(path), made
        return _read(path), {}
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be used: {error.strerror}. --first-token needs a state directory that semel may "
            "write; name another with --state-dir."
        ) from error


def _create(path: Path, made: dict[Role, str]) -> bool:
    """Whole and on the disk before anybody is told a token; False if another process was faster."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries = [{"sha256": digest(token), "tenant": TENANT, "role": role} for role, token in made.items()]
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=FILE_NAME) as draft:
        json.dump(entries, draft, indent=2)
        draft.flush()
        os.fsync(draft.fileno())
        try:
            os.link(draft.name, path)
        except FileExistsError:
            return False
    directory = os.open(path.parent, os.O_RDONLY)
    with suppress(OSError):  # some file systems cannot; then the file is as durable as its directory
        os.fsync(directory)
    os.close(directory)
    return True


def _read(path: Path) -> tuple[Token, ...]:
    try:
        entries = json.loads(path.read_text())
        if not isinstance(entries, list) or not entries:  # no tokens would mean: everybody may
            raise ValueError("there are no tokens in it")
        return tuple(map(_token, entries))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} is not what semel wrote there ({error}). Remove it to get new tokens; the old ones are "
            "then worth nothing."
        ) from error


def _token(entry: dict[str, Any]) -> Token:
    sha256, tenant, role = entry["sha256"], entry["tenant"], entry["role"]
    if not isinstance(sha256, str) or re.fullmatch("[0-9a-f]{64}", sha256) is None:
        raise ValueError("a digest is not 64 hexadecimal digits")
    if not isinstance(tenant, str) or not tenant:
        raise ValueError("a tenant is not a text")
    return Token(sha256=sha256, tenant=tenant, role=Role(role))
