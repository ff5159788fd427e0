"""Who speaks: run, attempt and token, from the address, the headers and the proxy's user; they must agree."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from proxy.errors import BadRequest

# Not what is a step in a path: nobody could reach such a run by its address.
_RUN = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,128}")
_ATTEMPT = re.compile(r"[A-Za-z0-9._-]{1,64}")
# A password that says that there is none: some clients drop the user where the password is empty.
NO_TOKEN = "-"  # noqa: S105 (the opposite of one)


class Speaker(NamedTuple):
    """What one source says, or all of them together. Empty: nothing."""

    run: str = ""
    attempt: str = ""
    token: str = ""


NOBODY = Speaker()


def check_run(name: str) -> str:
    if _RUN.fullmatch(name) is None:
        raise BadRequest("A run's name is 1 to 128 characters of A-Z a-z 0-9 . _ - (but not . or ..)")
    return name


def check_attempt(name: str) -> str:
    if _ATTEMPT.fullmatch(name) is None:
        raise BadRequest("An attempt's name is 1 to 64 characters of A-Z a-z 0-9 . _ -")
    return name


def parse_run_ref(text: str, token: str = "") -> Speaker:
    """RUN or RUN+ATTEMPT."""
    run, plus, attempt = text.partition("+")
    return Speaker(check_run(run), check_attempt(attempt) if plus else "", token)


@lru_cache(maxsize=256)
def parse_user(user_info: str) -> Speaker:
    """`{runref}:{token}` of an address or of a proxy's user; both parts may be empty."""
    ref, _, token = user_info.partition(":")
    ref, token = unquote(ref), unquote(token)
    if token == NO_TOKEN:
        token = ""
    return parse_run_ref(ref, token) if ref else Speaker(token=token)


def agree(*speakers: Speaker) -> Speaker:
    """One speaker out of several sources."""
    said = [speaker for speaker in speakers if speaker is not NOBODY]
    if not said:
        return NOBODY
    if len(said) == 1 and (said[0].run or not said[0].attempt):
        return said[0]
    run = _one("runs", [speaker.run for speaker in speakers])
    attempt = _one("attempts", [speaker.attempt for speaker in speakers])
    token = _one("tokens", [speaker.token for speaker in speakers])
    if attempt and not run:
        raise BadRequest("An attempt without a run: name the run too (Semel-Run, or /@RUN+ATTEMPT/…).")
    return Speaker(run, attempt, token)


def _one(what: str, said: list[str]) -> str:
    different = {word for word in said if word}
    if len(different) > 1:
        raise BadRequest(
            f"Two {what} are given that differ (address, Semel-* headers, proxy user): give one of them."
        )
    return different.pop() if different else ""
