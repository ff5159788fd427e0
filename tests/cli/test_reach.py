"""Inside `semel run`: SEMEL_URL names a run, and commands on the record find the proxy all the same."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import pytest

from proxy.cli.reach import proxy_of, same_place
from proxy.errors import ConfigurationError
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.admin.scene import scene
from tests.cli.command import semel

P = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def options(**given: str) -> argparse.Namespace:
    flags = dict.fromkeys(("proxy", "token", "state_dir", "store", "config"))
    return argparse.Namespace(**{**flags, **given})


@pytest.mark.parametrize("behind", ["", "/@task-42", "/@task-42+a1", "/@task-42+a1:t%2Fk", "/@task-42+a1/"])
def test_the_run_is_cut_from_the_proxys_address(behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment and of a flag alike; a token in it is not told on."""
    assert proxy_of(options(proxy=P + behind)) == P
    assert same_place(options(proxy=P + behind)) == f" --proxy {P}"
    monkeypatch.setenv("SEMEL_URL", P + behind)
    assert proxy_of(options()) == P
    assert proxy_of(options(state_dir="here")) is None


def test_a_run_that_is_none_is_told_without_its_token() -> None:
    """What stands behind the colon may be a secret."""
    with pytest.raises(ConfigurationError, match="A run's name is 1 to 128") as refused:
        proxy_of(options(proxy=f"{P}/@no run:semel_secret"))
    assert "semel_secret" not in str(refused.value)


async def test_commands_work_inside_an_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of the address counts where none is nearer."""
    tokens = [Token(sha256=digest("semel_ops"), tenant="acme", role=Role.OPERATOR)]
    async with scene(tmp_path, tokens=tokens) as world:

        async def listed(*flags: str) -> tuple[int, str]:
            ran = await asyncio.to_thread(semel, capsys, "calls", "list", *flags)
            assert "semel_" not in ran.out + ran.err
            return ran.status, ran.out

        monkeypatch.setenv("SEMEL_URL", f"{world.url}/@task-42+a1:semel_ops")
        assert await listed() == (0, "no calls\n")
        stats = await asyncio.to_thread(semel, capsys, "stats")
        assert (stats.status, stats.err) == (0, "")
        assert (await listed("--token", "other"))[0] == 1
        monkeypatch.setenv("SEMEL_TOKEN", "other")
        assert (await listed())[0] == 1
        monkeypatch.setenv("SEMEL_URL", f"{world.url}/@task-42+a1:other")
        monkeypatch.setenv("SEMEL_TOKEN", "semel_ops")
        assert (await listed())[0] == 0
