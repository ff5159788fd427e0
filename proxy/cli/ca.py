"""`semel ca`: the forward proxy's certificate authority, made on first use, and how clients trust it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.cli.configuration import add_config_flag, settings_beside
from proxy.cli.output import DONE, add_json, print_json, print_table
from proxy.cli.parsing import examples

if TYPE_CHECKING:
    from proxy.ca import Authority

# Where systems keep the roots that they trust, beside the place that this Python's OpenSSL names.
SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
# These replace the roots that a client trusts; Node's adds to them.
REPLACING = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE")
ADDING = "NODE_EXTRA_CA_CERTS"

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["path", "sha256", "valid_from", "valid_until", "pem", "variables"],
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "pattern": "/ca/ca\\.pem$"},
        "sha256": {"type": "string", "pattern": "^([0-9A-F]{2}:){31}[0-9A-F]{2}$"},
        "valid_from": {"type": "string", "format": "date-time"},
        "valid_until": {"type": "string", "format": "date-time"},
        "pem": {"type": "string", "pattern": "^-----BEGIN CERTIFICATE-----\n"},
        "variables": {
            "type": "object",
            "required": [*REPLACING, ADDING],
            "additionalProperties": {"type": "string", "minLength": 1},
        },
    },
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "ca",
        help="show the certificate authority",
        description=__doc__,
        epilog=examples(
            "semel ca",
            "semel ca --pem > semel-ca.pem",
            "semel ca --state-dir /var/lib/semel --json",
        ),
    )
    add_config_flag(command)
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--pem", action="store_true", help="print the certificate and nothing else")
    add_json(form)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from proxy.ca import load_or_make

    settings = settings_beside({"state": options.state_dir}, options.config)
    authority = load_or_make(settings.state.absolute())
    if options.pem:
        print(authority.pem, end="")
    elif options.json:
        print_json(_document(authority))
    else:
        _describe(authority)
    return DONE


def _document(authority: Authority) -> dict[str, object]:
    certificate = authority.certificate
    return {
        "path": str(authority.path),
        "sha256": authority.fingerprint,
        "valid_from": certificate.not_valid_before_utc.isoformat(),
        "valid_until": certificate.not_valid_after_utc.isoformat(),
        "pem": authority.pem,
        "variables": _variables(authority),
    }


def _variables(authority: Authority) -> dict[str, str]:
    bundle = authority.path.with_name("bundle.pem")
    return {**dict.fromkeys(REPLACING, str(bundle)), ADDING: str(authority.path)}


def _describe(authority: Authority) -> None:
    certificate, variables = authority.certificate, _variables(authority)
    valid = f"{certificate.not_valid_before_utc:%Y-%m-%d} to {certificate.not_valid_after_utc:%Y-%m-%d}"
    print_table(("certificate", str(authority.path)), [("SHA-256", authority.fingerprint), ("valid", valid)])
    bundle = shlex.quote(variables[REPLACING[0]])
    print("\nClients that reach semel as HTTPS_PROXY must trust it; `semel run` sees to that by itself.")
    print("Most take one file with every root that they trust, the system's too, so make a bundle:\n")
    print(f"  cat {shlex.quote(_system_roots())} {shlex.quote(str(authority.path))} > {bundle}\n")
    print("and set, in the client's environment:\n")
    for name, value in variables.items():
        print(f"  export {name}={shlex.quote(value)}")
    print(f"\n{ADDING} adds to the roots that Node has: the certificate alone is enough there.")
    print("Other users may not read this directory: give them the certificate with `semel ca --pem`.")


def _system_roots() -> str:
    import ssl

    named = ssl.get_default_verify_paths().cafile
    known = [path for path in (named, *SYSTEM_ROOTS) if path and Path(path).is_file()]
    return known[0] if known else SYSTEM_ROOTS[0]
