"""`semel serve`: run the proxy until a signal says stop. A second signal does not wait."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from proxy.app import App
from proxy.cli.open_files import allow_open_files
from proxy.errors import ConfigurationError
from proxy.settings import Settings, load_settings


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("serve", help="run the proxy", description=__doc__)
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: ./semel.yaml if it exists)"
    )
    command.add_argument("--listen", metavar="HOST:PORT", help="default: 127.0.0.1:8080")
    command.add_argument("--state-dir", metavar="DIR", help="default: ~/.local/state/semel")
    command.add_argument("--store", metavar="URL", help="embedded (default) or memory")
    command.add_argument("--workers", type=int, metavar="N", help="default: 1")
    command.add_argument(
        "--policies",
        action="append",
        metavar="PATH",
        help='file, directory or "presets"; repeatable, later ones win',
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    flags = {
        "listen": options.listen,
        "state": options.state_dir,
        "store": options.store,
        "workers": options.workers,
        "policies": options.policies,
    }
    settings = load_settings(flags, os.environ, options.config)
    # Calls leave few cycles behind: looking for them after every 700 objects costs more than it finds.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    os.umask(0o077)  # whatever is written is for this user alone
    if told := allow_open_files(settings.limits.connections):
        print(told, file=sys.stderr, flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    hurry = asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        app = await App.start(settings)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {settings.listen}: {os.strerror(error.errno) if error.errno else error}. "
            "Stop what uses the address, or choose another with --listen HOST:PORT."
        ) from None
    loop.add_signal_handler(signal.SIGHUP, lambda: _spawn(app.watch.check_now()))
    print(f"semel is ready on http://{app.address}", flush=True)
    if not app.watch.current.upstreams:
        print(
            "no upstream is configured: give policy files with --policies PATH", file=sys.stderr, flush=True
        )
    await stop.wait()
    stopped = await app.stop(hurry=hurry)
    if stopped:
        print(f"{stopped} calls were stopped under way and marked", file=sys.stderr, flush=True)
    return 0


_background: set[asyncio.Task[bool]] = set()


def _spawn(checking: Coroutine[Any, Any, bool]) -> None:
    task = asyncio.get_running_loop().create_task(checking)
    _background.add(task)
    task.add_done_callback(_background.discard)
