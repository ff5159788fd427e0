"""`semel mcp`: run an MCP server that speaks over stdio, with the record between it and its client.

Put it before the server's command in the client's configuration. Every tools/call is written down before the
server sees it, and answered from the record when it comes again; everything else goes by as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from proxy.cli.configuration import add_config_flag, add_policies_flag, settings_of_proxy
from proxy.cli.output import warn
from proxy.cli.parsing import examples
from proxy.errors import BadRequest, ConfigurationError

if TYPE_CHECKING:
    from proxy.bridge.calls import Client
    from proxy.core.policy import PolicySet, Upstream
    from proxy.front.run_ref import Speaker
    from proxy.settings import Settings

# Nobody listens: stdio is all there is.
NOWHERE = "127.0.0.1:0"
# Words before the one that says which server it is.
LAUNCHERS = frozenset(
    {
        *("bun", "bunx", "deno", "node", "npm", "npx", "pnpm", "yarn"),
        *("pipx", "poetry", "python", "python3", "tool", "uv", "uvx"),
        *("docker", "env", "exec", "podman", "run", "sh"),
    }
)
_NAME = re.compile(r"[a-z][a-z0-9-]*")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "mcp",
        help="run an MCP server over stdio behind the record",
        description=__doc__,
        usage="semel mcp [options] -- COMMAND...",
        epilog=examples(
            "semel mcp -- npx -y @modelcontextprotocol/server-everything",
            "semel mcp --upstream shop --run task-42 -- python shop_server.py",
        ),
    )
    command.add_argument(
        "--run",
        dest="run_ref",
        metavar="REF",
        help="RUN or RUN+ATTEMPT (default: SEMEL_RUN and SEMEL_ATTEMPT, which `semel run` sets; without an "
        "attempt every start is one)",
    )
    command.add_argument(
        "--upstream", metavar="NAME", help="the policy whose rules apply (default: a name from the command)"
    )
    command.add_argument("--token", metavar="T", help="an agent's token (default: SEMEL_TOKEN)")
    add_config_flag(command)
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    command.add_argument("--store", metavar="URL", help="embedded (default), postgres://… or redis://…")
    add_policies_flag(command)
    command.add_argument("--quiet", action="store_true", help="no line on stderr for every call")
    command.add_argument("cmd", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the server, after --")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio

    from proxy.bridge import running
    from proxy.bridge.server import NotStarted

    command = _command(options)
    flags = {
        "listen": NOWHERE,
        "state": options.state_dir,
        "store": options.store,
        "policies": options.policies,
    }
    settings = settings_of_proxy(flags, options.config)
    if settings.store == "memory":
        warn("the memory store ends with this command: a further start finds nothing to replay.")
    client = _client(options, settings, command)
    umask = os.umask(0o077)  # whatever is written is for this user alone; what the server writes is its own
    try:
        return asyncio.run(running.run(command, settings, client, quiet=options.quiet, umask=umask))
    except NotStarted as error:
        warn(str(error))
        return error.status


def _command(options: argparse.Namespace) -> list[str]:
    words: list[str] = options.cmd
    if len(words) < 2 or words[0] != "--":
        raise ConfigurationError("Write the server's command behind --: semel mcp -- npx -y SERVER")
    return words[1:]


def _client(options: argparse.Namespace, settings: Settings, command: Sequence[str]) -> Client:
    from proxy.bridge.calls import Client
    from proxy.front.door import ANYBODY, Door
    from proxy.policy_file import load_policies, presets_directory

    token = options.token if options.token is not None else os.environ.get("SEMEL_TOKEN", "")
    policies = load_policies(
        settings.policies,
        presets=presets_directory(),
        operators=settings.has_operators,
        encrypted=settings.is_encrypted,
    )
    visitor = ANYBODY if settings.auth is None else Door(settings.auth.tokens).for_calls(token)
    upstream = _upstream(options.upstream, policies, command)
    return Client(policies, upstream, _speaker(options.run_ref), visitor.tenant)


def _upstream(name: str | None, policies: PolicySet, command: Sequence[str]) -> Upstream:
    from proxy.core.clauses import Wire
    from proxy.core.policy import TOOL_SCHEME, TOOLS_NAME, Upstream

    if name is not None and (_NAME.fullmatch(name) is None or name == TOOLS_NAME):
        raise ConfigurationError(f"--upstream: {name!r} is no name: use a-z, 0-9 and -, a letter first")
    name = name or name_of(command)
    known = policies.upstreams.get(name)
    if known is None:
        return Upstream(name=name, scheme=TOOL_SCHEME, host=name, port=0, protocol=Wire.MCP)
    if known.protocol is not Wire.MCP:
        raise ConfigurationError(
            f"The policy of {name!r} says 'protocol: {known.protocol}', and this is an MCP server: choose "
            "another --upstream, or write 'protocol: mcp' there"
        )
    return known


def name_of(command: Sequence[str]) -> str:
    """From what a person calls the server, all of the command, and where it is run: with other words, or in
    another folder, it is another server."""
    words = [word for word in command if not word.startswith("-") and PurePath(word).name not in LAUNCHERS]
    told = re.sub(r"[^a-z0-9]+", "-", PurePath((words or command)[0]).name.lower().partition("@")[0] or "mcp")
    whole = f"{shlex.join(command)} in {Path.cwd()}"
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"mcp-{told.strip('-')[:40]}-{digest}".replace("--", "-")


def _speaker(given: str | None) -> Speaker:
    from proxy.cli.run_names import new_attempt
    from proxy.front.run_ref import NOBODY, parse_run_ref

    ref = given
    if ref is None and os.environ.get("SEMEL_RUN"):
        attempt = os.environ.get("SEMEL_ATTEMPT")
        ref = os.environ["SEMEL_RUN"] + (f"+{attempt}" if attempt else "")
    if ref is None:
        return NOBODY
    try:
        speaker = parse_run_ref(ref)
    except BadRequest as error:
        raise ConfigurationError(f"--run: {error.detail}") from None
    return speaker if speaker.attempt else speaker._replace(attempt=new_attempt(datetime.now(UTC)))
