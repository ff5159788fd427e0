"""Settings for commands that work beside a proxy: the same files, variables and flags, but nobody listens."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.cli.output import warn
from proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from proxy.settings import Settings

# What cannot be reached from elsewhere needs no tokens, and any port is free.
NOWHERE = "127.0.0.1:0"


def add_config_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: ./semel.yaml if it exists)"
    )


def add_policies_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--policies",
        action="append",
        metavar="PATH",
        help='file, directory or "presets", in place of the default (presets); repeatable, later ones win',
    )


def settings_beside(flags: Mapping[str, object], config: Path | None) -> Settings:
    """Whether a proxy may listen there without tokens is not for such a command to say: with `semel serve
    --first-token` it may, and that is seen only by the proxy."""
    from proxy.settings import load_settings

    return load_settings({**flags, "listen": NOWHERE}, os.environ, config)


def settings_of_proxy(
    flags: Mapping[str, object], config: Path | None, *, first_start: bool = False
) -> Settings:
    """As `semel serve` has them: with the tokens of a first start, if there was one and none are configured.
    `first_start`: make them, and show them this once; but only when everything else is right."""
    from proxy.cli.first_token import ANY_TOKEN, FILE_NAME, first_tokens
    from proxy.policy_file import SettingsMistakes
    from proxy.settings import load_settings

    try:
        settings = load_settings(flags, os.environ, config, tokens=[ANY_TOKEN])
    except SettingsMistakes:
        load_settings(flags, os.environ, config)  # perhaps tokens are missing as well: say it all at once
        raise
    if settings.auth is None or settings.auth.tokens != (ANY_TOKEN,):
        return settings
    if not first_start and not _is_there(settings.state / FILE_NAME):
        return load_settings(flags, os.environ, config)
    tokens, made = first_tokens(settings.state)
    for role, token in made.items():
        warn(f"{role} token, shown this once: {token}")
    return load_settings(flags, os.environ, config, tokens=tokens)


def _is_there(path: Path) -> bool:
    """Also a link to nowhere. Tokens that cannot be seen are not taken for none."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be looked for: {error.strerror}. Run this as the user who runs `semel serve`, or "
            "name another directory with --state-dir DIR."
        ) from None
    return True
