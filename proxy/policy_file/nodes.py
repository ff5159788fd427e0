"""YAML as a tree in which everything knows its line and column.

Built from parser events rather than by a YAML constructor: positions survive, nothing is ever
instantiated, and depth is bounded before it can hurt. Left out on purpose: anchors and aliases (a small
file can stand for a huge one), tags, several documents, duplicate keys. Plain words follow YAML 1.2:
only true and false are booleans, so `no` and `on` stay the words that they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from proxy.policy_file.mistakes import Enough, Log, Place
from proxy.quantities import quoted, show_size

LARGEST_FILE = 1 << 20
DEEPEST_NESTING = 50

# libyaml where the wheel has it: ten times as fast, and starting up reads every preset.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?([0-9]+|[0-9]*\.[0-9]+|[0-9]+\.)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Scalar:
    """`text` is what is written, `value` what YAML takes it for."""

    at: Place
    text: str
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    at: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    at: Place
    entries: tuple[tuple[Scalar, Node], ...]

    def get(self, key: str) -> Node | None:
        return next((value for name, value in self.entries if name.text == key), None)


@dataclass(frozen=True, slots=True)
class Broken:
    """Stands where a mistake was noted; whoever meets it keeps silent."""

    at: Place


Node: TypeAlias = Scalar | Items | Pairs | Broken


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read. A mapping's keys and values alternate."""

    at: Place
    is_mapping: bool
    children: list[Node] = field(default_factory=list)


class _GiveUp(Exception):
    """The file cannot be read on; the reason has been noted."""


def plain_value(text: str) -> str | int | float | bool | None:
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def scalar(at: Place, text: str) -> Scalar:
    """A value that comes from outside a file, read as if it stood there unquoted."""
    return Scalar(at, text, plain_value(text))


def kind_of(node: Node) -> str:
    """For messages: what the reader of the file sees there."""
    match node:
        case Items():
            return "a list"
        case Pairs():
            return "a mapping"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return f"{node.text} (true or false)"
        case Scalar(value=str()):
            return f"the text {quoted(node.text)}"
        case Scalar():
            return f"the number {node.text[:40]}"
        case Broken():
            return "something unreadable"


def locate(node: Node, *path: str | int) -> Place:
    """The place of what `path` leads to, or of the last thing on the way that exists."""
    for step in path:
        found: Node | None = None
        if isinstance(node, Pairs) and isinstance(step, str):
            found = node.get(step)
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            found = node.items[step]
        if found is None:
            break
        node = found
    return node.at


def compose(data: bytes, file: str, log: Log) -> Node | None:
    """The tree of one file, or None after noting why there is none."""
    start = Place(file, 1, 1)
    if len(data) > LARGEST_FILE:
        log.add(
            start,
            f"the file is over {show_size(LARGEST_FILE)}: split it, or see whether it is the right file",
        )
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        log.add(
            _place_in(data[: error.start].decode("utf-8-sig"), file),
            "this is not UTF-8: save the file as UTF-8",
        )
        return None
    if bad := yaml.reader.Reader.NON_PRINTABLE.search(text):
        log.add(_place_in(text[: bad.start()], file), f"the character {bad[0]!r} may not stand in YAML")
        return None
    try:
        return _tree(_events(text), file, log)
    except (_GiveUp, Enough):
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Place(file, mark.line + 1, mark.column + 1) if mark else start
        begun = f" ({error.context}, line {error.context_mark.line + 1})" if error.context_mark else ""
        log.add(at, f"this is not YAML: {error.problem or 'it cannot be read'}{begun}")
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The scanner lets a few conversions of its own fall through, such as a version of 5,000 digits.
        log.add(start, f"this is not YAML: {quoted(str(error))}")
    return None


def _place_in(before: str, file: str) -> Place:
    lines = before.split("\n")
    return Place(file, len(lines), len(lines[-1]) + 1)


def _events(text: str) -> Iterator[yaml.Event]:
    parser = _PARSER(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    finally:
        parser.dispose()


def _tree(events: Iterator[yaml.Event], file: str, log: Log) -> Node | None:
    root: Node | None = None
    open_nodes: list[_Open] = []
    documents = 0
    for event in events:
        mark = event.start_mark
        assert mark is not None  # only events made by hand have none
        at = Place(file, mark.line + 1, mark.column + 1)
        done: Node | None = None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                log.add(at, "a second document starts here: one file describes one thing, remove the '---'")
                raise _GiveUp
        elif isinstance(event, yaml.AliasEvent):
            log.add(at, f"aliases are not supported: write out what *{event.anchor} stands for")
            done = Broken(at)
        elif isinstance(event, yaml.ScalarEvent):
            value = plain_value(event.value) if event.implicit[0] else event.value
            done = _checked(event, Scalar(at, event.value, value), log)
        elif isinstance(event, yaml.CollectionStartEvent):
            _checked(event, Broken(at), log)
            open_nodes.append(_Open(at, isinstance(event, yaml.MappingStartEvent)))
            if len(open_nodes) > DEEPEST_NESTING:
                log.add(at, f"nested more than {DEEPEST_NESTING} levels deep")
                raise _GiveUp
        elif isinstance(event, yaml.CollectionEndEvent):
            done = _close(open_nodes.pop(), log)
        if done is None:
            continue
        if open_nodes:
            open_nodes[-1].children.append(done)
        else:
            root = done
    return root


def _checked(event: yaml.NodeEvent, node: Node, log: Log) -> Node:
    """Notes anchors and tags. A tagged scalar is worth nothing further; a collection's content still is."""
    if event.anchor is not None:
        log.add(node.at, f"anchors are not supported: remove &{event.anchor}")
    tag = getattr(event, "tag", None)
    if tag is not None and tag != "!":
        log.add(node.at, f"tags are not supported: remove {quoted(tag)}")
        return Broken(node.at)
    return node


def _close(done: _Open, log: Log) -> Node:
    if not done.is_mapping:
        return Items(done.at, tuple(done.children))
    entries: list[tuple[Scalar, Node]] = []
    seen: dict[str, Place] = {}
    for key, value in zip(done.children[::2], done.children[1::2], strict=True):
        if not isinstance(key, Scalar):
            if not isinstance(key, Broken):
                log.add(key.at, f"a key is a word, this is {kind_of(key)}")
        elif key.text in seen:
            log.add(
                key.at, f"duplicate key {quoted(key.text)}: it stands on line {seen[key.text].line} already"
            )
        else:
            seen[key.text] = key.at
            entries.append((key, value))
    return Pairs(done.at, tuple(entries))
