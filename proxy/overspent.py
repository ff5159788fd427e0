"""What callers and people are told of budgets: what is used, what is used up, and until when."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from proxy.core.budget import MICRO, Account, Meter, UsedUp
from proxy.errors import BudgetExceeded
from proxy.quantities import show_duration


def over_budget(account: Account, limit: UsedUp, now: float) -> BudgetExceeded:
    """Nothing was claimed for the call, and nothing was sent."""
    members: dict[str, object] = {
        "upstream": account.upstream,
        "rule": account.rule,
        "budget": limit.meter.value,
        "limit": _figure(limit, limit.most),
        "used": _figure(limit, limit.used),
    }
    if account.run:
        members["run"] = account.run
    told = f"The budget of {whose(account)} is used up: {in_words(limit)}, and this call would add "
    told += f"{_amount(limit, limit.adds)}. Nothing was sent."
    if limit.until is None:
        refusal = BudgetExceeded(f"{told} {_remedy(account, limit)}", **members)
        refusal.lasts = True
        return refusal
    seconds = max(1, math.ceil(limit.until - now))
    until = members["until"] = datetime.fromtimestamp(limit.until, UTC).isoformat(timespec="milliseconds")
    told += f" Make the same call again after {until}, in {seconds} seconds."
    refusal = BudgetExceeded(told, **members)
    refusal.retry_after = seconds
    return refusal


def whose(account: Account) -> str:
    owner = f"the run {account.run!r}" if account.run else f"the tenant {account.tenant!r}"
    return f"{owner} for the rule {account.rule!r} of upstream {account.upstream!r}"


def in_words(limit: UsedUp) -> str:
    """`3 of 100 calls in 1h are used`, without when it is free again."""
    time = "in all" if limit.period is None else f"in {show_duration(limit.period)}"
    used, most = _plain(limit, limit.used), _amount(limit, limit.most)
    return f"{used} of {most} {time} are used"


def _remedy(account: Account, limit: UsedUp) -> str:
    """What does not come back by itself."""
    if limit.adds > limit.most:
        return "One such call is more than the whole budget: raise it in the policy file."
    other = " or make it in another run" if account.run else ""
    return f"It does not come back: raise the rule's budget in the policy file{other}."


def _figure(limit: UsedUp, amount: int) -> float | int:
    return amount if limit.meter is Meter.CALLS else amount / MICRO


def _plain(limit: UsedUp, amount: int) -> str:
    if limit.meter is Meter.CALLS:
        return f"{amount}"
    cents, rest = divmod(amount, MICRO // 100)
    return f"{amount / MICRO:.6f}".rstrip("0") if rest else f"{cents / 100:.2f}"


def _amount(limit: UsedUp, amount: int) -> str:
    if limit.meter is Meter.CALLS:
        return "1 call" if amount == 1 else f"{amount} calls"
    return f"{_plain(limit, amount)} USD"
