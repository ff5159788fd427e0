"""A call's arguments, however it is spelled: bound to the function's signature, defaults included.

`refund(7)` and `refund(order=7)` are one call. The object that a method belongs to is no argument: two
objects that are asked the same make the same call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

_OWNERS = ("self", "cls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """How the calls of one function become arguments."""

    signature: inspect.Signature
    left_out: frozenset[str]

    def arguments(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Raises TypeError, as the function itself would."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if name not in self.left_out}


def spelling_of(function: Callable[..., object], exclude: Iterable[str]) -> Spelling:
    signature = inspect.signature(function)
    names, excluded = list(signature.parameters), frozenset(exclude)
    if unknown := excluded - set(names):
        raise ValueError(f"exclude names what is no parameter: {', '.join(sorted(unknown))}")
    owner = {name for name in names[:1] if name in _OWNERS}
    return Spelling(signature=signature, left_out=excluded | owner)
