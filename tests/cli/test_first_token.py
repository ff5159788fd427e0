"""`semel serve --first-token`: tokens made at the first start, printed once, known from then on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import stat
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.cli.first_token import FILE_NAME, first_tokens
from proxy.errors import ConfigurationError
from proxy.settings import Role
from proxy.tokens import digest
from tests.inside import call


@asynccontextmanager
async def served(directory: Path, *flags: str) -> AsyncIterator[tuple[int, list[str]]]:
    """A real process; its port, and what it said on stderr before it was ready."""
    telling = directory.with_name("stderr")
    with telling.open("w") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proxy.cli", "serve", "--listen", "127.0.0.1:0",
            "--state-dir", str(directory), *flags, stdout=asyncio.subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        assert ready.startswith("semel is ready"), telling.read_text()
        yield int(ready.rsplit(":", 1)[1]), telling.read_text().splitlines(keepends=True)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            process.terminate()
        await asyncio.wait_for(process.communicate(), 30)


async def test_the_first_start_prints_both_tokens_and_later_ones_know_them(tmp_path: Path) -> None:
    """An agent's and an operator's, each once; after a restart they still open their doors, and no others."""
    state = tmp_path / "state"
    async with served(state, "--first-token") as (port, said):
        found = dict(re.findall(r"^(\w+) token, shown this once: (\S+)$", "".join(said), re.MULTILINE))
        assert len(found) == len(said)
        assert set(found) == {"agent", "operator"}
        assert (await call(port, "GET", "/metrics")).status == 401
    assert stat.S_IMODE((state / FILE_NAME).stat().st_mode) == 0o600
    assert not any(token in (state / FILE_NAME).read_text() for token in found.values())
    for again in (["--first-token"], []):  # with the flag or without: whoever has tokens asks for them
        async with served(state, *again) as (port, said):
            assert said == []
            assert (await call(port, "GET", "/metrics")).status == 401
    async with served(state, "--first-token") as (port, said):
        assert said == []
        assert (await call(port, "GET", "/metrics", {"Semel-Token": found["operator"]})).status == 200
        assert (await call(port, "GET", "/metrics", {"Semel-Token": found["agent"]})).status == 403
        # An agent gets as far as the missing upstream.
        assert (await call(port, "GET", "/none/x", {"Semel-Token": found["agent"]})).status == 404


async def test_configured_tokens_come_first(tmp_path: Path) -> None:
    """Then none are made, and nothing is printed."""
    config = tmp_path / "semel.yaml"
    config.write_text(f"auth: {{tokens: [{{sha256: '{digest('mine')}', tenant: acme, role: operator}}]}}")
    async with served(tmp_path / "state", "--first-token", "--config", str(config)) as (port, said):
        assert said == []
        assert (await call(port, "GET", "/metrics", {"Semel-Token": "mine"})).status == 200
    assert not (tmp_path / "state" / FILE_NAME).exists()


def test_nothing_is_made_before_everything_else_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token that was made at a start that failed would never be shown again."""
    state = tmp_path / "state"
    flags = ["serve", "--first-token", "--state-dir", str(state), "--listen", "0.0.0.0:99999"]
    assert main(flags) == 2
    assert "token" not in capsys.readouterr().err
    assert not (state / FILE_NAME).exists()


def test_of_several_processes_one_makes_the_tokens(tmp_path: Path) -> None:
    """All know the same digests; one of them has tokens to show."""
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: first_tokens(tmp_path / "state"), range(8)))
    assert len({tokens for tokens, _ in results}) == 1
    (made,) = [made for _, made in results if made]
    assert {(token.sha256, token.role) for token in results[0][0]} == {
        (digest(token), role) for role, token in made.items()
    }
    assert set(made) == {Role.AGENT, Role.OPERATOR}
    assert [path.name for path in (tmp_path / "state").iterdir()] == [FILE_NAME]


KING = '[{"sha256": "x", "tenant": "y", "role": "king"}]'


def entry(**members: object) -> str:
    return json.dumps([{"sha256": "0" * 64, "tenant": "default", "role": "agent"} | members])


WRONG = [
    *("", "[]", "{}", "[{}]", "[1]", "null", "[" * 100_000, KING),
    *(entry(sha256=value) for value in (5, None, "", "0" * 63, "x" * 64, ["0" * 64])),
    *(entry(tenant=value) for value in (5, None, "", ["default"])),
    *(entry(role=value) for value in (5, None, "", ["agent"])),
]


@pytest.mark.parametrize("content", WRONG, ids=range(len(WRONG)))
def test_a_damaged_file_says_what_to_do(tmp_path: Path, content: str) -> None:
    """Never taken for "no tokens": the door would stand open."""
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(
        ConfigurationError, match=r"is not what semel wrote there .* Remove it to get new tokens"
    ):
        first_tokens(tmp_path)


def test_a_directory_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    """The path of the trouble, and the flag that mends it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"--state-dir"):
        first_tokens(tmp_path / "file" / "state")
