"""A call that no network carries: whoever asks for it does it.

It is handed out once, and only while somebody is there to take it.
"""

from __future__ import annotations

import asyncio

from proxy.core.intent import Call


class Errand:
    """`handed`: the claimed call, as soon as it is in its caller's hands. Cancelled: nobody will take it."""

    def __init__(self) -> None:
        self.handed: asyncio.Future[Call] = asyncio.get_running_loop().create_future()
        self.call: Call | None = None

    def claimed(self, call: Call) -> None:
        """Durable by now."""
        self.call = call

    def leave(self) -> None:
        """Its caller is gone, or has an answer: what is not in its hands yet will never be."""
        self.handed.cancel()
