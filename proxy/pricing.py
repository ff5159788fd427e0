"""What a final answer cost, by its rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from proxy.core.cost import READABLE, cost_of
from proxy.core.policy import Rule
from proxy.stream import Capture

Price: TypeAlias = Callable[[Rule, Capture], Awaitable[float | None]]


async def price_now(rule: Rule, capture: Capture) -> float | None:
    """What a final answer cost. A fixed price is known of any, also of one that cannot be read."""
    kept, fixed = capture.kept, rule.cost is not None and rule.cost.usd is not None
    if not fixed and (kept is None or kept.size > READABLE):
        return None
    return cost_of(rule, capture.status, capture.headers, b"" if fixed or kept is None else kept.whole())
