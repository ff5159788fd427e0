"""The figures of docs/proof.md, drawn from the report of a long run.

    python -m tests.proof.page            docs/proof.md from docs/proof.jsonl
    python -m tests.proof.page REPORT     the same tables of another report, printed

Of each part and name the last line counts. Lines that name no commit were written before lines did. What is
around the tables is written by people, and a test holds the tables against the report.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.proof.report import Figure

ROOT = Path(__file__).parents[2]
PAGE, REPORT = ROOT / "docs" / "proof.md", ROOT / "docs" / "proof.jsonl"
Figures = Mapping[str, Figure]
ABOUT = ("at", "commit")  # told once, below the table
Report = dict[str, dict[str, dict[str, Figure]]]  # by part and name


def read(path: Path) -> Report:
    found: Report = {}
    for line in path.read_text().splitlines():
        told = json.loads(line)
        found.setdefault(told.pop("part"), {})[told.pop("name")] = told
    return found


def figure(value: Figure) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {many:,}" for name, many in sorted(value.items())) or "none"
        case list():
            return ", ".join(value) or "none"
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
        case _:
            return value.replace("|", "\\|").replace("\n", " ")


def _shown(what: str, value: Figure) -> str:
    return str(value) if what == "seed" else figure(value)  # a seed is to be copied


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    head = list(head)
    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])


def by_figure(names: Mapping[str, Figures]) -> str:
    """A column for each name."""
    known = dict.fromkeys(what for told in names.values() for what in told if what not in ABOUT)
    rows = (
        (what.replace("_", " "), *(_shown(what, told.get(what, "")) for told in names.values()))
        for what in known
    )
    return _table(("", *names), rows)


def by_name(names: Mapping[str, Figures]) -> str:
    """A row for each, with all that is told of it."""
    rows = (
        (
            name,
            "; ".join(
                f"{what.replace('_', ' ')} {figure(value)}"
                for what, value in told.items()
                if what not in ABOUT
            ),
        )
        for name, told in names.items()
    )
    return _table(("what", "figures"), rows)


# Of the kill soak, by what a line calls it. Lines without `relay_faults_struck` had what was drawn only.
CALLED = {"cycles": "harms", "relay_faults": "relay_faults_drawn"}


def harmed(names: Mapping[str, Figures]) -> str:
    """A column for each store. A harm is a signal or a fault of a relay: how many were SIGKILLs is said."""
    return by_figure({name: dict(_harms_in(told)) for name, told in names.items()})


def _harms_in(told: Figures) -> Iterator[tuple[str, Figure]]:
    for what, value in told.items():
        yield CALLED.get(what, what), value
        if what == "by_victim" and isinstance(value, dict):
            yield "SIGKILLs", int(sum(many for whom, many in value.items() if whom.endswith(" SIGKILL")))


def simulated(names: Mapping[str, Figures]) -> str:
    """All histories together, what their laws were about, and each planted defect."""
    played = [told for name, told in names.items() if name.startswith("from ")]
    sums = {what: sum(_number(told[what]) for told in played) for what in ("seeds", "events", "violations")}
    planted = [
        (name.removeprefix("planted: "), figure(told["found at seed"]), figure(told["law"]))
        for name, told in names.items()
        if name.startswith("planted: ")
    ]
    reached: Counter[str] = Counter()
    for told in played:
        occasions = told.get("reached", {})
        assert isinstance(occasions, dict)
        reached.update({name: int(often) for name, often in occasions.items()})
    return "\n\n".join(
        [
            _table(sums, [[figure(value) for value in sums.values()]]),
            _table(
                ("occasion of a law", "how often"),
                [(name, figure(reached[name])) for name in sorted(reached)],
            ),
            _table(("planted defect", "found at seed", "by"), planted),
        ]
    )


def _number(value: Figure) -> int:
    assert isinstance(value, int)
    return value


TABLES: dict[str, Callable[[Mapping[str, Figures]], str]] = {
    "kills": harmed,
    "simulation": simulated,
    "hostile": by_name,
    "mutation": by_name,
}


def tables(report: Report) -> dict[str, str]:
    return {part: _dated(report[part], draw(report[part])) for part, draw in TABLES.items() if part in report}


def _dated(names: Mapping[str, Figures], table: str) -> str:
    days = sorted({_day(told["at"]) for told in names.values()})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    commits = ", ".join(sorted({str(told.get("commit", "not noted")) for told in names.values()}))
    return f"{table}\n\nMeasured on {span}. Commit: {commits}."


def _day(at: Figure) -> str:
    return datetime.fromtimestamp(_number(at), UTC).date().isoformat()


def rewritten(text: str, drawn: Mapping[str, str]) -> str:
    """Every pair of marks in the text has a table, and every table its pair."""
    for part, table in drawn.items():
        begin, end = f"<!-- measured: {part} -->\n", f"<!-- /measured: {part} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{PAGE.name} has not exactly one pair of marks for {part!r}")
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{table}\n\n{end}{after}"
    if text.count("<!-- measured: ") != len(drawn):
        raise ValueError(f"{PAGE.name} has marks for parts of which there is no figure")
    return text


def main() -> int:
    if len(sys.argv) > 1:
        for part, table in tables(read(Path(sys.argv[1]))).items():
            print(f"## {part}\n\n{table}\n")
        return 0
    PAGE.write_text(rewritten(PAGE.read_text(), tables(read(REPORT))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
