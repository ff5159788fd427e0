"""Powertools for AWS Lambda, idempotency on Valkey: the handler is the call, decorated.

`context` has `@idempotent`, which takes the time that the invocation has left from the Lambda context; `key`
does the same and passes the event's own id to the upstream. `no-context` has `@idempotent_function` without a
registered context, so that the record stays locked until it expires.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import redis
from aws_lambda_powertools.utilities.idempotency import (
    IdempotencyConfig,
    idempotent,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

from benchmarks.peers.asking import Order, Told, answered, main, passed, post

LEASE_MS = 5_000


class Context:
    """What Lambda hands to a handler, as far as it is asked for here."""

    function_name = "peers"

    def get_remaining_time_in_millis(self) -> int:
        return LEASE_MS


def prepare(order: Order) -> Callable[[], Told]:
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = Context.function_name
    layer = CachePersistenceLayer(client=redis.Redis.from_url(order.store, decode_responses=True))
    key = order.call if order.mode == "key" else None

    def act(event: dict[str, Any], context: Context | None = None) -> dict[str, Any]:
        return post(order.target, event["ref"], key)

    as_function = idempotent_function(
        act, data_keyword_argument="event", persistence_store=layer, config=IdempotencyConfig()
    )
    as_handler = idempotent(act, persistence_store=layer, config=IdempotencyConfig())

    def ask() -> Told:
        event = {"ref": order.call}
        try:
            answer = as_function(event=event) if order.mode == "no-context" else as_handler(event, Context())
        except IdempotencyAlreadyInProgressError:
            return Told("wait", "IdempotencyAlreadyInProgressError")
        passed(order)
        return answered(answer)

    return ask


if __name__ == "__main__":
    main(prepare)
