"""What the documents say is true: diagrams and tables equal the code's, examples load, the README's runs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.core.intent import TRANSITIONS
from proxy.policy_file import load_policies, not_yet
from proxy.policy_file.clauses import KEY, MATCH, OUTCOME
from proxy.policy_file.schema import RULE, UPSTREAM
from proxy.settings import load_settings
from proxy.settings_schema import Settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
# The README's fixed ports; a test takes free ones.
SEMEL_PORT, TOY_PORT = "8099", "9000"


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)


def heredocs(script: str, suffix: str) -> list[str]:
    """The files that a shell example writes with `cat > "$dir/name.suffix" <<'END'`."""
    return re.findall(
        rf"^cat > \"\$dir/\w+\.{suffix}\" <<'END'\n(.*?)^END$", script, re.DOTALL | re.MULTILINE
    )


def yaml_examples() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        found = blocks(document, "yaml")
        found += [text for script in blocks(document, "sh") for text in heredocs(script, "yaml")]
        for number, text in enumerate(found, 1):
            yield f"{document.relative_to(ROOT)}-{number}", text


EXAMPLES = dict(yaml_examples())
POLICIES = {name: text for name, text in EXAMPLES.items() if re.search(r"^upstream:", text, re.MULTILINE)}
SETTINGS = {name: text for name, text in EXAMPLES.items() if name not in POLICIES}


def table_keys(section: str) -> set[str]:
    """The keys in the first column of the table under a heading of policies.md."""
    text = (ROOT / "docs" / "policies.md").read_text()
    table = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE))


def test_state_diagram_has_the_edges_of_the_table() -> None:
    """docs/states.md draws exactly what proxy/core/intent.py allows."""
    (diagram,) = blocks(ROOT / "docs" / "states.md", "mermaid")
    drawn = re.findall(r"^    (\S+) --> (\S+): (\w+)$", diagram, re.MULTILINE)
    assert len(drawn) == len(diagram.splitlines()) - 1  # every line but the first is an edge
    allowed = [(before or "[*]", after, event) for (before, event), after in TRANSITIONS.items()]
    assert sorted(drawn) == sorted((str(before), str(after), str(event)) for before, after, event in allowed)


def test_there_are_examples_to_check() -> None:
    """A renamed code fence must not make the tests below empty."""
    assert len(POLICIES) == 3
    assert len(SETTINGS) == 2


@pytest.mark.parametrize("name", POLICIES)
def test_policy_example_loads(name: str, tmp_path: Path) -> None:
    """Every policy in README and docs is accepted by the loader that `semel check` uses."""
    file = tmp_path / "example.yaml"
    file.write_text(POLICIES[name])
    assert len(load_policies([file]).upstreams) == 1


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_example_loads(name: str, tmp_path: Path) -> None:
    """Every semel.yaml in README and docs is accepted."""
    file = tmp_path / "semel.yaml"
    file.write_text(SETTINGS[name])
    load_settings({}, {"HOME": str(tmp_path)}, file)


def test_documented_settings_are_the_defaults(tmp_path: Path) -> None:
    """docs/policies.md shows what semel does without a file."""
    (text,) = [text for name, text in SETTINGS.items() if name.startswith("docs/policies.md")]
    file = tmp_path / "semel.yaml"
    file.write_text(text)
    assert load_settings({}, dict(os.environ), file) == Settings()


def test_tables_name_every_supported_key() -> None:
    """The tables in docs/policies.md have the keys that semel supports, and no others."""
    supported = {
        level: {field.key for field in level.fields} - level.not_yet
        for level in (UPSTREAM, RULE, MATCH, KEY, OUTCOME)
    }
    assert table_keys("The keys of a file") == supported[UPSTREAM]
    nested = {"match": MATCH, "key": KEY, "outcome": OUTCOME}
    rule_keys = supported[RULE] - nested.keys()
    rule_keys |= {f"{name}.{key}" for name, level in nested.items() for key in supported[level]}
    assert table_keys("The keys of a rule") == rule_keys


def test_page_names_everything_that_is_not_supported_yet() -> None:
    """The last section of docs/policies.md is the parser's list of what it refuses."""
    text = (ROOT / "docs" / "policies.md").read_text().split("\n## Not supported yet\n")[1]
    refused = {f"{level}.{key}" if level == "match" else key for level, key in not_yet.POLICIES}
    assert set(re.findall(r"`([a-z_.]+)`", text)) == refused


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link names a file that exists and, with #, a heading in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run_pasted(script: str, tmp_path: Path) -> str:
    """What a shell prints that is given the script; nothing that it started is left behind."""
    shell = subprocess.Popen(
        ["bash", "-s"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        return shell.communicate(script, timeout=90)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="needs curl and bash")
def test_the_readme_example_does_what_it_says(tmp_path: Path) -> None:
    """Pasted as it stands, on other ports: executed, replayed, replayed after kill -9, then doubt, held."""
    script = "\n".join(blocks(ROOT / "README.md", "sh"))
    for old, new in (
        (SEMEL_PORT, free_port()),
        (TOY_PORT, free_port()),
        (".venv/bin/semel", f"{sys.executable} -m proxy.cli"),
        ("python3 ", f"{sys.executable} "),
    ):
        assert old in script
        script = script.replace(old, new)
    said = run_pasted(script, tmp_path)
    assert re.findall(r"^Semel-Status: (\w+)", said, re.MULTILINE) == [
        "executed", "replayed", "replayed", "refused", "refused",
    ], said  # fmt: skip
    assert re.findall(r"calls so far: (\d+)", said) == ["0", "1", "1", "2"], said
    assert said.count('{"sent": true, "number": 1}') == 3
    assert said.count("urn:semel:in-doubt") == 2
