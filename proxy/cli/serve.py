"""`semel serve`: run the proxy until a signal says stop. A second signal does not wait."""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

from proxy.cli.configuration import settings_of_proxy
from proxy.cli.output import warn
from proxy.cli.parsing import examples


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "serve",
        help="run the proxy",
        description=__doc__,
        epilog=examples(
            "semel serve --policies mail.yaml",
            "semel serve --config semel.yaml",
            "semel serve --listen 0.0.0.0:8080 --first-token",
        ),
    )
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: ./semel.yaml if it exists)"
    )
    command.add_argument("--listen", metavar="HOST:PORT", help="default: 127.0.0.1:8080")
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    command.add_argument(
        "--store",
        metavar="URL",
        help="embedded (default), memory, postgres://USER@HOST/DATABASE or redis://HOST",
    )
    command.add_argument(
        "--workers", type=int, metavar="N", help="processes that share the address (default: 1)"
    )
    command.add_argument(
        "--policies",
        action="append",
        metavar="PATH",
        help='file, directory or "presets", in place of the default (presets); repeatable, later ones win',
    )
    command.add_argument(
        "--first-token",
        action="store_true",
        help="without tokens in the settings: make an agent's and an operator's at the first start, print "
        "them once, and know them from then on",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from proxy.cli.open_files import allow_open_files
    from proxy.cli.serving import serve
    from proxy.cli.workers import serve_with_workers

    flags = {
        "listen": options.listen,
        "state": options.state_dir,
        "store": options.store,
        "workers": options.workers,
        "policies": options.policies,
    }
    settings = settings_of_proxy(flags, options.config, first_start=options.first_token)
    # Calls leave few cycles behind: looking for them after every 700 objects costs more than it finds.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    os.umask(0o077)  # whatever is written is for this user alone
    if told := allow_open_files(settings.limits.connections):
        warn(told)
    return serve(settings) if settings.workers == 1 else serve_with_workers(settings)
