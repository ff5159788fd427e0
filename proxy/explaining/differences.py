"""In which parts two named requests differ, by field: only in parts that count under their rule.

The arguments are compared in their canonical form, after the rule has taken its pick, so what is listed here
is what makes the names differ, and nothing else. Values of headers that may be secrets are never told, nor
are those in queries and paths whose names sound secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from proxy.admin import redact
from proxy.core.headers import Headers
from proxy.core.identity import KEYED_HEADERS, KEYED_PREFIX, sort_headers
from proxy.core.policy import Rule
from proxy.explaining.arguments import argument_differences
from proxy.explaining.parts import Difference, Part, cut
from proxy.explaining.request import client_key_counts, client_keys, credentials_count, key_place
from proxy.front.naming import Named, ToName
from proxy.front.sending import without_secrets

NOT_SHOWN = "(not shown)"


def differences(here: ToName, there: ToName, named: Named, named_there: Named) -> list[Difference]:
    """`named`, `named_there`: both have an identity. The rule is the one that `here` meets."""
    rule = named.match.rule
    found = [*_operation(here, there, named, named_there), *_headers(here, there, rule)]
    assert named.identity is not None
    assert named_there.identity is not None
    arguments = argument_differences(named.identity.arguments, named_there.identity.arguments)
    # Named segments differ with the path, which says it all.
    return found + [one for one in arguments if not one.field.startswith("path.")]


def same_name(one: Named, other: Named) -> bool:
    """Equal ids are not enough: under a client's key the fingerprint may differ, which is a conflict."""
    if one.identity is None or other.identity is None:
        return False
    return one.identity[:3] == other.identity[:3]


# ---- what is asked, and by whom ----


def _operation(here: ToName, there: ToName, named: Named, named_there: Named) -> Iterator[Difference]:
    plain = (
        (Part.UPSTREAM, here.upstream.name, there.upstream.name, "an upstream's calls are its own"),
        (Part.TENANT, here.tenant, there.tenant, "a tenant's calls are its own"),
        (Part.RUN, here.origin, there.origin, "a run's calls are its own: ask in that run"),
        (Part.METHOD, here.method, there.method, "the method is always part of the name"),
        (
            Part.OCCURRENCE,
            str(here.occurrence),
            str(there.occurrence),
            "Semel-Occurrence numbers deliberate repeats: leave it out, or send the same number",
        ),
    )
    for part, one, other, why in plain:
        if one != other:
            yield Difference(part=part, field=part.value, here=one or None, there=other or None, fixed=why)
    one, other = here.address.raw_path, there.address.raw_path
    if one != other:
        why = _why_path(one, other, named.match.rule, named_there.match.rule)
        mine, yours = (
            cut(redact.target(path, match.names))
            for path, match in ((one, named.match), (other, named_there.match))
        )
        yield Difference(part=Part.PATH, field="path", here=mine, there=yours, fixed=why)


def _why_path(one: str, other: str, rule: Rule, rule_there: Rule) -> str:
    if unquote(one) == unquote(other) and one.count("/") == other.count("/"):
        return "the path is the same but spelled differently, and counts byte by byte: spell it alike"
    if rule != rule_there:
        return f"they meet different rules ({rule.name} and {rule_there.name}), and the path always counts"
    pattern = rule.path.text if rule.path else "any path"
    return f"the path is always part of the name, also where the rule's pattern ({pattern}) leaves it open"


def _headers(here: ToName, there: ToName, rule: Rule) -> Iterator[Difference]:
    further = here.upstream.credentials
    mine = sort_headers(here.counted, rule.key.counted, further)
    yours = sort_headers(there.counted, rule.key.counted, further)
    for name in sorted({name for name, _ in (*mine.keyed, *yours.keyed)}):
        one = [value for key, value in mine.keyed if key == name]
        other = [value for key, value in yours.keyed if key == name]
        if one != other:
            secret = not without_secrets(((name, b""),), further)
            yield Difference(
                part=Part.HEADER,
                field=f"header {name.decode('latin-1')}",
                here=_header_values(one, secret=secret),
                there=_header_values(other, secret=secret),
                name=name.decode("latin-1"),
                fixed=_why_fixed(name, rule),
            )
    my_keys, your_keys = client_keys(here, rule), client_keys(there, rule)
    if client_key_counts(here, rule) and my_keys != your_keys:
        yield Difference(
            part=Part.CLIENT_KEY,
            field=key_place(rule),
            here=_header_values(my_keys),
            there=_header_values(your_keys),
        )
    if credentials_count(here, rule) and _ordered(mine.credentials) != _ordered(yours.credentials):
        yield Difference(
            part=Part.CREDENTIALS,
            field="credentials",
            here=_names_only(mine.credentials),
            there="others; the record keeps no secrets" if yours.credentials else None,
        )


def _why_fixed(name: bytes, rule: Rule) -> str:
    if name.decode("latin-1") in rule.key.implied.headers:
        return "this header chooses the account, or the rule: it is always part of the name"
    return "this header is always part of the name" if _always_keyed(name) else ""


def _always_keyed(name: bytes) -> bool:
    return name in KEYED_HEADERS or name.startswith(KEYED_PREFIX) or name == b"content-type"


def _ordered(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return sorted(pairs, key=lambda pair: pair[0])


def _names_only(pairs: list[tuple[bytes, bytes]]) -> str | None:
    names = sorted({name.decode("latin-1") for name, _ in pairs})
    return f"{', '.join(names)} {NOT_SHOWN}" if names else None


def _header_values(values: list[bytes], *, secret: bool = False) -> str | None:
    if not values:
        return None
    return NOT_SHOWN if secret else cut(", ".join(value.decode("utf-8", "replace") for value in values))


def counted_headers(headers: Headers, rule: Rule, further: tuple[str, ...]) -> list[tuple[str, str]]:
    """Name and value of the headers that are part of the name, values of secrets aside."""
    keyed = sort_headers(headers, rule.key.counted, further).keyed
    told = []
    for name, value in keyed:
        secret = not without_secrets(((name, b""),), further)
        told.append((name.decode("latin-1"), NOT_SHOWN if secret else value.decode("utf-8", "replace")))
    return told
