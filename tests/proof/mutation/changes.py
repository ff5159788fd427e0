"""What can be made of a piece of code: a small change that keeps it valid Python and breaks what it means.

A change sets fields of one node of the syntax tree to other values, so it can be taken back. Texts for
people (sentences, what is raised), asserts, annotations and decorators are left alone: the first are nobody's
promise, the others are mypy's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Change(NamedTuple):
    """Fields of `node` get new values; `label` says so in a few words, without the place."""

    node: ast.AST
    fields: dict[str, Any]
    label: str


COMPARISONS: dict[type[ast.cmpop], tuple[tuple[type[ast.cmpop], str], ...]] = {
    ast.Lt: ((ast.LtE, "<="), (ast.GtE, ">=")),
    ast.LtE: ((ast.Lt, "<"), (ast.Gt, ">")),
    ast.Gt: ((ast.GtE, ">="), (ast.LtE, "<=")),
    ast.GtE: ((ast.Gt, ">"), (ast.Lt, "<")),
    ast.Eq: ((ast.NotEq, "!="),),
    ast.NotEq: ((ast.Eq, "=="),),
    ast.Is: ((ast.IsNot, "is not"),),
    ast.IsNot: ((ast.Is, "is"),),
    ast.In: ((ast.NotIn, "not in"),),
    ast.NotIn: ((ast.In, "in"),),
}
ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "-"),
    ast.Sub: (ast.Add, "+"),
    ast.Mult: (ast.FloorDiv, "//"),
    ast.Div: (ast.Mult, "*"),
    ast.FloorDiv: (ast.Mult, "*"),
    ast.Mod: (ast.Add, "+"),
    ast.Pow: (ast.Mult, "*"),
    ast.BitAnd: (ast.BitOr, "|"),
    ast.BitOr: (ast.BitAnd, "&"),
    ast.BitXor: (ast.BitAnd, "&"),
    ast.LShift: (ast.RShift, ">>"),
    ast.RShift: (ast.LShift, "<<"),
}
# Names of functions and methods that are easily taken for one another.
NAMES = {
    "min": "max",
    "any": "all",
    "startswith": "endswith",
    "removeprefix": "removesuffix",
    "lower": "upper",
    "lstrip": "rstrip",
    "find": "rfind",
    "index": "rindex",
    "partition": "rpartition",
    "split": "rsplit",
    "match": "search",
    "fullmatch": "match",
    "union": "intersection",
}
NAMES |= {other: name for name, other in NAMES.items() if other not in NAMES}

_SENTENCE = re.compile(r"\w[,;:.]? \w")


def is_for_people(text: str) -> bool:
    """Two words with a space between them."""
    return bool(_SENTENCE.search(text))


def of_constant(node: ast.Constant) -> Iterator[Change]:
    match node.value:
        case bool(value):
            yield Change(node, {"value": not value}, repr(not value))
        case int(value) | float(value):
            for other in (value + 1, value - 1):
                yield Change(node, {"value": other}, repr(other))
        case str(value) if not is_for_people(value):
            yield Change(node, {"value": f"XX{value}"}, "another text")
        case bytes(value):
            yield Change(node, {"value": b"XX" + value}, "other bytes")


def of_compare(node: ast.Compare) -> Iterator[Change]:
    for at, op in enumerate(node.ops):
        for other, sign in COMPARISONS[type(op)]:
            yield Change(node, {"ops": [*node.ops[:at], other(), *node.ops[at + 1 :]]}, sign)


def of_bool_op(node: ast.BoolOp) -> Iterator[Change]:
    is_and = isinstance(node.op, ast.And)
    yield Change(node, {"op": ast.Or() if is_and else ast.And()}, "or" if is_and else "and")
    for at in range(len(node.values)):
        rest = [*node.values[:at], *node.values[at + 1 :]]
        if len(rest) == 1:  # one operand alone is not valid: beside it stands what changes nothing
            rest.insert(0, ast.Constant(value=is_and))
        yield Change(node, {"values": rest}, f"without `{ast.unparse(node.values[at])}`")


def of_unary(node: ast.UnaryOp) -> Iterator[Change]:
    """The operator is undone by a second one: `not not x` is as true as x, `--x` is x."""
    inner = ast.UnaryOp(op=node.op, operand=node.operand)
    label = "without not" if isinstance(node.op, ast.Not) else "without its sign"
    yield Change(node, {"operand": inner}, label)


def of_arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[Change]:
    if found := ARITHMETIC.get(type(node.op)):
        yield Change(node, {"op": found[0]()}, found[1])


def of_condition(node: ast.If | ast.IfExp | ast.While) -> Iterator[Change]:
    yield Change(node, {"test": ast.Constant(value=False)}, "never")
    if not isinstance(node, ast.While):
        yield Change(node, {"test": ast.Constant(value=True)}, "always")


def of_comprehension(node: ast.comprehension) -> Iterator[Change]:
    for at, test in enumerate(node.ifs):
        rest = [*node.ifs[:at], *node.ifs[at + 1 :]]
        yield Change(node, {"ifs": rest}, f"without `if {ast.unparse(test)}`")


def of_match(node: ast.Match) -> Iterator[Change]:
    for at, case in enumerate(node.cases):
        label = f"without `case {ast.unparse(case.pattern)}`"
        if len(node.cases) > 1 and not is_for_mypy(case.body[0]):
            yield Change(node, {"cases": [*node.cases[:at], *node.cases[at + 1 :]]}, label)
        if case.guard is not None:
            yield Change(case, {"guard": None}, f"without `if {ast.unparse(case.guard)}`")


def is_for_mypy(stmt: ast.stmt) -> bool:
    """`assert_never(…)`: the machine never comes here."""
    return isinstance(stmt, ast.Expr) and ast.unparse(stmt).startswith("assert_never(")


def of_call(node: ast.Call) -> Iterator[Change]:
    for at, keyword in enumerate(node.keywords):
        if keyword.arg is not None and not _is_text(keyword.value):
            rest = [*node.keywords[:at], *node.keywords[at + 1 :]]
            yield Change(node, {"keywords": rest}, f"without {keyword.arg}=")
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield Change(node.func, {"id": NAMES[node.func.id]}, NAMES[node.func.id])
    counted = len(node.args) > 1 or any(keyword.arg == "maxsplit" for keyword in node.keywords)
    if isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
        if node.func.attr.endswith("split") and not counted:
            return  # from either side it is the same
        yield Change(node.func, {"attr": NAMES[node.func.attr]}, NAMES[node.func.attr])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and is_for_people(node.value)
    )


def of_return(node: ast.Return) -> Iterator[Change]:
    """False and None are alike to nearly everybody, so a plain False is left to `of_constant`."""
    if node.value is not None and not (isinstance(node.value, ast.Constant) and not node.value.value):
        yield Change(node, {"value": ast.Constant(value=None)}, "None")


def of_try(node: ast.Try) -> Iterator[Change]:
    for at, handler in enumerate(node.handlers):
        raised = [ast.copy_location(ast.Raise(), handler)]
        label = f"without `except {ast.unparse(handler.type) if handler.type else ''}`"
        yield Change(node.handlers[at], {"body": raised}, label)


def of_rows(node: ast.Set | ast.List | ast.Tuple) -> Iterator[Change]:
    for at, each in enumerate(node.elts):
        if not (len(node.elts) == 1 and isinstance(node, ast.Set)):  # a set of none cannot be written
            rest = [*node.elts[:at], *node.elts[at + 1 :]]
            yield Change(node, {"elts": rest}, f"without `{ast.unparse(each)}`")


def of_dict(node: ast.Dict) -> Iterator[Change]:
    for at, key in enumerate(node.keys):
        if key is not None:
            keys = [*node.keys[:at], *node.keys[at + 1 :]]
            values = [*node.values[:at], *node.values[at + 1 :]]
            yield Change(node, {"keys": keys, "values": values}, f"without `{ast.unparse(key)}`")


CHANGES: dict[type[ast.AST], Callable[[Any], Iterator[Change]]] = {
    ast.Constant: of_constant,
    ast.Compare: of_compare,
    ast.BoolOp: of_bool_op,
    ast.UnaryOp: of_unary,
    ast.BinOp: of_arithmetic,
    ast.AugAssign: of_arithmetic,
    ast.If: of_condition,
    ast.IfExp: of_condition,
    ast.While: of_condition,
    ast.comprehension: of_comprehension,
    ast.Match: of_match,
    ast.Call: of_call,
    ast.Return: of_return,
    ast.Try: of_try,
    ast.Set: of_rows,
    ast.Dict: of_dict,
}
