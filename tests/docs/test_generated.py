"""What the documents draw from the code is the code's: `make docs` would change nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import reference
from proxy import cli
from proxy.core.intent import TRANSITIONS, Event, State
from proxy.policy_file import not_yet
from proxy.policy_file.fields import Field, Level
from tests.docs.pages import ROOT, blocks, headings


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("part", reference.PARTS, ids=lambda part: part.name)
def test_a_generated_part_is_what_the_code_says(part: reference.Part) -> None:
    """If this fails after a change of a table: `make docs`."""
    text = part.document.read_text(encoding="utf-8")
    assert part.split(text) == part.split(part.rewritten(text))


def test_rewriting_changes_the_part_and_nothing_else(tmp_path: Path) -> None:
    """What people wrote around a part stays, and a second time changes nothing."""
    part = reference.Part(document=tmp_path / "page.md", name="colours", draw=lambda: "red\n")
    begin, end = part.marks
    once = part.rewritten(f"before\n{begin}green\n{end}after\n")
    assert once == f"before\n{begin}\nred\n\n{end}after\n"
    assert part.rewritten(once) == once


@pytest.mark.parametrize("text", ["no marks\n", "{0}{1}{0}{1}", "{0}only one\n"])
def test_a_page_without_its_marks_is_an_error(tmp_path: Path, text: str) -> None:
    """A part that was deleted from its page is not taken for one that is up to date."""
    part = reference.Part(document=tmp_path / "page.md", name="colours", draw=lambda: "red\n")
    with pytest.raises(ValueError, match="colours"):
        part.rewritten(text.format(*part.marks))


def test_the_drawn_diagram_has_the_edges_of_the_table() -> None:
    """Read back from the page, not from the drawing code."""
    (diagram,) = blocks(ROOT / "docs" / "states.md", "mermaid")
    drawn = re.findall(r"^    (\S+) --> (\S+): (\w+)$", diagram.text, re.MULTILINE)
    assert len(drawn) == len(diagram.text.splitlines()) - 1  # every line but the first is an edge
    allowed = [(before or "[*]", after, event) for (before, event), after in TRANSITIONS.items()]
    assert sorted(drawn) == sorted((str(before), str(after), str(event)) for before, after, event in allowed)


def test_states_and_events_are_all_explained() -> None:
    """The tables below the diagram have a row for each."""
    first_cells = re.findall(r"^\| (`[^|]+) \|", page("states.md"), re.MULTILINE)
    explained = set(re.findall(r"`(\w+)`", " ".join(first_cells)))
    assert explained == {*State, *Event}


@pytest.mark.parametrize(
    ("name", "refused"), [("policies.md", not_yet.POLICIES), ("settings.md", not_yet.SETTINGS)]
)
def test_what_is_not_supported_yet_is_named_and_nothing_else(
    name: str, refused: frozenset[tuple[str, str]]
) -> None:
    """A key that is refused stands in the list at the end, and in no table of keys."""
    tables, _, rest = page(name).partition("\n## Not supported yet\n")
    listed = set(re.findall(r"`([a-z_.]+)`", rest.split("<!-- /generated")[0]))
    whole = {"forward", "runs", "owners", "gc"}  # settings that are refused as a whole are listed as such
    wanted = {
        level
        if level in whole
        else f"{level}.{key}"
        if level not in ("upstream", "rule", "settings")
        else key
        for level, key in refused
    }
    assert listed == wanted
    for level, key in refused:
        part = tables.split(f"\n### `{level}`\n")[1:]
        assert not any(f"\n| `{key}` |" in text.split("\n### ")[0] for text in part)


def test_every_command_has_its_section() -> None:
    """The reader of the argparse tree reads all of it."""
    words = {command.__name__.rsplit(".", 1)[1] for command in cli.COMMANDS}
    assert {f"semel-{word}" for word in words} <= headings(ROOT / "docs" / "cli.md")


def test_text_for_people_is_not_taken_for_markdown() -> None:
    """A pipe, a star or a bracket in a help text does not break its table."""
    assert reference.cell("a | b, * and <c>\n  d") == r"a \| b, \* and \<c> d"
    row = reference.key_row(Field("path", "Which. Default: any *.", parse=lambda node, log: None))
    assert row == ("`path`", r"any \*", "Which.")
    level = Level(name="x", doc="", fields=(Field("path", "Which.", parse=lambda node, log: None),))
    assert "| `path` | none | Which. |" in reference.keys([level])
