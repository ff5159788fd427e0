"""What a budget would say to a call that would be sent now."""

from __future__ import annotations

import time
from dataclasses import replace

from proxy.core.budget import account_of, reservation, standing, used_up
from proxy.explaining.now import Happens
from proxy.front.naming import Named, ToName
from proxy.overspent import in_words, over_budget
from proxy.store.base import Store


async def within_budget(
    happens: Happens, request: ToName, named: Named, run: str, store: Store | None
) -> Happens:
    """What is in doubt and would be sent again (`since`) is paid for."""
    if happens.what != "executed" or happens.since is not None or store is None:
        return happens
    rule, now = named.match.rule, time.time()
    account = account_of(rule, tenant=request.tenant, run=run, upstream=request.upstream.name)
    spent = await store.spent(account)
    charge = reservation(rule, account, now, spent)
    if charge is None:
        return happens
    limit = used_up(charge, spent)
    if limit is not None:
        return Happens(what="budget-exceeded", detail=over_budget(account, limit, now).detail)
    told = ", ".join(in_words(each) for each in standing(charge, spent))
    return replace(happens, detail=f"{happens.detail}; of its budget {told}")
