"""A call that no network carries: whoever asks for it does it.

It is handed out once, and only while somebody is there to take it.
"""

from __future__ import annotations

import asyncio

from proxy.core.intent import Call
from proxy.errors import InProgress


class Errand:
    """`handed`: the claimed call, as soon as it is in its caller's hands. Cancelled: nobody will take it."""

    def __init__(self) -> None:
        self.handed: asyncio.Future[Call] = asyncio.get_running_loop().create_future()
        self.call: Call | None = None

    def check(self) -> None:
        """Before it is claimed. Who has it in hand, or is gone, does not begin it a second time, whatever
        becomes of the first."""
        if self.handed.done():
            raise InProgress("It was handed out to this caller before, or there is nobody to take it.")

    def claimed(self, call: Call) -> None:
        """Durable by now."""
        self.call = call

    def leave(self) -> None:
        """Its caller is gone, or has an answer: what is not in its hands yet will never be."""
        self.handed.cancel()
