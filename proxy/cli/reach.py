"""How a command reaches the record: the store itself, opened as one more process, or a running proxy.

As one more process it has the same compare and swap as everybody else, so a decision made here is as safe as
one made through the proxy.
"""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.cli.configuration import add_config_flag, settings_beside
from proxy.cli.given import is_text
from proxy.cli.output import warn
from proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from proxy.admin.desk import Desk
    from proxy.admin.rules import Lifetimes
    from proxy.settings import Settings
    from proxy.store.base import Store


# How every SQLite database begins.
SQLITE = b"SQLite format 3\0"


def add_store_flags(command: argparse.ArgumentParser) -> None:
    add_config_flag(command)
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    command.add_argument("--store", metavar="URL", help="default: embedded, in the state directory")


def settings_of(options: argparse.Namespace) -> Settings:
    # Not every command reads policies.
    policies = getattr(options, "policies", None)
    flags = {"state": options.state_dir, "store": options.store, "policies": policies}
    return settings_beside(flags, options.config)


def has_record(state: Path) -> bool:
    """Opening an empty file would make a record of it, and looking makes nothing. So it is read first."""
    from proxy.store.database import FILE_NAME

    path = state / FILE_NAME
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            begins = file.read(len(SQLITE))
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}. Run this as the user who runs `semel serve`, or name "
            "another directory with --state-dir DIR."
        ) from None
    if begins not in (b"", SQLITE):
        raise ConfigurationError(
            f"{path} is not a record. Restore it from a backup, or name another directory with "
            "--state-dir DIR."
        )
    return begins == SQLITE


@asynccontextmanager
async def opened_store(options: argparse.Namespace) -> AsyncIterator[Store]:
    """Nothing is made by looking: a directory without a record is an error, not a new record."""
    from proxy.keeping import open_store

    settings = settings_of(options)
    # Not every command can ask a proxy.
    otherwise = ", or ask a running proxy with --proxy http://HOST:PORT" if hasattr(options, "proxy") else ""
    if settings.store == "memory":
        raise ConfigurationError(
            f"The memory store lives inside its process and nowhere else: name another{otherwise}."
        )
    if settings.store == "embedded" and not has_record(settings.state):
        raise ConfigurationError(
            f"There is no record in {settings.state}. Name the directory that `semel serve` uses with "
            f"--state-dir DIR{otherwise}."
        )
    store = await open_store(settings, make=False, note=_told)
    try:
        yield store
    finally:
        await store.close()


def _told(event: str, **fields: object) -> None:
    """What a store has to say is for people here, as far as it is about what they asked for."""
    if event in ("asynchronous-standby", "clock-behind"):
        warn(f"{event}: {fields.get('detail')}")


# ---- the operator's desk: over the store, or behind a running proxy ----


def add_desk_flags(command: argparse.ArgumentParser) -> None:
    add_store_flags(command)
    command.add_argument("--proxy", metavar="URL", help="ask a running proxy instead (default: SEMEL_URL)")
    command.add_argument("--token", metavar="T", help="an operator's token (default: SEMEL_TOKEN)")


@asynccontextmanager
async def opened_desk(options: argparse.Namespace) -> AsyncIterator[Desk]:
    """Over a store that is opened beside a running proxy, what is decided holds for that proxy at once."""
    url = proxy_of(options)
    if url is not None:
        if getattr(options, "policies", None) is not None:
            raise ConfigurationError(f"{url} decides by its own policies: leave out --policies.")
        from proxy.admin.remote import RemoteDesk

        yield RemoteDesk(url, _token_of(options))
        return
    if options.token is not None:
        raise ConfigurationError("A token is for a proxy: name it with --proxy http://HOST:PORT.")
    from proxy.admin.desk import LocalDesk
    from proxy.clock import SystemClock
    from proxy.store.codec import Codec

    async with opened_store(options) as store:
        yield LocalDesk(
            store=store,
            codec=Codec(),
            clock=SystemClock(),
            lifetimes=_lifetimes(options),
            serving=False,
            retention=settings_of(options).runs.retention,
        )


def proxy_of(options: argparse.Namespace) -> str | None:
    """Its address, without what it says of a run and a token."""
    given = _proxy_given(options)
    return None if given is None else _without_run(given)[0]


def _token_of(options: argparse.Namespace) -> str:
    """A flag is nearest, then the environment, then the address."""
    if options.token is not None:
        return str(options.token)
    return os.environ.get("SEMEL_TOKEN") or _without_run(_proxy_given(options) or "")[1]


def _without_run(url: str) -> tuple[str, str]:
    """Inside `semel run` SEMEL_URL is http://P/@RUN+ATTEMPT:TOKEN: the proxy's address, and the token."""
    base, mark, reference = url.partition("/@")
    if not mark:
        return url, ""
    from proxy.errors import BadRequest
    from proxy.front.run_ref import parse_user

    try:
        return base, parse_user(reference.partition("/")[0]).token
    except BadRequest as error:
        raise ConfigurationError(f"The address (--proxy, SEMEL_URL) names a run: {error.detail}.") from None


def _proxy_given(options: argparse.Namespace) -> str | None:
    """A flag is nearer than the environment: with --state-dir or --store, SEMEL_URL does not count."""
    names_a_store = options.state_dir is not None or options.store is not None
    if options.proxy is not None and names_a_store:
        raise ConfigurationError("Give --proxy, or --state-dir and --store, not both.")
    if options.proxy is not None or names_a_store:
        named: str | None = options.proxy
        return named
    return os.environ.get("SEMEL_URL") or None


def same_place(options: argparse.Namespace) -> str:
    """The flags that lead to the same record, to be pasted behind another command. Never the token, nor the
    password of a store."""
    from proxy.store.opening import shown

    flags = {
        "--config": options.config,
        "--state-dir": options.state_dir,
        "--store": None if options.store is None else shown(options.store),
        "--proxy": None if options.proxy is None else _without_run(options.proxy)[0],
    }
    return "".join(f" {flag} {shlex.quote(str(value))}" for flag, value in flags.items() if value is not None)


def login() -> str:
    """Who decides, for the history."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return f"uid {os.getuid()}"
    if not is_text(name):
        raise ConfigurationError("The login name is not UTF-8 text: set LOGNAME to a name that is.")
    return name


def _lifetimes(options: argparse.Namespace) -> Lifetimes:
    """How long a decision is kept is the rule's to say. Policies that do not load do not stop a person,
    unless they were named."""
    from proxy.admin.rules import lifetimes_in
    from proxy.policy_file import PolicyMistakes, load_policies, presets_directory

    settings = settings_of(options)
    # Loaded only when something is decided: looking needs no policies.
    of_rule = lifetimes_in(lambda: load_policies(settings.policies, presets=presets_directory()))

    def ttl_of(upstream: str, rule: str) -> float | None:
        try:
            found = of_rule(upstream, rule)
        except PolicyMistakes as mistakes:
            if getattr(options, "policies", None) is not None:
                raise
            warn(f"The policies cannot be read, so this is kept until it is forgotten:\n{mistakes}")
            return None
        if found is None:
            warn(
                f"The policies read here do not have the rule {rule!r} of upstream {upstream!r}, so this is "
                "kept until it is forgotten; --policies PATH reads the proxy's."
            )
        return found

    return ttl_of
