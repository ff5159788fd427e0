"""One question answered, top to bottom: read what was typed, name it, look it up, compare it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from proxy.core.headers import Headers
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.core.policy import DEFAULT_NAME, PolicySet
from proxy.errors import BadRequest, ConfigurationError, TooLarge
from proxy.explaining.evidence import with_credentials
from proxy.explaining.idle import idle_names
from proxy.explaining.matching import Naming, Pair, compare
from proxy.explaining.now import Happens, with_record, without_record
from proxy.explaining.record import Recorded, decision_on, find_call, read_request
from proxy.explaining.request import (
    find_address,
    read_headers,
    recorded_request,
    taken_over,
    with_content_type,
)
from proxy.explaining.told import Document, Explained, not_compared, told, told_like, told_taken_over
from proxy.explaining.written import file_of, where
from proxy.front.door import DEFAULT_TENANT, Door
from proxy.front.incoming import find_upstream, said_to_semel
from proxy.front.naming import Named, ToName, name_in_full
from proxy.front.sending import Told
from proxy.policy_file import names
from proxy.settings import Settings
from proxy.spool import Spool
from proxy.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """As it was typed. `like` is the id of a recorded call, or the beginning of one."""

    method: str
    url: str
    headers: tuple[str, ...]
    body: bytes
    tenant: str | None = None
    like: str | None = None


async def explain(
    question: Question, settings: Settings, policies: PolicySet, store: Store | None
) -> Document:
    """Raises the Refusal that the proxy would answer with; ConfigurationError for what was typed wrong;
    NotComparable for a `like` that is not there. Without a store there is no `like`."""
    liked = await _liked(store, question.like, settings)
    typed = read_headers(question.headers)
    request, said = _read(question, typed, settings, policies, liked)
    name = _naming(store.secret if store is not None else os.urandom(32), settings)
    named = name(request)
    like: Document | None = None
    if liked is not None:
        taken = taken_over(typed, liked.stored.headers, named.match.rule, request.upstream.credentials)
        before = request
        request = request._replace(headers=with_content_type((*typed, *taken), question.body))
        named = name(request)
        like = _like(liked, request, named, policies, settings, name)
        like["assumed"] = [*told_taken_over(before, request, named.match.rule), *like["assumed"]]
        if like["same"]:
            named = _named_like(named, liked.call)
    explained = Explained(
        request=request,
        named=named,
        stands=where(settings.policies, request.upstream.name, named.match.rule.name),
        id_is_known=store is not None or _same_under_any_secret(request, named, settings),
        now=await _now(named, said, store, settings),
        idle=idle_names(request, named, name),
    )
    return {**told(explained), "like": like}


async def _liked(store: Store | None, given: str | None, settings: Settings) -> Recorded | None:
    if store is None or given is None:
        return None
    call = await find_call(store, given, settings.state)
    return Recorded(call, *await read_request(store, call))


def _named_like(named: Named, call: Call) -> Named:
    """What is taken to be the recorded call has its name, also where that depends on secrets not given."""
    arguments = b"" if named.identity is None else named.identity.arguments
    return named._replace(identity=Identity(call.key, call.fingerprint, call.named_by, arguments))


def _read(
    question: Question, typed: Headers, settings: Settings, policies: PolicySet, liked: Recorded | None
) -> tuple[ToName, Told]:
    try:
        method = names.method(question.method)
    except ValueError as error:
        raise ConfigurationError(f"METHOD: {error}") from None
    limit = settings.limits.request_body
    if len(question.body) > limit:
        raise TooLarge(
            f"The body has {len(question.body)} bytes, the limit is {limit} (limits.request_body)."
        )
    headers = with_content_type(typed, question.body)
    address = find_address(question.url, policies, settings.listen)
    upstream = find_upstream(policies, address)
    said = said_to_semel(headers)
    tenant = question.tenant or _tenant(said.speaker.token, settings, liked.call if liked is not None else None)
    body = Spool.of(question.body) if question.body else None
    return ToName(upstream, address, method, headers, body, said.occurrence or 1, tenant), said


def _tenant(token: str, settings: Settings, liked: Call | None) -> str:
    """Whose call it is: as the token says, else as that of the call it is compared with."""
    if settings.auth is not None and token:
        return Door(settings.auth.tokens).for_calls(token).tenant
    if liked is not None:
        return liked.tenant
    tenants = {one.tenant for one in settings.auth.tokens} if settings.auth is not None else {DEFAULT_TENANT}
    if len(tenants) != 1:
        raise ConfigurationError(
            "The tenant is part of a call's name: say whose call it is with --tenant T, one of "
            f"{', '.join(sorted(tenants))}."
        )
    return tenants.pop()


def _naming(secret: bytes, settings: Settings) -> Naming:
    return lambda request: name_in_full(request, secret, settings.limits.request_body)


def _same_under_any_secret(request: ToName, named: Named, settings: Settings) -> bool:
    """Credentials are in the key as a hash keyed with the record's secret. Without them, and with a client's
    key in their place, it is the same everywhere."""
    other = _naming(os.urandom(32), settings)(request)
    if named.identity is None or other.identity is None:
        return False
    return named.identity.key == other.identity.key


async def _now(named: Named, said: Told, store: Store | None, settings: Settings) -> Happens:
    if named.identity is None:
        return without_record(named.match.rule)
    if store is None:
        place = "a store in memory" if settings.store == "memory" else str(settings.state)
        return Happens(what="executed", detail=f"there is no record to look into ({place}): it would be sent")
    now = time.time()
    decision, owner_is_dead = await decision_on(store, named, refresh=said.refresh, now=now)
    return with_record(decision, now=now, owner_is_dead=owner_is_dead)


def _like(
    liked: Recorded,
    request: ToName,
    named: Named,
    policies: PolicySet,
    settings: Settings,
    name: Naming,
) -> Document:
    call, stored, body = liked
    upstream = policies.upstreams.get(call.upstream)
    if upstream is None:
        return not_compared(call.id, f"Its upstream {call.upstream!r} is in no policy file now.")
    recorded = recorded_request(call, stored, body, upstream)
    if named.identity is None:
        return not_compared(call.id, "A request that is not recorded is never the same as a recorded call.")
    try:
        seen = with_credentials(call, stored.arguments, recorded, request, name)
    except BadRequest as refusal:
        note = f"Under the present policies that call would be refused: {refusal.detail}"
        return not_compared(call.id, note)
    if name(seen.there).identity is None:
        return not_compared(call.id, "Under the present policies that call would not be recorded.")
    compared = compare(Pair(request, seen.there, name))
    rule, sources = named.match.rule.name, settings.policies
    stands = where(sources, request.upstream.name, rule)
    file = file_of(sources, request.upstream.name) if rule == DEFAULT_NAME else None
    return told_like(call.id, seen, compared, stands, file)
