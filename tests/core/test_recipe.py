"""How calls are named, written down and read again: the same rules come back, whatever changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxy.core.clauses import OnDoubt, Probe, Redact, UpstreamKey
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
from proxy.core.recipe import UnknownRecipe, pinned, recipe_of

FULL = Rule(
    name="full",
    methods=frozenset({"POST", "PUT"}),
    path=PathPattern.parse("/a/{id}"),
    looks=Looks(headers=(("x-kind", ("big", "small")),), when="a == 'b'"),
    mode=Mode.CACHE,
    safe=True,
    scope=Scope.TENANT,
    repeat=Repeat.SAME,
    key=KeyRecipe(
        include=("a",),
        exclude=("b",),
        headers=("x-c",),
        credential=Credential.EXCLUDE,
        client_key=ClientKey.REQUIRE,
        normalize=(Normalize.UUIDS,),
        implied=Implied(
            headers=("x-d",), client_header="x-key", client_field="key", client_beside=(("mode", True),)
        ),
    ),
    redact=Redact(args=("pin",), headers=("x-pin",)),
)
TOOL = Rule(name="tool", path=PathPattern.of_tools("pay_*"), ttl=5.0)
UPSTREAM = Upstream(
    name="u", scheme="https", host="u.example", port=443, rules=(FULL, TOOL), credentials=("x-secret",),
    accounts=("x-d",), replaced="x-old",
)  # fmt: skip


def test_a_recipe_is_written_as_it_always_was() -> None:
    """It lies in the records of runs: every later version reads this text."""
    assert json.loads(recipe_of(UPSTREAM)) == {
        "canonical": 1,
        "credentials": ["x-secret"],
        "replaced": "x-old",
        "accounts": ["x-d"],
        "rules": [
            {
                "name": "full", "methods": ["POST", "PUT"], "path": "/a/{id}", "mode": "cache", "safe": True,
                "scope": "tenant", "repeat": "same", "include": ["a"], "exclude": ["b"], "headers": ["x-c"],
                "credential": "exclude", "client_key": "require", "normalize": ["uuids"],
                "redact": [["pin"], ["x-pin"]], "looks": [[["x-kind", ["big", "small"]]], "a == 'b'"],
                "implied": [["x-d"], "x-key", "key", [["mode", True]]],
            },
            {
                "name": "tool", "methods": [], "path": "pay_*", "mode": "once", "safe": None, "scope": "run",
                "repeat": "ordinal", "include": [], "exclude": [], "headers": [], "credential": "auto",
                "client_key": "auto", "normalize": [],
            },
        ],
    }  # fmt: skip
    plain = json.loads(recipe_of(replace(UPSTREAM, rules=(), accounts=(), replaced="")))
    assert plain == {"canonical": 1, "credentials": ["x-secret"], "rules": []}
    assert recipe_of(UPSTREAM) == recipe_of(replace(UPSTREAM, about="other words"))
    bare = replace(UPSTREAM, rules=(Rule(name="any"),))
    assert recipe_of(bare) == (
        '{"accounts":["x-d"],"canonical":1,"credentials":["x-secret"],"replaced":"x-old","rules":['
        '{"client_key":"auto","credential":"auto","exclude":[],"headers":[],"include":[],"methods":[],'
        '"mode":"once","name":"any","normalize":[],"path":null,"repeat":"ordinal","safe":null,"scope":"run"}]}'
    ), "compared as text to tell whether a policy has changed since"


def test_what_is_read_names_calls_as_it_did() -> None:
    """Of the rules that are still there everything else is as it is now."""
    as_then, canonical = pinned(UPSTREAM, recipe_of(UPSTREAM))
    assert canonical == 1
    redacting = replace(FULL, redacts_now=FULL.redact)
    assert as_then.rules == (redacting, TOOL)
    assert (as_then.credentials, as_then.accounts, as_then.replaced) == (("x-secret",), ("x-d",), "x-old")
    assert as_then.secret_too == ("x-secret",)
    assert as_then.rules[1].ttl == 5.0
    anything = Rule(name="any")
    assert pinned(UPSTREAM, recipe_of(replace(UPSTREAM, rules=(anything,))))[0].rules == (anything,)


def test_a_policy_that_has_changed_renames_nothing() -> None:
    """Rules that are gone come back bare; what the rule redacts by now is kept beside what it did."""
    recipe = recipe_of(UPSTREAM)
    changed = replace(
        UPSTREAM,
        rules=(replace(FULL, key=KeyRecipe(), mode=Mode.ONCE, redact=Redact(args=("cvc",)), ttl=7.0),),
        credentials=("x-new",),
        accounts=(),
        replaced="",
    )
    as_then, _ = pinned(changed, recipe)
    full, tool = as_then.rules
    assert (full.key, full.mode, full.redact, full.ttl) == (FULL.key, Mode.CACHE, FULL.redact, 7.0)
    assert full.redacts_now == Redact(args=("cvc",))
    assert tool == replace(TOOL, ttl=86400.0)
    assert (as_then.credentials, as_then.secret_too) == (("x-secret",), ("x-new",))
    assert (as_then.accounts, as_then.replaced) == (("x-d",), "x-old")
    older, _ = pinned(UPSTREAM, recipe_of(replace(UPSTREAM, rules=(), accounts=(), replaced="")))
    assert (older.accounts, older.replaced) == ((), "")


KNOWING = {
    "in_doubt": OnDoubt.PROBE,
    "probe": Probe(method="GET", target="/", found="x"),
    "upstream_key": UpstreamKey(header="k"),
}


@pytest.mark.parametrize(
    ("change", "knows"),
    [
        ({}, True),
        ({"ttl": 9.0}, True),
        ({"methods": frozenset({"PUT"})}, False),
        ({"path": PathPattern.parse("/b/{id}")}, False),
        ({"looks": None}, False),
    ],
    ids=lambda change: ",".join(change) if isinstance(change, dict) else "",
)
def test_another_rule_of_the_same_name_knows_nothing_of_these_calls(
    change: dict[str, object], knows: bool
) -> None:
    """Neither its key nor its probe was made for them; which calls those are is as it was."""
    recipe = recipe_of(UPSTREAM)
    present = replace(FULL, **KNOWING, **change)  # type: ignore[arg-type]
    as_then, _ = pinned(replace(UPSTREAM, rules=(present,)), recipe)
    full = as_then.rules[0]
    assert (full.in_doubt is OnDoubt.PROBE, full.probe is not None, full.upstream_key is not None) == (
        knows,
    ) * 3
    assert (full.methods, full.path, full.looks) == (FULL.methods, FULL.path, FULL.looks)


def test_a_form_that_only_a_newer_one_knows_is_refused() -> None:
    """It cannot be guessed how its calls are named."""
    recipe = recipe_of(UPSTREAM).replace('"canonical":1', '"canonical":2')
    with pytest.raises(UnknownRecipe, match="newer"):
        pinned(UPSTREAM, recipe)
