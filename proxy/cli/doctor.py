"""`semel doctor`: look at everything that semel needs, and say what to do about what is not right.

Configuration, policies, the state directory, the listening address, the upstreams (connected to, nothing is
sent), and for every SDK whose API is configured what points it at semel. Nothing is changed.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from proxy.cli.configuration import add_config_flag, add_policies_flag, settings_of_proxy
from proxy.cli.output import DONE, REFUSED, add_json, counted, print_json, print_table
from proxy.cli.parsing import examples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.cli.examine import Finding
    from proxy.cli.sdks import Advice
    from proxy.core.policy import PolicySet, Upstream
    from proxy.settings import Settings

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["findings", "sdks", "warnings", "failures"],
    "additionalProperties": False,
    "properties": {
        "findings": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["about", "verdict", "found", "do"],
                "additionalProperties": False,
                "properties": {
                    "about": {"type": "string", "minLength": 1},
                    "verdict": {"enum": ["ok", "warn", "fail"]},
                    "found": {"type": "string", "minLength": 1},
                    "do": {"type": "string"},
                },
            },
        },
        "sdks": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sdk", "host", "installed", "upstream", "set", "note"],
                "additionalProperties": False,
                "properties": {
                    "sdk": {"type": "string"},
                    # Of its API; null: a client for any.
                    "host": {"type": ["string", "null"]},
                    "installed": {"type": ["string", "null"]},
                    "upstream": {"type": ["string", "null"]},
                    "set": {"type": "string"},
                    "note": {"type": "string"},
                },
            },
        },
        "warnings": {"type": "integer", "minimum": 0},
        "failures": {"type": "integer", "minimum": 0},
    },
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "doctor",
        help="find out what is not right",
        description=__doc__,
        epilog=examples(
            "semel doctor",
            "semel doctor --config deploy/semel.yaml",
            "semel doctor --proxy http://127.0.0.1:8080 --json",
        ),
    )
    command.add_argument(
        "--proxy",
        metavar="URL",
        type=_url,
        help="a semel that should be running; the files that are looked at are those here",
    )
    add_config_flag(command)
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    command.add_argument("--store", metavar="URL", help="the store that semel is to use (default: embedded)")
    add_policies_flag(command)
    command.add_argument(
        "--all",
        action="store_true",
        help="also SDKs whose API is not configured (--json has them always), and the hosts of presets",
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from proxy.ca import CERTIFICATE, FOLDER
    from proxy.cli import examine
    from proxy.cli.examine_store import key_findings, store_findings
    from proxy.cli.handshake import reach_all
    from proxy.cli.sdks import advice
    from proxy.settings import Settings
    from proxy.settings_values import Private

    settings, about_settings = _settings(options)
    findings = [*examine.whose_files(options.proxy), *about_settings]
    policies, about_policies = _policies(settings) if settings else (None, [])
    findings += about_policies
    # With a broken semel.yaml the rest is looked at as far as it does not depend on it.
    proxy = options.proxy or _url_of(settings or Settings())
    if settings:
        findings += key_findings(settings)
        findings += store_findings(settings)
        findings += examine.state_directory(settings)
        findings += examine.listener(settings, options.proxy)
        findings += examine.machine(settings)
    state = (settings or Settings()).state
    findings += examine.proxy_variables(proxy, state / FOLDER / CERTIFICATE)
    upstreams = policies.reached if policies else []
    looked_at = upstreams
    if settings and policies and not options.all:
        looked_at = _own(settings, upstreams)
    private = settings is not None and settings.forward.private is Private.ALLOW
    findings += reach_all(looked_at, private=private)
    failures = _report(options, findings, advice(proxy, upstreams))
    return REFUSED if failures else DONE


def _settings(options: argparse.Namespace) -> tuple[Settings | None, list[Finding]]:
    from proxy.cli.examine import failure, ok
    from proxy.errors import ConfigurationError

    flags = {"state": options.state_dir, "store": options.store, "policies": options.policies}
    try:
        settings = settings_of_proxy(flags, options.config)
    except ConfigurationError as wrong:  # a line for each mistake
        do = "Correct it; until then only part of the rest can be looked at."
        return None, [failure("settings", line, do) for line in str(wrong).splitlines()]
    tokens = len(settings.auth.tokens) if settings.auth else 0
    sent = "clients send theirs in Semel-Token"
    who = f"{counted(tokens, 'token')}; {sent}" if tokens else "no tokens, so loopback only"
    return settings, [ok("settings", who)]


def _policies(settings: Settings) -> tuple[PolicySet | None, list[Finding]]:
    from proxy.cli.examine import failure, ok, warning
    from proxy.policy_file import Mistakes, load_policies, presets_directory
    from proxy.policy_file.mistakes import Log

    unset = Log()
    try:
        policies = load_policies(
            settings.policies,
            presets=presets_directory(),
            environ=os.environ,
            unset=unset,
            operators=settings.has_operators,
            encrypted=settings.is_encrypted,
        )
    except Mistakes as wrong:
        do = "Correct it; `semel check` shows all mistakes."
        return None, [failure("policies", str(mistake), do) for mistake in wrong.mistakes]
    rules = sum(len(upstream.rules) for upstream in policies.upstreams.values())
    found = f"upstreams: {len(policies.upstreams)}, rules: {rules}"
    if policies.upstreams:
        do = "Set it where semel is started; here it may be missing."
        missing = [warning("policies", str(one), do) for one in sorted(unset.noted)]
        return policies, [ok("policies", found), *missing]
    do = "Give policy files with --policies PATH, or name them in semel.yaml."
    return policies, [warning("policies", "no upstream is configured", do)]


def _own(settings: Settings, upstreams: Iterable[Upstream]) -> list[Upstream]:
    """Not those of presets: what ships with semel need not be used, nor reachable from here."""
    from proxy.policy_file import load_policies, presets_directory
    from proxy.policy_file.load import PRESETS

    sources = [source for source in settings.policies if source != PRESETS]
    own = load_policies(sources, presets=presets_directory()).upstreams
    return [upstream for upstream in upstreams if upstream.name in own]


def _report(options: argparse.Namespace, findings: list[Finding], sdks: list[Advice]) -> int:
    """How many failures."""
    from dataclasses import asdict

    from proxy.cli.examine import Verdict

    warnings = sum(one.verdict is Verdict.WARN for one in findings)
    failures = sum(one.verdict is Verdict.FAIL for one in findings)
    if options.json:
        document = {
            "findings": [asdict(one) for one in findings],
            "sdks": [asdict(one) for one in sdks],
            "warnings": warnings,
            "failures": failures,
        }
        print_json(document)
        return failures
    _print_noted(("", "WHAT", "FOUND"), [((one.verdict, one.about, one.found), one.do) for one in findings])
    print()
    shown = [one for one in sdks if options.all or one.is_of_use]
    _print_noted(
        ("SDK", "INSTALLED", "WHAT POINTS IT AT SEMEL"),
        [((one.sdk, one.installed or "no", one.set), one.note) for one in shown],
    )
    if left_out := len(sdks) - len(shown):
        print(f"\nLeft out, since no upstream is configured for their APIs: {left_out} (--all shows them).")
    print("\nINSTALLED is about the environment that semel is in; the agent's may be another.")
    print("These base URLs are outside a run, where reads and model calls are not recorded.")
    print("`semel run -- CMD` sets those of a run, HTTPS_PROXY and trust for CMD: nothing else need be done.")
    print(f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}")
    return failures


def _print_noted(titles: tuple[str, ...], rows: list[tuple[tuple[str, ...], str]]) -> None:
    """A table whose rows may have a line below them."""
    lines = [line for row, note in rows for line in (row, ("", "", f"-> {note}")) if line is row or note]
    print_table(titles, lines)


def _url_of(settings: Settings) -> str:
    """Where clients on this machine find it."""
    listen = str(settings.listen)
    for everywhere in ("0.0.0.0:", "[::]:"):
        if listen.startswith(everywhere):
            listen = f"127.0.0.1:{settings.listen.port}"
    return f"http://{listen}"


def _url(given: str) -> str:
    from proxy.admin.remote import address
    from proxy.errors import ConfigurationError

    try:
        address(given)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return given.rstrip("/")
