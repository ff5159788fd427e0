"""On what terms a call is sent: the key that its upstream knows it by, and what a person permitted.

Values only. The rules are in doubt.py and approval.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Most calls have none."""

    key: str = ""  # the upstream key: minted at the claim, the same for every resend
    place: str = ""  # where the key goes: `header NAME`, `body FIELD`
    keyed_at: float = 0.0  # when it was minted: no upstream has seen it earlier
    bound_to: bytes = b""  # what a person is asked to permit, or has permitted: exactly that request
    granted: bool = False  # permitted, and not used up by a send that may have been executed
    said: str = ""  # why it was refused
    until: float | None = None  # when the question, or its refusal, lapses
