"""On what terms a call is sent: the key that its upstream knows it by, what a person permitted, and what of a
budget is set aside for it.

Values only. The rules are in doubt.py, approval.py and budget.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Held(NamedTuple):
    """What a call holds of a meter now, and in which bucket."""

    meter: str
    bucket: int
    amount: int


class Reserved(NamedTuple):
    """What its claim took out of a budget: whoever settles the call gives back what it did not use."""

    run: str  # whose account it is; "": the tenant's
    rule: str
    held: tuple[Held, ...]
    priced_later: bool = False  # what it costs stands in the answer


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
    reserved: Reserved | None = None
