"""What the pages are made of: links that lead somewhere, YAML that loads, blocks of known kinds."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from docs import reference
from proxy.cli import parser
from proxy.policy_file import load_policies
from proxy.settings import load_settings
from proxy.settings_values import Settings
from tests.docs.pages import PAGES, ROOT, blocks, headings, heredocs, name_of, without_blocks

# `sh` is pasted (test_pasted.py); `ts` is run (tests/tools/test_typescript.py); `text` shows output;
# `console` has its reason; the rest is data.
LANGUAGES = {"sh", "text", "console", "yaml", "json", "mermaid", "python", "ts"}
COMMAND = re.compile(r"^\s*(?:\$ |semel |make |curl |docker |python3? |pip )", re.MULTILINE)


def yaml_examples() -> dict[str, str]:
    found: dict[str, str] = {}
    for page in PAGES:
        texts = [block.text for block in blocks(page, "yaml")]
        texts += [text for block in blocks(page, "sh") for text in heredocs(block.text, ".yaml")]
        found |= {f"{name_of(page)}-{number}": text for number, text in enumerate(texts, 1)}
    return found


EXAMPLES = yaml_examples()
POLICIES = {name: text for name, text in EXAMPLES.items() if re.search(r"^upstream:", text, re.MULTILINE)}
SETTINGS = {name: text for name, text in EXAMPLES.items() if name not in POLICIES}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists and, with #, a heading in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in headings(linked), target


def test_every_page_is_reached_from_the_readme() -> None:
    """A page that nothing leads to is not read."""
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", without_blocks(page)):
            linked = (page.parent / target).resolve() if "://" not in target else page
            waiting += [linked] if linked.suffix == ".md" else []
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_escapes_its_test(page: Path) -> None:
    """Blocks are of known kinds; commands that are not pasted say why; none hides in another kind."""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block}: {block.language!r}"
        assert bool(block.not_run) == (block.language == "console"), f"{block}: say why it is not run"
        if block.language == "text":
            assert not COMMAND.search(block.text), f"{block}: a command is fenced as sh or console"
    indented = re.findall(r"(?:\A|\n\n)(    \S.*)", without_blocks(page))
    assert not [line for line in indented if COMMAND.match(line)], "commands stand in fenced blocks"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_text_exist(page: Path) -> None:
    """`semel word …` in a sentence or a console block names a command, and options that it has."""
    known = {name: options_of(one) for name, one in reference.subcommands(parser())}
    consoles = [line for block in blocks(page, "console") for line in block.text.splitlines()]
    mentioned = re.findall(r"`(semel [^`]+)`", " ".join(without_blocks(page).split()))
    for said in [*mentioned, *re.findall(r"\bsemel (?!semel )[a-z].*", "\n".join(consoles))]:
        # Behind a bare `--` is somebody else's command.
        words = re.split(r"[\s=]+", re.split(r" (?:#|--(?= |$))", said)[0])
        name = max((one for one in known if words[: len(one.split())] == one.split()), key=len)
        below = any(one.startswith(f"{name} ") for one in known)  # then a further word is a command, too
        further = words[len(name.split()) :][:1]
        assert not (below and further and further[0][0].isalpha()), f"{said!r} is no command"
        options = {word.strip("[].,…") for word in words if word.startswith(("--", "[--"))}
        assert options <= known[name], f"{said!r}: {name} has no {options - known[name]}"


def options_of(one: object) -> set[str]:
    return {spelling for action in getattr(one, "_actions", []) for spelling in action.option_strings}


def test_configurations_of_mcp_clients_start_semel() -> None:
    """Each is JSON, and what it has after `semel` is a command line that semel takes, up to the server's."""
    page = ROOT / "docs" / "how-to" / "mcp-clients.md"
    configured = [json.loads(block.text) for block in blocks(page, "json")]
    servers = [one for said in configured for one in (said.get("mcpServers") or said["servers"]).values()]
    wrapped = [one["args"] for one in servers if Path(one.get("command", "")).name == "semel"]
    started = [parser().parse_args(words) for words in wrapped]
    assert len(started) >= 5
    for options in started:
        assert (options.upstream, options.run_ref, options.cmd[0]) == ("shop", None, "--"), options
    for block in blocks(page, "python"):
        compile(block.text, str(block), "exec")


def test_there_are_examples_to_check() -> None:
    """A renamed code fence must not make the tests below empty."""
    assert len(POLICIES) >= 3
    assert len(SETTINGS) >= 1


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
    """The first file in docs/settings.md is what semel does without one."""
    file = tmp_path / "semel.yaml"
    file.write_text(SETTINGS["docs/settings.md-1"])
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    assert load_settings({}, plain, file) == Settings()


def test_every_problem_has_its_cause_and_its_cure() -> None:
    """docs/troubleshooting.md has a heading for each problem that semel can give, and for no other."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    section = text.split("\n## What semel answers\n")[1].split("\n## ")[0]
    titles = " ".join(re.findall(r"^### (.+)$", section, re.MULTILINE))
    explained = re.findall(r"`(.+?)`", titles)
    assert sorted(explained) == sorted(problem.name for problem in reference.given_problems())


def test_the_readme_is_short() -> None:
    """It convinces in a minute; the rest is a link away."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
