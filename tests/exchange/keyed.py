"""Calls under an upstream key, and what an upstream saw of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.asking import Ask
from proxy.carrying import RESEND_PAUSES
from proxy.core.clauses import OnDoubt, UpstreamKey
from proxy.upstream.base import Outgoing, Result, Sink
from tests.exchange.stage import (
    EFFECT,
    Prepared,
    Step,
    ask,
)

HOUR = 3600.0
KEY = UpstreamKey(header="idempotency-key", retention=24 * HOUR, mismatch=frozenset({422}))
KEYED = replace(EFFECT, upstream_key=KEY, in_doubt=OnDoubt.RESEND)
IN_BODY = replace(KEYED, upstream_key=UpstreamKey(body="meta.key", max_length=20))
SENDS = 1 + len(RESEND_PAUSES)


class Seen:
    """What went out: each key, each body, each Authorization."""

    def __init__(self) -> None:
        self.outs: list[Outgoing] = []

    def __call__(self, *steps: Step) -> list[Step]:
        return [self._watched(step) for step in steps]

    def _watched(self, step: Step) -> Step:
        async def watched(out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
            self.outs.append(out)
            return await step(out, sink, may_send)

        return watched

    def headers(self, name: bytes) -> list[bytes]:
        return [value for out in self.outs for each, value in out.headers if each.lower() == name]

    @property
    def keys(self) -> list[bytes]:
        return self.headers(b"idempotency-key")

    @property
    def bodies(self) -> list[bytes]:
        return [out.body.whole() for out in self.outs if out.body is not None]


def asked(rule: object = KEYED, body: bytes = b'{"usd": 1}', token: bytes = b"old", **more: object) -> Ask:
    made, length = ask(rule), (b"Content-Length", b"%d" % len(body))  # type: ignore[arg-type]
    sending = Prepared(
        rule=made.rule,
        safe=False,
        body=body,
        total=600.0,
        headers=((b"Host", b"api"), (b"Content-Type", b"application/json"), (b"X-Kept", b"yes"), length),
        secrets=((b"Authorization", token),),
        **more,  # type: ignore[arg-type]
    )
    return made._replace(sending=sending)
