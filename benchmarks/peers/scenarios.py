"""What is done to each subject: the same four things, and the effects are counted at the upstream.

In each the agent asks for one call with an effect. It wants one effect, and to be told what came of it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from benchmarks.peers.asking import Told
from benchmarks.peers.programs import DidNotWork
from benchmarks.peers.subjects import Subject, World

AT_ONCE = 20
ANSWERS_AFTER = 1.5  # seconds, so that the twenty meet
NAMES = re.compile(r"\b[0-9a-f]{32,}\b")  # of the call, by itself or as a hash: they say nothing
QUIET = 1.0  # what is still on its way has this long to arrive


class Outcome(NamedTuple):
    """How many effects the upstream counted, and what those who asked were told: words, and how many."""

    effects: int
    told: Mapping[str, int]

    def in_words(self) -> str:
        """What was said, most often first; how many were told it, where many asked."""
        asked = sum(self.told.values())
        if len(self.told) == asked > 1:
            return f"{asked} different answers"
        most = sorted(self.told.items(), key=lambda item: (-item[1], item[0]))
        return "; ".join(f"{count} of {asked}: {words}" if asked > 1 else words for words, count in most)


async def _outcome(world: World, call: str, told: list[Told]) -> Outcome:
    await world.upstream.arm()
    await asyncio.sleep(min(QUIET, world.patience))
    words = Counter(NAMES.sub("…", one.words.replace(call, "…")) for one in told)
    return Outcome(await world.upstream.effects(call), dict(words))


async def crash(world: World, subject: Subject, call: str) -> Outcome:
    """Killed after the upstream has acted, before its answer has come: then recovered, and asked again."""
    await world.upstream.arm(hold=1)
    lost = await subject.ask(call)
    await world.upstream.until("effects", call)
    await subject.crash()
    await world.upstream.release()
    await subject.recover()
    told = await (await subject.ask(call, world.patience, recovering=True))
    lost.cancel()
    return await _outcome(world, call, [told])


async def saved(world: World, subject: Subject, call: str) -> Outcome:
    """Killed when the result is saved and nobody has it yet: then recovered, and asked again."""
    await subject.die_after_saving(call)
    await subject.recover()
    told = await (await subject.ask(call, world.patience, recovering=True))
    return await _outcome(world, call, [told])


async def at_once(world: World, subject: Subject, call: str) -> Outcome:
    """Twenty ask for it at the same time."""
    await world.upstream.arm(delay=ANSWERS_AFTER)
    return await _outcome(world, call, await subject.at_once(call, AT_ONCE))


async def reset(world: World, subject: Subject, call: str) -> Outcome:
    """The upstream acts and breaks the connection without an answer. The agent asks once more."""
    await world.upstream.arm(reset=1)
    first = await (await subject.ask(call))
    again = await (await subject.ask(call, world.patience, recovering=True))
    words = again.words if first == again else f"{first.words}; asked again: {again.words}"
    return await _outcome(world, call, [again._replace(words=words)])


Scenario = Callable[[World, Subject, str], Awaitable[Outcome]]
SCENARIOS: dict[str, Scenario] = {"crash": crash, "saved": saved, "at once": at_once, "reset": reset}


async def warm_up(subject: Subject) -> None:
    """One call as it should be: whoever cannot do that is not tried further."""
    told = await (await subject.ask("warm-up", setup=True))
    if told.kind != "answer":
        raise DidNotWork(f"a first call without any fault was told: {told.words}")
