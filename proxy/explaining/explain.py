"""One question answered, top to bottom: read what was typed, name it, look it up, compare it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import NamedTuple

from proxy.core.headers import Headers
from proxy.core.identity import Identity
from proxy.core.intent import Call
from proxy.core.policy import TOOL_METHOD, TOOL_SCHEME, TOOLS_NAME, PolicySet
from proxy.errors import BadRequest, ConfigurationError, TooLarge
from proxy.explaining.budgeted import within_budget
from proxy.explaining.idle import idle_names
from proxy.explaining.in_run import Viewed, as_named_in, is_pinned_otherwise, view
from proxy.explaining.likeness import compared_with, recorded_as_named
from proxy.explaining.matching import Naming
from proxy.explaining.now import Happens, in_shadow, new_call, with_record, without_record
from proxy.explaining.record import Recorded, decision_on, find_call, read_request
from proxy.explaining.request import (
    as_tool_call,
    find_address,
    read_headers,
    taken_over,
    with_content_type,
)
from proxy.explaining.run_now import Fate, InQuestion, fate_of, over
from proxy.explaining.told import Document, Explained, InRun, told, told_taken_over
from proxy.explaining.written import where
from proxy.front.door import DEFAULT_TENANT, Door
from proxy.front.incoming import find_upstream, said_to_semel
from proxy.front.naming import Named, ToName, name_in_full
from proxy.front.rpc import as_counted
from proxy.front.run_ref import NOBODY, Speaker, agree, parse_run_ref
from proxy.front.sending import Told
from proxy.policy_file import names
from proxy.settings import Settings
from proxy.spool import Spool
from proxy.store.base import Store
from proxy.store.opening import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """As it was typed. `like` is the id of a recorded call, or the beginning of one."""

    method: str
    url: str
    headers: tuple[str, ...]
    body: bytes
    tenant: str | None = None
    run: str | None = None
    like: str | None = None


class _Asking(NamedTuple):
    """A request as it was read, who makes it, and what else it says to semel."""

    request: ToName
    said: Told
    speaker: Speaker


async def explain(
    question: Question, settings: Settings, policies: PolicySet, store: Store | None
) -> Document:
    """Raises the Refusal that the proxy would answer with; ConfigurationError for what was typed wrong;
    NotComparable for a `like` that is not there. Without a store there is no `like`."""
    liked = await _liked(store, question.like, settings)
    typed = read_headers(question.headers)
    asking = _read(question, typed, settings, policies, liked)
    secret = store.secret if store is not None else os.urandom(32)
    name = _naming(secret, settings)
    came = request = asking.request
    viewed = await _viewed(asking, settings, store)
    if viewed is not None:
        request = as_named_in(viewed.book.run, request)
    before, named = request, name(request)
    if liked is not None:
        taken = taken_over(typed, liked.stored.headers, named.match.rule, request.upstream.credentials)
        headers = with_content_type((*typed, *taken), question.body)
        of_a_tool = request.method == TOOL_METHOD
        request = request._replace(headers=as_counted(headers) if of_a_tool else headers)
        named = name(request)
    in_run = None
    if viewed is not None:
        asked = InQuestion(viewed, request, named, asking.said, settings.runs.on_divergence)
        otherwise = is_pinned_otherwise(viewed.book.run, came)
        in_run = InRun(
            viewed=viewed, fate=await _fate(asked, store), family=named.identity, pinned_otherwise=otherwise
        )
    like: Document | None = None
    if liked is not None and store is not None:
        there = await recorded_as_named(store, liked, policies)
        like = compared_with(liked, there, request, named, in_run, settings, name)
        rule = named.match.rule
        assumed = [*_taken_run(question, asking, liked), *told_taken_over(before, request, rule)]
        like["assumed"] = [*assumed, *like["assumed"]]
    named, request = _as_occurrence(named, request, in_run)
    if liked is not None and like is not None and like["same"]:
        named = _named_like(named, liked.call)
    happens = await _now(named, asking.said, store, settings) if in_run is None else in_run.fate.happens
    happens = await within_budget(happens, request, named, asking.speaker.run, store)
    explained = Explained(
        request=request,
        named=named,
        stands=where(settings.policies, request.upstream.name, named.match.rule.name),
        id_is_known=store is not None or _same_under_any_secret(request, settings),
        now=in_shadow(named.match.rule, happens),
        idle=idle_names(request, named, name),
        in_run=in_run,
    )
    return {**told(explained), "like": like}


async def _liked(store: Store | None, given: str | None, settings: Settings) -> Recorded | None:
    if store is None or given is None:
        return None
    call = await find_call(store, given, _place(settings))
    return Recorded(call, *await read_request(store, call))


def _named_like(named: Named, call: Call) -> Named:
    """What is taken to be the recorded call has its name, also where that depends on secrets not given."""
    arguments = b"" if named.identity is None else named.identity.arguments
    return named._replace(identity=Identity(call.key, call.fingerprint, call.named_by, arguments))


# ---- what was typed ----


def _read(
    question: Question, typed: Headers, settings: Settings, policies: PolicySet, liked: Recorded | None
) -> _Asking:
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
    of_tools = address.upstream == TOOLS_NAME
    known = policies.tools if of_tools else policies.upstreams.get(address.upstream)
    at_hand = known is not None and known.scheme == TOOL_SCHEME  # `semel mcp` runs it, or the agent
    upstream = known if known is not None and at_hand else find_upstream(policies, address)
    said = said_to_semel(headers)
    speaker = agree(_run_given(question.run), address.speaker, said.speaker)
    call = None if liked is None else liked.call
    if call is not None and call.run and not speaker.run:
        speaker = speaker._replace(run=call.run)
    tenant = question.tenant or _tenant(speaker.token, settings, call)
    body = Spool.of(question.body) if question.body else None
    request = ToName(upstream, address, method, headers, body, said.occurrence or 1, tenant)
    return _Asking(as_tool_call(request, limit), said, speaker)


def _run_given(reference: str | None) -> Speaker:
    if reference is None:
        return NOBODY
    try:
        return parse_run_ref(reference)
    except BadRequest as error:
        raise ConfigurationError(f"--run is RUN or RUN+ATTEMPT. {error.detail}") from None


def _taken_run(question: Question, asking: _Asking, liked: Recorded) -> list[str]:
    given = question.run is not None or asking.said.speaker.run or asking.request.address.speaker.run
    if not asking.speaker.run or given:
        return []
    return [f"taken over from the record, since no --run gave it: the run {liked.call.run}"]


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


# ---- its name, and what would become of it ----


async def _viewed(asking: _Asking, settings: Settings, store: Store | None) -> Viewed | None:
    if not asking.speaker.run:
        return None
    tenant = asking.request.tenant
    return await view(store, tenant, asking.speaker, settings.runs.retention, time.time())


async def _fate(asked: InQuestion, store: Store | None) -> Fate:
    if asked.viewed.is_over:
        return over()
    if asked.named.identity is None:
        return Fate(happens=without_record(asked.named.match.rule))
    return await fate_of(asked, store)


def _as_occurrence(named: Named, request: ToName, in_run: InRun | None) -> tuple[Named, ToName]:
    """In a run the name is that of all identical calls; this is one of them."""
    if in_run is None or in_run.fate.identity is None or in_run.fate.occurrence is None:
        return named, request
    request = request._replace(occurrence=in_run.fate.occurrence)
    return named._replace(identity=in_run.fate.identity), request


def _naming(secret: bytes, settings: Settings) -> Naming:
    return lambda request: name_in_full(request, secret, settings.limits.request_body)


def _same_under_any_secret(request: ToName, settings: Settings) -> bool:
    """Credentials are in the key as a hash keyed with the record's secret. Without them, and with a client's
    key in their place, it is the same everywhere."""
    one, other = (_naming(os.urandom(32), settings)(request).identity for _ in range(2))
    return one is not None and other is not None and one.key == other.key


def _place(settings: Settings) -> str:
    return shown(settings.store) if "://" in settings.store else str(settings.state)


async def _now(named: Named, said: Told, store: Store | None, settings: Settings) -> Happens:
    if named.identity is None:
        return without_record(named.match.rule)
    if named.goes_live:
        return Happens(
            what="executed",
            detail="outside a run a safe call goes live each time; it is recorded because a budget counts it",
        )
    if store is None:
        place = "a store in memory" if settings.store == "memory" else _place(settings)
        return new_call(f"there is no record to look into ({place}): it would be sent", named.bound_to)
    now = time.time()
    decision, owner_is_dead = await decision_on(store, named, refresh=said.refresh, now=now)
    return with_record(
        decision,
        now=now,
        owner_is_dead=owner_is_dead,
        rule=named.match.rule,
        bound_to=named.bound_to,
    )
