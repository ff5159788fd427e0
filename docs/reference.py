"""The parts of the documents that are drawn from the code: `make docs` rewrites them, a test compares them.

A generated part stands between two marks that carry its name; what is around it is written by people. So a
key, an option, a state or a problem has one place where it is described: the table that semel itself reads.
"""

# ruff: noqa: SLF001 (argparse has no public way to walk its tree)
from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.drawing import states
from proxy import cli
from proxy.core.clauses import OnDoubt
from proxy.core.intent import TRANSITIONS
from proxy.core.policy import Mode, Rule, Upstream
from proxy.core.prices import MOST_TOKENS, PRICES, READ_ON
from proxy.errors import BudgetExceeded
from proxy.metrics.described import described
from proxy.policy_file import load_policies, schema
from proxy.policy_file.fields import Field, Level
from proxy.problem import PROBLEMS, Problem
from proxy.quantities import show_duration
from proxy.settings_schema import LEVELS as SETTINGS_LEVELS

DOCS = Path(__file__).parent
CODE = DOCS.parent / "proxy"
# Levels that hang below a key of another name than their own: what is said of that key holds for them.
BELOW = {"request": "probe", "tokens": "auth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    document: Path
    name: str
    draw: Callable[[], str]

    @property
    def marks(self) -> tuple[str, str]:
        return f"<!-- generated: {self.name} (make docs) -->\n", f"<!-- /generated: {self.name} -->\n"

    def split(self, text: str) -> tuple[str, str, str]:
        """What stands before the part, the part, what stands after it."""
        begin, end = self.marks
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{self.document.name} has not exactly one pair of marks for {self.name!r}")
        before, rest = text.split(begin)
        inside, after = rest.split(end)
        return before + begin, inside, end + after

    def rewritten(self, text: str) -> str:
        before, _, after = self.split(text)
        return f"{before}\n{self.draw()}\n{after}"


# ---- Markdown ----


def cell(text: str) -> str:
    """Plain text in a table: nothing in it is taken for Markdown."""
    return re.sub(r"([*<|])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# ---- keys of policy files and of semel.yaml ----


def is_refused(level: Level, field: Field, levels: Sequence[Level]) -> bool:
    """Not supported yet: the key itself, or everything below it."""
    below = [one for one in levels if one.name == field.key]
    return field.key in level.not_yet or any(one.not_yet.issuperset(one.known()) for one in below)


def supported(levels: Sequence[Level]) -> list[Level]:
    refused = {field.key for level in levels for field in level.fields if is_refused(level, field, levels)}
    return [level for level in levels if not {level.name, BELOW.get(level.name)} & refused]


def key_row(field: Field) -> tuple[str, str, str]:
    """`Default:` in a field's text says it better than the YAML that stands for it."""
    meaning, _, spoken = field.doc.partition(" Default: ")
    default = {"null": "none", "{}": "each key's own"}.get(field.default, code(field.default))
    if spoken:
        default = cell(spoken.removesuffix("."))
    return code(field.key), "needed" if field.required else default, cell(meaning)


def keys(levels: Sequence[Level]) -> str:
    parts = []
    for level in supported(levels):
        rows = [key_row(field) for field in level.fields if not is_refused(level, field, levels)]
        parts.append(
            f"### `{level.name}`\n\n{cell(level.doc)}\n\n{table(('key', 'default', 'meaning'), rows)}"
        )
    return "\n".join(parts)


def refused_keys(levels: Sequence[Level]) -> str:
    names = [
        code(field.key if level is levels[0] or level.name == "rule" else f"{level.name}.{field.key}")
        for level in supported(levels)
        for field in level.fields
        if is_refused(level, field, levels)
    ]
    return ", ".join(names) + ".\n"


# ---- what models cost ----


def model_prices() -> str:
    sources = dict.fromkeys(price.source for price in PRICES.values())
    rows = [
        (
            code(model),
            *(
                "" if each is None else str(each)
                for each in (price.input, price.cached, price.written, price.written_long, price.output)
            ),
            "" if price.up_to == MOST_TOKENS else f"{price.up_to:,}",
            price.mark,
        )
        for model, price in PRICES.items()
    ]
    titles = ("model", "input", "cached", "written", "for longer", "output", "prompts up to", "mark")
    words = (
        f"As of {READ_ON}. Marked V: read in the vendor's own pages. Marked S: read in other public lists "
        f"that agree with each other. Where to check: {' and '.join(f'<{source}>' for source in sources)}."
    )
    return f"{words}\n\n{table(titles, rows)}"


# ---- what ships ----


def presets() -> str:
    """One line for each file: what it is, and what becomes of a call in doubt."""
    rows = [
        (
            f"[{name}]({name}.yaml)",
            cell(upstream.about),
            code(f"{upstream.scheme}://{upstream.host}{upstream.base_path}"),
            upstream.verified or "unverified",
            _settled(upstream),
        )
        for name, upstream in sorted(load_policies(["presets"]).upstreams.items())
    ]
    return table(("preset", "what", "address", "checked", "a call with effects that is in doubt is"), rows)


def _settled(upstream: Upstream) -> str:
    """By how doubt about them is settled: the rules for calls with effects."""
    effects = [rule for rule in upstream.rules if rule.mode is Mode.ONCE and _may_act(rule)]
    kept: dict[str, list[str]] = {}
    for rule in effects:
        if rule.in_doubt is OnDoubt.RESEND and rule.upstream_key is not None:
            place = rule.upstream_key.header or f"body field {rule.upstream_key.body}"
            way = f"sent again under {code(place)} within {show_duration(rule.upstream_key.retention)}"
        elif rule.in_doubt is OnDoubt.PROBE:
            way = "asked about"
        else:
            continue
        kept.setdefault(way, []).append(rule.name)
    said = [f"{way}: {', '.join(names)}" for way, names in kept.items()]
    return "; ".join([*said, "all others held" if said else "held"])


def _may_act(rule: Rule) -> bool:
    return not all(rule.is_safe(method) for method in rule.methods or ("POST",))


# ---- the state machine ----


def state_diagram() -> str:
    edges = [
        f"    {before or '[*]'} --> {after}: {event}\n" for (before, event), after in TRANSITIONS.items()
    ]
    return f"```mermaid\nstateDiagram-v2\n{''.join(edges)}```\n"


# ---- semel's own answers ----


def given_problems() -> list[Problem]:
    """Those that some line of semel can give. The table of problems also has those of later versions."""
    used = {
        node.id
        for path in CODE.rglob("*.py")
        if path.name != "problem.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name)
    }
    return [problem for refusal, problem in PROBLEMS.items() if refusal.__name__ in used]


def _retry(problem: Problem) -> str:
    if problem is PROBLEMS[BudgetExceeded]:
        return "when it says"  # each one knows
    return "no" if problem.retry_after is None else f"after {problem.retry_after} s"


def problems() -> str:
    rows = [
        (
            code(problem.name),
            str(problem.status),
            cell(problem.title),
            _retry(problem),
        )
        for problem in given_problems()
    ]
    return table(("type, after `urn:semel:`", "status", "title", "does a retry help?"), rows)


# ---- the command line ----


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser itself and everything below it, by the words that lead there."""
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from subcommands(below)


def option_row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    formatter = argparse.HelpFormatter(parser.prog)
    value = "" if action.nargs == 0 else formatter._format_args(action, _value_name(action))
    spelling = ", ".join(action.option_strings)
    said = formatter._expand_help(action) if action.help else ""
    needed = " (needed)" if action.required and action.option_strings else ""
    return code(f"{spelling} {value}".strip()), cell(said) + needed


def _value_name(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "|".join(str(choice) for choice in action.choices)
    return action.dest.upper() if action.option_strings else action.dest


def command_reference() -> str:
    top, *below = subcommands(cli.parser())
    parts = [_command(*top)]
    parts += [f"## `{name}`\n\n{_command(name, parser)}" for name, parser in below]
    return "\n".join(parts)


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    said = (parser.description or "").strip().removeprefix(f"`{name}`: ")
    said = said[:1].upper() + said[1:]
    rows = [
        option_row(parser, action)
        for action in parser._actions
        if action.help is not argparse.SUPPRESS
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    parts = [said + "\n"] if said else []
    if rows:
        parts.append(table(("argument or option", "meaning"), rows))
    if any(isinstance(action, argparse._SubParsersAction) for action in parser._actions):
        parts.append(f"Followed by a command; `{name} --help` lists them.\n")
    if not parts:
        parts.append("No arguments, no options.\n")
    return "\n".join(parts)


# ---- metrics ----


def metrics() -> str:
    rows = [
        (code(one.name), one.kind, ", ".join(map(code, one.labels)), cell(one.words)) for one in described()
    ]
    return table(("metric", "kind", "labels", "what it says"), sorted(rows))


PARTS = (
    Part(document=DOCS / "metrics.md", name="metrics", draw=metrics),
    Part(document=DOCS / "policies.md", name="policy keys", draw=lambda: keys(schema.LEVELS)),
    Part(document=DOCS / "policies.md", name="model prices", draw=model_prices),
    Part(document=DOCS.parent / "policies" / "README.md", name="presets", draw=presets),
    Part(document=DOCS / "settings.md", name="settings", draw=lambda: keys(SETTINGS_LEVELS)),
    Part(document=DOCS / "settings.md", name="refused settings", draw=lambda: refused_keys(SETTINGS_LEVELS)),
    Part(document=DOCS / "states.md", name="state diagram", draw=state_diagram),
    Part(document=DOCS / "troubleshooting.md", name="problems", draw=problems),
    Part(document=DOCS / "cli.md", name="commands", draw=command_reference),
)


# Whole files, drawn anew in the same way.
PICTURES: dict[Path, Callable[[], str]] = {DOCS / "pictures" / "states.svg": states.svg}


def main() -> int:
    """Rewrites what differs, and says so."""
    for path, draw in PICTURES.items():
        wanted = draw()
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            path.write_text(wanted, encoding="utf-8")
            sys.stdout.write(f"{path.name} drawn anew\n")
    for part in PARTS:
        text = part.document.read_text(encoding="utf-8")
        wanted = part.rewritten(text)
        if wanted != text:
            part.document.write_text(wanted, encoding="utf-8")
            sys.stdout.write(f"{part.document.name}: {part.name} rewritten\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
