"""How an upstream's calls are named, written down: a run keeps it for its life.

So neither an edit of the policy nor an upgrade of semel renames what a run has recorded. What does not name a
call (timeouts, what a status means, how long to wait) follows the policy as it is now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from proxy.core.canonical import CANONICAL_VERSION, CANONICALISERS
from proxy.core.clauses import OnDoubt, Redact
from proxy.core.patterns import PathPattern
from proxy.core.policy import (
    ClientKey,
    Credential,
    Implied,
    KeyRecipe,
    Looks,
    Mode,
    Normalize,
    Repeat,
    Rule,
    Scope,
    Upstream,
)


class UnknownRecipe(Exception):
    """It was written by a newer semel."""


def recipe_of(upstream: Upstream) -> str:
    """Version of the canonical form; of each rule match, mode, safe, scope, repeat, key and redact."""
    replaced = {"replaced": upstream.replaced} if upstream.replaced else {}
    accounts = {"accounts": upstream.accounts} if upstream.accounts else {}
    return orjson.dumps(
        {
            "canonical": CANONICAL_VERSION,
            "credentials": upstream.credentials,
            **replaced,
            **accounts,
            "rules": [_written(rule) for rule in upstream.rules],
        },
        option=orjson.OPT_SORT_KEYS,
    ).decode()


def _written(rule: Rule) -> dict[str, Any]:
    key = rule.key
    return {
        "name": rule.name,
        "methods": sorted(rule.methods),
        "path": _path(rule),
        "mode": rule.mode,
        "safe": rule.safe,
        "scope": rule.scope,
        "repeat": rule.repeat,
        "include": key.include,
        "exclude": key.exclude,
        "headers": key.headers,
        "credential": key.credential,
        "client_key": key.client_key,
        "normalize": key.normalize,
        **_redacted(rule.redact),
        **_looks(rule.looks),
        **_implied(key.implied),
    }


def _looks(looks: Looks | None) -> dict[str, Any]:
    return {} if looks is None else {"looks": [looks.headers, looks.when]}


def _implied(implied: Implied) -> dict[str, Any]:
    if implied == Implied():
        return {}
    return {"implied": [implied.headers, implied.client_header, implied.client_field, implied.client_beside]}


def _redacted(redact: Redact) -> dict[str, Any]:
    """What is hidden takes part in the name as a hash, else as it is."""
    return {} if redact == Redact() else {"redact": [redact.args, redact.headers]}


def _path(rule: Rule) -> str | None:
    return None if rule.path is None else rule.path.text


def pinned(upstream: Upstream, recipe: str) -> tuple[Upstream, int]:
    """The upstream as `recipe` names its calls, otherwise as it is now; and the canonical version."""
    said = orjson.loads(recipe)
    canonical = said["canonical"]
    if canonical not in CANONICALISERS:
        raise UnknownRecipe(
            f"The run was begun by a newer semel (canonical form {canonical}): use that one to continue it."
        )
    present = {rule.name: rule for rule in upstream.rules}
    rules = tuple(_read(rule, present.get(rule["name"])) for rule in said["rules"])
    as_then = replace(
        upstream,
        rules=rules,
        credentials=tuple(said["credentials"]),
        replaced=said.get("replaced", ""),
        accounts=tuple(said.get("accounts", ())),
        secret_too=upstream.credentials,
    )
    return as_then, canonical


def _read(said: dict[str, Any], present: Rule | None) -> Rule:
    headers, client_header, client_field, beside = said.get("implied", ((), "", "", ()))
    key = KeyRecipe(
        include=tuple(said["include"]),
        exclude=tuple(said["exclude"]),
        headers=tuple(said["headers"]),
        credential=Credential(said["credential"]),
        client_key=ClientKey(said["client_key"]),
        normalize=tuple(Normalize(each) for each in said["normalize"]),
        implied=Implied(
            headers=tuple(headers),
            client_header=client_header,
            client_field=client_field,
            client_beside=tuple((name, value) for name, value in beside),
        ),
    )
    looks, methods = _read_looks(said), frozenset(said["methods"])
    if present is not None and (present.methods, _path(present), present.looks) != (
        methods,
        said["path"],
        looks,
    ):
        # Another rule has the name by now: what it knows of its calls, it does not know of these.
        present = replace(present, in_doubt=OnDoubt.HOLD, upstream_key=None, probe=None)
    args, headers = said.get("redact", ((), ()))
    redact = Redact(args=tuple(args), headers=tuple(headers))
    return replace(
        present or Rule(name=said["name"]),
        redact=redact,
        redacts_now=Redact() if present is None else present.redact,
        methods=methods,
        looks=looks,
        path=None if said["path"] is None else PathPattern.read(said["path"]),
        mode=Mode(said["mode"]),
        safe=said["safe"],
        scope=Scope(said["scope"]),
        repeat=Repeat(said["repeat"]),
        key=key,
    )


def _read_looks(said: dict[str, Any]) -> Looks | None:
    if "looks" not in said:
        return None
    headers, when = said["looks"]
    return Looks(headers=tuple((name, tuple(values)) for name, values in headers), when=when)
