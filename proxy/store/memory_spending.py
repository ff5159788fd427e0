"""The reference model of accounts, for memory.py: what is taken out of budgets, bucket by bucket."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from proxy.core.budget import FOR_GOOD, Account, Charge, Spent, is_exceeded


@dataclass(slots=True)
class Spending:
    """By account, then by meter and bucket: how much, the dearest call, and when it is past."""

    accounts: dict[Account, dict[tuple[str, int], tuple[int, int, int]]] = field(default_factory=dict)

    def of(self, account: Account) -> list[Spent]:
        rows = self.accounts.get(account, {})
        return [Spent(*name, amount, peak) for name, (amount, peak, _) in sorted(rows.items())]

    def exceeded(self, charge: Charge | None) -> tuple[Spent, ...] | None:
        """What the account holds, if the charge would pass a limit."""
        if charge is None or not charge.reserves:
            return None
        spent = self.of(charge.account)
        return tuple(spent) if any(is_exceeded(posting, spent) for posting in charge.postings) else None

    def apply(self, charge: Charge) -> None:
        """What is set right must be there still: what is past is for nobody to set right."""
        for posting in charge.postings:
            rows, name = self.accounts.setdefault(charge.account, {}), (posting.meter.value, posting.bucket)
            if posting.most is None and name not in rows:
                continue
            amount, peak, expires = rows.get(name, (0, 0, posting.expires))
            if posting.most is not None:
                expires = max(expires, posting.expires)
            rows[name] = (max(0, amount + posting.amount), max(peak, posting.peak), expires)

    def collect(self, now: float, over: Container[tuple[str, str]]) -> None:
        """What is past, and what belongs to runs that are over (tenant, run)."""
        for account, rows in list(self.accounts.items()):
            for name, (_, _, expires) in list(rows.items()):
                if expires != FOR_GOOD and expires < now * 1000:
                    del rows[name]
            if not rows or (account.run and (account.tenant, account.run) in over):
                del self.accounts[account]
