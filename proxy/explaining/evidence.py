"""What the record does not keep, inferred: whether a recorded call came with the credentials of another one.

No secret is stored, but every name is: a recorded request with the right credentials gets the name it has on
record. If none of those at hand gives it, and nothing else has changed since, the credentials were others. If
none are at hand, they were most likely forgotten, and the caller is taken to be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from proxy.core.identity import sort_headers
from proxy.core.intent import Call
from proxy.core.policy import ClientKey, Credential, Rule
from proxy.explaining.matching import Naming
from proxy.explaining.request import (
    credentials_count,
    hidden,
    under,
    with_hidden_of,
    with_unknown_hidden,
)
from proxy.front.naming import TOLD_ARGUMENTS, Named, ToName, arguments_digest

CHANGED = (
    "The policies have changed since that call was recorded: it would get another name now, and whether its "
    "credentials were the same cannot be told."
)


class Seen(NamedTuple):
    """The recorded request with its credentials, as far as they can be told. `note`: what cannot be told;
    `assumed`: what was taken for granted instead."""

    there: ToName
    has_its_name: bool
    note: str = ""
    assumed: str = ""


def with_credentials(call: Call, arguments: bytes, recorded: ToName, here: ToName, name: Naming) -> Seen:
    """`arguments`: as they were recorded."""
    alike = with_hidden_of(recorded, here)
    for candidate in (alike, recorded):
        if _is(name(candidate), call):
            return Seen(candidate, has_its_name=True)
    named = name(alike)
    rule = named.match.rule
    may_differ = hidden(with_unknown_hidden(recorded, rule.key.counted))
    if not credentials_count(recorded, rule):
        may_differ = tuple(pair for pair in may_differ if pair[0].decode("latin-1") in rule.key.counted)
    renamed = (
        call.rule != rule.name
        or named.identity is None
        or _told(named.identity.arguments) != arguments
        or any(_is(name(request), call) for request in _under_other_recipes(alike, named))
    )
    if renamed or not may_differ:
        return Seen(alike, has_its_name=False, note=CHANGED)
    if assumed := _not_given(here, rule):
        return Seen(alike, has_its_name=True, assumed=assumed)
    return Seen(with_unknown_hidden(recorded, rule.key.counted), has_its_name=False)


def _not_given(here: ToName, rule: Rule) -> str:
    """Empty where secrets that count were typed: then those of the record were others."""
    if credentials_count(here, rule):
        given = sort_headers(here.counted, (), here.upstream.credentials).credentials
        return "" if given else "no credentials were given with -H: taken to be the same caller"
    keyed = {name.encode() for name in rule.key.counted}
    if any(name.lower() in keyed for name, _ in hidden(here)):
        return ""
    secret = (name.decode() for name, _ in hidden(here._replace(headers=tuple((one, b"") for one in keyed))))
    return f"not given with -H, and not kept in the record: taken to be the same: {', '.join(sorted(secret))}"


def _is(named: Named, call: Call) -> bool:
    if named.identity is None:
        return False
    key = call.key if call.in_run is None else call.in_run.family  # in a run identical calls share a name
    return named.identity[:3] == (key, call.fingerprint, call.named_by)


def _told(arguments: bytes) -> bytes:
    return arguments if len(arguments) <= TOLD_ARGUMENTS else arguments_digest(arguments)


def _under_other_recipes(request: ToName, named: Named) -> Iterator[ToName]:
    """The same request, had the rule said otherwise on what its arguments do not show."""
    rule = named.match.rule
    choices = product({(), rule.key.headers}, Credential, (ClientKey.AUTO, ClientKey.IGNORE))
    for headers, credential, client_key in choices:
        key = replace(rule.key, headers=headers, credential=credential, client_key=client_key)
        yield under(request, rule, key)
