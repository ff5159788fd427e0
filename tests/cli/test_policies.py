"""`semel policies`: what ships, what is configured, and the rules as they are understood."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import policy_file
from proxy.cli.policies import SCHEMA
from tests.cli.command import semel
from tests.process import ROOT

MAIL = """\
upstream: mail   # ours
base_url: https://api.mail.example:8443/v2
rules:
  - {name: send, match: {method: POST, path: /send}, ttl: 2h}
  - {name: any, match: {path: /any}}
  - {name: look, match: {method: GET}, mode: cache, ttl: 90s}
  - {name: gone, match: {method: DELETE}, mode: deny}
  - {name: fix, match: {method: PUT}, safe: true}
"""
STRIPE = "upstream: stripe\nbase_url: https://api.stripe.example\n"


@pytest.fixture(autouse=True)
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory of presets, and no semel.yaml."""
    directory = tmp_path / "presets"
    directory.mkdir()
    monkeypatch.setattr(policy_file, "presets_directory", lambda: directory)
    monkeypatch.chdir(tmp_path)
    return directory


def test_without_any_the_list_says_so_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "policies", "list")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("No presets ship with this version of semel, and no upstream is configured.")
    assert "--policies PATH" in ran.out
    assert semel(capsys, "policies", "list", "--json").document(SCHEMA) == {"policies": []}


def test_configured_upstreams_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """By flag or by semel.yaml: name, address, rules, file."""
    Path("mail.yaml").write_text(MAIL)
    ran = semel(capsys, "policies", "list", "--policies", "mail.yaml")
    assert ran.status == 0
    assert ran.err == "No presets ship with this version of semel.\n"
    titles, row = ran.out.splitlines()
    assert titles.split("  ")[0] == "NAME"
    assert row.split() == ["mail", "https://api.mail.example:8443/v2", "5", "no", "yes", "mail.yaml"]
    Path("semel.yaml").write_text("policies: [mail.yaml]\n")
    (listed,) = semel(capsys, "policies", "list", "--json").document(SCHEMA)["policies"]
    assert listed == {
        "name": "mail",
        "about": None,
        "preset": False,
        "verified": None,
        "in_use": True,
        "base_url": "https://api.mail.example:8443/v2",
        "file": "mail.yaml",
        "rules": 5,
    }


def test_presets_are_listed_and_whether_they_are_in_use(
    presets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default they are; with other policies they are there to be extended; a later file replaces one."""
    (presets / "stripe.yaml").write_text(STRIPE)
    (presets / "mail.yaml").write_text(f"about: our mail\nverified: 2026-11-17\n{MAIL}")
    Path("mine.yaml").write_text("upstream: mail\nextends: mail\nrules: [{name: own}]\n")

    def listed(*flags: str) -> list[tuple[str, bool, bool, int]]:
        ran = semel(capsys, "policies", "list", "--json", *flags)
        assert (ran.status, ran.err) == (0, "")
        found = ran.document(SCHEMA)["policies"]
        return [(one["name"], one["preset"], one["in_use"], one["rules"]) for one in found]

    assert listed() == [("mail", True, True, 5), ("stripe", True, True, 0)]
    assert listed("--policies", "mine.yaml") == [
        ("mail", True, False, 5),
        ("stripe", True, False, 0),
        ("mail", False, True, 6),
    ]
    ran = semel(capsys, "policies", "list", "--policies", "presets", "--policies", "mine.yaml")
    shown = [line.split("  ") for line in ran.out.splitlines()]
    checked = [(line[0], "our mail" in line, "2026-11-17" in line) for line in shown[1:]]
    assert checked == [("mail", True, True), ("stripe", False, False), ("mail", True, False)]
    both = listed("--policies", "presets", "--policies", "mine.yaml")
    assert [(name, in_use) for name, _, in_use, _ in both] == [
        ("mail", False),
        ("stripe", True),
        ("mail", True),
    ]


def test_show_prints_the_file_as_it_is(presets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Comments and all, so that it can be saved and changed. What is in use goes before what it replaced."""
    (presets / "mail.yaml").write_text(MAIL)
    ran = semel(capsys, "policies", "show", "mail")
    assert (ran.status, ran.out, ran.err) == (0, MAIL, "")
    Path("mine.yaml").write_text("upstream: mail\nbase_url: http://mine.example\n")
    ran = semel(capsys, "policies", "show", "mail", "--policies", "mine.yaml")
    assert ran.out == Path("mine.yaml").read_text()


def test_show_gives_back_every_byte_but_not_to_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line ends and all; on a terminal a carriage return could hide what stands before it."""
    text = MAIL.replace("\n", "\r\n") + "# hidden\r# shown\tin ü\r\n"
    Path("mail.yaml").write_bytes(text.encode())
    show = ("policies", "show", "mail", "--policies", "mail.yaml")
    saved = subprocess.run(
        [sys.executable, "-m", "proxy.cli", *show],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert saved.stdout == text.encode()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ran = semel(capsys, *show)
    assert ran.status == 0
    assert "\r" not in ran.out
    assert ran.out.splitlines()[-2:] == ["# hidden", "# shown in ü"]


def test_show_rules_as_semel_understands_them(capsys: pytest.CaptureFixture[str]) -> None:
    """With the defaults filled in: who is safe, how long it is kept."""
    Path("mail.yaml").write_text(MAIL)
    ran = semel(capsys, "policies", "show", "mail", "--policies", "mail.yaml", "--rules")
    assert (ran.status, ran.err) == (0, "")
    rows = [line.split() for line in ran.out.split("\n\n")[0].splitlines()]
    assert rows == [
        ["RULE", "METHOD", "PATH", "MODE", "SAFE", "IN", "DOUBT", "KEPT"],
        ["send", "POST", "/send", "once", "no", "hold", "2h"],
        ["any", "any", "/any", "once", "by", "method", "hold", "1d"],
        ["look", "GET", "any", "cache", "yes", "90s"],
        ["gone", "DELETE", "any", "deny", "no"],
        ["fix", "PUT", "any", "once", "yes", "1d"],
    ]
    document = semel(capsys, "policies", "show", "mail", "--policies", "mail.yaml", "--json").document(SCHEMA)
    assert document["text"] == MAIL
    assert document["rules"][0] == {
        "name": "send", "methods": ["POST"], "path": "/send", "headers": {}, "when": None, "tool": None,
        "mode": "once", "safe": False, "in_doubt": "hold", "upstream_key": None, "ttl_seconds": 7200.0,
    }  # fmt: skip
    assert [(one["name"], one["safe"], one["ttl_seconds"]) for one in document["rules"]] == [
        ("send", False, 7200.0),
        ("any", None, 86400.0),
        ("look", True, 90.0),
        ("gone", False, 86400.0),
        ("fix", True, 86400.0),
    ]


def test_show_says_what_a_rule_looks_at_and_how_doubt_is_settled(capsys: pytest.CaptureFixture[str]) -> None:
    """In the table as a mark, in JSON as it is."""
    rules = """rules:
  - {name: read, match: {headers: {X-Kind: [a, b*]}, when: kind == 'read'}, safe: true}
  - {name: pay, match: {path: /pay}, upstream_key: {header: X-Key, retention: 6h}}
  - {name: book, match: {path: /book}, probe: {request: {path: "/book/{body.id}"}, found: id != null}}
"""
    Path("bank.yaml").write_text(f"upstream: bank\nbase_url: https://bank.example\n{rules}")
    show = ("policies", "show", "bank", "--policies", "bank.yaml")
    table, *notes = semel(capsys, *show, "--rules").out.split("\n\n")
    assert [line.split()[3:] for line in table.splitlines()[1:]] == [
        ["(and", "more)", "once", "yes", "1d"],
        ["once", "by", "method", "resend", "by", "header", "x-key,", "6h", "1d"],
        ["once", "by", "method", "probe", "1d"],
    ]
    assert notes[0].startswith("(and more): it looks at headers or arguments too")
    read, pay, book = semel(capsys, *show, "--json").document(SCHEMA)["rules"]
    assert (read["headers"], read["when"]) == ({"x-kind": ["a", "b*"]}, "kind == 'read'")
    assert [one["in_doubt"] for one in (read, pay, book)] == [None, "resend", "probe"]
    assert pay["upstream_key"] == "header x-key"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mial", "There is no policy 'mial': did you mean 'mail'?"),
        ("zzz", "There is no policy 'zzz': there are mail, stripe."),
        ("\x1b[31m", "There is no policy '\\x1b[31m'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    name: str, said: str, presets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (presets / "stripe.yaml").write_text(STRIPE)
    (presets / "mail.yaml").write_text(MAIL)
    ran = semel(capsys, "policies", "show", name)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(said)
    assert "`semel policies list`" in ran.err


def test_an_unknown_name_among_none(capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "policies", "show", "mail")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("There is no policy 'mail': there are none.")


def test_where_a_proxy_listens_does_not_matter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container that is started with --first-token, the settings alone would not let it listen."""
    monkeypatch.setenv("SEMEL_LISTEN", "0.0.0.0:8080")
    assert semel(capsys, "policies", "list").status == 0


@pytest.mark.parametrize("command", [("list",), ("show", "mail")])
def test_broken_files_and_settings_are_told_with_their_places(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, as everywhere."""
    Path("mail.yaml").write_text("upstream: mail\nbase_url: no\n")
    ran = semel(capsys, "policies", *command, "--policies", "mail.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("mail.yaml:2:11: ")
    ran = semel(capsys, "policies", *command, "--config", "gone.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("gone.yaml:1:1: there is no such file")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "required: ACTION"),
        (("show",), "required: NAME"),
        (("lst",), "there is no 'lst': did you mean 'list'?"),
        (("list", "--polices", "x"), "unknown argument '--polices': did you mean '--policies'?"),
    ],
)
def test_bad_usage(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "policies", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
