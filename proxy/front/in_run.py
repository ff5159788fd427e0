"""A named request in a run: what the record of the run needs to know of it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from proxy.asking import Ask, Boards
from proxy.core.clauses import OnStale
from proxy.core.divergence import group_of
from proxy.core.identity import Identity
from proxy.core.occurrence import repeat_in_run
from proxy.core.policy import DEFAULT_NAME, Rule, Upstream
from proxy.core.retry_evidence import of_request
from proxy.front.naming import Named
from proxy.front.rpc import session_of
from proxy.front.run_ref import Speaker
from proxy.front.sending import Sending
from proxy.runs.book import Book
from proxy.runs.books import Pinned, RunBooks
from proxy.runs.claiming import RunAsk
from proxy.runs.shared import SharedCall


class Entered(NamedTuple):
    """A run that is asked in, and the upstream as that run names its calls."""

    book: Book
    pinned: Pinned

    @property
    def origin(self) -> str:
        run = self.book.run
        return run.origin or run.name


async def enter(books: RunBooks, tenant: str, speaker: Speaker, upstream: Upstream) -> Entered:
    """Raises RunExpired, or StoreUnavailable: in a run nothing goes out without a record."""
    book = await books.open(tenant, speaker.run, speaker.attempt)
    return Entered(book, await books.pin(book, upstream))


def _never_refused(rule: Rule) -> Rule:
    """A run is filled from the shared record while that is fresh, else live."""
    return replace(rule, stale=OnStale.REVALIDATE) if rule.stale is OnStale.REFUSE else rule


def run_ask(named: Named, family: Identity, sending: Sending, entered: Entered, boards: Boards) -> RunAsk:
    rule, told, upstream = named.match.rule, sending.told, sending.upstream
    group = group_of(
        upstream=upstream.name,
        rule=None if rule.name == DEFAULT_NAME else rule.name,
        method=sending.method,
        host=(sending.address.place or upstream).host,
        path=sending.address.raw_path,
    )
    shared = None
    if named.shared is not None:
        asked = Ask(named.shared, _never_refused(rule), named.safe, False, sending)
        shared = SharedCall(asked._replace(payer=entered.book.run.name))
    evidence, message = named.evidence, sending.message
    if message is not None:
        of_it = of_request(session_of(message.headers), message.id, sending.veiling.secret)
        evidence = evidence._replace(tokens=evidence.tokens | of_it)
    return RunAsk(
        book=entered.book,
        family=family,
        rule=rule,
        safe=named.safe,
        sending=sending,
        group=group,
        evidence=evidence,
        occurrence=told.occurrence,
        repeat=repeat_in_run(rule.mode, rule.scope, rule.repeat),
        shared=shared,
        boards=boards,
    )
