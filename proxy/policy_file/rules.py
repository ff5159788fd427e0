"""The list of rules of one file: each read by itself, then seen together.

A name stands for one rule, and a rule that an earlier one covers entirely would never be used: both are
mistakes. Covering is judged pair by pair within a file; a file's own rules may cover a preset's at will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.core.policy import PathPattern, Rule, Segment
from proxy.policy_file.fields import Level, Parser, Section, read_section
from proxy.policy_file.mistakes import Log, Place, Wrong
from proxy.policy_file.nodes import Items, Node, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchClause:
    """Which requests a rule is for."""

    method: tuple[str, ...] | None = None  # None: any
    path: PathPattern | None = None  # None: any
    tool: str | None = None

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(self.method or ())

    def covers(self, other: MatchClause) -> bool:
        """Every request that `other` matches, this one matches too."""
        if self.methods and not (other.methods and other.methods <= self.methods):
            return False
        if self.tool is not None and self.tool != other.tool:
            return False
        if self.path is None:
            return True
        return other.path is not None and _path_covers(self.path.segments, other.path.segments)


def _path_covers(wide: tuple[Segment, ...], narrow: tuple[Segment, ...]) -> bool:
    for index, segment in enumerate(wide):
        if index >= len(narrow):
            return False
        if segment.kind == "rest":
            return True
        if narrow[index].kind == "rest":
            return False
        if segment.kind == "literal" and narrow[index] != segment:
            return False
    return len(wide) == len(narrow)


def rules_of(level: Callable[[], Level]) -> Parser:
    """The `rules` field. The level is asked for when it is needed, as it stands in the same table."""

    def parse(node: Node, log: Log) -> tuple[Rule, ...]:
        if not isinstance(node, Items):
            raise Wrong(f"a list of rules is wanted, this is {kind_of(node)}: start each rule with '- name:'")
        before = len(log)
        sections = [section for item in node.items if (section := _read(item, level(), log)) is not None]
        _note_repeated_names(sections, log)
        _note_covered(sections, log)
        if len(log) > before:
            raise Wrong
        return tuple(_build(section, log) for section in sections)

    return parse


def _read(node: Node, level: Level, log: Log) -> Section | None:
    try:
        return read_section(node, level, log)
    except Wrong as wrong:
        if wrong.message is not None:
            log.add(node.at, wrong.message)
        return None


def _note_repeated_names(sections: list[Section], log: Log) -> None:
    seen: dict[str, Place] = {}
    for section in sections:
        name = section.values.get("name")
        if name is None:
            continue
        at = section.nodes["name"].at
        first = seen.setdefault(name, at)
        if first is not at:
            log.add(at, f"the rule '{name}' stands on line {first.line} already: names are unique in a file")


def _note_covered(sections: list[Section], log: Log) -> None:
    readable = [section for section in sections if section.sound("match")]
    for index, later in enumerate(readable):
        for earlier in readable[:index]:
            if earlier.get("match").covers(later.get("match")):
                at = later.keys.get("match", later.at)
                log.add(
                    at,
                    f"this rule is never used: '{earlier.values.get('name', 'a rule')}' on line "
                    f"{earlier.at.line} matches all its requests first. Put it before that one, or narrow that one",
                )
                break


def _build(section: Section, log: Log) -> Rule:
    given: dict[str, Any] = {key: value for key, value in section.values.items() if value is not None}
    match: MatchClause = given.pop("match", MatchClause())
    try:
        return Rule(**given, methods=match.methods, path=match.path)
    except ValueError as error:  # a law of the core that no check here knows
        log.add(section.at, str(error))
        raise Wrong from None
