"""A call in a run that the rule shares with the whole tenant: the shared one is sent, the run keeps it too.

The shared call is claimed, sent and settled like every call outside runs. The run's own row is filled from it
and kept with the run, whatever the time to live of the other.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.asking import Ask, Replayed, Source, Unrecorded
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.errors import StoreUnavailable
from proxy.exchange import Exchange
from proxy.flight import Flight
from proxy.refusals import in_progress
from proxy.stream import CutOff
from proxy.upstream.base import Answered, Lost, Result


def identity_of(call: Call) -> Identity:
    """As it was named when it was claimed."""
    return Identity(call.key, call.fingerprint, call.named_by, arguments=b"")


class SharedCall(NamedTuple):
    ask: Ask

    def source(self, exchange: Exchange) -> Source:
        async def take(flight: Flight) -> Result:
            try:
                reply = await exchange.ask(self.ask)
            except CutOff as error:
                return self._broke_off(error, None)
            capture = flight.capture
            if isinstance(reply, Replayed):
                flight.from_record = True
                answer = reply.answer
                capture.head(answer.status, answer.headers)
                if isinstance(answer.body, bytes):
                    await capture.data(answer.body)
                else:
                    async for part in answer.body:
                        await capture.data(part)
                return Answered(answer.status)
            if isinstance(reply, Unrecorded):
                raise StoreUnavailable("The store is not available, and nothing was sent; call again.")
            try:
                flight.from_record = reply.joined
                first = reply.flight.capture
                capture.head(first.status, first.headers)
                async for part in reply.reader.parts():
                    await capture.data(part)
                return Answered(first.status)
            except CutOff as error:
                return self._broke_off(error, first.status)
            finally:
                flight.seconds = reply.flight.seconds
                reply.leave()

        return take

    def _broke_off(self, error: CutOff, status: int | None) -> Result:
        """What became of it is the shared call's to know: the run has no doubt of its own, it asks again."""
        if not self.ask.safe:
            raise in_progress(self.ask.identity.id)
        return Lost(str(error) or "the shared call's answer broke off", status)
