"""`semel run`: run a command behind semel; started again it gets its recorded answers and goes on.

The command's code does not change. Its exit status is semel's; 0 marks the run complete.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from proxy.cli.configuration import add_config_flag, add_policies_flag, settings_of_proxy
from proxy.cli.output import REFUSED, USAGE, Refused, counted
from proxy.cli.parsing import examples
from proxy.cli.run_summary import SCHEMA
from proxy.errors import ConfigurationError, Refusal

if TYPE_CHECKING:
    from proxy.cli.run_agent import Agent
    from proxy.cli.run_figures import ProxyFigures
    from proxy.cli.run_proxy import Proxy
    from proxy.cli.run_telling import Teller
    from proxy.core.policy import Upstream
    from proxy.settings import Settings

__all__ = ["SCHEMA", "register", "run", "without_command"]

NOWHERE_ELSE = "127.0.0.1:0"
# Of `forward` in semel.yaml: the variable, and what it is here where nobody has said anything.
FORWARDS = {"unknown": ("SEMEL_FORWARD_UNKNOWN", "record"), "private": ("SEMEL_FORWARD_PRIVATE", "allow")}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "run",
        help="run a command behind the proxy",
        description=__doc__,
        usage="semel run [options] -- CMD...",
        epilog=examples(
            "semel run --id task-42 -- python agent.py",
            "semel run --id nightly --retries 3 -- ./agent --verbose",
            "semel run --proxy http://127.0.0.1:8080 -- node agent.js",
        ),
    )
    command.add_argument("--id", metavar="RUN", help="the run's name (default: one is made and printed)")
    command.add_argument("--proxy", metavar="URL", help="a running semel (default: one for this command)")
    command.add_argument("--token", metavar="T", help="an agent's token (default: SEMEL_TOKEN)")
    command.add_argument(
        "--retries", type=_retries, default=0, metavar="N", help="start it again when it fails (default: 0)"
    )
    add_config_flag(command)
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    add_policies_flag(command)
    command.add_argument("--quiet", action="store_true", help="only warnings")
    command.add_argument("--json", action="store_true", help="the summary as one line of JSON, on stderr")
    command.add_argument("cmd", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command, after --")
    command.set_defaults(run=run, store=None)


def without_command(words: Sequence[str]) -> Sequence[str]:
    """Our own words. The command's may be any bytes: they are handed on, and not read."""
    takes_one = words[:1] in (["run"], ["mcp"])
    return words[: list(words).index("--")] if takes_one and "--" in words else words


def _retries(given: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > 6:
        raise argparse.ArgumentTypeError("a whole number from 0 on")
    return int(given)


def run(options: argparse.Namespace) -> int:
    from proxy.cli.run_agent import NotStarted
    from proxy.cli.run_telling import Teller

    teller = Teller(quiet=options.quiet)
    try:
        return _run(options, teller)
    except ConfigurationError as error:
        teller.warn(str(error))
        return USAGE
    except (Refused, Refusal) as error:
        teller.warn(str(error))
        return REFUSED
    except NotStarted as error:
        teller.warn(str(error))
        return error.status


def _run(options: argparse.Namespace, teller: Teller) -> int:
    from proxy.cli.run_agent import end_like
    from proxy.cli.run_figures import ProxyFigures
    from proxy.cli.run_names import given_run, new_run
    from proxy.cli.run_signals import Waiting
    from proxy.cli.run_summary import Report, document, lines
    from proxy.cli.run_supervision import Supervision

    command = _command(options)
    name = new_run(datetime.now(UTC)) if options.id is None else given_run(options.id)
    token = options.token if options.token is not None else os.environ.get("SEMEL_TOKEN", "")
    settings, upstreams = _configuration(options)
    proxy = _proxy(options, settings, token, teller)
    again = _again(options, name, command)
    if options.id is None:
        teller.say(f"this is run {name}; to repeat it: {shlex.join(again)}")
    figures = ProxyFigures(proxy.url, token)
    began = time.monotonic()
    with Waiting() as signals:
        try:
            _tell_what_was_before(figures, name, teller)
            starts = _Starts(
                command, name, token, proxy.url, settings, upstreams, teller, signals.mask_before
            )
            work = Supervision(signals, proxy, teller, starts)
            ending = work.run(options.retries)
            complete = ending.is_success and figures.complete(name, work.attempt)
            report = Report(
                run=name,
                attempt=work.attempt,
                attempts=work.attempts,
                ending=ending,
                complete=complete,
                seconds=time.monotonic() - began,
                proxy_restarts=proxy.restarts,
                figures=figures.of_run(name),
                why=figures.why,
            )
        finally:
            proxy.stop(signals)
    if options.json:
        teller.document(document(report))
    else:
        teller.say("\n".join(lines(report, _place(options), again)))
    return end_like(ending)


def _command(options: argparse.Namespace) -> list[str]:
    """Behind `--`, so that its flags are never taken for ours."""
    words: list[str] = options.cmd
    if len(words) < 2 or words[0] != "--":
        raise ConfigurationError("Write the command behind --: semel run [--id RUN] -- python agent.py")
    return words[1:]


def _configuration(options: argparse.Namespace) -> tuple[Settings, list[Upstream]]:
    from proxy.policy_file import load_policies, presets_directory

    flags = {"listen": NOWHERE_ELSE, "state": options.state_dir, "policies": options.policies}
    settings = settings_of_proxy(flags, options.config)
    serves = None if options.proxy is not None else os.environ
    policies = load_policies(settings.policies, presets=presets_directory(), environ=serves)
    return settings, policies.reached


def _proxy(options: argparse.Namespace, settings: Settings, token: str, teller: Teller) -> Proxy:
    from proxy.cli.run_proxy import GivenProxy, OwnProxy, own_environment
    from proxy.front.door import Door

    if options.proxy is not None:
        return GivenProxy(options.proxy)
    if settings.auth is not None:
        if not token:
            raise ConfigurationError(
                "The settings want tokens: give an agent's with --token or SEMEL_TOKEN (`semel token new "
                "--tenant T --role agent` makes one)."
            )
        Door(settings.auth.tokens).for_calls(token)  # now, and not at the agent's first call
    if settings.store == "memory":
        teller.warn("the memory store ends with this command: a further start finds nothing to replay.")
    arguments = ["--state-dir", str(settings.state.absolute()), "--workers", "1"]
    if options.config is not None:
        arguments += ["--config", str(options.config)]
    for path in options.policies or ():
        arguments += ["--policies", path]
    environment = own_environment({**os.environ, **_for_a_developer(options.config)})
    return OwnProxy(arguments, environment, teller)


def _for_a_developer(config: Path | None) -> Mapping[str, str]:
    """What is not said otherwise: hosts without a policy are recorded, and the agent reaches through semel
    what it reaches without, this machine and its network included."""
    from proxy.policy_file.mistakes import Log
    from proxy.policy_file.nodes import Pairs, compose
    from proxy.policy_file.read import read_bytes
    from proxy.settings import DEFAULT_FILE

    path = config or Path(os.environ.get("SEMEL_CONFIG") or DEFAULT_FILE)
    data = read_bytes(path, Log()) if path.is_file() else None
    tree = None if data is None else compose(data, str(path), Log())
    entries = tree.entries if isinstance(tree, Pairs) else ()
    forward = next((value for key, value in entries if key.text == "forward"), None)
    said = {key.text for key, _ in forward.entries} if isinstance(forward, Pairs) else set()
    return {
        variable: value
        for key, (variable, value) in FORWARDS.items()
        if key not in said and not os.environ.get(variable)
    }


def _tell_what_was_before(figures: ProxyFigures, name: str, teller: Teller) -> None:
    before = figures.of_run(name)
    if before is None:
        return
    if before.state == "expired":
        raise Refused(
            f"The retention of run {name} is over: choose another --id. The command was not started."
        )
    if before.state == "complete":
        teller.warn(f"run {name} was completed before: everything in it is replayed.")
    elif before.steps:
        teller.say(f"run {name} goes on: {counted(before.steps, 'step')} on record.")


class _Starts:
    """Every call of it starts the command as a new attempt."""

    def __init__(
        self,
        command: list[str],
        name: str,
        token: str,
        url: str,
        settings: Settings,
        upstreams: list[Upstream],
        teller: Teller,
        mask: Iterable[int],
    ) -> None:
        from proxy.ca import load_or_make
        from proxy.cli.run_environment import is_loopback
        from proxy.cli.run_trust import system_roots, trust_files

        self._command, self._name, self._token, self._url = command, name, token, url
        self._upstreams, self._teller, self._mask = upstreams, teller, mask
        state = settings.state.absolute()
        authority = load_or_make(state).pem.encode()
        self._trust, self._notes = trust_files(authority, state, os.environ, system_roots())
        if not is_loopback(urlsplit(url).hostname or ""):
            self._notes.append(
                f"the agent trusts the authority in {state}. If {url} has another, put its ca folder there: "
                "HTTPS through it fails otherwise."
            )

    def __call__(self) -> tuple[str, Agent]:
        from proxy.cli.run_agent import Agent
        from proxy.cli.run_environment import environment
        from proxy.cli.run_names import Addresses, new_attempt

        attempt = new_attempt(datetime.now(UTC))
        addresses = Addresses(proxy=self._url, run=self._name, attempt=attempt, token=self._token)
        made, notes = environment(os.environ, addresses, self._trust, self._upstreams)
        for note in (*self._notes, *notes):
            self._teller.warn(note)
        self._notes = []
        self._teller.say(f"run {self._name}, attempt {attempt}")
        return attempt, Agent(self._command, made, self._mask)


def _place(options: argparse.Namespace) -> str:
    from proxy.cli.reach import same_place

    return same_place(options)


def _again(options: argparse.Namespace, name: str, command: list[str]) -> list[str]:
    """Never with the token."""
    flags: list[str] = []
    for flag, value in (
        ("--proxy", options.proxy),
        ("--config", options.config),
        ("--state-dir", options.state_dir),
        *(("--policies", path) for path in options.policies or ()),
    ):
        flags += [flag, str(value)] if value is not None else []
    return ["semel", "run", "--id", name, *flags, "--", *command]
