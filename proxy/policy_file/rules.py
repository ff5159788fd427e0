"""The list of rules of one file: each read by itself, then seen together.

A name stands for one rule, and a rule that an earlier one covers entirely would never be used: both are
mistakes. Covering is judged pair by pair within a file; a file's own rules may cover a preset's at will.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.clauses import OnDoubt, UpstreamKey
from proxy.core.patterns import PathPattern, Segment
from proxy.core.policy import Implied, KeyRecipe, Looks, Rule
from proxy.policy_file.fields import Level, Parser, Section, read_section
from proxy.policy_file.mistakes import Log, Place, Wrong
from proxy.policy_file.nodes import Items, Node, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchClause:
    """Which requests a rule is for."""

    method: tuple[str, ...] | None = None  # None: any
    path: PathPattern | None = None  # None: any
    headers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    when: str | None = None
    tool: str | None = None

    @property
    def looks(self) -> Looks | None:
        return Looks(headers=self.headers, when=self.when) if self.headers or self.when is not None else None

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(self.method or ())

    def covers_the_rest_of(self, other: MatchClause) -> bool:
        """Of two clauses whose paths fit: do the methods and the rest fit as well?"""
        if self.looks is not None and self.looks != other.looks:
            return False
        if self.methods and not (other.methods and other.methods <= self.methods):
            return False
        return self.tool is None or self.tool == other.tool


@dataclass(slots=True)
class _Branch:
    """The patterns seen so far as a tree of their segments, so that thousands of rules stay cheap."""

    exact: list[Section] = field(default_factory=list)  # their patterns end here
    rest: list[Section] = field(default_factory=list)  # theirs say ** here
    by_segment: dict[str | None, _Branch] = field(default_factory=dict)  # None: * or {name}

    def add(self, section: Section, segments: tuple[Segment, ...]) -> None:
        branch = self
        for segment in segments:
            if segment.kind == "rest":
                branch.rest.append(section)
                return
            step = segment.text if segment.kind == "literal" else None
            branch = branch.by_segment.setdefault(step, _Branch())
        branch.exact.append(section)

    def covering(self, segments: tuple[Segment, ...]) -> Iterator[Section]:
        """Those whose patterns match every path that `segments` match."""
        branches = [self]
        for segment in segments:
            for branch in branches:
                yield from branch.rest
            if segment.kind == "rest":
                return
            steps = (None, segment.text) if segment.kind == "literal" else (None,)
            branches = [
                branch.by_segment[step] for branch in branches for step in steps if step in branch.by_segment
            ]
        for branch in branches:
            yield from branch.exact


def rules_of(level: Level) -> Parser:
    """The `rules` field, each of its items read by `level`."""

    def parse(node: Node, log: Log) -> tuple[Rule, ...]:
        if not isinstance(node, Items):
            raise Wrong(f"a list of rules is wanted, this is {kind_of(node)}: start each rule with '- name:'")
        before = len(log)
        sections = [section for item in node.items if (section := _read(item, level, log)) is not None]
        _note_repeated_names(sections, log)
        _note_covered(sections, log)
        if len(log) > before or not all(section.whole for section in sections):
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
    pathless: list[Section] = []
    tree = _Branch()
    for later in sections:
        if not later.sound("match"):
            continue
        clause: MatchClause = later.get("match")
        candidates = [*pathless, *(tree.covering(clause.path.segments) if clause.path else ())]
        covering = [one for one in candidates if one.get("match").covers_the_rest_of(clause)]
        if covering:
            first = min(covering, key=lambda section: section.at)
            log.add(
                later.keys.get("match", later.at),
                f"this rule is never used: '{first.values.get('name', 'a rule')}' on line {first.at.line} "
                "matches all its requests first. Put it before that one",
            )
        elif clause.path:
            tree.add(later, clause.path.segments)
        else:
            pathless.append(later)


_WAYS_OUT = {"upstream_key": OnDoubt.RESEND, "probe": OnDoubt.PROBE}


def _build(section: Section, log: Log) -> Rule:
    given: dict[str, Any] = {key: value for key, value in section.values.items() if value is not None}
    match: MatchClause = given.pop("match", MatchClause())
    if "in_doubt" not in given:
        # Who says how doubt can be settled wants it settled so.
        given["in_doubt"] = next((way for key, way in _WAYS_OUT.items() if key in given), OnDoubt.HOLD)
    given["key"] = _key(given.get("key", KeyRecipe()), match, given.get("upstream_key"))
    try:
        path = match.path if match.tool is None else PathPattern.of_tools(match.tool)
        return Rule(**given, methods=match.methods, path=path, looks=match.looks)
    except ValueError as error:  # a law of the core that no check here knows
        log.add(section.at, str(error))
        raise Wrong from None


def _key(key: KeyRecipe, match: MatchClause, upstream_key: UpstreamKey | None) -> KeyRecipe:
    """What a rule is chosen by names its calls. And where the upstream takes a key, a client's own is one: it
    changes when an agent comes back, so it is no argument."""
    implied = Implied(
        headers=tuple(name for name, _ in match.headers),
        client_header=(upstream_key and upstream_key.header) or "",
        client_field=(upstream_key and upstream_key.body) or "",
        client_beside=upstream_key.beside if upstream_key is not None else (),
    )
    return replace(key, implied=implied)
