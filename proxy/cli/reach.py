"""How a command reaches the record: the store itself, opened as one more process, or a running proxy.

As one more process it has the same compare and swap as everybody else, so a decision made here is as safe as
one made through the proxy.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.errors import ConfigurationError
from proxy.settings import Settings, load_settings
from proxy.store.base import Store


def add_store_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: ./semel.yaml if it exists)"
    )
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    command.add_argument("--store", metavar="URL", help="default: embedded, in the state directory")


def settings_of(options: argparse.Namespace) -> Settings:
    flags = {"state": options.state_dir, "store": options.store}
    return load_settings(flags, os.environ, options.config)


@asynccontextmanager
async def opened_store(options: argparse.Namespace) -> AsyncIterator[Store]:
    """Nothing is made by looking: a directory without a record is an error, not a new record."""
    from proxy.app import open_store
    from proxy.store.database import FILE_NAME

    settings = settings_of(options)
    if settings.store == "memory":
        raise ConfigurationError(
            "The memory store lives inside its process: ask that one, with --proxy http://HOST:PORT."
        )
    if settings.store == "embedded" and not (settings.state / FILE_NAME).is_file():
        raise ConfigurationError(
            f"There is no record in {settings.state}. Name the directory that `semel serve` uses with "
            "--state-dir DIR, or ask a running proxy with --proxy http://HOST:PORT."
        )
    store = await open_store(settings)
    try:
        yield store
    finally:
        await store.close()
