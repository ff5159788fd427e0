"""The hook, as the settings want it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from proxy.clock import Clock
from proxy.notifying.hook import Hook, Tell
from proxy.notifying.schema import Notify
from proxy.notifying.signing import read_secret
from proxy.store.base import Store
from proxy.upstream.base import UpstreamClient


def make_hook(
    notify: Notify | None,
    *,
    store: Store,
    client: UpstreamClient,
    clock: Clock,
    tell: Tell,
    count: Callable[[str, str], None],
    worker: int,
    follows_another: bool,
    environ: Mapping[str, str] = os.environ,
) -> Hook | None:
    """None where nobody is to be told. Raises ConfigurationError where there is nothing to sign with. Of
    several workers the first looks for what nobody was told of. One that follows another, which has died,
    does so once: what that one still had to tell is known to nobody else."""
    if notify is None:
        return None
    return Hook(
        notify=notify,
        secret=read_secret(notify.secret_env, environ),
        store=store,
        client=client,
        clock=clock,
        tell=tell,
        count=count,
        looks_at_start=worker == 0 or follows_another,
        looks_again=worker == 0,
    )
