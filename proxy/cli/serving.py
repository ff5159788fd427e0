"""The process behind `semel serve`, until a signal says stop. A second one does not wait."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from proxy.app import App
from proxy.errors import ConfigurationError
from proxy.settings import Settings


def serve(settings: Settings) -> int:
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
