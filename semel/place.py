"""Where semel is and in which run we speak: from arguments, the address, and what `semel run` has set.

An argument counts before the address, the address before the environment. Whatever said it, it is sent in
headers: an address with a token in it would end up in the logs of what stands between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from semel.errors import NotConfigured

# What `semel run` writes: /@RUN+ATTEMPT[:TOKEN], before anything else that is semel's.
_SPEAKER = re.compile(r"/@(?P<run>[^/+:]*)(?:\+(?P<attempt>[^/:]*))?(?::(?P<token>[^/]*))?(?=/|$)")
NO_TOKEN = "-"  # noqa: S105 (the opposite of one)
HOW_TO_START = (
    "This tool needs semel, and SEMEL_URL does not say where it is. Start the agent with "
    "`semel run --id NAME -- python agent.py`, or set SEMEL_URL to the address of `semel serve`. "
    "SEMEL_OFF=1 runs the function without semel, and without its promise."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    secure: bool
    host: str
    port: int
    path: str  # of the tools, without a slash at the end
    run: str
    headers: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"{name} cannot be {value!r}: it has characters that no header can hold")

    def __str__(self) -> str:
        """Without the token."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}"


class Said(NamedTuple):
    """What was given to a Client by hand. None: look elsewhere."""

    url: str | None = None
    run: str | None = None
    attempt: str | None = None
    token: str | None = None


def place_of(said: Said, environ: Mapping[str, str]) -> Place | None:
    """None: semel is switched off. SEMEL_OFF counts only where nobody says where semel is: one that was
    forgotten in a shell must not undo `semel run`."""
    url = said.url or environ.get("SEMEL_URL")
    if not url:
        if environ.get("SEMEL_OFF") == "1":
            return None
        raise NotConfigured(HOW_TO_START)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"semel's address is like http://127.0.0.1:8080 or https://…, not {url!r}")
    found = _SPEAKER.search(parts.path)
    named = {name: unquote(text) for name, text in (found.groupdict("") if found else {}).items()}
    run = said.run or named.get("run") or environ.get("SEMEL_RUN", "")
    attempt = said.attempt or named.get("attempt") or environ.get("SEMEL_ATTEMPT", "")
    token = said.token or named.get("token") or environ.get("SEMEL_TOKEN", "")
    if said.attempt and not run:
        raise ValueError("An attempt needs a run: Client(run=…, attempt=…)")
    speaker = {
        "Semel-Run": run,
        "Semel-Attempt": attempt if run else "",
        "Semel-Token": "" if token == NO_TOKEN else token,
    }
    secure = parts.scheme == "https"
    return Place(
        secure=secure,
        host=parts.hostname,
        port=parts.port or (443 if secure else 80),
        path=_SPEAKER.sub("", parts.path, count=1).rstrip("/") + "/_semel/tools",
        run=run,
        headers={name: value for name, value in speaker.items() if value},
    )
