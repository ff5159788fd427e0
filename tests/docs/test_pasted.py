"""Every command block of README and docs, pasted as it stands, does what the page says."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of
from tests.docs.pasting import Pasted, looks_like_a_clone, paste

pytestmark = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("bash")), reason="needs curl and bash"
)
README = ROOT / "README.md"
BY_HAND = ROOT / "docs" / "by-hand.md"
WITH_COMMANDS = [page for page in PAGES if blocks(page, "sh")]
# What a page is about, where it does not come with semel: programs, and packages of Python.
NEEDS = {"docs/how-to/node.md": "node", "docs/how-to/langgraph-tools.md": "langgraph"} | {
    f"docs/how-to/{name}.md": name for name in ("openai", "anthropic", "langgraph", "requests", "stripe")
}


def shown_after(block: Block) -> list[str]:
    """The lines of the `text` block that directly follows: what the page says that the commands print."""
    following = [one for one in blocks(block.page) if one.line > block.line][:1]
    return [line for one in following if one.language == "text" for line in one.text.splitlines()]


def pattern_of(line: str) -> str:
    """`…` stands for anything in its line, blanks for any number of them."""
    return r"[ \t]+".join(re.escape(word).replace("…", r".*") for word in line.split())


def check(pasted: Pasted) -> None:
    """Nothing failed but what fails on purpose, and the shown lines were printed, in their order."""
    assert pasted.failures == pasted.block.failures, f"{pasted.block}\n{pasted.output}"
    rest = pasted.output
    for line in shown_after(pasted.block):
        found = re.search(rf"^\s*{pattern_of(line)}\s*?$", rest, re.MULTILINE)
        assert found, f"{pasted.block}: {line!r} is not printed (here):\n{pasted.output}"
        rest = rest[found.end() :]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return looks_like_a_clone(tmp_path / "clone")


@pytest.mark.one_in(12)
@pytest.mark.parametrize(
    "page", [page for page in WITH_COMMANDS if page not in (README, BY_HAND)], ids=name_of
)
def test_a_page_does_what_it_says(page: Path, clone: Path, tmp_path: Path) -> None:
    """Top to bottom in one shell; what an example starts it also stops."""
    needed = NEEDS.get(name_of(page))
    if needed and not shutil.which(needed) and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    for pasted in paste(blocks(page, "sh"), clone, tmp_path, make=False):
        check(pasted)


def test_there_are_commands_to_paste() -> None:
    """A renamed code fence must not make the test above empty."""
    assert README in WITH_COMMANDS
    assert set(NEEDS) <= {name_of(page) for page in WITH_COMMANDS}
    assert len(WITH_COMMANDS) >= 5


def test_the_readme_does_what_it_says(clone: Path, tmp_path: Path) -> None:
    """The demo is played; the agent that crashed is given what it had, and every message is sent once."""
    pasted = paste(blocks(README, "sh"), clone, tmp_path, make=False)
    for one in pasted:
        check(one)
    said = "".join(one.output for one in pasted)
    statuses = re.findall(r"^(?:ann|bob|eve) (\w+) ", said, re.MULTILINE)
    assert statuses == ["executed", "executed", "replayed", "replayed", "executed"], said
    assert re.findall(r"effects so far: (\d+)", said) == ["0", "3"], said


def test_by_hand_a_killed_proxy_replays_and_doubt_is_held(clone: Path, tmp_path: Path) -> None:
    """Executed, replayed, replayed after kill -9; then doubt, held, settled by a person and replayed."""
    pasted = paste(blocks(BY_HAND, "sh"), clone, tmp_path, make=False)
    for one in pasted:
        check(one)
    said = "".join(one.output for one in pasted)
    statuses = re.findall(r"^Semel-Status: (\w+)", said, re.MULTILINE)
    assert statuses == ["executed", "replayed", "replayed", "refused", "refused", "replayed"], said
    assert re.findall(r"effects so far: (\d+)", said) == ["0", "1", "1", "2", "2"], said
    assert said.count('{"sent": true, "number": 1}') == 3
    assert said.count('"type":"urn:semel:in-doubt"') == 2


# ---- the tests above can fail ----


def page_with(text: str, tmp_path: Path) -> list[Block]:
    page = tmp_path / "page.md"
    page.write_text(text)
    return blocks(page, "sh")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```sh\nno-such-command\ntrue\n```\n", "127"),
        ("```sh\necho red\n```\n\n```text\ngreen\n```\n", "green"),
        ("```sh\necho red\necho green\n```\n\n```text\ngreen\nred\n```\n", "'red' is not printed"),
        ("<!-- fails with 1 -->\n```sh\ntrue\n```\n", r"page\.md:2"),
        ("```sh\nexit 0\n```\n", "ended early"),
        ("```sh\nsleep 60 > /dev/null 2>&1 &\n```\n", "still running"),
    ],
)
def test_an_example_that_is_not_true_is_found(
    text: str, message: str, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing command, another output, another order, a failure that does not come, a process left."""
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    monkeypatch.setattr("tests.docs.pasting.GOODBYE", 0.2)
    found = page_with(text, tmp_path)
    with pytest.raises(AssertionError, match=message):
        for pasted in paste(found, clone, tmp_path, make=False):
            check(pasted)
