"""The documents as the tests see them: pages, their fenced blocks, and what is said about a block before it.

A comment directly before a block speaks about that block, for the test and for whoever edits the page:

    <!-- not run: why -->      before `console`: commands that no test pastes
    <!-- fails with 2 -->      before `sh`: the exit status of each command in it that fails on purpose
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("policies", "dashboards")  # with a page of their own
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / name / "README.md" for name in FOLDERS), *(ROOT / "docs").rglob("*.md")]
)
LINES = re.DOTALL | re.MULTILINE
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)$", LINES)
NOT_RUN = re.compile(r"<!-- not run: (.{12,}) -->\n\Z")
FAILS = re.compile(r"<!-- fails with ([\d, ]+) -->\n\Z")
HEREDOC = re.compile(r"^cat > \"\$dir/(?P<name>[\w.-]+)\" <<'END'\n(?P<text>.*?)^END$", LINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    not_run: str  # why, or ""
    failures: tuple[int, ...]  # exit statuses of the commands that fail on purpose, in order

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str | None = None) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        reason, fails = NOT_RUN.search(before), FAILS.search(before)
        found.append(
            Block(
                page=page,
                line=before.count("\n") + 1,
                language=match["language"],
                text=match["text"],
                not_run=reason[1] if reason else "",
                failures=tuple(int(one) for one in fails[1].split(",")) if fails else (),
            )
        )
    return [block for block in found if language is None or block.language == language]


def without_blocks(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def heredocs(script: str, suffix: str) -> list[str]:
    """The files that a shell example writes with `cat > "$dir/name.suffix" <<'END'`."""
    return [one["text"] for one in HEREDOC.finditer(script) if one["name"].endswith(suffix)]


def headings(page: Path) -> set[str]:
    """As links name them: lower case, words joined by hyphens."""
    found = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in found}
