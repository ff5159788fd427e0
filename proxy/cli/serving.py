"""The process behind `semel serve`, until a signal says stop. A second one does not wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from proxy.app import App
from proxy.cli.output import warn
from proxy.errors import ConfigurationError
from proxy.settings import Address, Settings
from proxy.siblings import Place


def serve(
    settings: Settings,
    *,
    tell_ready: Callable[[Address], None] | None = None,
    place: Place | None = None,
    lifeline: int | None = None,
) -> int:
    """`place`: among several workers. `lifeline`: a descriptor that ends when whoever started us is gone."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, tell_ready or say_ready, place, lifeline))


def say_ready(address: Address) -> None:
    print(f"semel is ready on http://{address}", flush=True)


async def _serve(
    settings: Settings, tell_ready: Callable[[Address], None], place: Place | None, lifeline: int | None
) -> int:
    stop = asyncio.Event()
    hurry = asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, on_signal)
    if place is None:  # of several workers the terminal reaches all, but it is for their supervisor to decide
        loop.add_signal_handler(signal.SIGINT, on_signal)
    if lifeline is not None:
        loop.add_reader(lifeline, _orphaned, loop, lifeline, stop)
    try:
        app = await App.start(settings, place=place)
    except OSError as error:
        raise cannot_listen(settings.listen, error) from None
    loop.add_signal_handler(signal.SIGHUP, lambda: _spawn(app.watch.check_now()))
    tell_ready(app.address)
    if not app.watch.current.upstreams and (place is None or place.number == 0):
        warn("no upstream is configured: give policy files with --policies PATH")
    await stop.wait()
    stopped = await app.stop(hurry=hurry)
    if stopped:
        warn(f"{stopped} calls were stopped under way and marked")
    return 0


def cannot_listen(address: Address, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}. "
        "Stop what uses the address, or choose another with --listen HOST:PORT."
    )


def _orphaned(loop: asyncio.AbstractEventLoop, lifeline: int, stop: asyncio.Event) -> None:
    loop.remove_reader(lifeline)
    stop.set()


_background: set[asyncio.Task[bool]] = set()


def _spawn(checking: Coroutine[Any, Any, bool]) -> None:
    task = asyncio.get_running_loop().create_task(checking)
    _background.add(task)
    task.add_done_callback(_background.discard)
