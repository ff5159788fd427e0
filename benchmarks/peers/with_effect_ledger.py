"""effect-ledger on SQLite, as its README has it: `EffectExecutor.execute(id, effect, request, handler)`.

`default` has no recovery policy: what is unresolved waits for a person. `lookup` has one that asks the
upstream whether it acted, `key` one that grants another attempt because the upstream honours
`operation.provider_key`. A policy is consulted only after a crash, when the workers are known to be dead, as
its documentation demands.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from effect_ledger import EffectExecutor, Operation, RecoveryDecision, RecoveryPolicy

from benchmarks.peers.asking import HTTP_TIMEOUT, Order, Told, answered, main, passed, post

EFFECT = "act:v1"


def _policy(order: Order) -> RecoveryPolicy | None:
    def granted(operation: Operation) -> RecoveryDecision:
        return RecoveryDecision("retry", f"again-{operation.operation_id}", "the upstream honours the key")

    def looked_up(operation: Operation) -> RecoveryDecision | None:
        address = f"{order.control}/acts?ref={order.call}"
        with urllib.request.urlopen(address, timeout=HTTP_TIMEOUT) as reply:
            found = json.load(reply)["items"]
        decision = f"found-{operation.operation_id}"
        return RecoveryDecision("complete", decision, "the upstream has it", found[0]) if found else None

    return {"lookup": looked_up, "key": granted}.get(order.mode)


def told_by(said: dict[str, Any]) -> Told:
    words = f"{said['state']}, next_action {said['next_action']}"
    return Told("wait" if said["next_action"] == "wait" else "held", words)


def prepare(order: Order) -> Callable[[], Told]:
    executor = EffectExecutor(order.store, scope="peers", recovery=_policy(order))

    def handler(operation: Operation) -> dict[str, Any]:
        return post(order.target, order.call, operation.provider_key if order.mode == "key" else None)

    def execute() -> Operation:
        return executor.execute(order.call, EFFECT, {"ref": order.call}, handler)

    def ask() -> Told:
        operation = execute()
        if operation.response()["unresolved"] and order.recovering:
            executor.recover(order.call, workers_stopped=True)
            operation = execute()
        if operation.state != "completed":
            return told_by(operation.response())
        passed(order)
        return answered(operation.result)

    return ask


if __name__ == "__main__":
    main(prepare)
