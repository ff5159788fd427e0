"""DBOS on PostgreSQL: a workflow whose one step is the call, started under the call's name as workflow id.

`step` is as documented; `key` passes the workflow's id to the upstream; `transaction` makes the call inside a
transaction of a datasource; `no-recovery` has `max_recovery_attempts=0`. DBOS.launch() recovers by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

from benchmarks.peers.asking import Order, Told, answered, main, passed, post

ONE_TRY = 0


def _way(order: Order) -> Callable[[], dict[str, Any]]:
    """The call, as a step or as a transaction."""

    def act() -> dict[str, Any]:
        return post(order.target, order.call, DBOS.workflow_id if order.mode == "key" else None)

    if order.mode == "transaction":
        transaction: Callable[[], dict[str, Any]] = SQLAlchemyDatasource.create(order.store).transaction(act)
        return transaction
    step: Callable[[], dict[str, Any]] = DBOS.step(name="act")(act)
    return step


def prepare(order: Order) -> Callable[[], Told]:
    store = order.store.replace("postgres://", "postgresql+psycopg://")
    order = order._replace(store=store)
    DBOS(config={
        "name": "peers", "system_database_url": store, "executor_id": order.name,
        "application_version": "1", "log_level": "CRITICAL",
    })  # fmt: skip
    act = _way(order)
    attempts = {"max_recovery_attempts": ONE_TRY} if order.mode == "no-recovery" else {}

    def pay(call: str) -> dict[str, Any]:
        answer = act()
        passed(order)
        return answer

    workflow = DBOS.workflow(name="pay", **attempts)(pay)
    DBOS.launch()

    def ask() -> Told:
        with SetWorkflowID(order.call):
            handle = DBOS.start_workflow(workflow, order.call)
        return answered(handle.get_result())

    return ask


if __name__ == "__main__":
    main(prepare)
