"""A small Stripe: it takes money, once for each Idempotency-Key, and can fail at the worst moment.

Shapes and rules as documented: the first answer under a key is kept, a decline and a 500 too, and given again
with `Idempotent-Replayed: true`; other parameters under it are a 400, a request that comes while the first
is at work a 409 (https://docs.stripe.com/api/idempotent_requests, https://docs.stripe.com/error-low-level).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from aiohttp import web

from tests.sdk.scene import Served

PLACE = "/v1/payment_intents"


class Fault(Enum):
    """What becomes of one of the next payments."""

    CUT = "charged, but nobody hears of it"
    CUT_TWICE = "nor of the answer to the next one under its key"
    DECLINED = "the card's bank says no"
    BROKEN = "a 500, kept as the answer of its key"
    SLOW = "charged, and answered when `answering` is set"


CUTS: dict[Fault | None, int] = {Fault.CUT: 1, Fault.CUT_TWICE: 2}


class Received(NamedTuple):
    """Of one request: whose payment it is, and under which key."""

    mark: str
    key: str


@dataclass(slots=True)
class Kept:
    """What is known under a key; no answer yet: somebody is at work on it."""

    params: dict[str, str]
    answer: tuple[int, dict[str, Any]] | None = None
    cuts: int = 0  # so many answers are still to be lost


class Payments(Served):
    """`async with Payments() as payments`. A payment is marked by its description."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: deque[Fault] = deque()
        self.answering = asyncio.Event()
        self.charges: list[str] = []  # the marks of the payments for which money was taken
        self.received: list[Received] = []
        self.replays = self.conflicts = 0
        self._kept: dict[str, Kept] = {}

    def charged(self, mark: str) -> int:
        """How often money was taken."""
        return self.charges.count(mark)

    def keys(self, mark: str) -> list[str]:
        """The key of each request for this payment, in their order."""
        return [received.key for received in self.received if received.mark == mark]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (request.method, request.path) != ("POST", PLACE):
            return web.Response(status=404)
        params = {name: str(value) for name, value in (await request.post()).items()}
        mark, key = params.get("description", ""), request.headers.get("Idempotency-Key", "")
        self.received.append(Received(mark, key))
        kept = self._kept.get(key) if key else None
        if kept is not None:
            return self._sent(request, kept, self._again(kept, params, key))
        kept = Kept(params)
        if key:
            self._kept[key] = kept
        fault = self.faults.popleft() if self.faults else None
        kept.answer = self._executed(params, fault)
        if fault is Fault.SLOW:
            answer, kept.answer = kept.answer, None
            await self.answering.wait()
            kept.answer = answer
        kept.cuts = CUTS.get(fault, 0)
        return self._sent(request, kept, web.json_response(kept.answer[1], status=kept.answer[0]))

    def _sent(self, request: web.Request, kept: Kept, response: web.Response) -> web.Response:
        if kept.cuts and request.transport is not None:
            kept.cuts -= 1
            request.transport.abort()
        return response

    def _again(self, kept: Kept, params: dict[str, str], key: str) -> web.Response:
        if kept.params != params:
            text = (
                "Keys for idempotent requests can only be used with the same parameters they were first used"
            )
            text += f" with. Try using a key other than '{key}' if you meant to execute a different request."
            return web.json_response(error("idempotency_error", text), status=400)
        if kept.answer is None:
            text = "There is currently another in-progress request using this Idempotent Key (that probably"
            text += f" means you submitted twice, and the other request is still going through): {key}."
            told = error("idempotency_error", text, code="idempotency_key_in_use")
            self.conflicts += 1
            return web.json_response(told, status=409)
        self.replays += 1
        status, body = kept.answer
        return web.json_response(body, status=status, headers={"Idempotent-Replayed": "true"})

    def _executed(self, params: dict[str, str], fault: Fault | None) -> tuple[int, dict[str, Any]]:
        if fault is Fault.DECLINED:
            told = error("card_error", "Your card was declined.", code="card_declined")
            told["error"]["decline_code"] = "insufficient_funds"
            return 402, told
        if fault is Fault.BROKEN:
            return 500, error("api_error", "An unknown error occurred")
        self.charges.append(params.get("description", ""))
        number = len(self.charges)
        return 200, {
            "id": f"pi_{number}",
            "object": "payment_intent",
            "amount": int(params["amount"]),
            "currency": params["currency"],
            "description": params.get("description"),
            "latest_charge": f"ch_{number}",
            "status": "succeeded",
        }


def error(kind: str, message: str, **more: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message, **more}}
