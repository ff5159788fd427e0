"""Names in `exclude` that leave nothing out of a request: it has no such field, or the name is misspelt.

Found by naming the request with each of them alone, so what is told is what the naming does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from proxy.core.policy import KeyRecipe
from proxy.explaining.arguments import Json, name_of, parsed
from proxy.explaining.matching import Naming
from proxy.explaining.request import under
from proxy.front.naming import Named, ToName
from proxy.policy_file.mistakes import suggestion

# Of a body with more fields than these the others are not looked through for a near name.
LOOKED_THROUGH = 2000


def idle_names(request: ToName, named: Named, name: Naming) -> dict[str, str]:
    """With `: did you mean 'x'?` for each, or with nothing where nothing is near."""
    rule = named.match.rule
    if named.identity is None or not rule.key.exclude:
        return {}
    everything = replace(rule.key, include=(), exclude=(), normalize=())

    def arguments(key: KeyRecipe) -> bytes:
        identity = name(under(request, rule, key)).identity
        return b"" if identity is None else identity.arguments

    whole = arguments(everything)
    idle = [one for one in rule.key.exclude if arguments(replace(everything, exclude=(one,))) == whole]
    if not idle:
        return {}
    fields = dict.fromkeys(islice(_names(parsed(whole)[1], ()), LOOKED_THROUGH))
    known = [field for field in fields if field and field not in rule.key.exclude]
    return {one: suggestion(one, known) for one in idle}


def _names(value: Json, steps: tuple[str, ...]) -> Iterator[str]:
    """What a policy calls each field, and each thing around fields."""
    if steps:
        yield name_of(steps)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _names(inner, (*steps, key))
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from _names(item, (*steps, "[]"))
