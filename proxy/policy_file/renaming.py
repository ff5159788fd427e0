"""Which calls a change of the policies renames: those of rules that choose or name them otherwise."""

from __future__ import annotations

from proxy.core.policy import DEFAULT_NAME, PolicySet, Rule, Upstream


def recipe_changes(old: PolicySet, new: PolicySet) -> list[tuple[str, str]]:
    """The rules of `old` under which calls now get other names: their recipe changed, or they are gone."""
    changed: list[tuple[str, str]] = []
    for name, upstream in old.upstreams.items():
        after = new.upstreams.get(name)
        recipes = {rule.name: _recipe(rule, after) for rule in after.rules} if after else {}
        changed += [
            (name, rule.name) for rule in upstream.rules if recipes.get(rule.name) != _recipe(rule, upstream)
        ]
        if after is not None and after.accounts != upstream.accounts:
            changed.append((name, DEFAULT_NAME))
    return changed


def _recipe(rule: Rule, upstream: Upstream) -> tuple[object, ...]:
    return (
        upstream.replaced,
        rule.methods,
        rule.path,
        rule.looks,
        rule.mode,
        rule.safe,
        rule.scope,
        rule.repeat,
        rule.key,
    )
