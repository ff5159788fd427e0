"""The alert rules and their unit tests as the tests see them, promtool, and rules broken on purpose."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "dashboards" / "alerts.yaml"
UNIT_TESTS = (ROOT / "dashboards" / "alerts_test.yaml", ROOT / "dashboards" / "alerts_day_test.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks"

# One rule, or one group of unit tests, as YAML has it.
Rule: TypeAlias = dict[str, Any]

_COMPARISON = re.compile(r"(==|>) ([\d.]+)")
_TURNED = {"==": "!=", ">": "<"}
_JOINT = re.compile(r"^(?:or|and|unless)\n", re.MULTILINE)

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt install prometheus)"
)


@cache
def unit_tests(file: Path) -> Rule:
    read: Rule = yaml.safe_load(file.read_text(encoding="utf-8"))
    return read


def rules() -> dict[str, Rule]:
    """By name. A name that is used twice would hide one."""
    read = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    found = [rule for group in read["groups"] for rule in group["rules"]]
    by_name = {rule["alert"]: rule for rule in found}
    assert len(by_name) == len(found)
    return by_name


def promtool(*words: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["promtool", *map(str, words)],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=120,
    )


def cases_of(alert: str) -> list[tuple[Path, Rule, list[Rule]]]:
    """The groups of unit tests that speak of this alert: their file, the group, what is expected in it."""
    found = []
    for file in UNIT_TESTS:
        for group in unit_tests(file)["tests"]:
            expected = [one for one in group["alert_rule_test"] if one["alertname"] == alert]
            if expected:
                found.append((file, group, expected))
    return found


def failed_by(alert: str, variants: Sequence[Rule], folder: Path) -> set[int]:
    """Which of these variants of the alert its unit tests refuse. All in one go under names of their own:
    promtool sets up a database for every group of tests."""
    named = [rule | {"alert": f"Variant{number}"} for number, rule in enumerate(variants)]
    told = yaml.safe_dump({"groups": [{"name": "variants", "rules": named}]})
    (folder / RULES.name).write_text(told, encoding="utf-8")
    files: dict[Path, Rule] = {}
    for file, group, expected in cases_of(alert):
        whole = files.setdefault(file, unit_tests(file) | {"tests": []})
        cases = [case | {"alertname": rule["alert"]} for case in expected for rule in named]
        whole["tests"].append(group | {"alert_rule_test": cases})
    for file, whole in files.items():
        (folder / file.name).write_text(yaml.safe_dump(whole), encoding="utf-8")
    output = promtool("test", "rules", *(folder / file.name for file in files)).stdout.decode()
    return {int(number) for number in re.findall(r"alertname: Variant(\d+), time", output)}


def broken(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """The rule with one thing wrong, many times over, and what that is."""
    text: str = rule["expr"]
    for found in _COMPARISON.finditer(text):
        sign, number = found[1], float(found[2])
        # A bound that is a little higher, or lower: there must be a case close to it on either side.
        for said in (
            f"{_TURNED[sign]} {found[2]}",
            f"{sign} {number * 1.4 if number else 2}",
            f"{sign} {number * 0.7 if number else -1}",
        ):
            altered = text[: found.start()] + said + text[found.end() :]
            yield f"{found[0]} became {said}", rule | {"expr": altered}
    for found in _JOINT.finditer(text):
        word = found[0].strip()
        yield f"nothing after {word!r}", rule | {"expr": text[: found.start()]}
        if word != "unless":  # what is after that says when not
            yield f"nothing before {word!r}", rule | {"expr": text[found.end() :]}
    if rule["for"] == "0s":
        yield "fires only after 10 minutes", rule | {"for": "10m"}
    else:
        yield "fires at once", rule | {"for": "0s"}
        minutes = int(rule["for"].removesuffix("m"))
        yield "fires twice as late", rule | {"for": f"{2 * minutes}m"}
    for what, wrong in (("labels", {"severity": "none"}), ("annotations", {"summary": ""})):
        yield f"other {what}", rule | {what: rule[what] | wrong}
