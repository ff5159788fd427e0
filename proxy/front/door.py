"""Who is at the door: a token says whose calls these are and what may be done. Without tokens everybody may.

Tokens are known by their SHA-256 only. Every one of them is compared, in constant time, so that neither the
time taken nor the order in the configuration tells anything about them.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple

from proxy.errors import Forbidden, Unauthorized
from proxy.settings import Role, Token
from proxy.tokens import digest

# Outside any configuration: semel on loopback, for one person.
DEFAULT_TENANT = "default"
# Nobody need be asked whether the process lives: who starts and stops it has no token.
OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})
CALLERS = frozenset({Role.AGENT})
OPERATORS = frozenset({Role.OPERATOR})
# An agent may look at a run of its tenant, and say that it ended well; nothing else of the desk is for it.
ANY_OF_A_TENANT = frozenset({Role.AGENT, Role.OPERATOR})
_OF_A_RUN = re.compile(r"/_semel/runs/[^/]+(/complete)?")
READERS = frozenset({Role.OPERATOR, Role.METRICS})


class Visitor(NamedTuple):
    tenant: str = DEFAULT_TENANT
    role: Role | None = None  # None: no tokens are configured


ANYBODY = Visitor()


class Door:
    def __init__(self, tokens: Sequence[Token] | None) -> None:
        """None: there are no tokens, and everybody is let in."""
        self._tokens = None if tokens is None else tuple(tokens)
        # A token is hashed once and not for every request; only known ones are remembered. Looking one up
        # tells nothing of them either: strings are compared only where 64 bits of a hash keyed per process
        # agree, and whoever can make them agree has the token.
        self._known: dict[str, Visitor] = {}

    def for_calls(self, token: str) -> Visitor:
        return self._enter(token, CALLERS, "make calls")

    def for_own_page(self, path: str, token: str) -> Visitor:
        if path in OPEN_TO_ALL:
            return ANYBODY
        if path == "/metrics":
            return self._enter(token, READERS, "read metrics")
        if _OF_A_RUN.fullmatch(path):
            return self._enter(token, ANY_OF_A_TENANT, "look at runs")
        return self._enter(token, OPERATORS, "look into the record or decide")

    def for_page(self, token: str) -> Visitor:
        return self._enter(token, OPERATORS, "sign in")

    def _enter(self, token: str, allowed: frozenset[Role], what: str) -> Visitor:
        if self._tokens is None:
            return ANYBODY
        visitor = self._known.get(token) or self._recognise(token)
        if visitor.role not in allowed:
            needed = " or ".join(sorted(allowed))
            raise Forbidden(f"A token with the role {visitor.role} may not {what}: use one with {needed}.")
        return visitor

    def _recognise(self, token: str) -> Visitor:
        assert self._tokens is not None
        if not token:
            raise Unauthorized(
                "Send a token in the header Semel-Token (/metrics takes it as Authorization: Bearer too); "
                "`semel token new` makes one."
            )
        presented = digest(token)
        found: Visitor | None = None
        for known in self._tokens:
            if hmac.compare_digest(known.sha256, presented):
                found = Visitor(known.tenant, known.role)
        if found is None:
            raise Unauthorized("This token is not known here: check Semel-Token against auth.tokens.")
        self._known[token] = found
        return found
