"""All that is known about a request, as one document of plain values: for JSON, and for the printed page.

No value of a header that may be a secret gets in, and none of the credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from proxy.core.identity import Identity, sort_headers
from proxy.core.policy import DEFAULT_NAME, ClientKey, Credential, Rule
from proxy.explaining.arguments import Json, field_of, parsed, value_text
from proxy.explaining.differences import counted_headers
from proxy.explaining.evidence import Seen
from proxy.explaining.in_run import Viewed
from proxy.explaining.matching import Compared
from proxy.explaining.now import Happens
from proxy.explaining.parts import cut
from proxy.explaining.request import client_key_counts, client_keys, credentials_count, key_place
from proxy.explaining.run_now import Fate
from proxy.explaining.written import Stands
from proxy.front.naming import Named, ToName
from proxy.policy_file.names import NEVER_KEYED, NEVER_KEYED_PREFIXES

Document: TypeAlias = dict[str, Any]

SHIPPED = (
    "this rule ships with semel: copy it into a policy file of your own that says `extends:`, and change it "
    "there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    request: ToName
    named: Named
    stands: Stands | None
    id_is_known: bool  # False: it depends on the secret of a record that is not here
    now: Happens
    idle: dict[str, str]  # names in key.exclude that leave nothing out here, with what they may mean
    in_run: InRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InRun:
    """The run that is asked in. `family`: what all identical calls of it are named by together."""

    viewed: Viewed
    fate: Fate
    family: Identity | None
    pinned_otherwise: bool  # the policies have changed since


def told(explained: Explained) -> Document:
    """All but `like`."""
    request, named, stands = explained.request, explained.named, explained.stands
    rule, identity = named.match.rule, named.identity
    address = request.address
    query = "" if address.query is None else f"?{address.query}"
    return {
        "request": {
            "method": request.method,
            "upstream": request.upstream.name,
            "target": f"{address.raw_path}{query}",
            "tenant": request.tenant,
            "occurrence": request.occurrence,
        },
        "rule": {
            "name": None if rule.name == DEFAULT_NAME else rule.name,
            "at": None if stands is None else f"{stands.file}:{stands.line}",
            "mode": rule.mode.value,
            "safe": named.safe,
        },
        "arguments": [] if identity is None else list(_arguments(identity.arguments)),
        "headers": [{"name": name, "value": value} for name, value in _counted(request, rule)],
        "counts_too": [] if identity is None else list(_counts_too(request, rule)),
        "left_out": [] if identity is None else list(_left_out(explained, identity.arguments)),
        "canonical": None if identity is None else identity.arguments.decode(),
        "call": identity.id if identity is not None and explained.id_is_known else None,
        "now": asdict(explained.now),
        "run": None if explained.in_run is None else _told_run(explained.in_run),
    }


def _told_run(asked: InRun) -> Document:
    run, fate = asked.viewed.book.run, asked.fate
    return {
        "name": run.name,
        "attempt": asked.viewed.book.attempt or None,
        "new": asked.viewed.is_new,
        "parent": None if run.parent is None else run.parent.run,
        "pinned_otherwise": asked.pinned_otherwise,
        "family": None if asked.family is None else asked.family.id,
        "recorded": fate.recorded,
        "occurrence": fate.occurrence,
        "why": fate.why,
        "unasked": [
            {"call": one.id, "seq": one.seq, "tool": one.tool, "state": one.state} for one in fate.unasked
        ],
    }


def not_compared(call: str, note: str) -> Document:
    none: list[Document] = []
    return {
        "call": call,
        "same": False,
        "same_now": False,
        "note": note,
        "assumed": none,
        "differences": none,
        "remaining": none,
        "suggestions": none,
    }


def told_like(
    call: str,
    seen: Seen,
    compared: Compared,
    stands: Stands | None,
    file: str | None,
    careful: tuple[str, ...] = (),
) -> Document:
    """`stands`: where the rule is that a suggestion changes; `file`: where a new rule goes; `careful`: what
    else every suggestion means."""
    at = file if stands is None else f"{stands.file}:{stands.key_line or stands.line}"
    shipped = [SHIPPED] if stands is not None and stands.is_preset else []
    return {
        "call": call,
        "same": compared.same and seen.has_its_name,
        "same_now": compared.same,
        "note": seen.note,
        "assumed": [seen.assumed] if seen.assumed else [],
        "differences": [asdict(one) for one in compared.differences],
        "remaining": [asdict(one) for one in compared.remaining],
        "suggestions": [
            {
                "yaml": one.yaml,
                "whole_rule": one.whole_rule,
                "replaces": stands is not None and bool(stands.key_line),
                "at": at,
                "careful": [*one.careful, *careful, *shipped],
            }
            for one in compared.suggestions
        ],
    }


def careful_in_run(asked: InRun) -> tuple[str, ...]:
    """What every suggestion for a call of a run means."""
    pinned = "a run keeps the rules that it began with, so this helps runs that begin after the change"
    changed = "the policies have changed since this run began: the line is made from its rule as it was then"
    return (pinned, changed) if asked.pinned_otherwise else (pinned,)


def told_taken_over(typed: ToName, completed: ToName, rule: Rule) -> list[str]:
    """What counts only because the record has it. The record keeps no secrets, so none is here."""
    before = _counted(typed, rule)
    taken = [
        f"{name.title()}: {cut(value)}"
        for name, value in _counted(completed, rule)
        if (name, value) not in before
    ]
    if not taken:
        return []
    line = f"taken over from the record, since no -H gave it: {', '.join(taken)}"
    return [f"{line}; if your agent really leaves it out, that is the difference"]


def _arguments(canonical: bytes) -> Iterator[Document]:
    kind, value = parsed(canonical)
    value = value.get("include", value)
    for field, one in _fields(kind, (), value):
        yield {"field": field, "value": value_text(one)}


def _fields(kind: str, steps: tuple[str, ...], value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and (value or not steps):
        for key, inner in value.items():
            yield from _fields(kind, (*steps, key), inner)
    else:
        yield field_of(steps, kind), value


def _counted(request: ToName, rule: Rule) -> list[tuple[str, str]]:
    return counted_headers(request.counted, rule, request.upstream.credentials)


def _counts_too(request: ToName, rule: Rule) -> Iterator[str]:
    """What takes part in the name beside arguments and headers."""
    found = sort_headers(request.counted, rule.key.counted, request.upstream.credentials)
    if client_keys(request, rule) and client_key_counts(request, rule):
        place = "the Idempotency-Key" if _is_plain(rule) else f"the client's key ({key_place(rule)})"
        yield f"{place}, in place of arguments and credentials: both have to be the same with it"
    if found.credentials and credentials_count(request, rule):
        names = ", ".join(sorted({name.decode("latin-1") for name, _ in found.credentials}))
        yield f"the caller's credentials ({names}), as a keyed hash"


def _is_plain(rule: Rule) -> bool:
    return not rule.key.implied.client_header and not rule.key.implied.client_field


def _left_out(explained: Explained, canonical: bytes) -> Iterator[Document]:
    request, key = explained.request, explained.named.match.rule.key
    if key.implied.client_field:
        yield {"what": f"body.{key.implied.client_field}", "why": "the upstream's key goes there"}
    for argument in key.exclude:
        hint = explained.idle.get(argument)
        why = "key.exclude" if hint is None else f"key.exclude, but it is not in this request{hint}"
        yield {"what": argument, "why": why}
    if key.include:
        took = "include" in parsed(canonical)[1]
        why = "key.include" if took else "nothing is: key.include selects nothing here, so everything counts"
        yield {"what": f"all arguments but {', '.join(key.include)}", "why": why}
    for normalizer in key.normalize:
        yield {"what": f"{normalizer} in arguments", "why": "key.normalize"}
    for name in dict.fromkeys(raw_name.lower() for raw_name, _ in request.headers):
        if why := _why_not_counted(name, request, explained.named.match.rule):
            yield {"what": f"header {name.decode('latin-1')}", "why": why}


def _why_not_counted(name: bytes, request: ToName, rule: Rule) -> str:
    """Empty for a header that counts, and for what is said to semel."""
    text = name.decode("latin-1")
    place = rule.key.implied.client_header
    found = sort_headers(((name, b""),), rule.key.counted, request.upstream.credentials, place)
    if text == request.upstream.replaced:
        return "semel sends its own in its place (inject)"
    if found.keyed or text.startswith("semel-"):
        return ""
    if found.credentials:
        by_rule = rule.key.credential is Credential.EXCLUDE
        why = "key.credential: exclude" if by_rule else "in a run the caller does not count"
        return "" if credentials_count(request, rule) else why
    if found.client_keys:
        by_rule = rule.key.client_key is ClientKey.IGNORE and not request.origin
        why = "key.client_key: ignore" if by_rule else "in a run it only tells a retry"
        return "" if client_key_counts(request, rule) else why
    if text in NEVER_KEYED or text.startswith(NEVER_KEYED_PREFIXES):
        return "it changes when a crashed agent comes back"
    return "not in key.headers"
