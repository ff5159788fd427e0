"""Powertools for AWS Lambda on Valkey: `@idempotent_function` around a POST, with a Lambda context registered
as its documentation has it. The library is synchronous, so as many threads as ask at once, each with a
connection that it keeps."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

from benchmarks.peers.rating import Order, calls, ordered, result, serve

HTTP_TIMEOUT = 60.0


class Context:
    """What Lambda hands to a handler, as far as it is asked for here."""

    function_name = "rates"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def prepared(order: Order) -> Callable[..., dict[str, Any]]:
    """The call, decorated."""
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = Context.function_name
    config = IdempotencyConfig()
    config.register_lambda_context(Context())
    layer = CachePersistenceLayer(client=redis.Redis.from_url(order.store, decode_responses=True))
    own = threading.local()

    @idempotent_function(data_keyword_argument="event", persistence_store=layer, config=config)  # type: ignore[untyped-decorator]
    def pay(event: dict[str, Any]) -> dict[str, Any]:
        if not hasattr(own, "connection"):
            own.connection = HTTPConnection("127.0.0.1", order.port, timeout=HTTP_TIMEOUT)
        body = json.dumps(event).encode()
        own.connection.request("POST", "/pay", body, {"Content-Type": "application/json"})
        answer = own.connection.getresponse()
        return result(answer.status, answer.read())

    decorated: Callable[..., dict[str, Any]] = pay
    return decorated


if __name__ == "__main__":
    start = ordered()
    pay = prepared(start)
    with ThreadPoolExecutor(start.callers) as pool:

        def work(seed: str, number: int) -> float:
            began = time.perf_counter()
            for _ in pool.map(lambda event: pay(event=event), calls(seed, number)):
                pass
            return time.perf_counter() - began

        serve(work)
