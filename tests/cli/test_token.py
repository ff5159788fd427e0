"""`semel token new`: a token that nobody guesses, and the lines that let it in."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from proxy import tokens
from proxy.cli.token import SCHEMA
from proxy.settings import Role, load_settings
from tests.cli.command import semel

TOKEN = re.compile(r"semel_[A-Za-z0-9_-]{43}")
NEW = ("token", "new", "--tenant", "acme", "--role")


def test_tokens_have_256_bits_and_never_repeat() -> None:
    """A thousand of them, all different, all of one shape that needs no quoting."""
    made = [tokens.new_token() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(TOKEN.fullmatch(token) for token in made)


@pytest.mark.parametrize("length", range(1, 6))
def test_every_character_of_a_token_comes_by_chance(length: int) -> None:
    """The beginnings differ as much as the ends: no counter, no clock, no process id in there."""
    made = [tokens.new_token().removeprefix(tokens.PREFIX) for _ in range(400)]
    assert len({token[:length] for token in made}) >= min(30 * length, 300)
    assert len({token[-1 - length : -1] for token in made}) >= min(30 * length, 300)


def test_the_digest_is_the_sha256_of_the_utf8_bytes() -> None:
    """Against a value that another program computed, and of text beyond ASCII."""
    assert tokens.digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert tokens.digest("sémel") == hashlib.sha256(b"s\xc3\xa9mel").hexdigest()


def test_a_header_that_is_no_utf8_has_a_digest_too() -> None:
    """A stranger's bytes must not become an exception."""
    assert tokens.digest("\udcff") == hashlib.sha256(b"\xff").hexdigest()


@pytest.mark.parametrize("role", list(Role))
def test_the_printed_lines_let_the_printed_token_in(
    role: Role, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pasted into semel.yaml as they are, even for a tenant that looks like a number."""
    ran = semel(capsys, "token", "new", "--tenant", "42", "--role", role)
    assert (ran.status, ran.err) == (0, "")
    token = ran.out.splitlines()[0]
    assert TOKEN.fullmatch(token)
    assert ran.out.count(token) == 1
    assert "stored nowhere" in ran.out
    (tmp_path / "semel.yaml").write_text(ran.out[ran.out.index("auth:") :])
    auth = load_settings({}, {}, tmp_path / "semel.yaml").auth
    assert auth is not None
    (entry,) = auth.tokens
    assert entry.sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert (entry.tenant, entry.role) == ("42", role)


def test_a_further_token_needs_only_the_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it says: the whole of the first output, and the last line of the others."""
    whole, *further = [semel(capsys, *NEW, role).out for role in Role]
    assert "a further\ntoken needs only the last of these lines, under `tokens:`." in whole
    lines = [text.splitlines()[-1] for text in further]
    (tmp_path / "semel.yaml").write_text(whole[whole.index("auth:") :] + "\n".join(lines))
    auth = load_settings({}, {}, tmp_path / "semel.yaml").auth
    assert auth is not None
    assert [entry.role for entry in auth.tokens] == list(Role)


def test_json_has_the_same_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    made = semel(capsys, *NEW, "agent", "--json").document(SCHEMA)
    assert made["sha256"] == hashlib.sha256(made["token"].encode()).hexdigest()
    assert (made["tenant"], made["role"]) == ("acme", "agent")


def test_nothing_is_written_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is in the output and nowhere else."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert semel(capsys, *NEW, "operator").status == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token",), "required: ACTION"),
        (("token", "new"), "required: --tenant, --role"),
        (("token", "new", "--tenant", "a b", "--role", "agent"), "'a b' is not a tenant's name"),
        (("token", "new", "--tenant", "", "--role", "agent"), "'' is not a tenant's name"),
        ((*NEW, "agnt"), "there is no 'agnt': did you mean 'agent'?"),
        ((*NEW, "root"), "there is no 'root': choose from agent, operator, metrics"),
        (("token", "nw"), "there is no 'nw': did you mean 'new'?"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to write instead, and nothing printed as if it had worked."""
    ran = semel(capsys, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
