"""Which `key:` makes two requests one call: proposed from their differences, believed only after a trial.

A proposal leaves out as little as it can. It is written as YAML, read back by the policy file's reader, put
into the rule, and both requests are named again by the one naming there is. Only if the names are then the
same is it told to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from proxy.core.canonical import Body, canonical_arguments
from proxy.core.policy import DEFAULT_NAME, ClientKey, Credential, KeyRecipe, Normalize, Rule, Upstream
from proxy.explaining.arguments import Json, parsed
from proxy.explaining.differences import differences, same_name
from proxy.explaining.parts import Difference, Part
from proxy.explaining.written import Unreadable, key_line, read_key, read_rule, rule_lines
from proxy.front.naming import Named, ToName

Naming: TypeAlias = Callable[[ToName], Named]

# Each round leaves out something more, and only a shorter `include` brings up something new.
ROUNDS = 20
_NORMALIZERS = ((Normalize.TIMESTAMPS,), (Normalize.UUIDS,), (Normalize.TIMESTAMPS, Normalize.UUIDS))
_PLACEHOLDERS = frozenset({"<timestamp>", "<uuid>"})


class Pair(NamedTuple):
    """Two requests, and how requests are named."""

    here: ToName
    there: ToName
    name: Naming

    def named(self, upstream: Upstream) -> tuple[Named, Named]:
        """Both with `upstream`'s rules, as far as they are its requests."""
        there = self.there
        if there.upstream.name == upstream.name:
            there = there._replace(upstream=upstream)
        return self.name(self.here._replace(upstream=upstream)), self.name(there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """`yaml` was tried: with it both requests have the same name. `careful`: what else it means."""

    yaml: str
    whole_rule: bool
    careful: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`differences` under the rules as they are; `remaining` is what no `key:` can leave out."""

    same: bool
    differences: tuple[Difference, ...]
    suggestions: tuple[Suggestion, ...] = ()
    remaining: tuple[Difference, ...] = ()


def compare(pair: Pair) -> Compared:
    """Of two requests that are both recorded under the rules as they are: each has an identity."""
    named, named_there = pair.named(pair.here.upstream)
    found = tuple(differences(pair.here, pair.there, named, named_there))
    if same_name(named, named_there):
        return Compared(same=True, differences=())
    if remaining := tuple(one for one in found if one.fixed):
        return Compared(same=False, differences=found, remaining=remaining)
    try:
        trial = _Trial(pair, named.match.rule)
    except Unreadable:  # no rule can be written for such a request
        return Compared(same=False, differences=found)
    suggestions: dict[str, Suggestion] = {}
    for recipe in trial.proposals(found):
        if (suggestion := trial.verified(recipe)) is not None:
            suggestions.setdefault(suggestion.yaml, suggestion)
    left = () if suggestions else trial.left_over
    return Compared(same=False, differences=found, suggestions=tuple(suggestions.values()), remaining=left)


class _Trial:
    """The rule with other recipes. In place of none, a rule for just this method and path."""

    def __init__(self, pair: Pair, rule: Rule) -> None:
        here = pair.here
        self._pair = pair
        self._is_new = rule.name == DEFAULT_NAME
        self._implied = rule.key.implied
        self._rule = self._completed(read_rule(_rule_for(here, rule.key))) if self._is_new else rule
        rules = here.upstream.rules
        self._upstream = replace(here.upstream, rules=(*rules, self._rule) if self._is_new else rules)
        self.left_over: tuple[Difference, ...] = ()

    def proposals(self, found: Iterable[Difference]) -> Iterator[KeyRecipe]:
        """The one that leaves out least comes first."""
        recipe, tried = self._rule.key, self._normalizing(found)
        if tried is None:
            starts = [recipe]
        else:
            normalized, gone = tried
            bare = [one for one in gone if _is_bare(one, normalized.normalize)]
            # A field that is nothing but a time is left out by itself, and other times go on counting.
            # Of a text with a time in it the rest should count.
            starts = [_without(bare, normalized if len(bare) < len(gone) else recipe), normalized]
        for start in starts:
            if (settled := self._follow(start)) is not None:
                yield settled

    def verified(self, recipe: KeyRecipe) -> Suggestion | None:
        """Written, read back, tried."""
        try:
            if self._is_new:
                text = _rule_for(self._pair.here, recipe)
                named = self._named_by(self._completed(read_rule(text)))
            else:
                text = key_line(recipe)
                named = self._named_by(self._completed(replace(self._rule, key=read_key(text))))
        except Unreadable:
            return None
        if not same_name(*named):
            return None
        careful = tuple(_careful(self._rule.key, recipe, named[0]))
        return Suggestion(yaml=text, whole_rule=self._is_new, careful=careful)

    def _completed(self, rule: Rule) -> Rule:
        """With what no `key:` says, as the file's other lines imply it."""
        return replace(rule, key=replace(rule.key, implied=self._implied))

    def _follow(self, recipe: KeyRecipe) -> KeyRecipe | None:
        """Leave out what differs until nothing does."""
        for _ in range(ROUNDS):
            named = self._named(recipe)
            if same_name(*named):
                return recipe
            found = differences(self._pair.here, self._pair.there, *named)
            after = _without(found, recipe)
            if after == recipe or any(one.fixed for one in found):
                self.left_over = tuple(found)
                break
            recipe = after
        return None

    def _named(self, recipe: KeyRecipe) -> tuple[Named, Named]:
        return self._named_by(replace(self._rule, key=recipe))

    def _named_by(self, rule: Rule) -> tuple[Named, Named]:
        rules = tuple(rule if one is self._rule else one for one in self._upstream.rules)
        return self._pair.named(replace(self._upstream, rules=rules))

    def _normalizing(self, found: Iterable[Difference]) -> tuple[KeyRecipe, list[Difference]] | None:
        """The recipe with the normalizers that make most differences vanish, and those differences."""
        best: tuple[KeyRecipe, list[Difference]] | None = None
        recipe = self._rule.key
        for choice in _NORMALIZERS:
            added = tuple(one for one in choice if one not in recipe.normalize)
            tried = replace(recipe, normalize=(*recipe.normalize, *added))
            left = {one.field for one in differences(self._pair.here, self._pair.there, *self._named(tried))}
            gone = [one for one in found if one.field not in left]
            if len(gone) > (len(best[1]) if best else 0):
                best = tried, gone
        return best


def _rule_for(request: ToName, recipe: KeyRecipe) -> str:
    return rule_lines(request.upstream, request.method, request.address.raw_path, recipe)


def _without(found: Iterable[Difference], recipe: KeyRecipe) -> KeyRecipe:
    """The recipe under which these differences no longer count."""
    for one in found:
        match one.part:
            case Part.ARGUMENT if one.name in recipe.include:
                recipe = replace(recipe, include=tuple(name for name in recipe.include if name != one.name))
            case Part.ARGUMENT if one.name and one.name not in recipe.exclude:
                recipe = replace(recipe, exclude=(*recipe.exclude, one.name))
            case Part.HEADER:
                recipe = replace(recipe, headers=tuple(name for name in recipe.headers if name != one.name))
            case Part.CREDENTIALS:
                recipe = replace(recipe, credential=Credential.EXCLUDE)
            case Part.CLIENT_KEY:
                recipe = replace(recipe, client_key=ClientKey.IGNORE)
            case _:
                pass  # nothing that a recipe could leave out
    return recipe


def _is_bare(one: Difference, normalize: tuple[Normalize, ...]) -> bool:
    """Whether the values are nothing but what normalizing takes out."""
    return all(_leaves_of(text, normalize) <= _PLACEHOLDERS for text in (one.here, one.there) if text)


def _leaves_of(text: str, normalize: tuple[Normalize, ...]) -> set[Json]:
    body = Body(media_type="application/json", data=f"[{text}]".encode())
    told = canonical_arguments(path={}, query=b"", body=body, normalize=normalize)
    return set(_leaves(parsed(told)[1]))


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _careful(before: KeyRecipe, after: KeyRecipe, named: Named) -> Iterator[str]:
    if after.credential is not before.credential:
        yield "callers with other credentials then get each other's recorded answers"
    if after.client_key is not before.client_key:
        yield "two calls meant as two, told apart only by their Idempotency-Key, are then one"
    if after.normalize != before.normalize:
        taken_out = " and ".join(one for one in after.normalize if one not in before.normalize)
        yield f"it takes {taken_out} out of every argument, not only out of these"
    if merged := ", ".join(_no_longer_counted(before, after)):
        yield f"calls that differ only in {merged} are then one call, and only the first of them is sent"
    assert named.identity is not None
    if after.exclude != before.exclude and not list(_leaves(parsed(named.identity.arguments)[1])):
        yield "no argument counts any more: all calls of this rule to one path are then the same call"


def _no_longer_counted(before: KeyRecipe, after: KeyRecipe) -> Iterator[str]:
    yield from (name for name in after.exclude if name not in before.exclude)
    if after.include:  # else everything counts that is not left out
        yield from (name for name in before.include if name not in after.include)
    yield from (f"header {name}" for name in before.headers if name not in after.headers)
