"""A recipe as the YAML that a person pastes, and that YAML read back by the policy file's own reader.

What is suggested is text, so the text is what has to be right: it counts only as what the reader makes of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from proxy.core.policy import KeyRecipe, Rule, Upstream
from proxy.policy_file import clauses
from proxy.policy_file.fields import nested
from proxy.policy_file.load import PRESETS, policy_files, presets_directory
from proxy.policy_file.mistakes import Log, Wrong
from proxy.policy_file.nodes import Items, Node, Pairs, Scalar, compose, plain_value
from proxy.policy_file.read import read_bytes
from proxy.policy_file.rules import rules_of
from proxy.policy_file.schema import RULE

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")


class Unreadable(Exception):
    """The reader does not take what was written: it must not be suggested."""


# ---- writing ----


def word(text: str) -> str:
    """A text as YAML has it inside [] and {}: quoted wherever it could be taken for something else."""
    if _PLAIN.fullmatch(text) and isinstance(plain_value(text), str):
        return text
    return json.dumps(text, ensure_ascii=False)


def key_line(recipe: KeyRecipe) -> str:
    """`key: {exclude: [client_time]}`: only what differs from the defaults."""
    default = KeyRecipe()
    changed = {
        name: getattr(recipe, name)
        for name in clauses.KEY.known()
        if getattr(recipe, name) != getattr(default, name)
    }
    return f"key: {{{', '.join(f'{name}: {_value(value)}' for name, value in changed.items())}}}"


def _value(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else f"[{', '.join(map(word, value))}]"


def rule_lines(upstream: Upstream, method: str, raw_path: str, recipe: KeyRecipe) -> str:
    """A whole rule for requests that no rule matches, as an item of `rules:`."""
    path = re.sub(r"[{}*]", lambda found: f"%{ord(found[0]):02X}", raw_path)  # literally, not as wildcards
    name = _free_name(method, raw_path, {rule.name for rule in upstream.rules})
    match = f"match: {{method: {word(method)}, path: {word(path)}}}"
    return f"- name: {name}\n  {match}\n  {key_line(recipe)}"


def _free_name(method: str, raw_path: str, taken: Iterable[str]) -> str:
    last = next((part for part in reversed(raw_path.split("/")) if part), "")
    words = _NO_NAME.sub("-", f"{method.lower()}-{last}").strip("-")[:48]
    name, number = words, 1
    while name in taken:
        number += 1
        name = f"{words}-{number}"
    return name


# ---- reading back ----


def read_key(line: str) -> KeyRecipe:
    log = Log()
    node = compose(line.encode(), "key", log)
    value = node.get("key") if isinstance(node, Pairs) else None
    if value is None:
        raise Unreadable(line)
    try:
        recipe = nested(clauses.KEY, KeyRecipe)(value, log)
    except Wrong:
        raise Unreadable(line) from None
    assert isinstance(recipe, KeyRecipe)
    return recipe


def read_rule(lines: str) -> Rule:
    log = Log()
    node = compose(lines.encode(), "rule", log)
    try:
        rules: tuple[Rule, ...] = rules_of(RULE)(node, log) if node is not None else ()
    except Wrong:
        raise Unreadable(lines) from None
    if len(rules) != 1:
        raise Unreadable(lines)
    return rules[0]


# ---- where a rule stands ----


class Stands(NamedTuple):
    """`key_line` is 0 where the rule has no `key:` yet."""

    file: str
    line: int
    key_line: int
    is_preset: bool


def where(sources: Sequence[str | Path], upstream: str, rule: str) -> Stands | None:
    """The file and line of a rule. A file that extends a preset has the preset's rules, which stand there."""
    presets = presets_directory()
    for source in reversed(sources):  # later ones win
        for path in _files(source, presets):
            tree = _tree(path)
            seen: set[Path] = set()
            if not isinstance(tree, Pairs) or _text(tree.get("upstream")) != upstream:
                continue
            while isinstance(tree, Pairs) and path not in seen:
                seen.add(path)
                if (found := _rule_in(tree, rule, path, presets)) is not None:
                    return found
                path = _preset(presets, _text(tree.get("extends")))
                tree = _tree(path)
            return None
    return None


def file_of(sources: Sequence[str | Path], upstream: str) -> str | None:
    """The policy file that describes an upstream."""
    presets = presets_directory()
    for source in reversed(sources):
        for path in _files(source, presets):
            tree = _tree(path)
            if isinstance(tree, Pairs) and _text(tree.get("upstream")) == upstream:
                return str(path)
    return None


def _files(source: str | Path, presets: Path) -> list[Path]:
    path = presets if source == PRESETS else Path(source)
    return policy_files(path) if path.is_dir() else [path]


def _preset(presets: Path, name: str) -> Path:
    return next((path for path in policy_files(presets) if path.stem == name), presets / name)


def _tree(path: Path) -> Node | None:
    log = Log()  # what is wrong with a file has been said when the policies were read
    data = read_bytes(path, log)
    return None if data is None else compose(data, str(path), log)


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""


def _rule_in(tree: Pairs, rule: str, path: Path, presets: Path) -> Stands | None:
    rules = tree.get("rules")
    for item in rules.items if isinstance(rules, Items) else ():
        if isinstance(item, Pairs) and _text(item.get("name")) == rule:
            key = next((name.at.line for name, _ in item.entries if name.text == "key"), 0)
            return Stands(str(path), item.at.line, key, is_preset=path.parent == presets)
    return None
