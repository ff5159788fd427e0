"""A level of a file is a table of fields; one reader reads them all.

A field says its key, how its value is read, what it is by default and what it means. The reader notes
every unknown key (with the nearest known one), every wrong value, every missing one and everything that
semel understands but does not do yet, and reads on. The reference in the docs is made from the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from proxy.policy_file.mistakes import Log, Place, Wrong, nearest, suggestion
from proxy.policy_file.nodes import Broken, Node, Pairs, Scalar, compose, kind_of
from proxy.quantities import quoted

# Reads one value. Raises Wrong; what it can tell with a better place than the node's own, it notes itself.
Parser: TypeAlias = Callable[[Node, Log], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """`default` is YAML, as people would write it, and is read by `parse` like any other value."""

    key: str
    doc: str
    parse: Parser = field(compare=False)
    default: str = "null"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """What one mapping said: the good values by key, and where each key and value stands."""

    level: Level
    at: Place
    values: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)  # of every known key given, right or wrong
    nodes: dict[str, Node] = field(default_factory=dict)

    def given(self, key: str) -> bool:
        return key in self.keys

    def sound(self, *keys: str) -> bool:
        """Nothing wrong was noted about these: a check that needs them makes sense."""
        return all(key in self.values for key in keys if key in self.keys)

    @property
    def whole(self) -> bool:
        return self.values.keys() == self.keys.keys()

    def get(self, key: str) -> Any:  # noqa: ANN401 (the field's parser knows)
        return self.values[key] if key in self.values else default_value(self.level.field(key))


# Looks at a whole section for what no single field can see.
Check: TypeAlias = Callable[[Section, Log], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """One mapping of the file: its fields, and what may not stand together in it."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    checks: tuple[Check, ...] = ()
    not_yet: frozenset[str] = frozenset()

    def field(self, key: str) -> Field:
        return next(one for one in self.fields if one.key == key)

    def known(self) -> list[str]:
        return [one.key for one in self.fields]


@cache
def default_value(spec: Field) -> Any:  # noqa: ANN401
    """A default that does not read is a bug in the table, found by the test that reads them all."""
    log = Log()
    node = compose(spec.default.encode(), f"<default of {spec.key}>", log)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return None
    return spec.parse(node, log)


def read_section(node: Node, level: Level, log: Log) -> Section:
    """Everything `node` says on this level. Raises Wrong if it is no mapping at all."""
    if not isinstance(node, Pairs):
        if isinstance(node, Broken):
            raise Wrong
        wanted = ", ".join(level.known()[:4])
        raise Wrong(
            f"'{level.name}' is a mapping ({wanted}{', …' if len(level.fields) > 4 else ''}), "
            f"this is {kind_of(node)}"
        )
    section = Section(level, node.at)
    known = {spec.key: spec for spec in level.fields}
    misspelt: set[str | None] = set()
    for key, value in node.entries:
        if key.text not in known:
            misspelt.add(nearest(key.text, level.known()))
            log.add(key.at, f"unknown key {quoted(key.text)}{suggestion(key.text, level.known())}")
            continue
        section.keys[key.text] = key.at
        section.nodes[key.text] = value
        _read_field(section, known[key.text], value, log)
    for spec in level.fields:
        # A key that is there, only misspelt, is not missing as well.
        if spec.required and spec.key not in section.keys and spec.key not in misspelt:
            log.add(node.at, f"'{spec.key}' is missing")
    for check in level.checks:
        check(section, log)
    return section


def _read_field(section: Section, spec: Field, node: Node, log: Log) -> None:
    if isinstance(node, Scalar) and node.value is None and spec.default == "null" and not spec.required:
        section.values[spec.key] = None
        return
    value = attempt(spec.parse, node, log)
    if value is _WRONG:
        return
    section.values[spec.key] = value
    if spec.key in section.level.not_yet and value != default_value(spec):
        shown = f"{spec.key}: {node.text}" if isinstance(node, Scalar) else spec.key
        log.add(section.keys[spec.key], f"{quoted(shown)} is not supported yet: remove it")


_WRONG = object()


def attempt(parse: Parser, node: Node, log: Log) -> Any:  # noqa: ANN401
    """The value, or a mark that nobody else has after its mistake was noted."""
    before = len(log)
    try:
        value = parse(node, log)
    except Wrong as wrong:
        if wrong.message is not None:
            log.add(node.at, wrong.message)
        return _WRONG
    return value if len(log) == before else _WRONG


def is_wrong(value: object) -> bool:
    return value is _WRONG


def nested(level: Level, build: Callable[..., Any]) -> Parser:
    """A field whose value is a level of its own; `build` takes its given values by name."""

    def parse(node: Node, log: Log) -> Any:  # noqa: ANN401
        before = len(log)
        section = read_section(node, level, log)
        if len(log) > before or not section.whole:
            raise Wrong
        return build(**section.values)

    return parse
