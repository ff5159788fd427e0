"""Policies that change while semel runs: looked at every second, swapped in whole, or not at all.

A bad set never replaces a good one; the mistakes are told and the old policies stay. A change that shows
up while polling is loaded only when it has been still for one more look, because a half-written file can
be valid YAML. Asked for by a person (SIGHUP, `check_now`), it is loaded at once. Plain stat calls, off the
event loop: they see editors that write by rename, mounts that swap directories, and need no further package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from proxy.clock import Clock
from proxy.core.policy import PolicySet
from proxy.errors import StoreUnavailable
from proxy.observe import Observer
from proxy.policy_file import Mistake, PolicyMistakes, load_policies, presets_directory, recipe_changes
from proxy.policy_file.load import PRESETS, policy_files
from proxy.store.base import Store

POLL_EVERY = 1.0

log = logging.getLogger("semel.reload")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """`renamed`: the rules, by upstream and name, under which recorded calls now have other names."""

    policies: PolicySet
    renamed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The new files are wrong; the old policies stay."""

    mistakes: tuple[Mistake, ...]


Told: TypeAlias = Callable[[Reloaded | Kept], None]

# Path -> what stat says of it, None where there is nothing. Compared whole.
Look: TypeAlias = dict[str, tuple[int, ...] | None]


def look_at(sources: Sequence[str | Path], presets: Path) -> Look:
    """Everything that a load would read, presets included, since files may extend them."""
    seen: Look = {}
    for source in (presets, *(Path(one) for one in sources if one != PRESETS)):
        seen[str(source)] = _state_of(source)
        with contextlib.suppress(OSError):
            seen.update({str(path): _state_of(path) for path in policy_files(source)})
    return seen


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    # ctime as well: tools that copy with times kept would otherwise hide a change of the same size.
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


class PolicyWatch:
    """Loads the policies when made (and raises PolicyMistakes then); `current` is always a whole good set."""

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        tell: Told,
        presets: Path | None = None,
        every: float = POLL_EVERY,
        environ: Mapping[str, str] = os.environ,
        operators: bool = True,
        encrypted: bool = True,
    ) -> None:
        """`environ`: where the credentials are that semel adds. `operators`: somebody has an operator's
        token, so that calls may wait for approval."""
        self._operators = operators
        self._encrypted = encrypted
        self._sources = tuple(sources)
        self._environ = environ
        self._presets = presets if presets is not None else presets_directory()
        self._tell = tell
        self._every = every
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        # Looked at before loading: what changes in between is seen as a change afterwards.
        self._loaded = self._look()
        self._last = self._loaded
        self._current = self._load_now()

    @property
    def current(self) -> PolicySet:
        return self._current

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._poll(), name="policy-watch")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def check_now(self) -> bool:
        """Load whatever changed, without waiting for it to be still. True if a new set is in place."""
        async with self._lock:
            self._last = await asyncio.to_thread(self._look)
            return self._last != self._loaded and await self._load()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self._check_when_still()
            except Exception:
                # A watcher that dies silently would leave people editing files that nobody reads.
                log.exception("looking at the policies failed; it is tried again")

    async def _check_when_still(self) -> None:
        async with self._lock:
            seen = await asyncio.to_thread(self._look)
            still, self._last = seen == self._last, seen
            if still and seen != self._loaded:
                await self._load()

    def _look(self) -> Look:
        return look_at(self._sources, self._presets)

    async def _load(self) -> bool:
        """What was read while files changed is dropped; `_loaded` stays, so that it is read again."""
        seen = self._last
        found = await asyncio.to_thread(self._read)
        self._last = await asyncio.to_thread(self._look)
        if self._last != seen:
            return False
        self._loaded = seen
        if isinstance(found, Kept):
            self._tell(found)
            return False
        old, self._current = self._current, found
        self._tell(Reloaded(found, tuple(recipe_changes(old, found))))
        return True

    def _read(self) -> PolicySet | Kept:
        try:
            return self._load_now()
        except PolicyMistakes as wrong:
            return Kept(wrong.mistakes)

    def _load_now(self) -> PolicySet:
        return load_policies(
            self._sources,
            presets=self._presets,
            environ=self._environ,
            operators=self._operators,
            encrypted=self._encrypted,
        )


class Reloads:
    """Tells of reloads, and of the calls that a new policy gives another name."""

    def __init__(self, store: Store, observer: Observer, clock: Clock) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock
        self._counting: set[asyncio.Task[None]] = set()

    def __call__(self, result: Reloaded | Kept) -> None:
        match result:
            case Reloaded(policies, renamed):
                self._observer.governed(policies)
                self._observer.reloaded(good=True, detail=f"upstreams: {len(policies.upstreams)}")
                if renamed:
                    task = asyncio.get_running_loop().create_task(self._count(renamed))
                    self._counting.add(task)
                    task.add_done_callback(self._counting.discard)
            case Kept(mistakes):
                self._observer.reloaded(good=False, detail="; ".join(str(mistake) for mistake in mistakes))

    async def _count(self, renamed: tuple[tuple[str, str], ...]) -> None:
        """A renamed call that is made again is a new one: whoever edits a policy should know how many."""
        for upstream, rule in renamed:
            try:
                live = await self._store.live_calls(upstream, rule, self._clock.now())
            except StoreUnavailable as error:
                self._observer.noted("store-trouble", doing="counting renamed calls", error=error.detail)
                return
            self._observer.noted("calls-renamed", upstream=upstream, rule=rule, live_calls=live)

    async def stop(self) -> None:
        for task in self._counting:
            task.cancel()
        await asyncio.gather(*self._counting, return_exceptions=True)
