"""Every place of a module that can be changed, each with a name that outlives its line number.

The name of a mutant is its function or class, what stood there, and what stands there now. Two alike in one
function are told apart by a number. What a change reaches: the lines of its statement, and whether it
sits in a function (a running process can be given the new code) or takes effect at import.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from tests.proof.mutation.changes import CHANGES, Change, is_for_mypy, of_rows

Enums = Mapping[str, tuple[str, ...]]  # members by the name of their class
SHOWN = 90  # characters of what stood there


class Function(NamedTuple):
    """An outermost one: its code holds that of everything inside."""

    qualname: str
    line: int


class Mutant(NamedTuple):
    name: str  # the module, the place, the change
    module: str
    change: Change
    lines: range
    function: Function | None  # None: it takes effect at import

    @property
    def symbol(self) -> str:
        """What of the module is changed."""
        return self.name.partition(":")[0].split(".")[1]


@dataclass(frozen=True, slots=True)
class Source:
    """A module as it is, and the code it would have with a mutant in it."""

    module: str
    path: Path
    tree: ast.Module
    text: str

    @classmethod
    def of(cls, module: str, path: Path) -> Source:
        text = path.read_text()
        return cls(module, path, ast.parse(text, str(path)), text)

    def code(self, change: Change) -> CodeType:
        before = {field: getattr(change.node, field) for field in change.fields}
        for field, new in change.fields.items():
            setattr(change.node, field, new)
        try:
            return compile(ast.fix_missing_locations(self.tree), str(self.path), "exec")
        finally:
            for field, old in before.items():
                setattr(change.node, field, old)


def enums_of(sources: list[Source]) -> Enums:
    found = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(b).endswith("Enum") for b in node.bases):
                assigned = [each.targets[0] for each in node.body if isinstance(each, ast.Assign)]
                found[node.name] = tuple(ast.unparse(target) for target in assigned)
    return found


def mutants_of(source: Source, enums: Enums) -> list[Mutant]:
    short = source.module.rpartition(".")[2]
    seen: Counter[str] = Counter()
    found = []
    for place, change in _Walk(source, enums).all():
        name = f"{short}.{place.where}: {_shown(source.text, change.node)} → {change.label}"
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name} ({seen[name]})"
        found.append(Mutant(name, source.module, change, place.lines, place.function))
    return found


def _shown(text: str, node: ast.AST) -> str:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            return f"if {_segment(text, test)}"
        case ast.Match(subject=subject):
            return f"match {_segment(text, subject)}"
        case ast.match_case(pattern=pattern):
            return f"case {_segment(text, pattern)}"
        case ast.ExceptHandler():
            return "try"
        case ast.comprehension(target=target, iter=iterated):
            return f"for {_segment(text, target)} in {_segment(text, iterated)}"
        case ast.Module() | ast.FunctionDef() | ast.ClassDef():
            return "body"
        case _:
            return _segment(text, node)


def _segment(text: str, node: ast.AST) -> str:
    found = " ".join((ast.get_source_segment(text, node) or "").split())
    return found if len(found) <= SHOWN else f"{found[: SHOWN - 1]}…"


@dataclass(frozen=True, slots=True)
class _Place:
    where: str
    lines: range
    function: Function | None = None
    names: frozenset[str] = frozenset()  # stored more than once in the function: without one there is another
    in_display: bool = False


class _Walk:
    def __init__(self, source: Source, enums: Enums) -> None:
        self._source = source
        self._enums = enums

    def all(self) -> Iterator[tuple[_Place, Change]]:
        yield from self._body(self._source.tree.body, _Place("(module)", range(0)))

    def _body(self, body: list[ast.stmt], place: _Place) -> Iterator[tuple[_Place, Change]]:
        for stmt in body:
            yield from self._statement(stmt, replace(place, lines=_reach(stmt)))

    def _statement(self, stmt: ast.stmt, place: _Place) -> Iterator[tuple[_Place, Change]]:
        match stmt:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
                return
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self._function(stmt, place)
                return
            case ast.ClassDef(name=name):
                yield from self._body(stmt.body, replace(place, where=_below(place.where, name)))
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Assign(targets=[ast.Name(id=name)]) if place.function is None:
                if name == "__all__":
                    return
                place = replace(place, where=_below(place.where, name))
            case ast.AnnAssign(target=ast.Name(id=name)) if place.function is None:
                if ast.unparse(stmt.annotation) == "TypeAlias":
                    return
                place = replace(place, where=_below(place.where, name))
            case ast.Raise():
                yield place, _gone(stmt)
                return  # what is raised is told to people, and its kind is the tests' to see
            case ast.Continue():
                yield place, Change(stmt, {"__class__": ast.Break}, "break")
            case ast.Break():
                yield place, Change(stmt, {"__class__": ast.Continue}, "continue")
        if is_for_mypy(stmt):
            return
        if _can_go(stmt, place):
            yield place, _gone(stmt)
        yield from self._inside(stmt, place)

    def _function(
        self, stmt: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place
    ) -> Iterator[tuple[_Place, Change]]:
        where = _below(place.where, stmt.name)
        for default in (*stmt.args.defaults, *stmt.args.kw_defaults):
            if default is not None:
                yield from self._node(default, replace(place, where=where))
        first = min([stmt.lineno, *(decorator.lineno for decorator in stmt.decorator_list)])
        outermost = place.function or Function(where, first)
        inner = replace(place, where=where, function=outermost, names=_stored_again(stmt))
        yield from self._body(stmt.body, inner)

    def _node(self, node: ast.AST, place: _Place) -> Iterator[tuple[_Place, Change]]:
        """One expression, or a part of a statement that is neither."""
        if isinstance(node, ast.JoinedStr):
            for value in node.values:
                if isinstance(value, ast.FormattedValue):
                    yield from self._node(value.value, place)
            return
        for change in self._changes(node, place):
            yield place, change
        yield from self._inside(node, place)

    def _inside(self, node: ast.AST, place: _Place) -> Iterator[tuple[_Place, Change]]:
        if isinstance(node, ast.stmt):
            for change in self._changes(node, place):
                yield place, change
        inner = replace(place, in_display=isinstance(node, ast.Set | ast.Dict | ast.List | ast.Tuple))
        for field, value in ast.iter_fields(node):
            if field == "annotation" or (field == "args" and _is_cast(node)):
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.stmt):
                    yield from self._statement(each, replace(place, lines=_reach(each), in_display=False))
                elif isinstance(each, ast.AST):
                    yield from self._node(each, inner)

    def _changes(self, node: ast.AST, place: _Place) -> Iterator[Change]:
        if found := CHANGES.get(type(node)):
            yield from found(node)
        if isinstance(node, ast.List | ast.Tuple) and place.function is None and not place.in_display:
            yield from of_rows(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            members = self._enums.get(node.value.id, ())
            if node.attr in members and len(members) > 1:
                other = members[(members.index(node.attr) + 1) % len(members)]
                yield Change(node, {"attr": other}, f"{node.value.id}.{other}")


def _below(where: str, name: str) -> str:
    return name if where == "(module)" else f"{where}.{name}"


def _reach(stmt: ast.stmt) -> range:
    """The lines that run when the statement does; of a compound one those of its head."""
    first: int = stmt.lineno
    body: list[ast.stmt] = getattr(stmt, "body", [])
    last = body[0].lineno - 1 if body else stmt.end_lineno
    if isinstance(stmt, ast.Match):
        last = stmt.cases[0].pattern.lineno - 1
    return range(first, max(first, last or first) + 1)


def _gone(stmt: ast.stmt) -> Change:
    return Change(stmt, {"__class__": ast.Pass}, "removed")


def _can_go(stmt: ast.stmt, place: _Place) -> bool:
    match stmt:
        case ast.AugAssign() | ast.Expr():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in place.names
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case _:
            return False


def _stored_again(stmt: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    stored = Counter(node.id for node in ast.walk(stmt) if isinstance(node, ast.Name) and _is_store(node))
    stored.update(arg.arg for arg in ast.walk(stmt.args) if isinstance(arg, ast.arg))
    return frozenset(name for name, times in stored.items() if times > 1)


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_cast(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast"
